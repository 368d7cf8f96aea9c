""".sfz and .dspreset texts, and the zones in them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest

from timbrel.library.finish.dynamics import Dynamics, SampleLevel
from timbrel.library.finish.instrument_files import (
    Region,
    Release,
    SamplerInstrument,
    dspreset_text,
    key_zones,
    sfz_text,
)
from timbrel.library.verify.file_checks import parse_sfz
from timbrel.library.verify.zone_checks import differences

DYNAMICS = Dynamics.fit([SampleLevel(60, 40, -30.0, -20.0), SampleLevel(60, 120, -18.0, -8.0)])
LOOPED = Region("samples/V/V_060_v040.wav", 60, (58, 61), (1, 80), 1, -12, (100, 900), volume=5.0)
STRAIGHT = Region("samples/V/V_060_v120.wav", 60, (58, 61), (81, 127), 2, 0, None, volume=1.5)
INSTRUMENT = SamplerInstrument("Violin", "V", "a comment -- here", [LOOPED, STRAIGHT], 2, DYNAMICS, 0.3)
RELEASED = replace(INSTRUMENT, regions=[LOOPED, replace(STRAIGHT, release=Release(5000, 12.0, 6.0))])


def test_an_sfz_says_everything_on_purpose() -> None:
    first, second = parse_sfz(sfz_text(INSTRUMENT))
    curve = [float(first.pop(f"amp_velcurve_{velocity}")) for velocity in range(1, 81)]
    assert curve == sorted(curve) and curve[-1] == 1.0
    assert first == {
        "amp_veltrack": "100",
        "ampeg_release": "0.420",
        "seq_length": "2",
        "sample": "samples/V/V_060_v040.wav",
        "pitch_keycenter": "60",
        "lokey": "58",
        "hikey": "61",
        "lovel": "1",
        "hivel": "80",
        "tune": "-12",
        "volume": "5.00",
        "seq_position": "1",
        "loop_mode": "loop_continuous",
        "loop_start": "100",
        "loop_end": "900",
    }
    assert second["loop_mode"] == "no_loop" and "loop_start" not in second and second["seq_position"] == "2"
    assert "amp_velcurve_80" not in second and float(second["amp_velcurve_127"]) == 1.0


def test_an_sfz_has_one_opcode_a_line_and_forward_slashes() -> None:
    for line in sfz_text(RELEASED).splitlines():
        assert line.startswith(("//", "<")) or line.count("=") == (1 if line else 0)
        assert "\\" not in line


def test_without_round_robins_there_is_no_sequence() -> None:
    single = replace(INSTRUMENT, regions=[LOOPED], round_robins=1)
    assert "seq_" not in sfz_text(single) and "seq" not in dspreset_text(single)


@pytest.mark.parametrize("name", ["Pad -- x", "Pad --- x", "-----"])
def test_a_dspreset_is_xml_whatever_the_name(name: str) -> None:
    ElementTree.fromstring(dspreset_text(replace(INSTRUMENT, name=name)))


def test_a_dspreset_says_the_same() -> None:
    root = ElementTree.fromstring(dspreset_text(INSTRUMENT))
    samples = [dict(each.attrib) for each in root.iter("sample")]
    first, last = samples[0], samples[-1]
    levels = [float(each["volume"].removesuffix("dB")) for each in samples if each["path"] == LOOPED.file]
    ranges = [(int(each["loVel"]), int(each["hiVel"])) for each in samples]
    assert [velocity for low, high in ranges for velocity in range(low, high + 1)] == list(range(1, 128))
    assert all(0 < above - below <= 1.0 for below, above in pairwise(levels))
    assert levels[-1] == pytest.approx(LOOPED.volume, abs=0.5)
    del first["volume"], first["loVel"], first["hiVel"]
    assert first == {
        "path": "samples/V/V_060_v040.wav",
        "rootNote": "60",
        "loNote": "58",
        "hiNote": "61",
        "tuning": "-0.12",
        "loopEnabled": "true",
        "loopStart": "100",
        "loopEnd": "900",
        "seqPosition": "1",
    }
    assert last["loopEnabled"] == "false" and "loopStart" not in last
    (group,) = root.iter("group")
    assert (group.get("seqMode"), group.get("ampVelTrack")) == ("round_robin", "0")


def test_a_dspreset_names_the_version_that_plays_it() -> None:
    compressed = replace(RELEASED, regions=[replace(LOOPED, file="samples/V/V_060_v040.flac")])
    for each, version in ((INSTRUMENT, "1.0.0"), (RELEASED, "1.15.2"), (compressed, "1.19.0")):
        assert ElementTree.fromstring(dspreset_text(each)).get("minVersion") == version


def _differences(folder: Path, instrument: SamplerInstrument, preset: str) -> list[str]:
    (folder / "V.dspreset").write_text(preset)
    return list(differences(parse_sfz(sfz_text(instrument)), folder / "V.dspreset"))


def test_what_is_written_plays_the_same_in_both(tmp_path: Path) -> None:
    scale = [17.4 * key if key % 3 else None for key in range(128)]
    tuned = RELEASED.tuned(tuple(scale))
    for each in (INSTRUMENT, RELEASED, RELEASED.chord("2", (0, 1, 2)), tuned, tuned.chord("2", (0, 1))):
        assert each.regions
        assert _differences(tmp_path, each, dspreset_text(each)) == []


@pytest.mark.parametrize(
    ("one", "other", "complaint"),
    [
        ('rootNote="60"', 'rootNote="61"', "has cents"),
        ('tuning="-0.12"', 'tuning="0.12"', "has cents"),
        ('hiNote="61"', 'hiNote="60"', "plays"),
        ('hiVel="127"', 'hiVel="126"', "velocity 127 plays it 0 times"),
        ('loVel="1"', 'loVel="0"', "velocity 0 plays it 1 times"),
        ('loopEnd="900"', 'loopEnd="901"', "has loop"),
        ('start="5000"', 'start="0"', "has start"),
        ('"6.00dB"', '"3.00dB"', "has decay"),
        ('seqPosition="2"', 'seqPosition="1"', "has take"),
        ('ampVelTrack="0"', 'ampVelTrack="1"', "ampVelTrack"),
        (' trigger="release"', "", "plays"),
        ('volume="1', 'volume="7', "has level db"),
    ],
)
def test_a_dspreset_that_plays_otherwise_is_found(
    tmp_path: Path, one: str, other: str, complaint: str
) -> None:
    preset = dspreset_text(RELEASED)
    assert one in preset
    (found,) = _differences(tmp_path, RELEASED, preset.replace(one, other))
    assert complaint in found


def test_a_release_sample_is_the_end_of_the_sample_at_the_level_it_has_by_then() -> None:
    *held, release = parse_sfz(sfz_text(RELEASED))
    assert [each["ampeg_release"] for each in held] == ["0.420", "0.200"]  # the first has none
    assert (release["trigger"], release["sample"], release["offset"]) == ("release", STRAIGHT.file, "5000")
    assert (release["volume"], release["rt_decay"], release["loop_mode"]) == ("13.50", "6.00", "one_shot")
    assert (release["lovel"], release["hivel"]) == ("81", "127")
    struck, group = ElementTree.fromstring(dspreset_text(RELEASED)).iter("group")
    fades = {each.get("path"): each.get("release", struck.get("release")) for each in struck}
    assert fades == {LOOPED.file: "0.420", STRAIGHT.file: "0.200"}
    assert group.get("trigger") == "release"
    assert {each.get("start") for each in group} == {"5000"}
    assert {each.get("releaseTriggerDecay") for each in group} == {"6.00dB"}


def test_a_chord_is_each_sample_at_each_of_its_tones() -> None:
    chord = replace(INSTRUMENT, regions=[replace(LOOPED, keys=(48, 72)), STRAIGHT]).chord("min", (0, 3, 7))
    assert (chord.name, chord.slug) == ("Violin min", "V_min")
    regions = [region for region in parse_sfz(sfz_text(chord)) if region["sample"] == LOOPED.file]
    found = [(each["lokey"], each["hikey"], each.get("transpose", "0")) for each in regions]
    assert found == [("48", "65", "0"), ("48", "65", "3"), ("48", "65", "7")]
    assert {each["pitch_keycenter"] for each in regions} == {"60"}
    assert float(regions[0]["volume"]) == pytest.approx(LOOPED.volume - 4.77, abs=0.01)
    roots = {each.get("rootNote") for each in ElementTree.fromstring(dspreset_text(chord)).iter("sample")}
    assert roots == {"60", "57", "53"}


def test_a_key_plays_all_tones_of_its_chord_or_none() -> None:
    """At both ends of the keyboard, and beside keys that a tuning leaves silent."""
    zones = key_zones([60, 64])
    wide = replace(
        INSTRUMENT, regions=[replace(LOOPED, pitch=pitch, keys=keys) for pitch, keys in zones.items()]
    )
    for silent in ((), (54, 60)):
        scale = tuple(None if key in silent else 0.0 for key in range(128))
        tones = Counter[int]()
        for region in wide.tuned(scale).chord("maj", (0, 4, 7)).regions:
            tones.update(range(region.keys[0], region.keys[1] + 1))
        gaps = {key - interval for key in silent for interval in (0, 4, 7)}
        assert tones == {key: 3 for key in range(48, 70) if key not in gaps}


def test_keys_beyond_the_rendered_range_play_the_nearest_sample_within_an_octave() -> None:
    zones = key_zones([60, 64])
    assert (zones[60][0], zones[64][1]) == (48, 76)
    assert key_zones([5])[5] == (0, 17)


@pytest.mark.parametrize("pitches", [[60], [60, 61], [48, 51, 54], [36, 48, 49, 60], [0, 127]])
def test_keys_are_covered_once_without_gaps(pitches: list[int]) -> None:
    zones = key_zones(pitches)
    assert all(zones[pitch][0] <= pitch <= zones[pitch][1] for pitch in pitches)
    assert all(zones[above][0] == zones[below][1] + 1 for below, above in pairwise(pitches))
    assert all(0 <= low <= high <= 127 for low, high in zones.values())


def test_a_zone_reaches_half_way_to_its_neighbours() -> None:
    assert key_zones([48, 51, 54]) == {48: (36, 49), 51: (50, 52), 54: (53, 66)}


def test_an_unreadable_line_is_named() -> None:
    with pytest.raises(ValueError, match="line 2 is neither a header nor one opcode"):
        parse_sfz("<region>\nsample=a b.wav key=60\n")
