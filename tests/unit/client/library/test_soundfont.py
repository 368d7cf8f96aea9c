"""A .sf2 file as FluidSynth plays it: levels, tuning, loops, chords."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from requirements_gate import require_module, require_system

from timbrel.library.finish.dynamics import Dynamics, SampleLevel
from timbrel.library.finish.instrument_files import Region, SamplerInstrument
from timbrel.library.finish.soundfont import sf2_bytes
from timbrel.library.render.level import Audio, rms_db
from timbrel.library.verify.samplers import FluidSynth
from timbrel.library.verify.scale_check import level
from timbrel.performance.drums import DrumsError, play_drums
from timbrel_bundle.yin import Yin

RATE = 48_000
VELOCITIES = {40: 0.02, 80: 0.08, 120: 0.15}
"""Layers, and the amplitudes that they were rendered at."""

Tone = Callable[..., Audio]


@pytest.fixture
def sounds(tone: Tone) -> dict[str, Audio]:
    """A sample for each layer of two pitches; the lower pitch is 20 cents flat and one period is looped."""
    return {
        f"{pitch}_{velocity}": tone(pitch - (0.2 if pitch == 60 else 0.0), 1.5, level=amplitude)
        for pitch in (60, 67)
        for velocity, amplitude in VELOCITIES.items()
    }


@pytest.fixture
def instrument(sounds: dict[str, Audio]) -> SamplerInstrument:
    samples = {
        name: SampleLevel(
            int(name[:2]), int(name[3:]), level(audio, RATE), 20 * np.log10(np.abs(audio).max())
        )
        for name, audio in sounds.items()
    }
    dynamics = Dynamics.fit(list(samples.values()))
    regions = [
        Region(
            name,
            own.pitch,
            (48, 63) if own.pitch == 60 else (64, 79),
            dynamics.zones[own.velocity],
            tune=20 if own.pitch == 60 else 0,
            loop=(24_000, 47_999) if own.pitch == 67 else None,
            volume=dynamics.gain_db(own),
        )
        for name, own in samples.items()
    ]
    return SamplerInstrument("Tones", "Tones", "made for a test", regions, 1, dynamics, 0.2)


@pytest.fixture
def font(instrument: SamplerInstrument, sounds: dict[str, Audio], tmp_path: Path) -> Path:
    path = tmp_path / "tones.sf2"
    chord = instrument.chord("5", (0, 7))
    path.write_bytes(sf2_bytes([instrument, chord], "a comment", lambda file: (sounds[file], RATE)))
    return path


def open_font(font: Path, sample_rate: int = RATE) -> FluidSynth:
    require_system("fluidsynth")
    require_module("fluidsynth", "train")
    return FluidSynth(font, sample_rate)


def test_level_rises_over_all_velocities_by_less_than_a_decibel(font: Path) -> None:
    with open_font(font) as sampler:
        played = [level(sampler.play(60, velocity, 0.5), RATE) for velocity in range(1, 128)]
    steps = [above - below for below, above in pairwise(played)]
    assert min(steps) >= -0.02 and max(steps) <= 1.0
    assert 30.0 < played[-1] - played[0] < 60.0


def test_a_layer_plays_as_loud_as_its_sample(
    font: Path, sounds: dict[str, Audio], instrument: SamplerInstrument
) -> None:
    """Softness was rendered, and is not applied again."""
    with open_font(font) as sampler:
        for velocity in VELOCITIES:
            played = rms_db(sampler.play(60, velocity, 1.0)[4800:])
            assert played == pytest.approx(rms_db(sounds[f"60_{velocity}"]), abs=0.7)


def test_samples_are_tuned_and_loops_hold(font: Path) -> None:
    with open_font(font) as sampler:
        assert Yin().measure(sampler.play(60, 100, 1.0), RATE) == pytest.approx(60.0, abs=0.03)
        held = sampler.play(67, 100, 3.0)
    assert rms_db(held[-RATE:]) == pytest.approx(rms_db(held[RATE // 2 : RATE]), abs=0.2)


def test_a_font_plays_alike_at_rates_beyond_fluidsynths_own(font: Path) -> None:
    with open_font(font, 192_000) as sampler:
        fast = sampler.play(60, 100, 1.0)
    with open_font(font) as sampler:
        usual = sampler.play(60, 100, 1.0)
    assert Yin().measure(fast, 192_000) == pytest.approx(60.0, abs=0.03)
    assert (len(fast), rms_db(fast)) == pytest.approx((4 * len(usual), rms_db(usual)), abs=0.2)


def test_a_chord_is_a_preset_that_plays_its_tones(font: Path) -> None:
    with open_font(font) as sampler:
        fifth = sampler.play(60, 100, 1.0) + sampler.play(67, 100, 1.0)
        internals: Any = sampler._synth
        internals.program_select(0, 1, 0, 1)
        chord = sampler.play(60, 100, 1.0)
    # Two tones, each softer by 3 dB.
    assert rms_db(chord) == pytest.approx(rms_db(fifth) - 3.0, abs=0.2)
    assert np.corrcoef(chord, fifth)[0, 1] > 0.99


def test_an_odd_number_of_samples_keeps_its_lower_bits(instrument: SamplerInstrument, tmp_path: Path) -> None:
    quiet = np.float32(2.0**-17) * np.sin(np.arange(RATE + 1, dtype=np.float32) * 0.06)
    region = replace(instrument.regions[0], tune=0, volume=0.0)
    path = tmp_path / "quiet.sf2"
    path.write_bytes(sf2_bytes([replace(instrument, regions=[region])], "", lambda _: (quiet, RATE)))
    with open_font(path) as sampler:
        played = sampler.play(region.pitch, region.velocities[1], 0.8)[2400:36_000]
    assert len(np.unique(np.round(played / np.abs(played).max(), 3))) > 500


def test_every_preset_has_a_name_of_its_own(instrument: SamplerInstrument, sounds: dict[str, Audio]) -> None:
    long = replace(instrument, name="Acoustic Grand Piano", regions=instrument.regions[:1])
    chords = [
        long.chord(name, (0, 4)) for name in ("maj", "min", "0-4-7-10-14-17-21-24", "0-4-7-10-14-17-21-25")
    ]
    content = sf2_bytes([long, *chords], "", lambda file: (sounds[file], RATE))
    for chunk, size in ((b"phdr", 38), (b"inst", 22)):
        at = content.index(chunk) + 8
        records = [content[at + size * number :][:20].rstrip(b"\0") for number in range(6)]
        assert len(set(records)) == 6 and records[0] == b"Acoustic Grand Pian", records
        assert records[1:3] == [b"Acoustic Grand maj", b"Acoustic Grand min"], records


def test_letters_with_marks_are_written_without(
    instrument: SamplerInstrument, sounds: dict[str, Audio]
) -> None:
    """Names of SoundFonts are ASCII."""
    named = replace(instrument, name="Geträumte Flöte", regions=instrument.regions[:1])
    content = sf2_bytes([named, named.chord("5", (0, 7))], "", lambda file: (sounds[file], RATE))
    at = content.index(b"phdr") + 8
    records = [content[at + 38 * number :][:20].rstrip(b"\0") for number in range(2)]
    assert (
        records == [b"Getraumte Flote", b"Getraumte Flote 5"]
        and b"INAM\x10\0\0\0Getraumte Flote\0" in content
    )


def test_polyphone_reads_the_file(font: Path, tmp_path: Path) -> None:
    require_system("polyphone")
    command = ["polyphone", "-3", "-i", str(font), "-d", str(tmp_path / "out"), "-o", "tones"]
    (tmp_path / "out").mkdir()
    environment = {"QT_QPA_PLATFORM": "offscreen", "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    subprocess.run(command, check=True, env=environment, timeout=120, capture_output=True)
    written = "".join(path.read_text() for path in (tmp_path / "out").rglob("*.sfz"))
    assert written.count("<region>") >= 6 and "pitch_keycenter=67" in written


def test_more_than_a_file_can_hold_is_refused(
    instrument: SamplerInstrument, sounds: dict[str, Audio]
) -> None:
    many = replace(instrument, regions=[region for region in instrument.regions for _ in range(2000)])
    with pytest.raises(ValueError, match="more than 65535 zones and settings; ask for fewer chords"):
        sf2_bytes([many], "", lambda file: (sounds[file][:100], RATE))


def test_a_font_without_a_kit_plays_no_drums(font: Path) -> None:
    """FluidSynth plays silence, and ends as if that were well."""
    require_system("fluidsynth")
    require_module("mido", "midi")
    import mido

    with pytest.raises(DrumsError, match=r"tones\.sf2 has no drum kit"):
        play_drums([(0.0, mido.Message("note_on", channel=9, note=60))], font, RATE)
