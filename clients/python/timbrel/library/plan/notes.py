"""The notes of a library: in a fixed order, each with the name of its file, and a key once it is rendered."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from timbrel.core.request import NoteRequest
from timbrel.library.plan.job import SEED_STRIDE, LibraryJob, ModelIdentity
from timbrel.library.plan.voice import Voice
from timbrel_bundle.request_fields import SamplingSettings

SAMPLES = "samples"
"""Folder of the sound files within a library."""

KEY_VERSION = 1
"""Goes into every key: to be raised where the meaning of an order changes."""


@dataclass(frozen=True)
class PlannedNote:
    """One sample of a library."""

    voice: Voice
    pitch: int
    velocity: int
    round_robin: int
    """Number of the take, from 1."""

    first_seed: int
    """Seed of the first attempt; each further one takes the next."""

    file: str
    """Path within the library, with forward slashes. MIDI numbers, since octave names are not agreed upon."""

    def order(self, job: LibraryJob, attempt: int) -> NoteRequest:
        """Says what to ask a server for; `attempt` counts from 0."""
        seed = self.first_seed + attempt
        sampling = job.sampling.to_dict()
        held_seconds = job.held_seconds(self.voice)
        return NoteRequest(self.voice.timbre, self.pitch, self.velocity, held_seconds, seed, **sampling)


def plan_voice(job: LibraryJob, voice: Voice) -> tuple[PlannedNote, ...]:
    """Lists the samples of one instrument: by pitch, velocity, round robin."""
    notes = []
    for pitch, velocity, take in product(job.pitches, job.velocities, range(1, job.round_robins + 1)):
        ending = f"_r{take}.{job.file_format}" if job.round_robins > 1 else f".{job.file_format}"
        file = f"{SAMPLES}/{voice.slug}/{voice.slug}_{pitch:03d}_v{velocity:03d}{ending}"
        seed = job.seed + SEED_STRIDE * (take - 1)
        notes.append(PlannedNote(voice, pitch, velocity, take, seed, file))
    return tuple(notes)


def plan_notes(job: LibraryJob, first: int = 0, stop: int | None = None) -> Iterator[PlannedNote]:
    """Lists the samples of the library, instrument by instrument: all, or those of numbers `first` to `stop`,
    which is not included."""
    stop, n_each = job.n_notes if stop is None else stop, job.n_notes_each
    for number in range(first // n_each, -(-stop // n_each)):
        begin = number * n_each
        yield from plan_voice(job, job.voices[number])[max(0, first - begin) : max(0, stop - begin)]


def note_key(writer: ModelIdentity, order: NoteRequest) -> str:
    """Names a note: the SHA-256, in hex, of the model that writes it and of everything that is asked for."""
    asked = {name: getattr(order, name) for name in ("timbre", "pitch", "velocity", "seconds", "seed")}
    asked["sampling"] = SamplingSettings.of(order).effective()
    return _hash({"version": KEY_VERSION, "writer": vars(writer), "order": asked})


def job_key(job: LibraryJob) -> str:
    """Names a job: its SHA-256, in hex. Equal jobs may share a folder."""
    return _hash({"version": KEY_VERSION, "job": {**job.to_dict(), "sampling": job.sampling.effective()}})


def codes_hash(codes: npt.NDArray[np.uint16]) -> str:
    """Gives the SHA-256, in hex, of codes [frames, codebooks] and their shape."""
    header = f"{codes.shape[0]}x{codes.shape[1]}:".encode()
    return hashlib.sha256(header + codes.astype("<u2").tobytes()).hexdigest()


def _hash(facts: dict[str, Any]) -> str:
    text = json.dumps(facts, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()
