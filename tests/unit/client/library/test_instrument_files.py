""".sfz and .dspreset texts, and the zones in them."""

from __future__ import annotations

from itertools import pairwise
from xml.etree import ElementTree

import pytest

from timbrel.library.finish.instrument_files import (
    Region,
    SamplerInstrument,
    dspreset_text,
    key_zones,
    sfz_text,
    velocity_tracking,
    velocity_zones,
)
from timbrel.library.verify.file_checks import parse_sfz

LOOPED = Region("samples/V/V_060_v040.wav", 60, (58, 61), (1, 80), 1, -12, (100, 900))
STRAIGHT = Region("samples/V/V_060_v120.wav", 60, (58, 61), (81, 127), 2, 0, None)
INSTRUMENT = SamplerInstrument("Violin", "V", "a comment -- here", [LOOPED, STRAIGHT], 2, 0, 0.3)


def test_an_sfz_says_everything_on_purpose() -> None:
    first, second = parse_sfz(sfz_text(INSTRUMENT))
    assert first == {
        "amp_veltrack": "0",
        "ampeg_release": "0.300",
        "seq_length": "2",
        "sample": "samples/V/V_060_v040.wav",
        "pitch_keycenter": "60",
        "lokey": "58",
        "hikey": "61",
        "lovel": "1",
        "hivel": "80",
        "tune": "-12",
        "seq_position": "1",
        "loop_mode": "loop_continuous",
        "loop_start": "100",
        "loop_end": "900",
    }
    assert second["loop_mode"] == "no_loop" and "loop_start" not in second and second["seq_position"] == "2"


def test_an_sfz_has_one_opcode_a_line_and_forward_slashes() -> None:
    for line in sfz_text(INSTRUMENT).splitlines():
        assert line.startswith(("//", "<")) or line.count("=") == (1 if line else 0)
        assert "\\" not in line


def test_without_round_robins_there_is_no_sequence() -> None:
    single = SamplerInstrument("Violin", "V", "", [LOOPED], 1, 100, 0.3)
    assert "seq_" not in sfz_text(single) and "seq" not in dspreset_text(single)
    assert "amp_veltrack=100" in sfz_text(single) and 'ampVelTrack="1"' in dspreset_text(single)


def test_recorded_layers_are_not_made_softer_twice() -> None:
    assert velocity_tracking(3) == 0 and velocity_tracking(1) == 100


def test_a_dspreset_says_the_same() -> None:
    root = ElementTree.fromstring(dspreset_text(INSTRUMENT))
    first, second = root.iter("sample")
    assert first.attrib == {
        "path": "samples/V/V_060_v040.wav",
        "rootNote": "60",
        "loNote": "58",
        "hiNote": "61",
        "loVel": "1",
        "hiVel": "80",
        "tuning": "-0.12",
        "loopEnabled": "true",
        "seqPosition": "1",
        "loopStart": "100",
        "loopEnd": "900",
    }
    assert second.get("loopEnabled") == "false" and second.get("loopStart") is None
    (group,) = root.iter("group")
    assert (group.get("seqMode"), group.get("ampVelTrack")) == ("round_robin", "0")


@pytest.mark.parametrize("pitches", [[60], [60, 61], [48, 51, 54], [36, 48, 49, 60], [0, 127]])
def test_keys_are_covered_once_without_gaps(pitches: list[int]) -> None:
    zones = key_zones(pitches)
    assert all(zones[pitch][0] <= pitch <= zones[pitch][1] for pitch in pitches)
    assert all(zones[above][0] == zones[below][1] + 1 for below, above in pairwise(pitches))
    assert all(0 <= low <= high <= 127 for low, high in zones.values())


def test_a_zone_reaches_half_way_to_its_neighbours() -> None:
    assert key_zones([48, 51, 54]) == {48: (47, 49), 51: (50, 52), 54: (53, 55)}


@pytest.mark.parametrize("velocities", [[1], [100], [40, 80, 120], [1, 2, 127]])
def test_all_velocities_are_covered_once(velocities: list[int]) -> None:
    zones = velocity_zones(velocities)
    covered = [velocity for low, high in zones.values() for velocity in range(low, high + 1)]
    assert covered == list(range(1, 128))
    assert all(zones[velocity][0] <= velocity <= zones[velocity][1] for velocity in velocities)


def test_an_unreadable_line_is_named() -> None:
    with pytest.raises(ValueError, match="line 2 is neither a header nor one opcode"):
        parse_sfz("<region>\nsample=a b.wav key=60\n")
