from __future__ import annotations

import numpy as np
import pytest

from timbrel.library.render.level import Audio, rms_db
from timbrel.performance.sustain import Sustain, TrimmedNote, find_attack

RATE = 24_000
HELD = 2.0


def tone(decay_db_a_second: float, seconds: float = HELD, hertz: float = 220.0) -> Audio:
    """Four partials that keep or lose their level, and a release of 0.2 s."""
    time = np.arange(round((seconds + 0.2) * RATE)) / RATE
    wave = sum(np.sin(2 * np.pi * hertz * n * time + n) / n for n in range(1, 5))
    level = 10.0 ** (-decay_db_a_second * time / 20.0)
    level[time > seconds] *= np.linspace(1.0, 0.0, int((time > seconds).sum()))
    level[: RATE // 200] *= np.linspace(0.0, 1.0, RATE // 200)
    return np.asarray(0.3 * wave * level, dtype=np.float32)


def trimmed(audio: Audio) -> TrimmedNote:
    return TrimmedNote(audio, 0, round(HELD * RATE), RATE)


@pytest.mark.parametrize("decay", [0.0, 10.0])
def test_a_long_note_goes_on_as_it_did_and_ends_on_time_without_a_click(decay: float) -> None:
    audio = tone(decay)
    longer = Sustain(trimmed(audio)).lengthened(3 * RATE)
    assert longer is not None
    assert longer.released / RATE == pytest.approx(HELD + 3.0, abs=0.016)
    assert len(longer.audio) / RATE == pytest.approx(HELD + 3.2, abs=0.02)
    # Its beginning is untouched, its level goes on in a line, no sample jumps.
    assert np.allclose(longer.audio[: RATE // 2], audio[: RATE // 2], atol=1e-6)
    for second in np.arange(0.5, 4.9, 0.2):
        level = rms_db(longer.audio[round(second * RATE) : round((second + 0.1) * RATE)])
        assert level == pytest.approx(
            rms_db(audio[RATE : RATE + RATE // 10]) - decay * (second - 1.0), abs=1.0
        )
    steps = np.abs(np.diff(longer.audio))
    assert steps.max() <= 1.15 * np.abs(np.diff(audio)).max()
    spectrum = np.abs(np.fft.rfft(longer.audio[3 * RATE : 4 * RATE] * np.hanning(RATE)))
    assert abs(int(spectrum.argmax()) - 220) <= 1


def test_one_note_can_be_lengthened_by_several_lengths() -> None:
    sustain = Sustain(trimmed(tone(0.0)))
    ends = [longer.released for n in (0, RATE, 4 * RATE) if (longer := sustain.lengthened(n)) is not None]
    assert [end / RATE for end in ends] == pytest.approx([HELD, HELD + 1, HELD + 4], abs=0.016)


def test_a_note_that_has_died_away_rings_out() -> None:
    for audio in (tone(60.0), tone(0.0)[: RATE // 2]):
        note = trimmed(audio)
        assert Sustain(note).lengthened(RATE) is note


def test_a_note_that_ends_with_its_hold_is_lengthened_too() -> None:
    longer = Sustain(trimmed(tone(0.0)[: round(HELD * RATE)])).lengthened(RATE)
    assert longer is not None and len(longer.audio) / RATE == pytest.approx(HELD + 1.0, abs=0.02)


def test_noise_finds_no_loop() -> None:
    noise = np.random.default_rng(1).standard_normal(round((HELD + 0.2) * RATE)) * 0.1
    assert Sustain(trimmed(noise.astype(np.float32))).lengthened(RATE) is None


def test_the_attack_is_where_the_sound_rises_not_where_breath_begins() -> None:
    audio = tone(0.0)
    breath = 1e-2 * audio[: round(0.010 * RATE)]
    assert find_attack(np.concatenate([breath, audio]), RATE) / RATE == pytest.approx(0.011, abs=0.002)
    assert find_attack(np.zeros(RATE, np.float32), RATE) == 0


def test_a_slow_sound_begins_on_time() -> None:
    audio = tone(0.0)
    slow = audio * np.minimum(1.0, np.arange(len(audio)) / RATE).astype(np.float32)
    assert find_attack(slow, RATE) / RATE <= 0.005 + 0.008
