"""What runs on the cluster: a server of its own, and one shard after the other."""

from __future__ import annotations

import tempfile
from collections.abc import Generator, Sequence
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from timbrel.client import Client
from timbrel.library import nsynth
from timbrel.library.background import WorkerPool
from timbrel.library.codec import LibraryCodec
from timbrel.library.job import LibraryJob
from timbrel.library.key import codes_hash
from timbrel.library.pitch import find_trackers
from timbrel.library.plan import PlannedNote, plan_notes
from timbrel.library.render import Attempt, ChosenNote, Progress, Renderer, settle
from timbrel.library.scale.depot import Depot
from timbrel.library.scale.shard import Receipt, Row, Shard, receipt_of, shard_bytes
from timbrel.library.source import ClientSource, check_writer
from timbrel.library.store import NoteStore
from timbrel.library.tuning import correction_cents, is_in_tune
from timbrel.private_server import PrivateServer

SERVER_OPTIONS = ("--threads", "1")
"""A worker has one core: many small servers write more notes than one that waits for its own threads."""


class ShardWorker:
    """Renders shards of one job. Ray makes as many as there is room for, each in a process of its own."""

    def __init__(self, job: LibraryJob, url: str, bundle: str | None) -> None:
        """
        Args:
            url: where the shards go.
            bundle: folder of the bundle, the same on every machine; None: the one that ships.
        """
        self._job = job
        self._depot = Depot(url)
        self._server = PrivateServer(bundle, SERVER_OPTIONS)
        self._client = Client(self._server.address, token=self._server.token)
        check_writer("the worker's server", self._client, job.writer)
        self._source = ClientSource(self._client, patience_seconds=0.0)
        self._decode = LibraryCodec(self._client)
        self._trackers = find_trackers()

    def __call__(self, batch: dict[str, npt.NDArray[Any]]) -> dict[str, list[Any]]:
        """Ray Data's way of calling it: columns in, columns out."""
        receipts = [
            self.make(Shard(**{name: _plain(values[index]) for name, values in batch.items()}))
            for index in range(len(batch["number"]))
        ]
        rows = [asdict(receipt) for receipt in receipts]
        return {name: [row[name] for row in rows] for name in rows[0]}

    def make(self, shard: Shard) -> Receipt:
        """Renders, measures and writes one shard."""
        notes = list(islice(plan_notes(self._job), shard.first, shard.stop))
        with tempfile.TemporaryDirectory(prefix="timbrel-shard-") as folder:
            rows, n_rendered = self._render(notes, shard.first, Path(folder))
        content = shard_bytes(rows, shard.format)
        receipt = receipt_of(shard, rows, content, n_rendered)
        self._depot.keep(shard, content, receipt)
        return receipt

    def close(self) -> None:
        """Ends the server, which would end with this process anyway."""
        self._client.close()
        self._server.close()

    def _render(self, notes: Sequence[PlannedNote], first: int, folder: Path) -> tuple[list[Row], int]:
        progress = _Count()
        with WorkerPool(1) as pool:
            renderer = Renderer(
                self._job,
                NoteStore(folder / "codes"),
                folder / "measured.log",
                self._decode,
                self._client.model().sample_rate,
                self._trackers,
                pool,
            )

            def attempt(
                wanted: Sequence[PlannedNote], number: int
            ) -> Generator[tuple[int, Attempt], None, None]:
                return renderer.render(wanted, number, self._source, progress)

            chosen = dict(settle(notes, self._job.tries, attempt))
        rows = [self._row(renderer, chosen[index], first + index) for index in range(len(notes))]
        return rows, progress.n_rendered

    def _row(self, renderer: Renderer, note: ChosenNote, number: int) -> Row:
        job, planned, measured = self._job, note.planned, note.attempt.measurement
        order = planned.order(job, note.attempt.number)
        raw = renderer.note(note.attempt.key)
        heard = (measured.pitch, measured.other_pitch)
        tune = correction_cents(planned.pitch, *heard)
        return {
            "note": number,
            "note_str": Path(planned.file).stem,
            "instrument": job.voices.index(planned.voice),
            "instrument_str": planned.voice.name,
            "pitch": planned.pitch,
            "velocity": planned.velocity,
            "instrument_family": nsynth.family_number(planned.voice.family),
            "instrument_family_str": nsynth.family_name(planned.voice.family),
            "instrument_source": nsynth.SYNTHETIC,
            "instrument_source_str": "synthetic",
            "x": order.timbre[0],
            "y": order.timbre[1],
            "nearest_instrument": planned.voice.nearest,
            "round_robin": planned.round_robin,
            "seed": order.seed,
            "attempts": note.n_attempts,
            "held_seconds": order.seconds,
            "truncated": raw.truncated,
            "temperature": order.sampling.temperature,
            "top_k": order.sampling.top_k,
            "top_p": order.sampling.top_p,
            **asdict(job.writer),
            "key": note.attempt.key,
            "codes_sha256": codes_hash(raw.codes),
            "n_frames": len(raw.codes),
            "loudness_lufs": measured.loudness,
            "true_peak_db": measured.true_peak,
            "pitch_measured": measured.pitch,
            "pitch_measured_other": measured.other_pitch,
            "trackers": measured.trackers,
            "tune_cents": tune,
            "in_tune": is_in_tune(planned.pitch, *heard, tune=tune),
            "codes": raw.codes,
        }


class _Count(Progress):
    """Of the notes that the server was asked for."""

    def __init__(self) -> None:
        self.n_rendered = 0

    def rendered(self, n_notes: int) -> None:
        self.n_rendered += n_notes


def _plain(value: Any) -> Any:
    """Numpy's scalars as Python's."""
    return value.item() if isinstance(value, np.generic) else value
