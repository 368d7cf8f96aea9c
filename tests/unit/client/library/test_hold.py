"""How long keys are held where nobody says: what dies away until it has; no note is rendered twice for it."""

from __future__ import annotations

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
from timbrel.library.render.hold import hold_until_it_dies, with_holds
from timbrel.library.render.level import Audio, Trimmed
from timbrel.library.render.measure import Measurement, is_sustained
from timbrel.library.render.pitch import find_trackers
from timbrel.library.render.renderer import Attempt, ChosenNote, Progress, Renderer
from timbrel.library.render.source import Name
from timbrel.library.render.store import NoteStore, RawNote
from timbrel.library.render.worker_pool import WorkerPool

RATE = 48_000


def declining(decay: float | None, rise_db: float, release_seconds: float) -> Measurement:
    return Measurement(60.0, None, "yin", -20.0, -10.0, decay, release_seconds, 0.0, rise_db)


class FakeSource:
    """Writes the instrument's x into the codes, and down what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[NoteRequest] = []

    def render(
        self, orders: Iterable[tuple[Name, NoteRequest]]
    ) -> Generator[tuple[Name, RawNote], None, None]:
        for key, order in orders:
            self.asked.append(order)
            assert not isinstance(order.timbre, str)
            yield key, RawNote(np.full((1, 1), round(1000 * order.timbre[0]), np.uint16), truncated=False)


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
@pytest.mark.parametrize("held_seconds", [1.0, 2.0])
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
    assert is_sustained([measured], held_seconds) == lasts


@pytest.mark.parametrize(
    ("declines", "longest", "hold"),
    [
        ([declining(0.2, 1.0, 0.3)] * 3, 600.0, None),
        ([declining(12.0, -22.0, 0.3)] * 3, 600.0, Hold(5.5, 0.3)),
        (
            [declining(12.0, -22.0, 0.1), declining(20.0, -34.0, 0.2), declining(60.0, 0.0, 0.4)],
            600.0,
            Hold(5.5, 0.2),
        ),
        ([declining(4.0, -7.0, 0.1)] * 3, 600.0, Hold(10.0, 0.1)),
        ([declining(4.0, -7.0, 0.1)] * 3, 2.4, Hold(2.4, 0.1)),
        ([declining(4.0, -7.0, 0.1)] * 3, 2.0, None),
        ([declining(60.0, 0.0, 0.0)] * 3, 600.0, None),
        ([declining(30.0, -70.0, 0.0)], 600.0, None),
        ([declining(None, 0.0, 0.0)], 600.0, None),
    ],
)
def test_keys_of_what_dies_away_are_held_until_it_has(
    declines: list[Measurement], longest: float, hold: Hold | None
) -> None:
    """By the slowest note, ten seconds at most, in steps of half a second."""
    assert hold_until_it_dies(declines, 2.0, longest) == hold


def test_no_note_that_was_listened_to_is_rendered_again(
    job: LibraryJob, tone: Callable[..., Audio], tmp_path: Path
) -> None:
    violin, flute = job.voices
    source = FakeSource()

    def decode(codes: npt.NDArray[np.uint16], seed: int) -> Audio:
        struck = int(codes[0, 0]) == round(1000 * flute.timbre[0])
        return tone(60, 1.1, decay=15.0 if struck else 0.0)

    with WorkerPool(1) as pool:
        store = NoteStore(tmp_path / "codes")
        renderer = Renderer(job, store, tmp_path / "log", decode, RATE, find_trackers(), pool)
        progress = Progress()
        held = with_holds(job, renderer, source, progress, 600.0)
        assert [(order.pitch, order.velocity, order.seconds) for order in source.asked] == [
            (pitch, 120, 1.0) for _ in job.voices for pitch in (60, 64, 67)
        ]
        assert held.voices[0] == violin and replace(held.voices[1], hold=None) == flute
        assert held.held_seconds(violin) == 1.0
        assert held.voices[1].hold is not None and held.held_seconds(held.voices[1]) == pytest.approx(
            4.0, abs=0.5
        )
        first = len(source.asked)
        notes = list(plan_notes(held))
        assert len(list(renderer.render(notes, 0, source, progress))) == len(notes)
    again = source.asked[first:]
    assert len(again) == job.n_notes - 3, "three of the violin's are known"
    assert progress.n_rendered == len(source.asked)
    assert {order.seconds for order in again if order.timbre == flute.timbre} == {
        held.held_seconds(held.voices[1])
    }


def test_what_is_held_until_it_dies_is_not_looped(job: LibraryJob, tmp_path: Path) -> None:
    """Even if most of it has not, as a bass's low notes after ten seconds: its loop would ring for ever."""
    steady = Measurement(60.0, None, "yin", -20.0, -10.0, 0.5, 0.1, 0.0, 0.5)
    model: Any = SimpleNamespace(**vars(job.writer), sample_rate=RATE, codec_hash="c" * 64)

    def looped(voice: Voice) -> bool:
        own = replace(job, voices=(voice,))
        finisher = Finisher(
            own, model, tmp_path, tmp_path, lambda _: pytest.fail("is not loaded"), {}, sf2=False
        )
        notes = [ChosenNote(each, Attempt(0, "a", steady), 1) for each in plan_voice(own, voice)]
        return finisher.instrument(notes, 0).looped

    assert looped(job.voices[0])
    assert not looped(replace(job.voices[0], hold=Hold(10.0, 0.1)))
