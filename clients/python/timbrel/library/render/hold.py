"""The hold of keys where nobody says for how long: what is struck is held until it has died away."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from statistics import median
from typing import TypeVar

from timbrel.client import Client
from timbrel.core.request import NoteRequest
from timbrel.library.plan.folder import LibraryFolder
from timbrel.library.plan.job import LibraryJob, check_job
from timbrel.library.plan.notes import PlannedNote, note_key, plan_voice
from timbrel.library.plan.voice import Hold, Voice
from timbrel.library.render.level import trim
from timbrel.library.render.measure import Decline, is_sustained, measure_decline
from timbrel.library.render.source import NoteSource
from timbrel.library.render.store import Decode, RawNote, note_decoder
from timbrel.library.render.worker_pool import Urgency, WorkerPool, default_threads
from timbrel.progress import bar

LONGEST_SECONDS = 10.0
"""What dies away is held no longer: a file of it has 1.4 MB."""

DIED_DB = 60.0
"""It has died away where it has fallen by so much."""

STEP_SECONDS = 0.5
"""Holds are rounded up to this: they are for people, too."""

Name = TypeVar("Name")


class SourceWithProbes:
    """A source of raw notes that has some of them already."""

    def __init__(self, source: NoteSource, notes: Mapping[str, RawNote]) -> None:
        """`notes` are by their keys, by which the others, of `source`, are to be asked for, too."""
        self._source = source
        self._notes = notes

    def render(
        self, orders: Iterable[tuple[Name, NoteRequest]]
    ) -> Generator[tuple[Name, RawNote], None, None]:
        missing = []
        for name, order in orders:
            if (note := self._notes.get(str(name))) is None:
                missing.append((name, order))
            else:
                yield name, note
        if missing:
            with closing(self._source.render(missing)) as others:
                yield from others


def with_holds(
    job: LibraryJob, client: Client, source: NoteSource, folder: LibraryFolder, *, shown: bool
) -> tuple[LibraryJob, NoteSource]:
    """Has what dies away held until it has: as the job in the folder has it, or else as `choose_holds` does.

    Raises InvalidRequestError: the bundle cannot play the job; OtherJobError: the folder's job is damaged;
    TimbrelError: a note could not be had.
    """
    model = client.model()
    check_job(job, model)
    known = folder.known_holds()
    if known is None:
        decode, longest = note_decoder(client), model.seconds_range[1]
        return choose_holds(job, source, decode, model.sample_rate, longest, shown=shown)
    voices = tuple(replace(voice, hold=known.get(voice.slug)) for voice in job.voices)
    return replace(job, voices=voices), source


def choose_holds(
    job: LibraryJob, source: NoteSource, decode: Decode, sample_rate: int, longest: float, *, shown: bool
) -> tuple[LibraryJob, NoteSource]:
    """Renders up to three notes of each instrument as the job has them, and listens whether they last.

    Args:
        job: of no instrument that has a hold of its own.
        decode: gives sound at `sample_rate`.
        longest: seconds that the bundle holds notes for at most.
        shown: whether to show how far it is.

    Returns:
        The job, with a hold of their own for those that die away; and the source, which need not render again
        what was rendered for this. Raises TimbrelError: a note could not be had.
    """
    probes = {
        note_key(job.writer, planned.order(job, 0)): planned
        for voice in job.voices
        for planned in _probes(job, voice)
    }
    orders = [(key, planned.order(job, 0)) for key, planned in probes.items()]
    notes: dict[str, RawNote] = {}

    def listen(note: RawNote) -> Decline:
        trimmed = trim(decode(note.codes, note.seed), sample_rate, note.truncated)
        return measure_decline(trimmed, sample_rate, job.seconds)

    with (
        bar("listening", len(orders), "note", shown=shown) as progress,
        WorkerPool(default_threads()) as pool,
        closing(source.render(orders)) as replies,
    ):
        heard = {}
        for key, note in replies:
            notes[key] = note
            heard[key] = pool.submit(Urgency.MEASURE, listen, note)
            progress.update()
        declines = {key: future.result() for key, future in heard.items()}
    voices = []
    for voice in job.voices:
        own = [declines[note_key(job.writer, planned.order(job, 0))] for planned in _probes(job, voice)]
        voices.append(replace(voice, hold=hold_until_it_dies(own, job.seconds, longest)))
    return replace(job, voices=tuple(voices)), SourceWithProbes(source, notes)


def hold_until_it_dies(notes: Sequence[Decline], held_seconds: float, longest: float) -> Hold | None:
    """Gives for how long, at most `longest`, an instrument's keys are to be held, so that the slowest of
    these notes, which were held for `held_seconds`, dies away; None: no longer than those, as it lasts."""
    longest = min(longest, LONGEST_SECONDS)
    if longest <= held_seconds or is_sustained(notes, held_seconds):
        return None
    seconds = held_seconds
    for note in notes:
        if note.rise_db and note.decay is not None:  # else it has died away by then, or is too short to tell
            left = max(0.0, DIED_DB + note.rise_db)
            seconds = max(seconds, held_seconds + left / note.decay if note.decay > 0.0 else longest)
    seconds = min(longest, math.ceil(seconds / STEP_SECONDS) * STEP_SECONDS)
    # How notes are released that are let go sooner: those held so long have died before.
    released = round(median(note.release_seconds for note in notes), 3)
    return Hold(seconds, released) if seconds > held_seconds else None


def _probes(job: LibraryJob, voice: Voice) -> list[PlannedNote]:
    """The first take of the lowest, the middle and the highest pitch, at the middle velocity."""
    planned = plan_voice(job, voice)
    n_each, middle = len(job.velocities) * job.round_robins, len(job.velocities) // 2 * job.round_robins
    last = len(job.pitches) - 1
    return [planned[number * n_each + middle] for number in sorted({0, last // 2, last})]
