"""The first phase: nothing is rendered twice, and what is far off its pitch is rendered again."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pytest

from timbrel.library import LibraryJob
from timbrel.library.pitch import TrackerPair
from timbrel.library.pitch.harmonics import HarmonicSum
from timbrel.library.pitch.yin import Yin
from timbrel.library.plan import NoteOrder, PlannedNote, plan_notes
from timbrel.library.render import Attempt, Renderer, choose, verdict_of
from timbrel.library.source import NoteSource
from timbrel.library.store import NoteStore, RawNote
from timbrel.library.tuning import Verdict

SAMPLE_RATE = 48_000
Name = TypeVar("Name")
Tone = Callable[..., npt.NDArray[np.float32]]


@dataclass
class CentsSource:
    """Notes whose codes say at which pitch they sound: as asked, and `off[seed]` cents. Remembers orders."""

    off: dict[int, int]
    orders: list[NoteOrder] = field(default_factory=list)

    def render(self, orders: Iterable[tuple[Name, NoteOrder]]) -> Generator[tuple[Name, RawNote], None, None]:
        for name, order in orders:
            self.orders.append(order)
            cents = 100 * order.pitch + self.off.get(order.seed, 0)
            yield name, RawNote(np.array([[cents]], dtype=np.uint16), False)


class Deaf:
    """A tracker that is always an octave too low."""

    name = "deaf"

    def measure(self, audio: npt.NDArray[np.float32], sample_rate: int) -> float | None:
        heard = Yin().measure(audio, sample_rate)
        return None if heard is None else heard - 12.0


@pytest.fixture
def one_note(job: LibraryJob) -> LibraryJob:
    return replace(job, voices=job.voices[:1], pitches=(60,), velocities=(100,), round_robins=1, tries=3)


@pytest.fixture
def make_renderer(tmp_path: Path, tone: Tone) -> Callable[..., Renderer]:
    def make(job: LibraryJob, trackers: TrackerPair | None = None) -> Renderer:
        for name in ("codes", "measured"):
            (tmp_path / name).mkdir(exist_ok=True)
        return Renderer(
            job,
            NoteStore(tmp_path / "codes"),
            tmp_path / "measured",
            lambda codes: tone(float(codes[0, 0]) / 100.0, 0.5),
            SAMPLE_RATE,
            trackers or TrackerPair(Yin(), HarmonicSum()),
            n_threads=1,
        )

    return make


def render(
    renderer: Renderer,
    notes: Sequence[PlannedNote],
    number: int,
    source: NoteSource,
    rendered: Callable[[int], object] = lambda count: None,
) -> list[Attempt]:
    """Without bars."""
    return renderer.render(notes, number, source, rendered, lambda: lambda count: None)


def attempts_of(renderer: Renderer, planned: PlannedNote, source: CentsSource, tries: int) -> list[Verdict]:
    """What becomes of each attempt, until one is good enough."""
    verdicts = []
    for number in range(tries):
        (attempt,) = render(renderer, [planned], number, source)
        verdicts.append(verdict_of(planned, attempt))
        if verdicts[-1] is not Verdict.AGAIN:
            break
    return verdicts


MakeRenderer = Callable[..., Renderer]


def test_a_note_far_off_is_rendered_again_with_the_next_seed(
    one_note: LibraryJob, make_renderer: MakeRenderer
) -> None:
    source = CentsSource({1: 700, 2: -1200, 3: 12})
    (planned,) = plan_notes(one_note)
    verdicts = attempts_of(make_renderer(one_note), planned, source, 3)
    assert verdicts == [Verdict.AGAIN, Verdict.AGAIN, Verdict.TUNE]
    assert [order.seed for order in source.orders] == [1, 2, 3]


def test_one_trackers_octave_error_alone_does_nothing(
    one_note: LibraryJob, make_renderer: MakeRenderer
) -> None:
    source = CentsSource({})
    (planned,) = plan_notes(one_note)
    renderer = make_renderer(one_note, TrackerPair(Yin(), Deaf()))
    assert attempts_of(renderer, planned, source, 3) == [Verdict.KEEP]
    assert len(source.orders) == 1


def test_after_all_tries_the_nearest_is_taken(one_note: LibraryJob, make_renderer: MakeRenderer) -> None:
    source = CentsSource({1: 700, 2: 80, 3: -1200})
    (planned,) = plan_notes(one_note)
    renderer = make_renderer(one_note)
    assert attempts_of(renderer, planned, source, 3) == [Verdict.AGAIN] * 3
    tried = [render(renderer, [planned], number, source)[0] for number in range(3)]
    assert len(source.orders) == 3
    chosen = choose(planned, tried)
    assert (chosen.attempt.number, chosen.n_attempts) == (1, 3)


def test_what_is_there_is_neither_rendered_nor_measured_again(
    job: LibraryJob, make_renderer: MakeRenderer
) -> None:
    notes = list(plan_notes(job))
    source = CentsSource({})
    first = make_renderer(job)
    render(first, notes[:10], 0, source)
    again = make_renderer(job)
    assert len(again.missing(notes, 0)) == len(notes) - 10
    before = render(again, notes, 0, source)
    assert len(source.orders) == len(set(source.orders)) == len(notes)
    deaf_and_dumb = make_renderer(job)
    deaf_and_dumb._decode = lambda codes: pytest.fail("decoded again")
    assert render(deaf_and_dumb, notes, 0, source) == before
    assert len(source.orders) == len(notes)


def test_a_sound_is_decoded_once_between_measuring_and_finishing(
    one_note: LibraryJob, make_renderer: MakeRenderer
) -> None:
    (planned,) = plan_notes(one_note)
    renderer = make_renderer(one_note)
    decode, n_decoded = renderer._decode, []
    renderer._decode = lambda codes: [n_decoded.append(1), decode(codes)][1]  # type: ignore[func-returns-value]
    (attempt,) = render(renderer, [planned], 0, CentsSource({}))
    _, audio = renderer.load(attempt.key)
    assert len(n_decoded) == 1
    _, again = renderer.load(attempt.key)  # the shelf holds it no longer
    assert len(n_decoded) == 2 and np.array_equal(audio, again)


def test_a_source_that_fails_loses_nothing(job: LibraryJob, make_renderer: MakeRenderer) -> None:
    notes = list(plan_notes(job))
    renderer = make_renderer(job)

    class Failing(CentsSource):
        def render(
            self, orders: Iterable[tuple[Name, NoteOrder]]
        ) -> Generator[tuple[Name, RawNote], None, None]:
            for number, reply in enumerate(super().render(orders)):
                if number == 7:
                    raise ConnectionError("gone")
                yield reply

    done: list[int] = []
    with pytest.raises(ConnectionError):
        render(renderer, notes, 0, Failing({}), done.append)
    assert len(done) == 7 and len(renderer.missing(notes, 0)) == len(notes) - 7


def test_a_damaged_note_is_removed_and_told(
    job: LibraryJob, make_renderer: MakeRenderer, tmp_path: Path
) -> None:
    planned = next(plan_notes(job))
    renderer = make_renderer(job)
    render(renderer, [planned], 0, CentsSource({}))
    shutil.rmtree(tmp_path / "measured")
    path = NoteStore(tmp_path / "codes").path(renderer.key(planned, 0))
    path.write_bytes(b"PK\x03\x04 not a note")
    with pytest.raises(OSError, match="was damaged and is gone now; run the same command"):
        render(renderer, [planned], 0, CentsSource({}))
    assert len(renderer.missing([planned], 0)) == 1
