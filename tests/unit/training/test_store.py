"""The store of tokenised notes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from timbrel_training.errors import WriteError
from timbrel_training.notes.split import Split
from timbrel_training.tokens.store import ROW, StoreError, TokenHeader, read_document
from timbrel_training.tokens.store_writer import TokenStoreWriter
from timbrel_training.tokens.table import TokenTable

HEADER = TokenHeader(
    "test-codec", "ab" * 32, sample_rate=24_000, hop_length=320, n_codebooks=3, codebook_size=16
)


def codes_of(i: int) -> NDArray[np.uint16]:
    """Codes [i + 1, 3] of the i-th test note."""
    return np.random.default_rng(i).integers(0, 16, (i + 1, 3)).astype(np.uint16)


def add(writer: TokenStoreWriter, i: int) -> None:
    writer.add(
        codes_of(i),
        instrument=f"Instrument {i % 3}",
        family="Brass" if i % 3 else "Pipe",
        pitch=40 + i,
        velocity=1 + i,
        held_frames=2 * i,
        source="test",
        split=Split.HELD_OUT_CELL if i == 4 else Split.TRAIN,
        cut=i == 5,
    )


def write(path: Path, n_notes: int) -> None:
    with TokenStoreWriter(path, HEADER) as writer:
        for i in range(len(writer), n_notes):
            add(writer, i)
        writer.finish()


def test_notes_come_back_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "notes.tokens"
    write(path, 7)
    store = TokenTable.read(path)
    assert store.n_notes == 7 and store.header == HEADER and store.header.frame_rate == 75.0
    assert list(zip(store.instruments, store.families, strict=True)) == [
        ("Instrument 0", "Pipe"),
        ("Instrument 1", "Brass"),
        ("Instrument 2", "Brass"),
    ]
    for i in range(7):
        assert np.array_equal(store.note(i), codes_of(i))
        assert (store.instrument[i], store.pitch[i], store.velocity[i]) == (i % 3, 40 + i, 1 + i)
        source = store.sources[store.source[i]]
        assert (store.held_frames[i], store.cut[i], source) == (2 * i, i == 5, "test")
    assert store.split[4] == Split.HELD_OUT_CELL
    assert list(store.of_split(Split.HELD_OUT_CELL)) == [4]


def test_columns_are_arrays_over_all_notes(tmp_path: Path) -> None:
    path = tmp_path / "notes.tokens"
    write(path, 7)
    store = TokenTable.read(path)
    assert list(store.n_frames) == list(range(1, 8)) == list(np.diff(store.offsets))
    assert list(store.pitch) == list(range(40, 47))
    assert list(store.velocity) == list(range(1, 8))
    assert list(store.held_frames) == [2 * i for i in range(7)]
    assert list(store.instrument) == [0, 1, 2, 0, 1, 2, 0]
    assert list(np.flatnonzero(store.cut)) == [5]
    assert store.codes.shape == (28, 3) and not store.codes.flags.writeable


def test_nothing_has_its_final_name_before_it_is_finished(tmp_path: Path) -> None:
    path = tmp_path / "notes.tokens"
    with TokenStoreWriter(path, HEADER) as writer:
        add(writer, 0)
        assert not path.exists()
        writer.finish()
    assert [entry.name for entry in tmp_path.iterdir()] == ["notes.tokens"]
    with pytest.raises(StoreError, match="exists already"):
        TokenStoreWriter(path, HEADER)


def test_a_full_disk_is_one_clear_line_and_is_gone_on_from(
    tmp_path: Path, full_disk: Callable[[int], AbstractContextManager[None]]
) -> None:
    whole, resumed = tmp_path / "whole", tmp_path / "resumed"
    write(whole, 16)
    for n_bytes in (50, 600, 1000):  # full at the header, at a note, as the parts are put together
        with (
            full_disk(n_bytes),
            pytest.raises(WriteError, match=r"resumed.*: cannot be written \(.*\); make"),
        ):
            write(resumed, 16)
        assert not resumed.exists()
    write(resumed, 16)
    assert resumed.read_bytes() == whole.read_bytes()


def test_a_killed_writer_goes_on_where_it_stopped(tmp_path: Path) -> None:
    whole, resumed = tmp_path / "whole", tmp_path / "resumed"
    write(whole, 7)
    script = (
        "import os, sys; sys.path.insert(0, sys.argv[1]); from test_store import *\n"
        "writer = TokenStoreWriter(sys.argv[2], HEADER)\n"
        "for i in range(4): add(writer, i)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    subprocess.run([sys.executable, "-c", script, str(Path(__file__).parent), str(resumed)], check=False)
    with TokenStoreWriter(resumed, HEADER) as writer:
        assert len(writer) == 4
    write(resumed, 7)
    assert resumed.read_bytes() == whole.read_bytes()


def test_a_folder_of_someone_elses_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.partial").mkdir()
    (tmp_path / "notes.partial" / "thesis.txt").write_text("mine")
    with pytest.raises(StoreError, match=r"notes\.partial: not begun by timbrel; move it away"):
        TokenStoreWriter(tmp_path / "notes", HEADER)
    assert (tmp_path / "notes.partial" / "thesis.txt").read_text() == "mine"


@pytest.mark.parametrize(("part", "n_bytes"), [("rows", 5), ("codes", 3), ("names", 1)])
def test_half_written_parts_are_dropped(tmp_path: Path, part: str, n_bytes: int) -> None:
    whole, resumed = tmp_path / "whole", tmp_path / "resumed"
    write(whole, 7)
    with TokenStoreWriter(resumed, HEADER) as writer:
        for i in range(4):
            add(writer, i)
    with (tmp_path / "resumed.partial" / part).open("ab") as file:
        file.write(b'["x'[:n_bytes])
    write(resumed, 7)
    assert resumed.read_bytes() == whole.read_bytes()


def test_rows_whose_codes_are_missing_are_dropped(tmp_path: Path) -> None:
    whole, resumed = tmp_path / "whole", tmp_path / "resumed"
    write(whole, 7)
    with TokenStoreWriter(resumed, HEADER) as writer:
        for i in range(4):
            add(writer, i)
    codes = tmp_path / "resumed.partial" / "codes"
    codes.write_bytes(codes.read_bytes()[:-1])
    with TokenStoreWriter(resumed, HEADER) as writer:
        assert len(writer) == 3
    write(resumed, 7)
    assert resumed.read_bytes() == whole.read_bytes()


def test_unfinished_work_of_another_codec_is_refused(tmp_path: Path) -> None:
    with TokenStoreWriter(tmp_path / "store", HEADER) as writer:
        add(writer, 0)
    other = TokenHeader("other-codec", "cd" * 32, 24_000, 320, 3, 16)
    with pytest.raises(StoreError, match="unfinished work of another codec"):
        TokenStoreWriter(tmp_path / "store", other)


def test_unfinished_work_of_other_notes_is_refused(tmp_path: Path) -> None:
    with TokenStoreWriter(tmp_path / "store", HEADER, of="these") as writer:
        add(writer, 0)
    with pytest.raises(StoreError, match=r"store\.partial: unfinished work of other notes; remove"):
        TokenStoreWriter(tmp_path / "store", HEADER, of="others")
    with TokenStoreWriter(tmp_path / "store", HEADER, of="these") as writer:
        assert len(writer) == 1
        writer.finish()
    assert TokenTable.read(tmp_path / "store").header == HEADER


def test_unfinished_work_of_an_earlier_timbrel_goes_on(tmp_path: Path) -> None:
    with TokenStoreWriter(tmp_path / "store", HEADER) as writer:
        add(writer, 0)
    stated = tmp_path / "store.partial" / "header.json"
    header = json.loads(stated.read_text())
    del header["repeats"], header["of"]
    stated.write_text(json.dumps(header))
    with TokenStoreWriter(tmp_path / "store", HEADER, of="these") as writer:
        assert len(writer) == 1
    with pytest.raises(StoreError, match="unfinished work of another codec"):
        TokenStoreWriter(tmp_path / "store", replace(HEADER, codebook_size=17))


def test_wrong_codes_are_refused_and_leave_nothing(tmp_path: Path) -> None:
    with TokenStoreWriter(tmp_path / "store", HEADER) as writer:
        with pytest.raises(ValueError, match=r"codes must be \[frames, 3\], got \[2, 4\]"):
            writer.add(np.zeros((2, 4), np.uint16), "A", "B", 60, 1, 1, "test", 0)
        with pytest.raises(ValueError, match="codes must be 0 to 15, got 0 to 16"):
            writer.add(np.array([[0, 16, 0]], np.uint16), "A", "B", 60, 1, 1, "test", 0)
        assert len(writer) == 0


def test_an_empty_store_opens(tmp_path: Path) -> None:
    write(tmp_path / "store", 0)
    store = TokenTable.read(tmp_path / "store")
    assert store.n_notes == 0 and list(store.offsets) == [0]


@pytest.mark.parametrize("length", [4, 12, 40, 400, -1])
def test_a_truncated_store_is_one_clear_line(tmp_path: Path, length: int) -> None:
    path = tmp_path / "store"
    write(path, 7)
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(StoreError, match=r"store: (truncated|not a token store)") as error:
        TokenTable.read(path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("column", "value"),
    [("offset", 9), ("n_frames", 0), ("instrument", 3), ("source", -1), ("pitch", 200), ("split", 7)],
)
def test_a_damaged_row_is_one_clear_line(tmp_path: Path, column: str, value: int) -> None:
    path = tmp_path / "store"
    write(path, 7)
    content = bytearray(path.read_bytes())
    _, start = read_document(path)
    np.frombuffer(content, ROW, 7, start)[column][3] = value
    path.write_bytes(content)
    with pytest.raises(StoreError, match="store: damaged, it holds notes that cannot be; tokenise again"):
        TokenTable.read(path)


def test_a_damaged_code_is_one_clear_line(tmp_path: Path) -> None:
    path = tmp_path / "store"
    write(path, 7)
    path.write_bytes(path.read_bytes()[:-1] + b"\x80")
    with pytest.raises(StoreError, match="store: damaged, it holds notes that cannot be; tokenise again"):
        TokenTable.read(path)


def test_other_files_are_one_clear_line(tmp_path: Path) -> None:
    path = tmp_path / "store"
    path.write_bytes(b"RIFF" + bytes(100))
    with pytest.raises(StoreError, match="not a token store"):
        TokenTable.read(path)
    path.write_bytes(b"TIMBTOK1" + (9).to_bytes(4, "little") + bytes(100))
    with pytest.raises(StoreError, match="version 9, this timbrel reads 1"):
        TokenTable.read(path)
    path.write_bytes(b"TIMBTOK1" + (1).to_bytes(4, "little") + (2).to_bytes(4, "little") + b"[]" + bytes(100))
    with pytest.raises(StoreError, match="the header is damaged"):
        TokenTable.read(path)
    with pytest.raises(StoreError, match="No such file"):
        TokenTable.read(tmp_path / "missing")
    with pytest.raises(StoreError, match=r"Is a directory|Permission denied"):
        TokenTable.read(tmp_path)
