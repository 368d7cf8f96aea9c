"""How long keys are held where nobody says: what dies away until it has; no note is rendered twice for it."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from timbrel.core.request import NoteRequest
from timbrel.library import Hold, LibraryJob, Voice
from timbrel.library.finish.finisher import Finisher
from timbrel.library.plan.notes import plan_notes, plan_voice
from timbrel.library.render import measure
from timbrel.library.render.hold import died_after, with_holds
from timbrel.library.render.level import Audio, Trimmed
from timbrel.library.render.measure import Measurement, fade_seconds, is_sustained
from timbrel.library.render.pitch import find_trackers
from timbrel.library.render.renderer import Attempt, ChosenNote, Progress, Renderer
from timbrel.library.render.source import Name
from timbrel.library.render.store import NoteStore, RawNote
from timbrel.library.render.worker_pool import WorkerPool

RATE = 48_000


def declining(decay: float | None, rise_db: float) -> Measurement:
    return Measurement(60.0, None, "yin", -20.0, -10.0, decay, 0.1, 0.0, rise_db, lasts=False)


class FakeSource:
    """Writes the instrument's x and the hold into the codes, and down what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[NoteRequest] = []

    def render(
        self, orders: Iterable[tuple[Name, NoteRequest]]
    ) -> Generator[tuple[Name, RawNote], None, None]:
        for key, order in orders:
            self.asked.append(order)
            assert not isinstance(order.timbre, str)
            told = [[round(1000 * order.timbre[0]), round(1000 * order.seconds)]]
            yield key, RawNote(np.array(told, np.uint16), truncated=False)


@pytest.mark.parametrize(
    ("attack_db", "db_per_second", "lasts"),
    [
        pytest.param(0.0, 0.0, True, id="organ"),
        pytest.param(6.0, 0.5, True, id="tongued"),
        pytest.param(-9.0, 4.0, True, id="bowed, softer towards its end"),
        pytest.param(0.0, 4.5, False, id="electric piano"),
        pytest.param(6.0, 4.5, False, id="bell"),
        pytest.param(6.0, 12.0, False, id="piano"),
    ],
)
@pytest.mark.parametrize("held_seconds", [1.0, 2.0, 3.0])
def test_what_is_struck_is_told_from_what_lasts(
    tone: Callable[..., Audio], attack_db: float, db_per_second: float, lasts: bool, held_seconds: float
) -> None:
    """The attack is so much louder than what follows it within 0.3 s, or softer."""
    audio = tone(60, held_seconds + 1.0)
    seconds = np.arange(len(audio)) / 48_000
    level = attack_db * np.maximum(1.0 - seconds / 0.3, 0.0) - db_per_second * seconds
    level -= np.where(seconds > held_seconds, 60.0 * (seconds - held_seconds), 0.0)
    audio *= (10.0 ** (level / 20.0)).astype(np.float32)
    measured = measure.measure(audio, Trimmed(audio, 0), 48_000, 60, held_seconds, find_trackers())
    assert is_sustained([measured]) == lasts


def test_what_plays_on_when_it_has_lost_much_of_its_level_does_not_last(tone: Callable[..., Audio]) -> None:
    """As a bass: a loop of its third second would ring for ever at a level that it has but for a moment."""
    audio = tone(60, 4.0)
    seconds = np.arange(len(audio)) / 48_000
    level = -4.0 * np.minimum(seconds, 2.0) - 0.5 * np.maximum(seconds - 2.0, 0.0)
    audio *= (10.0 ** (level / 20.0)).astype(np.float32)
    assert not is_sustained([measure.measure(audio, Trimmed(audio, 0), 48_000, 60, 3.0, find_trackers())])


@pytest.mark.parametrize(
    ("notes", "longest", "seconds"),
    [
        ([declining(12.0, -22.0)] * 3, 600.0, 5.5),
        ([declining(12.0, -22.0), declining(20.0, -34.0), declining(60.0, 0.0)], 600.0, 5.5),
        ([declining(4.0, -7.0)] * 3, 600.0, 10.0),
        ([declining(4.0, -7.0)] * 3, 2.4, 2.4),
        ([declining(4.0, -7.0)] * 3, 2.0, 2.0),
        ([declining(60.0, 0.0)] * 3, 600.0, 2.0),
        ([declining(30.0, -70.0)], 600.0, 2.0),
        ([declining(None, 0.0)], 600.0, 2.0),
    ],
)
def test_keys_of_what_dies_away_are_held_until_it_has(
    notes: list[Measurement], longest: float, seconds: float
) -> None:
    """By the slowest note, ten seconds at most, in steps of half a second."""
    assert died_after(notes, 2.0, longest) == seconds


def test_no_note_that_was_listened_to_is_rendered_again(
    job: LibraryJob, tone: Callable[..., Audio], tmp_path: Path
) -> None:
    violin, flute = job.voices
    source = FakeSource()

    def decode(codes: npt.NDArray[np.uint16], seed: int) -> Audio:
        struck, held = int(codes[0, 0]) == round(1000 * flute.timbre[0]), int(codes[0, 1]) / 1000
        audio = tone(60, held + 0.5, decay=15.0 if struck else 0.0)
        audio *= (10.0 ** (-200.0 * np.maximum(np.arange(len(audio)) / RATE - held, 0.0) / 20.0)).astype(
            np.float32
        )
        return audio

    with WorkerPool(1) as pool:
        store = NoteStore(tmp_path / "codes")
        renderer = Renderer(job, store, tmp_path / "log", decode, RATE, pool)
        progress = Progress()
        held = with_holds(job, renderer, source, progress, (0.1, 600.0))
        assert [(order.pitch, order.velocity, order.seconds) for order in source.asked] == [
            (pitch, velocity, seconds)
            for seconds in (1.0, 1.0, 0.5)
            for pitch, velocity in ((60, 120), (64, 120), (67, 40))
        ]
        assert {order.timbre for order in source.asked[6:]} == {flute.timbre}, "how it ends that dies away"
        assert held.voices[0] == replace(violin, hold=Hold(1.0, None))
        assert replace(held.voices[1], hold=None) == flute
        hold = held.voices[1].hold
        assert hold is not None and hold.seconds == pytest.approx(4.0, abs=0.5)
        assert hold.release_seconds == pytest.approx(60 / 200, abs=0.01)
        first = len(source.asked)
        notes = list(plan_notes(held))
        assert len(list(renderer.render(notes, 0, source, progress))) == len(notes)
    again = source.asked[first:]
    assert len(again) == job.n_notes - 3, "three of the violin's are known"
    assert progress.n_rendered == len(source.asked)
    assert {order.seconds for order in again if order.timbre == flute.timbre} == {
        held.held_seconds(held.voices[1])
    }


def test_a_fade_is_what_a_note_loses_beyond_what_it_loses_as_its_key_stays_down(
    tone: Callable[..., Audio],
) -> None:
    held = tone(60, 2.0, decay=15.0)
    after = np.maximum(np.arange(len(held)) / RATE - 0.5, 0.0)
    let_go = held * (10.0 ** (-100.0 * after / 20.0)).astype(np.float32)
    assert fade_seconds(held, let_go, RATE, RATE // 2) == pytest.approx(0.6, rel=0.02)
    assert fade_seconds(held, let_go[:RATE], RATE, RATE // 2) == pytest.approx(0.6, rel=0.02)
    assert fade_seconds(held, held, RATE, RATE // 2) == math.inf
    assert fade_seconds(held, let_go[: RATE // 2 + RATE // 50], RATE, RATE // 2) is None
    assert fade_seconds(held, let_go * np.float32(1e-4), RATE, RATE // 2) is None
    assert fade_seconds(held[: RATE // 4], let_go[: RATE // 4], RATE, RATE // 2) is None, "it died before"


@pytest.mark.parametrize("lasts", [True, False])
def test_what_was_listened_to_is_looped_where_it_lasts(job: LibraryJob, tmp_path: Path, lasts: bool) -> None:
    """Whatever most of its notes do: what was held until it dies has no loop, though a bass's low notes have
    not died after ten seconds; what was held for as long as lasting notes are would end then without one."""
    measured = Measurement(60.0, None, "yin", -20.0, -10.0, 0.5, 0.1, 0.0, 0.5, lasts=lasts)
    model: Any = SimpleNamespace(**vars(job.writer), sample_rate=RATE, codec_hash="c" * 64)

    def looped(voice: Voice) -> bool:
        own = replace(job, voices=(voice,))
        finisher = Finisher(
            own, model, tmp_path, tmp_path, lambda _: pytest.fail("is not loaded"), {}, sf2=False
        )
        notes = [ChosenNote(each, Attempt(0, "a", measured), 1) for each in plan_voice(own, voice)]
        return finisher.instrument(notes, 0).looped

    assert looped(job.voices[0]) == lasts
    assert looped(replace(job.voices[0], hold=Hold(3.0, None)))
    assert not looped(replace(job.voices[0], hold=Hold(10.0, 0.1)))
