"""Instruments as sfizz plays them: what happens when a key is let go."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from requirements_gate import require_module

from timbrel.library.finish.dynamics import Dynamics, SampleLevel
from timbrel.library.finish.instrument_files import Region, Release, SamplerInstrument, sfz_text
from timbrel.library.finish.sample_files import wav_bytes
from timbrel.library.render.level import Audio, rms_db
from timbrel.library.verify.samplers import Sfizz
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
    require_module("pysfizz", "dev")
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


def test_a_release_is_softer_the_longer_a_sound_that_dies_away_was_held(folder: Path) -> None:
    region = Region("samples/a.wav", 60, release=Release(RATE, 12.0, 12.0))
    soon, late = (rms_db(play_and_let_go(folder, region, held)) for held in (0.25, 0.75))
    assert soon - late == pytest.approx(6.0, abs=0.5)


def test_looking_for_fluidsynth_prints_nothing_where_ci_is_set() -> None:
    """pyfluidsynth would say there which library it found, in the middle of `timbrel verify --json`."""
    require_module("fluidsynth", "train")
    code = "from timbrel.library.verify import samplers; assert samplers.has_fluidsynth()"
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "CI": "true"}, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
