"""Instruments as sfizz plays them: what happens when a key is let go."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from requirements_gate import require_module, require_sfizz, require_system

from timbrel.library import LibraryJob
from timbrel.library.finish.dynamics import Dynamics, SampleLevel
from timbrel.library.finish.finisher import Finisher
from timbrel.library.finish.instrument_files import Region, Release, SamplerInstrument, sfz_text
from timbrel.library.finish.sample_files import wav_bytes
from timbrel.library.plan.notes import plan_voice
from timbrel.library.render.level import Audio, Trimmed, rms_db
from timbrel.library.render.measure import Measurement
from timbrel.library.render.renderer import Attempt, ChosenNote
from timbrel.library.render.store import DecodedNote, RawNote
from timbrel.library.verify import samplers
from timbrel.library.verify.file_checks import parse_sfz
from timbrel.library.verify.samplers import Sfizz
from timbrel.library.verify.scale_check import play_scale
from timbrel_bundle.yin import Yin

RATE = 48_000
DYNAMICS = Dynamics.fit([SampleLevel(60, 100, -20.0, -12.0)])


def play_and_let_go(folder: Path, region: Region, held: float) -> Audio:
    """Plays half a second after a key that was held for so long."""
    instrument = SamplerInstrument("Bell", "Bell", "", [region], 1, DYNAMICS, 0.3)
    (folder / "Bell.sfz").write_text(sfz_text(instrument))
    with Sfizz(folder / "Bell.sfz", RATE) as sampler:
        synth: Any = sampler._synth
        played = np.mean(synth.render_note(60, 100, held, held + 0.5), axis=0)
    return np.asarray(played[round((held + 0.2) * RATE) :], dtype=np.float32)


@pytest.fixture
def folder(tone: Callable[..., Audio], tmp_path: Path) -> Path:
    """A sample that sounds an octave higher once its key is let go, after a second."""
    require_sfizz("dev")
    (tmp_path / "samples").mkdir()
    audio = np.concatenate([tone(60, 1.0), tone(72, 1.0)])
    (tmp_path / "samples" / "a.wav").write_bytes(wav_bytes(audio, RATE, Region("", 60)))
    return tmp_path


def test_a_release_sample_follows_the_held_sound(folder: Path) -> None:
    held = Region("samples/a.wav", 60, loop=(12_000, 35_999))
    assert rms_db(play_and_let_go(folder, held, 1.5)) < -60.0
    released = play_and_let_go(folder, replace(held, release=Release(RATE)), 1.5)
    assert rms_db(released) > -40.0
    assert Yin().measure(released, RATE) == pytest.approx(72.0, abs=0.1)


def test_there_is_no_hole_between_the_held_sound_and_its_release(folder: Path) -> None:
    """Where the two have nothing in common: in noise."""
    noise = np.random.default_rng(0).normal(0.0, 0.05, 2 * RATE).astype(np.float32)
    (folder / "samples" / "a.wav").write_bytes(wav_bytes(noise, RATE, Region("", 60)))
    region = Region("samples/a.wav", 60, loop=(12_000, 35_999), release=Release(RATE))
    instrument = SamplerInstrument("Bell", "Bell", "", [region], 1, DYNAMICS, 0.3)
    (folder / "Bell.sfz").write_text(sfz_text(instrument))
    with Sfizz(folder / "Bell.sfz", RATE) as sampler:
        synth: Any = sampler._synth
        played = np.mean(synth.render_note(60, 100, 0.5, 1.0), axis=0)
    let_go = RATE // 2
    before = rms_db(played[let_go // 2 : let_go])
    step = RATE // 200
    levels = [rms_db(played[at : at + step]) - before for at in range(let_go, let_go + 10 * step, step)]
    assert min(levels) > -3.0 and max(levels) < 2.0


def test_a_release_is_softer_the_longer_a_sound_that_dies_away_was_held(folder: Path) -> None:
    region = Region("samples/a.wav", 60, release=Release(RATE, 12.0, 12.0))
    soon, late = (rms_db(play_and_let_go(folder, region, held)) for held in (0.25, 0.75))
    assert soon - late == pytest.approx(6.0, abs=0.5)


def test_where_no_links_may_be_made_samples_are_found_all_the_same(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by most people on Windows."""
    released = Region("samples/a.wav", 60, release=Release(RATE))
    linked = play_and_let_go(folder, released, 0.5)

    def refuse(path: Path, target: Path) -> None:
        raise OSError(22, "A required privilege is not held by the client", str(path))

    monkeypatch.setattr(Path, "symlink_to", refuse)
    assert rms_db(linked) > -40.0
    np.testing.assert_array_equal(play_and_let_go(folder, released, 0.5), linked)


def test_what_lasts_and_has_no_loop_is_not_let_go_twice(
    job: LibraryJob, tone: Callable[..., Audio], tmp_path: Path
) -> None:
    """Its file lets it go after a second; the key comes up when that has died away."""
    require_sfizz("dev")
    job = replace(job, voices=job.voices[:1], seconds=1.0, pitches=(60,), velocities=(100,), loops=False)
    released = tone(72, 2.0)[RATE:] * np.linspace(1.0, 0.0, RATE) ** 4
    sound = Trimmed(np.concatenate([tone(60, 1.0), released.astype(np.float32)]), 0)
    measured = Measurement(60.0, None, "yin", -20.0, -10.0, 0.0, 1.0, 9.0, 0.0, lasts=True)
    notes = [ChosenNote(each, Attempt(0, "a", measured), 1) for each in plan_voice(job, job.voices[0])]
    model: Any = SimpleNamespace(**vars(job.writer), sample_rate=RATE, codec_hash="c" * 64)
    raw = RawNote(np.zeros((4, 2), np.uint16), truncated=False)
    finisher = Finisher(job, model, tmp_path, tmp_path, lambda _: DecodedNote(raw, sound), {}, sf2=False)
    instrument = finisher.instrument(notes, 0)
    rows = [finisher.write_sample(instrument, number) for number in range(len(notes))]
    finisher.write_instrument(instrument, rows)
    with Sfizz(tmp_path / "Violin.sfz", RATE) as sampler:
        synth: Any = sampler._synth
        played = np.mean(synth.render_note(60, 100, 1.9, 2.4), axis=0)
    before, after = played[round(1.8 * RATE) : round(1.9 * RATE)], played[round(1.95 * RATE) :]
    assert rms_db(after) < rms_db(before) < -40.0


def test_releases_are_counted_where_they_are_played(
    job: LibraryJob, tone: Callable[..., Audio], tmp_path: Path
) -> None:
    """Of a note that is all but gone when its key comes up there is none."""
    job = replace(job, voices=job.voices[:1], round_robins=1, velocities=(100,))
    sound = Trimmed(tone(60, 2.0), 0)
    decays = {60: 10.0, 64: 30.0, 67: 12.0}
    notes = [
        ChosenNote(
            each,
            Attempt(
                0, "abc", Measurement(60.0, None, "yin", -20.0, -10.0, decay, 1.0, 9.0, 0.0, lasts=False)
            ),
            1,
        )
        for each, decay in zip(plan_voice(job, job.voices[0]), decays.values(), strict=True)
    ]
    model: Any = SimpleNamespace(**vars(job.writer), sample_rate=RATE, codec_hash="c" * 64)
    raw = RawNote(np.zeros((4, 2), np.uint16), truncated=False)
    finisher = Finisher(job, model, tmp_path, tmp_path, lambda _: DecodedNote(raw, sound), {}, sf2=False)
    instrument = finisher.instrument(notes, 0)
    rows = [finisher.write_sample(instrument, number) for number in range(len(notes))]
    finisher.write_instrument(instrument, rows)
    played = {
        int(region["pitch_keycenter"])
        for region in parse_sfz((tmp_path / "Violin.sfz").read_text())
        if region.get("trigger") == "release"
    }
    assert played == {60, 67} == {row.pitch for row in rows if row.release_start is not None}
    finisher.commit(instrument, rows)
    assert finisher.kept_rows(instrument) is not None


def test_a_fault_names_the_key_that_was_played(
    job: LibraryJob, tone: Callable[..., Audio], tmp_path: Path
) -> None:
    """Of an instrument that is tuned a tone lower, the sample's own pitch sounds two keys above."""
    require_sfizz("dev")
    job = replace(job, voices=job.voices[:1], round_robins=1, pitches=(60,), velocities=(100,), loops=False)
    measured = Measurement(60.0, None, "yin", -20.0, -10.0, 0.0, 0.1, 0.0, 0.0, lasts=True)
    notes = [ChosenNote(each, Attempt(0, "a", measured), 1) for each in plan_voice(job, job.voices[0])]
    model: Any = SimpleNamespace(**vars(job.writer), sample_rate=RATE, codec_hash="c" * 64)
    raw, sound = RawNote(np.zeros((4, 2), np.uint16), truncated=False), Trimmed(tone(60, 1.5), 0)
    lower = (-200.0,) * 128
    finisher = Finisher(
        job, model, tmp_path, tmp_path, lambda _: DecodedNote(raw, sound), {}, sf2=False, tuning=lower
    )
    instrument = finisher.instrument(notes, 0)
    row = finisher.write_sample(instrument, 0)
    finisher.write_instrument(instrument, [row])
    assert play_scale(tmp_path, tmp_path / "Violin.sfz", {row.file: row})[0] == []
    silence = np.zeros(row.n_samples, np.float32)
    (tmp_path / row.file).write_bytes(wav_bytes(silence, RATE, Region("", 60)))
    (fault,) = play_scale(tmp_path, tmp_path / "Violin.sfz", {row.file: row})[0]
    assert fault.description == "sfizz plays nothing at key 62, velocity 100"


def test_layers_are_compared_where_takes_sound_as_they_are(
    job: LibraryJob, tone: Callable[..., Audio], tmp_path: Path
) -> None:
    """One take is bright, the other dark: keys of a scale of quarter-tones that play them an octave lower
    make them unequally loud. At each velocity one of them plays, in turn."""
    require_sfizz("dev")
    job = replace(job, voices=job.voices[:1], pitches=(60,), loops=False)
    sounds = {
        "dark": tone(60, 1.5, harmonics=(1.0,)),
        "bright": tone(60, 1.5, harmonics=(0, 0, 0, 0, 0, 1.0)),
    }
    measured = Measurement(60.0, None, "yin", -20.0, -10.0, 0.0, 0.1, 0.0, 0.0, lasts=True)
    planned = plan_voice(job, job.voices[0])
    notes = [
        ChosenNote(each, Attempt(0, list(sounds)[each.round_robin - 1], measured), 1) for each in planned
    ]
    model: Any = SimpleNamespace(**vars(job.writer), sample_rate=RATE, codec_hash="c" * 64)
    raw = RawNote(np.zeros((4, 2), np.uint16), truncated=False)
    quarters = tuple(-50.0 * (key - 60) for key in range(128))
    finisher = Finisher(
        *(job, model, tmp_path, tmp_path, lambda key: DecodedNote(raw, Trimmed(sounds[key], 0)), {}),
        sf2=False,
        tuning=quarters,
    )
    instrument = finisher.instrument(notes, 0)
    rows = {row.file: row for row in (finisher.write_sample(instrument, each) for each in range(len(notes)))}
    finisher.write_instrument(instrument, list(rows.values()))
    faults, _ = play_scale(tmp_path, tmp_path / "Violin.sfz", rows)
    assert [fault for fault in faults if fault.kind == "level"] == []


@pytest.mark.parametrize(
    ("module", "error", "is_there"),
    [
        ("fluidsynth", OSError, samplers.has_fluidsynth),
        ("pysfizz", ImportError, samplers.has_sfizz),
    ],
)
def test_a_sampler_that_cannot_be_loaded_counts_as_none(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    module: str,
    error: type[Exception],
    is_there: Callable[[], bool],
) -> None:
    """As Homebrew's of an Intel Mac, on an ARM one."""
    (tmp_path / f"{module}.py").write_text(f"raise {error.__name__}('incompatible architecture')\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, module, raising=False)
    assert not is_there()


def test_looking_for_fluidsynth_prints_nothing_where_ci_is_set() -> None:
    """pyfluidsynth would say there which library it found, in the middle of `timbrel verify --json`."""
    require_system("fluidsynth")
    require_module("fluidsynth", "train")
    code = "from timbrel.library.verify import samplers; assert samplers.has_fluidsynth()"
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "CI": "true"}, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
