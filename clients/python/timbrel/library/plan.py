"""The notes of a library, in a fixed order, each with the name of its file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from timbrel.library.job import SEED_STRIDE, LibraryJob, SamplingChoice
from timbrel.library.voice import Voice

SAMPLES = "samples"
"""Folder of the sound files within a library."""


@dataclass(frozen=True)
class NoteOrder:
    """One note as it is asked of a server: everything that decides about its codes."""

    timbre: tuple[float, float]
    pitch: int
    velocity: int
    seconds: float
    seed: int
    sampling: SamplingChoice


@dataclass(frozen=True)
class PlannedNote:
    """One sample of a library."""

    voice: Voice
    pitch: int
    velocity: int
    round_robin: int
    """From 1."""

    first_seed: int
    """Of the first attempt."""

    file: str
    """Path within the library, with forward slashes. MIDI numbers, since octave names are not agreed upon."""

    def order(self, job: LibraryJob, attempt: int) -> NoteOrder:
        """What to ask for; `attempt` counts from 0."""
        seed = self.first_seed + attempt
        return NoteOrder(self.voice.timbre, self.pitch, self.velocity, job.seconds, seed, job.sampling)


def plan_voice(job: LibraryJob, voice: Voice) -> tuple[PlannedNote, ...]:
    """The samples of one instrument: by pitch, velocity, round robin."""
    return tuple(
        PlannedNote(
            voice=voice,
            pitch=pitch,
            velocity=velocity,
            round_robin=take,
            first_seed=job.seed + SEED_STRIDE * (take - 1),
            file=_file(job, voice, pitch, velocity, take),
        )
        for pitch in job.pitches
        for velocity in job.velocities
        for take in range(1, job.round_robins + 1)
    )


def plan_notes(job: LibraryJob) -> Iterator[PlannedNote]:
    """Every sample of the library, instrument by instrument."""
    for voice in job.voices:
        yield from plan_voice(job, voice)


def _file(job: LibraryJob, voice: Voice, pitch: int, velocity: int, take: int) -> str:
    last = f"_r{take}" if job.round_robins > 1 else ""
    return f"{SAMPLES}/{voice.slug}/{voice.slug}_{pitch:03d}_v{velocity:03d}{last}.{job.file_format}"
