"""The same plan on a cluster: Ray Data, and shards of raw notes on any file system that fsspec knows."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from timbrel.errors import FieldViolation, InvalidRequestError, MissingExtraError, ServerError, TimbrelError
from timbrel.library.finish.shard_worker import ShardWorker
from timbrel.library.finish.shards import (
    INDEX_FILE,
    SHARD_FORMATS,
    Shard,
    ShardFormat,
    ShardReceipt,
    ShardStore,
    plan_shards,
)
from timbrel.library.plan.job import LibraryJob
from timbrel.progress import bar

ADDRESS_VARIABLE = "RAY_ADDRESS"
"""Ray's own: a cluster to run on. Without it, Ray is started on this machine for this call."""

DEFAULT_SHARD_NOTES = 1000

RAY_SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",  # no telemetry
    "RAY_DEDUP_LOGS": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # no advice on the terminal
    "RAY_worker_niceness": "0",  # its own is 15: on a busy machine no worker would ever get ready
}
"""Ray's environment, where the user has not set it otherwise."""


@dataclass(frozen=True)
class ShardSummary:
    """The outcome of a job, in figures."""

    url: str
    shards: tuple[ShardReceipt, ...]
    n_made: int
    """Shards that this run made; the others were there already."""

    n_rendered: int
    """Notes that this run rendered."""

    seconds: float

    @property
    def n_notes(self) -> int:
        return sum(shard.n_notes for shard in self.shards)

    def to_json(self) -> dict[str, Any]:
        return {
            **asdict(self),
            "shards": [asdict(shard) for shard in self.shards],
            "n_notes": self.n_notes,
            "notes_per_second": round(self.n_rendered / self.seconds, 3) if self.seconds > 0.0 else 0.0,
        }

    def to_text(self) -> str:
        n_off = sum(shard.n_out_of_tune for shard in self.shards)
        rate = self.n_rendered / self.seconds if self.seconds > 0.0 else 0.0
        return (
            f"{self.url}: {self.n_notes} notes in {len(self.shards)} shards, {self.n_made} of them made in "
            f"{self.seconds:.1f} s ({self.n_rendered} notes, {rate:.1f} a second); {n_off} out of tune"
        )


def build_shards(
    job: LibraryJob,
    url: str,
    *,
    bundle: str | None = None,
    shard_format: ShardFormat = "parquet",
    shard_notes: int = DEFAULT_SHARD_NOTES,
    n_workers: int | None = None,
    show_progress: bool = False,
) -> ShardSummary:
    """Renders a job's raw notes into shards. Run again after any interruption, it makes only what is missing.

    The plan, the keys and the codes are those of `build_library`.

    Args:
        job: what to render; `LibraryJob.writer` must be what the workers' servers are.
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
    _check(shard_format, shard_notes, n_workers)
    start = time.monotonic()
    store = ShardStore(url)
    store.claim(job, {"shard_format": shard_format, "shard_notes": shard_notes})
    shards = plan_shards(job.n_notes, shard_notes, shard_format)
    found = {shard.number: receipt for shard in shards if (receipt := store.receipt(shard)) is not None}
    missing = [shard for shard in shards if shard.number not in found]
    made: dict[str, ShardReceipt] = {}
    if missing:
        n_there = sum(receipt.n_notes for receipt in found.values())
        with bar("rendering", job.n_notes, "note", shown=show_progress, initial=n_there) as progress:
            for receipt in _make(job, url, bundle, missing, n_workers):
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
    store.write(INDEX_FILE, _index(receipts))
    return summary


def _make(
    job: LibraryJob, url: str, bundle: str | None, missing: list[Shard], n_workers: int | None
) -> Iterator[ShardReceipt]:
    """Makes shards, and yields their receipts as that is done."""
    with ray_session(n_workers) as ray:
        n_cores = int(ray.cluster_resources().get("CPU", 1))
        n_actors = max(1, min(len(missing), n_workers or n_cores - 1))
        plan = ray.data.from_items([asdict(shard) for shard in missing], override_num_blocks=len(missing))
        made = plan.map_batches(
            _bound(job, url, bundle),
            batch_size=1,
            compute=ray.data.ActorPoolStrategy(size=n_actors),
            num_cpus=1,
        )
        try:
            for row in made.iter_rows():
                yield ShardReceipt(**row)
        except TimbrelError:
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
        raise MissingExtraError("--engine ray", "scale") from error
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


def _index(receipts: tuple[ShardReceipt, ...]) -> bytes:
    """Lists all shards, in order, for whoever reads them."""
    shards = [asdict(receipt) for receipt in receipts]
    n_notes = sum(receipt.n_notes for receipt in receipts)
    return (json.dumps({"n_notes": n_notes, "shards": shards}, indent=1) + "\n").encode()


def _cause(error: BaseException) -> TimbrelError:
    """Finds what went wrong in a worker, without Ray's own account of it."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, TimbrelError):
            return seen
        seen = getattr(seen, "cause", None) or seen.__cause__
    last = [line for line in str(error).splitlines() if line.strip()][-1:] or [type(error).__name__]
    return ServerError(f"a worker failed: {last[0].strip()}; shards that are done stay")


def _check(shard_format: str, shard_notes: int, n_workers: int | None) -> None:
    faults = []
    if shard_format not in SHARD_FORMATS:
        faults.append(FieldViolation("shard_format", f"{shard_format!r} is not {' or '.join(SHARD_FORMATS)}"))
    if shard_notes < 1:
        faults.append(FieldViolation("shard_notes", f"must be 1 or more, got {shard_notes}"))
    if n_workers is not None and n_workers < 1:
        faults.append(FieldViolation("workers", f"must be 1 or more, got {n_workers}"))
    if faults:
        raise InvalidRequestError.of(faults)
