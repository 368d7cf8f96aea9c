"""The same plan on a cluster: Ray Data, whose workers have servers of their own, and shards of raw notes."""

from __future__ import annotations

import logging
import os
import re
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from timbrel import errors
from timbrel.client import Client
from timbrel.library.finish import shards as shard_files
from timbrel.library.finish.manifest import rendering_facts, tuning_facts
from timbrel.library.plan.job import LibraryJob
from timbrel.library.plan.notes import PlannedNote, plan_notes
from timbrel.library.render.pitch import find_trackers
from timbrel.library.render.renderer import ChosenNote, Progress, Renderer
from timbrel.library.render.source import ClientSource, check_model
from timbrel.library.render.store import NoteStore, note_decoder
from timbrel.library.render.worker_pool import WorkerPool
from timbrel.private_server import PrivateServer
from timbrel.progress import bar
from timbrel.settings import Security
from timbrel_bundle.request_fields import SamplingSettings

ADDRESS_VARIABLE = "RAY_ADDRESS"
"""Ray's own: a cluster to run on. Without it, Ray is started on this machine for this call."""

RAY_SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",  # no telemetry
    "RAY_DEDUP_LOGS": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # no advice on the terminal
    "RAY_worker_niceness": "0",  # its own is 15: on a busy machine no worker would ever get ready
}
"""Ray's environment, where the user has not set it otherwise."""

SERVER_OPTIONS = ("--threads", "1")
"""A worker has one core: many small servers write more notes than one that waits for its own threads."""


_OWN_ERROR = re.compile(r"timbrel[\w.]*\.\w+: .")
"""The last line of a traceback that an error of ours ends."""


@dataclass(frozen=True)
class ShardSummary:
    """The outcome of a job, in figures."""

    url: str
    shards: tuple[shard_files.ShardReceipt, ...]
    n_made: int
    """Shards that this run made; the others were there already."""

    n_rendered: int
    """Notes that this run rendered."""

    seconds: float

    @property
    def n_notes(self) -> int:
        return sum(shard.n_notes for shard in self.shards)

    @property
    def notes_per_second(self) -> float:
        return self.n_rendered / self.seconds if self.seconds > 0.0 else 0.0

    def to_json(self) -> dict[str, Any]:
        rate = round(self.notes_per_second, 3)
        return {**asdict(self), "n_notes": self.n_notes, "notes_per_second": rate}

    def to_text(self) -> str:
        n_off = sum(shard.n_out_of_tune for shard in self.shards)
        return (
            f"{self.url}: {self.n_notes} notes in {len(self.shards)} shards, {self.n_made} of them made in "
            f"{self.seconds:.1f} s ({self.n_rendered} notes, {self.notes_per_second:.1f} a second); {n_off} "
            "out of tune"
        )


def build_shards(
    job: LibraryJob,
    url: str,
    *,
    bundle: str | None = None,
    shard_format: str = shard_files.DEFAULT_FORMAT,
    shard_notes: int = shard_files.DEFAULT_NOTES,
    n_workers: int | None = None,
    show_progress: bool = False,
) -> ShardSummary:
    """Renders a job's raw notes into shards. Run again after any interruption, it makes only what is missing.

    The plan, the keys and the codes are those of `build_library`.

    Args:
        job: what to render; `LibraryJob.writer` must be what the workers' servers are, and no field of
            `LibraryJob.sampling` be left to them.
        url: a folder that every worker sees, or for example s3://bucket/prefix.
        bundle: folder of the bundle, the same on every machine; None: the one that ships.
        shard_format: "parquet" or "webdataset".
        shard_notes: notes a shard: what a worker loses at most when it is killed.
        n_workers: each has a server of its own and one core; None: one less than there are cores, which is
            left for reading and writing.

    Raises:
        MissingExtraError: the `scale` extra is not installed.
        OtherJobError: the place is another job's.
        ShardStoreError: it cannot be written.
        TimbrelError: a worker failed.
    """
    _check(shard_format, shard_notes, n_workers, job.sampling)
    start = time.monotonic()
    store = shard_files.ShardStore(url)
    store.claim(job, {"shard_format": shard_format, "shard_notes": shard_notes})
    shards = shard_files.plan_shards(job.n_notes, shard_notes, shard_format)
    found = {shard.number: receipt for shard in shards if (receipt := store.receipt(shard)) is not None}
    missing = [shard for shard in shards if shard.number not in found]
    made: dict[str, shard_files.ShardReceipt] = {}
    if missing:
        n_there = sum(receipt.n_notes for receipt in found.values())
        with bar("rendering", job.n_notes, "note", shown=show_progress, initial=n_there) as progress:
            for receipt in _make(job, store.location, bundle, missing, n_workers):
                made[receipt.name] = receipt
                progress.update(receipt.n_notes)
    receipts = tuple(found.get(shard.number) or made[shard.name] for shard in shards)
    summary = ShardSummary(
        url,
        receipts,
        len(made),
        sum(receipt.n_rendered for receipt in made.values()),
        round(time.monotonic() - start, 3),
    )
    # All shards, in order, for whoever reads them.
    index = {"n_notes": summary.n_notes, "shards": [asdict(receipt) for receipt in receipts]}
    store.write_json(shard_files.INDEX_FILE, index)
    return summary


def _make(
    job: LibraryJob, url: str, bundle: str | None, missing: list[shard_files.Shard], n_workers: int | None
) -> Iterator[shard_files.ShardReceipt]:
    """Makes shards, and yields their receipts as that is done."""
    with ray_session(n_workers) as ray:
        n_cores = int(ray.cluster_resources().get("CPU", 1))
        n_actors = max(1, min(len(missing), n_workers or n_cores - 1))
        plan = ray.data.from_items([asdict(shard) for shard in missing], override_num_blocks=len(missing))
        made = plan.map(
            _bound(job, url, bundle), compute=ray.data.ActorPoolStrategy(size=n_actors), num_cpus=1
        )
        try:
            for row in made.iter_rows():
                yield shard_files.ShardReceipt(**row)
        except errors.TimbrelError:
            raise
        except Exception as error:
            raise _cause(error) from None


def _bound(job: LibraryJob, url: str, bundle: str | None) -> type[ShardWorker]:
    """Makes a worker class of this job alone.

    Ray complains of arguments, which an actor that starts anew might not find.
    """

    class JobWorker(ShardWorker):
        def __init__(self) -> None:
            super().__init__(job, url, bundle)

    return JobWorker


@contextmanager
def ray_session(n_workers: int | None) -> Iterator[Any]:
    """Gives Ray's module. Ray itself is started for this block unless it runs already, and says nothing."""
    for name, value in RAY_SETTINGS.items():
        os.environ.setdefault(name, value)
    try:
        import ray
        import ray.data
    except ImportError as error:
        raise errors.MissingExtraError("--engine ray", "scale") from error
    started = not ray.is_initialized()
    if started:
        # One core more than there are workers: the plan is read by a task of its own.
        local: dict[str, Any] = {
            "num_cpus": max(os.cpu_count() or 1, (n_workers or 1) + 1),
            "include_dashboard": False,
        }
        ray.init(
            log_to_driver=False,
            logging_level=logging.ERROR,
            configure_logging=True,
            **({} if os.environ.get(ADDRESS_VARIABLE) else local),
        )
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    logging.getLogger("ray").setLevel(logging.ERROR)
    try:
        yield ray
    finally:
        if started:
            ray.shutdown()


def _cause(error: BaseException) -> errors.TimbrelError:
    """Finds what went wrong in a worker, without Ray's own account of it."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, errors.TimbrelError):
            return seen
        seen = getattr(seen, "cause", None) or seen.__cause__
    lines = [line for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    # Ray sends what its own error was caused by as text alone.
    own = [line.partition(": ")[2] for line in lines if _OWN_ERROR.match(line)]
    return errors.ServerError(f"a worker failed: {(own or lines)[-1].strip()}; shards that are done stay")


def _check(shard_format: str, shard_notes: int, n_workers: int | None, sampling: SamplingSettings) -> None:
    faults = [
        errors.FieldViolation(f"sampling.{name}", "must be a number: workers ask for no defaults")
        for name, value in sampling.to_dict().items()
        if value is None
    ]
    if shard_format not in shard_files.SHARD_FORMATS:
        allowed = " or ".join(shard_files.SHARD_FORMATS)
        faults.append(errors.FieldViolation("shard_format", f"{shard_format!r} is not {allowed}"))
    if shard_notes < 1:
        faults.append(errors.FieldViolation("shard_notes", f"must be 1 or more, got {shard_notes}"))
    if n_workers is not None and n_workers < 1:
        faults.append(errors.FieldViolation("workers", f"must be 1 or more, got {n_workers}"))
    if faults:
        raise errors.InvalidRequestError.of(faults)


class ShardWorker:
    """Renders shards of one job. Ray makes as many as there is room for, each in a process of its own."""

    def __init__(self, job: LibraryJob, url: str, bundle: str | None) -> None:
        """`bundle` is its folder, the same on every machine; None: the one that ships."""
        self._job = job
        self._shards = shard_files.ShardStore(url)
        self._server = PrivateServer(bundle, SERVER_OPTIONS)
        self._client = Client(self._server.address, self._server.token, security=Security())
        check_model("the worker's server", self._client, job.writer)
        self._source = ClientSource(self._client, patience_seconds=0.0)
        self._decode = note_decoder(self._client)
        self._trackers = find_trackers()

    def __call__(self, shard: dict[str, Any]) -> dict[str, Any]:
        """Makes a shard, as Ray Data calls it: a row in, a row out."""
        return asdict(self.make(shard_files.Shard(**shard)))

    def make(self, shard: shard_files.Shard) -> shard_files.ShardReceipt:
        """Renders, measures and writes one shard."""
        notes = list(plan_notes(self._job, shard.first, shard.stop))
        with tempfile.TemporaryDirectory(prefix="timbrel-shard-") as folder:
            rows, n_rendered = self._render(notes, shard.first, Path(folder))
        content = shard_files.shard_bytes(rows, shard.format)
        receipt = shard_files.receipt_of(shard, rows, content, n_rendered)
        self._shards.commit(shard, content, receipt)
        return receipt

    def _render(
        self, notes: Sequence[PlannedNote], first: int, folder: Path
    ) -> tuple[list[shard_files.Row], int]:
        progress = Progress()
        with WorkerPool(1) as pool:
            renderer = Renderer(
                self._job,
                NoteStore(folder / "codes"),
                folder / "measured.log",
                self._decode,
                self._client.model().sample_rate,
                pool,
                self._trackers,
            )
            chosen = dict(renderer.choose(notes, self._source, progress))
        rows = [self._row(renderer, chosen[index], first + index) for index in range(len(notes))]
        return rows, progress.n_rendered

    def _row(self, renderer: Renderer, note: ChosenNote, number: int) -> shard_files.Row:
        raw = renderer.note(note.attempt.key)
        return {
            **rendering_facts(self._job, self._client.model(), note, number, raw),
            "loudness_lufs": note.measured.loudness,
            "true_peak_db": note.measured.true_peak,
            **tuning_facts(note),
            "codes": raw.codes,
        }
