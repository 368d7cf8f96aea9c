from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from timbrel import InvalidRequestError
from timbrel.performance.tuning import Retunings
from timbrel.scala import EQUAL_TEMPERAMENT, parse_tuning, read_tuning

PYTHAGOREAN = """! pythagorean.scl
!
A scale of pure fifths
 7
!
 9/8
 81/64   a comment
 4/3
 3/2
 27/16
 1088.0 cents
 2/1
"""
WHITE_KEYS = """! white_keys.kbm
12
0
127
60
69
442.0
7
0
x
1
x
2
3
x
4
x
5
x
6
"""


def written(folder: Path, name: str, text: str) -> Path:
    (folder / name).write_text(text, encoding="latin1")
    return folder / name


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin1", "cp1252"])
@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_a_scale_may_have_any_name_in_any_encoding(encoding: str, newline: str) -> None:
    text = "! Årstad 5\nÅngström à 7 \x0b\x0c\x1c\x1d\x1e Ø\n 2\n!\n 3/2 Å\n 2/1\n".replace("\n", newline)
    keys = parse_tuning("scale.scl", text.encode(encoding))
    assert (keys[60], keys[62]) == (pytest.approx(0.0, abs=1e-9), pytest.approx(1000.0))
    keyboard = f"! Å{newline}".encode(encoding) + WHITE_KEYS.encode()
    assert parse_tuning("scale.scl", text.encode(encoding), "white.kbm", keyboard)[61] is None


def test_without_a_map_degrees_follow_key_by_key_from_middle_c(tmp_path: Path) -> None:
    keys = read_tuning(written(tmp_path, "scale.scl", PYTHAGOREAN))
    assert keys[60] == pytest.approx(0.0, abs=1e-9)
    assert keys[61] == pytest.approx(203.91 - 100.0, abs=0.01)
    assert keys[66] == pytest.approx(1088.0 - 600.0)
    assert keys[67] == pytest.approx(1200.0 - 700.0)
    assert keys[59] == pytest.approx(1088.0 - 1200.0 + 100.0)


def test_a_map_places_degrees_and_the_reference(tmp_path: Path) -> None:
    scale, placed = written(tmp_path, "s.scl", PYTHAGOREAN), written(tmp_path, "m.kbm", WHITE_KEYS)
    keys = read_tuning(scale, placed)
    at_a = 1200 * np.log2(442 / 440)
    assert keys[69] == pytest.approx(at_a)
    assert keys[60] == pytest.approx(at_a + 900.0 - 905.865, abs=0.01)
    assert keys[72] == pytest.approx(keys[60] or 0.0) and keys[48] == pytest.approx(keys[60] or 0.0)
    assert [key for key in range(60, 72) if keys[key] is None] == [61, 63, 66, 68, 70]


@pytest.mark.parametrize(
    ("scale", "placed", "word"),
    [
        ("", None, "no Scala scale"),
        ("name\nmany\n1/1\n", None, "no Scala scale"),
        ("name\n3\n3/2\n2/1\n", None, "announces 3"),
        ("name\n1\nfifth\n", None, "line 3: 'fifth'"),
        ("name\n1\n3/0\n", None, "line 3"),
        ("name\n1\n0\n", None, "line 3"),
        ("name\n2\n701,955\n2/1\n", None, "line 3: '701,955'"),
        ("name\n2\n3:2\n2/1\n", None, "line 3: '3:2'"),
        ("name\n0\n", None, "announces 0"),
        ("name\n5000\n" + "2/1\n" * 5000, None, "announces 5000 notes; 1 to 4096 may be"),
        (PYTHAGOREAN + "!" * 2**18, None, "256 KiB at most are read"),
        (PYTHAGOREAN, "", "no Scala keyboard map"),
        (PYTHAGOREAN, "12\n0\nC\n", "line 3: 'C'"),
        (PYTHAGOREAN, "0\n0\n127\n60\n69\n-3\n7\n", "out of range"),
        (PYTHAGOREAN, WHITE_KEYS.replace("69", "61"), "61 is mapped to no degree"),
        (PYTHAGOREAN, WHITE_KEYS.replace("x", "?"), "neither a degree nor x"),
    ],
)
def test_bad_files_are_refused_in_a_line(tmp_path: Path, scale: str, placed: str | None, word: str) -> None:
    files = [written(tmp_path, "s.scl", scale)]
    files += [] if placed is None else [written(tmp_path, "m.kbm", placed)]
    with pytest.raises(InvalidRequestError, match=r"line|kbm|scl") as raised:
        read_tuning(*files)
    assert word in str(raised.value) and str(raised.value).isprintable()


def at(tunings: Retunings, key: int, time: float = 1.0, channel: int = 0, program: int = 0) -> float:
    return float(tunings.cents((0, program), channel, key, np.array([time]))[0])


def test_a_bulk_dump_sets_every_key_of_its_program() -> None:
    tunings = Retunings()
    values = [each for key in range(128) for each in (key, 64, 0)]
    assert tunings.take(0.5, (0x7E, 0, 8, 1, 3, *b"a half step high", *values, 0))
    assert at(tunings, 60, program=3) == pytest.approx(50.0) and at(tunings, 60) == 0.0
    assert at(tunings, 60, time=0.4, program=3) == 0.0


def test_single_notes_change_while_they_sound_and_127_changes_nothing() -> None:
    tunings = Retunings()
    change = (0x7F, 0x7F, 8, 2, 0, 2, 60, 61, 0, 0, 62, 127, 127, 127)
    assert tunings.take(2.0, change)
    assert [at(tunings, 60, 1.9), at(tunings, 60, 2.0), at(tunings, 62, 3.0)] == [0.0, 100.0, 0.0]


def test_octave_tunings_are_for_their_channels() -> None:
    tunings = Retunings(EQUAL_TEMPERAMENT)
    cents = (64, 63, *(64,) * 9, 127)
    assert tunings.take(0.0, (0x7E, 0x7F, 8, 8, 0b01, 0, 0b10, *cents))  # channels 15 and 2
    assert [at(tunings, 61, channel=channel) for channel in (0, 1, 14)] == [0.0, -1.0, -1.0]
    assert at(tunings, 71, channel=1) == 63.0
    fine = (96, 0) * 12
    assert tunings.take(0.0, (0x7F, 0x7F, 8, 9, 0, 1, 0, *fine))  # channel 8
    assert at(tunings, 71, channel=7) == pytest.approx(50.0)


@pytest.mark.parametrize("data", [(), (0x7E, 0, 8), (0x41, 1, 8, 2, 0, 1, 60), (0x7F, 0, 8, 8, 0, 0, 1, 64)])
def test_what_is_no_tuning_is_left_to_others(data: tuple[int, ...]) -> None:
    assert not Retunings().take(0.0, data)
