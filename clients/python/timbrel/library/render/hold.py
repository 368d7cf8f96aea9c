"""The hold of keys where nobody says for how long: what is struck is held until it has died away."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from statistics import median

from timbrel.library.plan.job import LibraryJob
from timbrel.library.plan.notes import PlannedNote, plan_voice
from timbrel.library.plan.voice import Hold, Voice
from timbrel.library.render.measure import Measurement, is_sustained
from timbrel.library.render.renderer import Progress, Renderer
from timbrel.library.render.source import NoteSource

LASTING_SECONDS = 3.0
"""What lasts is held for so long. Its loop may take most of that, and what moves in it then repeats seldom
enough not to be heard as a pattern."""

LONGEST_SECONDS = 10.0
"""What dies away is held no longer: a file of it has 1.4 MB."""

DIED_DB = 60.0
"""It has died away where it has fallen by so much."""

STEP_SECONDS = 0.5
"""Holds are rounded up to this: they are for people, too."""


def with_holds(
    job: LibraryJob, renderer: Renderer, source: NoteSource, progress: Progress, longest: float
) -> LibraryJob:
    """Renders up to three notes of each instrument as the job has them, and listens whether they last. They
    are kept, as all that the renderer makes.

    Args:
        job: of no instrument that has a hold of its own.
        renderer: of this job.
        longest: seconds that the bundle holds notes for at most.

    Returns:
        The job, with a hold of their own for those that die away. Raises TimbrelError, OSError: a note could
        not be had or kept.
    """
    probes = [planned for voice in job.voices for planned in _probes(job, voice)]
    heard: dict[str, list[Measurement]] = {voice.slug: [] for voice in job.voices}
    with closing(renderer.render(probes, 0, source, progress, "listening")) as found:
        for place, attempt in found:
            heard[probes[place].voice.slug].append(attempt.measurement)
    progress.close()
    voices = (
        replace(voice, hold=hold_until_it_dies(heard[voice.slug], job.seconds, longest))
        for voice in job.voices
    )
    return replace(job, voices=tuple(voices))


def hold_until_it_dies(notes: Sequence[Measurement], held_seconds: float, longest: float) -> Hold | None:
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
