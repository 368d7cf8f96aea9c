"""A process that renders sound libraries and keeps the time.

python -m benchmarks.harness.library_run HOST:PORT
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from benchmarks.harness.processes import answer

from timbrel.client import Client
from timbrel.core.request import NoteRequest
from timbrel.library import LibraryJob, ModelIdentity, SamplingSettings, build_library
from timbrel.library.plan.voice import NamedPoint, name_voices
from timbrel.library.render.source import ClientSource, NoteSource
from timbrel.library.render.store import RawNote

Name = TypeVar("Name")


@dataclass
class Watched:
    """A source of notes, and when each of them came."""

    source: NoteSource
    frames_at: list[tuple[float, int]] = field(default_factory=list)
    begun: float = 0.0
    """When the first note was asked for."""
    asked_for_all: float = 0.0
    """When there was nothing more to ask for: from then on the server's slots empty."""

    def render(
        self, orders: Iterable[tuple[Name, NoteRequest]]
    ) -> Generator[tuple[Name, RawNote], None, None]:
        """The notes as they are."""
        self.begun = time.perf_counter()
        for name, note in self.source.render(self._watch(orders)):
            yield name, note
            # Back here, the note has been kept.
            self.frames_at.append((time.perf_counter(), len(note.codes)))

    def _watch(self, orders: Iterable[tuple[Name, NoteRequest]]) -> Iterator[tuple[Name, NoteRequest]]:
        yield from orders
        self.asked_for_all = time.perf_counter()


class LibraryRun:
    """Renders libraries with one server."""

    def __init__(self, address: str) -> None:
        os.environ["TIMBREL_CACHE"] = tempfile.mkdtemp(prefix="timbrel-benchmark-")
        self._client = Client(address)
        self._client.prepare()

    def __call__(self, n_notes: int, seconds: float, seed: int) -> dict[str, float]:
        """A new library of about so many notes, each held for `seconds`."""
        job = self._job(n_notes, seconds, seed)
        watched = Watched(ClientSource(self._client))
        with tempfile.TemporaryDirectory() as folder:
            start = time.perf_counter()
            build_library(self._client, job, Path(folder) / "lib", source=watched)
            whole = time.perf_counter() - start
        frames = sum(n for _, n in watched.frames_at)
        last = watched.frames_at[-1][0]
        # Saturated: from when the slots have been full for once, until they begin to empty.
        first = watched.frames_at[min(len(watched.frames_at) - 1, self._client.model().n_slots)][0]
        steady = sum(n for at, n in watched.frames_at if first < at <= watched.asked_for_all)
        return {
            "notes": job.n_notes,
            "frames": frames,
            "saturated_frames_per_second": steady / max(1e-9, watched.asked_for_all - first),
            "phase_one_frames_per_second": frames / (last - watched.begun),
            "whole_frames_per_second": frames / whole,
            "phase_one_notes_per_second": job.n_notes / (last - watched.begun),
            "whole_notes_per_second": job.n_notes / whole,
        }

    def _job(self, n_notes: int, seconds: float, seed: int) -> LibraryJob:
        model, known = self._client.model(), self._client.timbre_map()
        low, high = model.pitch_range
        pitches = tuple(range(low, high + 1, max(1, (high - low) // 12)))
        n_voices = min(len(known), max(1, round(n_notes / len(pitches))))
        default = model.default_sampling
        return LibraryJob(
            writer=ModelIdentity.of(model),
            voices=name_voices([NamedPoint.find(each.name, known) for each in known[:n_voices]], known),
            pitches=pitches,
            velocities=(80,),
            round_robins=max(1, round(n_notes / len(pitches) / n_voices)),
            seconds=seconds,
            sampling=SamplingSettings(default.temperature, default.top_k, default.top_p),
            seed=seed,
            tries=1,
        )


if __name__ == "__main__":
    answer(LibraryRun(sys.argv[1]))
