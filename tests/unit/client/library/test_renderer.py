"""The renderer: nothing is rendered twice, and what is far off its pitch is rendered again."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pytest

from timbrel.core.request import NoteRequest
from timbrel.library import LibraryJob
from timbrel.library.plan.notes import PlannedNote, plan_notes
from timbrel.library.render.harmonics import HarmonicSum
from timbrel.library.render.pitch import TrackerPair, is_far_off
from timbrel.library.render.renderer import Attempt, Progress, Renderer, choose
from timbrel.library.render.source import NoteSource
from timbrel.library.render.store import NoteStore, RawNote
from timbrel.library.render.worker_pool import Urgency, WorkerPool
from timbrel_bundle.yin import Yin

SAMPLE_RATE = 48_000
Name = TypeVar("Name")
Tone = Callable[..., npt.NDArray[np.float32]]


@dataclass
class CentsSource:
    """Notes whose codes say at which pitch they sound: as asked, and `off[seed]` cents. Remembers orders."""

    off: dict[int, int]
    orders: list[NoteRequest] = field(default_factory=list)

    def render(
        self, orders: Iterable[tuple[Name, NoteRequest]]
    ) -> Generator[tuple[Name, RawNote], None, None]:
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
def make_renderer(tmp_path: Path, tone: Tone) -> Iterator[Callable[..., Renderer]]:
    with WorkerPool(1) as pool:

        def make(job: LibraryJob, trackers: TrackerPair | None = None) -> Renderer:
            return Renderer(
                job,
                NoteStore(tmp_path / "codes"),
                tmp_path / "measured.log",
                lambda codes, seed: tone(float(codes[0, 0]) / 100.0, 0.5),
                SAMPLE_RATE,
                pool,
                trackers or TrackerPair(Yin(), HarmonicSum()),
            )

        yield make


def render(
    renderer: Renderer,
    notes: Sequence[PlannedNote],
    number: int,
    source: NoteSource,
    progress: Progress | None = None,
) -> list[Attempt]:
    """All attempts, in the order of the notes."""
    found = dict(renderer.render(notes, number, source, progress or Progress()))
    return [found[place] for place in range(len(notes))]


def attempts_of(renderer: Renderer, planned: PlannedNote, source: CentsSource, tries: int) -> list[bool]:
    """Whether each attempt is far off, until one is not."""
    far_off = []
    for number in range(tries):
        (attempt,) = render(renderer, [planned], number, source)
        far_off.append(is_far_off(planned.pitch, *attempt.measurement.heard))
        if not far_off[-1]:
            break
    return far_off


MakeRenderer = Callable[..., Renderer]


def test_a_note_far_off_is_rendered_again_with_the_next_seed(
    one_note: LibraryJob, make_renderer: MakeRenderer
) -> None:
    source = CentsSource({1: 700, 2: -1200, 3: 12})
    (planned,) = plan_notes(one_note)
    assert attempts_of(make_renderer(one_note), planned, source, 3) == [True, True, False]
    assert [order.seed for order in source.orders] == [1, 2, 3]


def test_one_trackers_octave_error_alone_does_nothing(
    one_note: LibraryJob, make_renderer: MakeRenderer
) -> None:
    source = CentsSource({})
    (planned,) = plan_notes(one_note)
    renderer = make_renderer(one_note, TrackerPair(Yin(), Deaf()))
    assert attempts_of(renderer, planned, source, 3) == [False]
    assert len(source.orders) == 1


def test_after_all_tries_the_nearest_is_taken(one_note: LibraryJob, make_renderer: MakeRenderer) -> None:
    source = CentsSource({1: 700, 2: 80, 3: -1200})
    (planned,) = plan_notes(one_note)
    renderer = make_renderer(one_note)
    assert attempts_of(renderer, planned, source, 3) == [True] * 3
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
    deaf_and_dumb._decode = lambda *note: pytest.fail("decoded again")
    assert render(deaf_and_dumb, notes, 0, source) == before
    assert len(source.orders) == len(notes)


def test_a_sound_is_decoded_once_between_measuring_and_finishing(
    one_note: LibraryJob, make_renderer: MakeRenderer
) -> None:
    (planned,) = plan_notes(one_note)
    renderer = make_renderer(one_note)
    decode, n_decoded = renderer._decode, []
    renderer._decode = lambda *note: [n_decoded.append(1), decode(*note)][1]  # type: ignore[func-returns-value]
    (attempt,) = render(renderer, [planned], 0, CentsSource({}))
    first = renderer.load(attempt.key)
    assert len(n_decoded) == 1
    again = renderer.load(attempt.key)  # the cache holds it no longer
    assert len(n_decoded) == 2 and np.array_equal(first.trimmed.audio, again.trimmed.audio)


def test_a_source_that_fails_loses_nothing(job: LibraryJob, make_renderer: MakeRenderer) -> None:
    notes = list(plan_notes(job))
    renderer = make_renderer(job)

    class Failing(CentsSource):
        def render(
            self, orders: Iterable[tuple[Name, NoteRequest]]
        ) -> Generator[tuple[Name, RawNote], None, None]:
            for number, reply in enumerate(super().render(orders)):
                if number == 7:
                    raise ConnectionError("gone")
                yield reply

    progress = Progress()
    with pytest.raises(ConnectionError):
        render(renderer, notes, 0, Failing({}), progress)
    assert progress.n_rendered == 7 and len(renderer.missing(notes, 0)) == len(notes) - 7


def test_damaged_notes_are_removed_all_at_once_and_told(
    job: LibraryJob, make_renderer: MakeRenderer, tmp_path: Path
) -> None:
    notes = list(plan_notes(job))
    render(make_renderer(job), notes, 0, CentsSource({}))
    (tmp_path / "measured.log").unlink()
    renderer = make_renderer(job)
    for planned in notes[::2]:
        path = NoteStore(tmp_path / "codes").path(renderer.key(planned, 0))
        path.write_bytes(b"PK\x03\x04 not a note")
    with pytest.raises(OSError, match=r"damaged and is gone now, as are all others.*; run the same command"):
        render(renderer, notes, 0, CentsSource({}))
    assert len(renderer.missing(notes, 0)) == len(notes[::2])
    render(make_renderer(job), notes, 0, CentsSource({}))


def test_a_note_is_told_of_as_soon_as_it_is_measured(job: LibraryJob, make_renderer: MakeRenderer) -> None:
    notes = list(plan_notes(job))
    told: list[int] = []
    told_by_the_third: list[int] = []

    class Slow(CentsSource):
        def render(
            self, orders: Iterable[tuple[Name, NoteRequest]]
        ) -> Generator[tuple[Name, RawNote], None, None]:
            for number, reply in enumerate(super().render(orders)):
                if number == 1:  # the one thread that measures has done what it was given before
                    renderer._pool.submit(Urgency.MEASURE, list).result()
                if number == 2:
                    told_by_the_third.extend(told)
                yield reply

    renderer = make_renderer(job)
    for place, _ in renderer.render(notes, 0, Slow({}), Progress()):
        told.append(place)
    assert told_by_the_third == [0]
    assert sorted(told) == list(range(len(notes)))


def test_what_is_settled_at_once_does_not_wait_for_second_attempts(
    job: LibraryJob, make_renderer: MakeRenderer
) -> None:
    renderer = make_renderer(replace(job, tries=3))
    notes = list(plan_notes(job))
    source = CentsSource({1: 700, 2: 700})  # of every first take

    chosen = list(renderer.choose(notes, source, Progress()))
    first = [index for index, _ in chosen[: len(notes) // 2]]
    assert all(notes[index].round_robin == 2 for index in first)
    assert sorted(index for index, _ in chosen) == list(range(len(notes)))
    assert all(note.n_attempts == (3 if notes[index].round_robin == 1 else 1) for index, note in chosen)


class Unasked(HarmonicSum):
    """A second tracker that counts how often it is asked."""

    def __init__(self) -> None:
        self.n_asked = 0

    def measure(self, audio: npt.NDArray[np.float32], sample_rate: int) -> float | None:
        self.n_asked += 1
        return super().measure(audio, sample_rate)


@pytest.mark.parametrize(("cents", "n_asked", "names"), [(0, 0, "yin"), (12, 1, "yin+harmonic-sum")])
def test_the_second_tracker_is_asked_only_where_it_matters(
    one_note: LibraryJob, make_renderer: MakeRenderer, cents: int, n_asked: int, names: str
) -> None:
    other = Unasked()
    (planned,) = plan_notes(one_note)
    renderer = make_renderer(one_note, TrackerPair(Yin(), other))
    (attempt,) = render(renderer, [planned], 0, CentsSource({1: cents}))
    assert other.n_asked == n_asked and attempt.measurement.trackers == names
    assert (attempt.measurement.other_pitch is None) == (n_asked == 0)
