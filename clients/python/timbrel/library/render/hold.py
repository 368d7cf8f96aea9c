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
from timbrel.library.render.measure import Measurement, fade_seconds, is_sustained
from timbrel.library.render.renderer import Attempt, Progress, Renderer
from timbrel.library.render.source import NoteSource

LASTING_SECONDS = 3.0
"""What lasts is held for so long. Its loop may take most of that, and what moves in it then repeats seldom
enough not to be heard as a pattern."""

LONGEST_SECONDS = 10.0
"""What dies away is held no longer: a file of it has 1.4 MB."""

DIED_DB = 60.0
"""It has died away where it has fallen by so much."""

SOON_SECONDS = 0.5
"""A key that goes up so soon leaves enough of what dies away to tell how it ends."""

STEP_SECONDS = 0.5
"""Holds are rounded up to this: they are for people, too."""


def with_holds(
    job: LibraryJob,
    renderer: Renderer,
    source: NoteSource,
    progress: Progress,
    seconds_range: tuple[float, float],
) -> LibraryJob:
    """Renders up to three notes of each instrument as the job has them, listens whether they last, and how
    those of the others end whose keys go up soon. All are kept, as all that the renderer makes.

    Args:
        job: of no instrument that has a hold of its own.
        renderer: of this job.
        seconds_range: for how long the bundle holds notes.

    Returns:
        The job, each instrument with a hold of its own. Raises TimbrelError, OSError: a note could not be had
        or kept.
    """

    def listen(voices: Sequence[Voice]) -> list[list[Attempt]]:
        probes = [(number, note) for number, voice in enumerate(voices) for note in _probes(job, voice)]
        notes = [note for _, note in probes]
        with closing(renderer.render(notes, 0, source, progress, "listening")) as found:
            heard = dict(found)
        own: list[list[Attempt]] = [[] for _ in voices]
        for place, (number, _) in enumerate(probes):
            own[number].append(heard[place])
        return own

    low, high = seconds_range
    soon = min(max(low, SOON_SECONDS), job.seconds)
    heard = zip(job.voices, listen(job.voices), strict=True)
    struck = {voice: own for voice, own in heard if not is_sustained([each.measurement for each in own])}
    ends = listen([replace(voice, hold=Hold(soon, 0.0)) for voice in struck]) if struck else []
    progress.close()
    holds = dict.fromkeys(job.voices, Hold(job.seconds, None))
    for (voice, held), let_go in zip(struck.items(), ends, strict=True):
        seconds = died_after([each.measurement for each in held], job.seconds, high)
        fades = (_fade_seconds(renderer, *pair, soon) for pair in zip(held, let_go, strict=True))
        holds[voice] = Hold(seconds, round(median(fades), 3))
    return replace(job, voices=tuple(replace(voice, hold=holds[voice]) for voice in job.voices))


def _fade_seconds(renderer: Renderer, held: Attempt, let_go: Attempt, soon: float) -> float:
    """Gives how long a sampler is to fade a note whose key goes up, as that of `let_go` did after so many
    seconds; at most LONGEST_SECONDS."""
    one, other = (renderer.load(each.key).trimmed for each in (held, let_go))
    rate = renderer.sample_rate
    found = fade_seconds(one.audio, other.audio, rate, round(soon * rate) - other.removed)
    return min(LONGEST_SECONDS, let_go.measurement.release_seconds if found is None else found)


def died_after(notes: Sequence[Measurement], held_seconds: float, longest: float) -> float:
    """Gives the seconds, at most `longest`, after which the slowest of an instrument's notes, which were held
    for `held_seconds`, has died away; at least those."""
    longest = min(longest, max(held_seconds, LONGEST_SECONDS))
    seconds = held_seconds
    for note in notes:
        if note.rise_db and note.decay is not None:  # else it has died away by then, or is too short to tell
            left = max(0.0, DIED_DB + note.rise_db)
            seconds = max(seconds, held_seconds + left / note.decay if note.decay > 0.0 else longest)
    return min(longest, math.ceil(seconds / STEP_SECONDS) * STEP_SECONDS)


def _probes(job: LibraryJob, voice: Voice) -> list[PlannedNote]:
    """The first takes of the lowest pitch, played loud, of the middle one and of the highest, played soft."""
    planned, last_pitch, last_velocity = plan_voice(job, voice), len(job.pitches) - 1, len(job.velocities) - 1
    places = {(last_pitch * third // 2, last_velocity - last_velocity * third // 2) for third in range(3)}
    return [
        planned[(pitch * len(job.velocities) + velocity) * job.round_robins]
        for pitch, velocity in sorted(places)
    ]
