"""The worker that runs on a cluster: it has a server of its own, and renders one shard after the other."""

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
from timbrel.library.finish.manifest import rendering_facts, tuning_facts
from timbrel.library.finish.shards import Row, Shard, ShardReceipt, ShardStore, receipt_of, shard_bytes
from timbrel.library.plan.job import LibraryJob
from timbrel.library.plan.notes import PlannedNote, plan_notes
from timbrel.library.render.attempts import Attempt, ChosenNote, choose_attempts
from timbrel.library.render.pitch import find_trackers
from timbrel.library.render.renderer import Progress, Renderer
from timbrel.library.render.source import ClientSource, check_model
from timbrel.library.render.store import LibraryCodec, NoteStore
from timbrel.library.render.worker_pool import WorkerPool
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
        self._shards = ShardStore(url)
        self._server = PrivateServer(bundle, SERVER_OPTIONS)
        self._client = Client(self._server.address, token=self._server.token)
        check_model("the worker's server", self._client, job.writer)
        self._source = ClientSource(self._client, patience_seconds=0.0)
        self._decode = LibraryCodec(self._client)
        self._trackers = find_trackers()

    def __call__(self, batch: dict[str, npt.NDArray[Any]]) -> dict[str, list[Any]]:
        """Makes a batch of shards, as Ray Data calls it: columns in, columns out."""
        receipts = [
            self.make(Shard(**{name: _plain(values[index]) for name, values in batch.items()}))
            for index in range(len(batch["number"]))
        ]
        rows = [asdict(receipt) for receipt in receipts]
        return {name: [row[name] for row in rows] for name in rows[0]}

    def make(self, shard: Shard) -> ShardReceipt:
        """Renders, measures and writes one shard."""
        notes = list(islice(plan_notes(self._job), shard.first, shard.stop))
        with tempfile.TemporaryDirectory(prefix="timbrel-shard-") as folder:
            rows, n_rendered = self._render(notes, shard.first, Path(folder))
        content = shard_bytes(rows, shard.format)
        receipt = receipt_of(shard, rows, content, n_rendered)
        self._shards.commit(shard, content, receipt)
        return receipt

    def close(self) -> None:
        """Ends the server, which would end with this process anyway."""
        self._client.close()
        self._server.close()

    def _render(self, notes: Sequence[PlannedNote], first: int, folder: Path) -> tuple[list[Row], int]:
        progress = Progress()
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

            chosen = dict(choose_attempts(notes, self._job.tries, attempt))
        rows = [self._row(renderer, chosen[index], first + index) for index in range(len(notes))]
        return rows, progress.n_rendered

    def _row(self, renderer: Renderer, note: ChosenNote, number: int) -> Row:
        raw = renderer.note(note.attempt.key)
        return {
            **rendering_facts(self._job, self._client.model(), note, number, raw),
            "loudness_lufs": note.measured.loudness,
            "true_peak_db": note.measured.true_peak,
            **tuning_facts(note),
            "codes": raw.codes,
        }


def _plain(value: Any) -> Any:
    """Turns numpy's scalars into Python's."""
    return value.item() if isinstance(value, np.generic) else value
