"""Attempts at the notes of a job: a note that comes out far off its pitch is rendered again."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass

from timbrel.library.plan.notes import PlannedNote
from timbrel.library.render.measure import Measurement
from timbrel.library.render.pitch import Verdict, cents_off, correction_cents, judge

TryNotes = Callable[[Sequence[PlannedNote], int], Generator[tuple[int, "Attempt"], None, None]]
"""Renders and measures some notes; told the attempt's number, from 0. Yields (place among them, attempt)."""


@dataclass(frozen=True)
class Attempt:
    """One rendering of a planned note, measured."""

    number: int
    """Counted from 0."""

    key: str
    measurement: Measurement


@dataclass(frozen=True)
class ChosenNote:
    """A planned note, and which of its attempts is taken."""

    planned: PlannedNote
    attempt: Attempt
    n_attempts: int

    @property
    def measured(self) -> Measurement:
        return self.attempt.measurement

    @property
    def tune_cents(self) -> int:
        """What a sampler is to add."""
        return correction_cents(self.planned.pitch, *self.measured.heard)


def choose_attempts(
    notes: Sequence[PlannedNote], tries: int, attempt: TryNotes
) -> Generator[tuple[int, ChosenNote], None, None]:
    """Yields all of these notes, each with its place, as soon as its attempt is chosen.

    There is one attempt at each, then another at those far off, and so on.
    """
    tried: list[list[Attempt]] = [[] for _ in notes]
    pending = list(range(len(notes)))
    for number in range(tries):
        again = []
        with closing(attempt([notes[index] for index in pending], number)) as found:
            for place, each in found:
                index = pending[place]
                tried[index].append(each)
                if number + 1 < tries and verdict_of(notes[index], each) is Verdict.RETRY:
                    again.append(index)
                else:
                    yield index, choose(notes[index], tried[index])
        pending = sorted(again)
        if not pending:
            return


def verdict_of(planned: PlannedNote, attempt: Attempt) -> Verdict:
    """Decides about the pitch of one attempt."""
    return judge(planned.pitch, *attempt.measurement.heard)


def choose(planned: PlannedNote, attempts: Sequence[Attempt]) -> ChosenNote:
    """Takes the last attempt where it is good enough, else the one that is least far off."""
    last = attempts[-1]
    if verdict_of(planned, last) is Verdict.RETRY:
        last = min(attempts, key=lambda attempt: _distance(planned, attempt))
    return ChosenNote(planned, last, len(attempts))


def _distance(planned: PlannedNote, attempt: Attempt) -> float:
    """Takes the cents by the tracker that is nearer to the pitch asked."""
    cents = [cents_off(planned.pitch, each) for each in attempt.measurement.heard]
    return min((abs(each) for each in cents if each is not None), default=float("inf"))
