"""Synthetic instruments."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from timbrel_training.notes.cleaning import Cleaner
from timbrel_training.notes.general_midi import FAMILIES, PROGRAM_NAMES
from timbrel_training.notes.note import Draw, Note, SourceError
from timbrel_training.notes.playing import NoteRecorder
from timbrel_training.notes.synthesizer import SynthesizerSource
from timbrel_training.notes.synthetic_instruments import INSTRUMENTS, Waves

RATE = 48_000


def note(name: str, pitch: int, velocity: int, held_seconds: float = 1.0, member: int = 1) -> Note:
    source = SynthesizerSource(name, n_members=member)
    return source._note(source.groups()[-1], pitch, 0, Draw(velocity, held_seconds, 0.0))


def spectrum(audio: NDArray[np.float32]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    n = 1 << max(18, (len(audio) - 1).bit_length())
    power = np.abs(np.fft.rfft(audio * np.hanning(len(audio)), n)) ** 2
    return power, np.fft.rfftfreq(n, 1 / RATE)


def loudest(audio: NDArray[np.float32]) -> float:
    blocks = audio[: len(audio) // 480 * 480].reshape(-1, 480)
    return float(np.sqrt(np.square(blocks, dtype=np.float64).mean(axis=1)).max())


@pytest.mark.parametrize("name", INSTRUMENTS)
def test_every_instrument_is_in_tune_and_plays_what_the_velocity_asks(name: str) -> None:
    assert INSTRUMENTS[name].family in FAMILIES
    for pitch in (48, 72, 93):
        soft, hard = note(name, pitch, 30, 2.0), note(name, pitch, 120, 2.0)
        hertz = 440.0 * 2.0 ** ((pitch - 69) / 12)
        for played in (soft, hard):
            assert Cleaner(check_pitch=True).audio_fault(played.audio, RATE, pitch) is None
            assert played.audio.dtype == np.float32 and float(np.abs(played.audio).max()) < 1.0
            power, at = spectrum(played.audio)
            near = np.abs(1200 * np.log2(np.maximum(at, 1.0) / hertz)) < 30
            cents = 1200 * np.log2((power[near] * at[near]).sum() / power[near].sum() / hertz)
            assert abs(cents) < 2.0
            assert power[at > 0.49 * RATE].max() < 1e-5 * power.max()  # nothing where it would have folded
        assert 10 < 20 * np.log10(loudest(hard.audio) / loudest(soft.audio)) < 26


@pytest.mark.parametrize(
    "name", ["Steel String", "Wooden Bars", "FM Electric Piano", "Saw Lead", "Soft Brass"]
)
def test_harder_is_brighter(name: str) -> None:
    def centroid(velocity: int) -> float:
        power, at = spectrum(note(name, 60, velocity).audio)
        return float((np.sqrt(power) * at).sum() / np.sqrt(power).sum())

    assert centroid(30) < centroid(80) < centroid(127)


@pytest.mark.parametrize(
    "name", ["Saw Lead", "Pulse Lead", "FM Brass", "FM Electric Piano", "Tonewheel Organ"]
)
def test_nothing_sounds_between_the_harmonics_of_a_high_note(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if isinstance(breathing := INSTRUMENTS[name], Waves):
        monkeypatch.setitem(INSTRUMENTS, name, replace(breathing, noise=(0.0, 0.0)))
    power, at = spectrum(note(name, 96, 127, 1.5).audio[9_600:67_200])
    harmonic = at / (440.0 * 2.0 ** ((96 - 69) / 12))
    between = np.abs(harmonic - np.rint(harmonic)) > 0.1
    assert power[between].sum() < 1e-6 * power.sum()


def test_a_key_that_is_held_sounds_and_one_that_is_let_go_dies_away() -> None:
    for seconds in (0.3, 2.0):
        organ = note("Tonewheel Organ", 60, 100, seconds)
        assert 0.05 < organ.seconds - seconds < 0.5 and not organ.cut
    assert note("Wooden Bars", 84, 100, 3.0).seconds < 2.0  # it has died away by itself
    short = SynthesizerSource("Saw Lead", recorder=NoteRecorder(max_seconds=0.5), pitches=(60,), n_draws=8)
    assert {cut.seconds for cut in short if cut.cut} == {0.5}


def test_members_and_draws_differ_and_come_again() -> None:
    source = SynthesizerSource("Nylon String", pitches=(60,), n_draws=2, n_members=2)
    notes = list(source)
    assert [each.instrument for each in notes] == ["Nylon String"] * 2 + ["Nylon String 2"] * 2
    assert len({each.audio.tobytes() for each in notes}) == 4
    assert all(np.array_equal(a.audio, b.audio) for a, b in zip(notes, source, strict=True))
    one, other = (note("Nylon String", 60, 100, member=member).audio for member in (1, 2))
    assert not np.allclose(one[:20_000], other[:20_000], atol=0.01)


def test_all_are_one_source() -> None:
    source = SynthesizerSource("all", n_members=2)
    assert len(source.groups()) == 2 * len(INSTRUMENTS) >= 40 and source.licences == {
        "synthetic all": "CC0-1.0"
    }


def test_no_member_goes_by_the_name_of_a_general_midi_program() -> None:
    assert not set(SynthesizerSource("all", n_members=8).groups()) & set(PROGRAM_NAMES)


def test_an_unknown_name_is_one_clear_line() -> None:
    with pytest.raises(SourceError, match="no synthetic instrument 'Theremin'; expected all or one of Nylon"):
        SynthesizerSource("Theremin")
