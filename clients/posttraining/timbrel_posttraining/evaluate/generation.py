"""Having the bundle write takes: through the engine, many at once, with the server's default sampling."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from timbrel import Client
from timbrel.progress import bar
from timbrel_posttraining.evaluate.cache import TakeCache
from timbrel_posttraining.evaluate.take import Kind, Take

TIMEOUT_SECONDS = 600.0
"""For one note, the wait for a slot included."""


def write_takes(bundle: Path, takes: Iterable[Take], cache: TakeCache, *, progress: bool = False) -> int:
    """Writes the generated takes among these that are not in the cache yet; returns how many those were.

    A private server is started on the bundle. Every take is written once, with its own seed: none is picked.

    Raises:
        TimbrelError: the server does not start, or refuses a note.
    """
    missing = [take for take in takes if take.kind is Kind.GENERATED and not cache.has_codes(take)]
    if not missing:
        return 0
    with Client(bundle=bundle, timeout=TIMEOUT_SECONDS) as client:
        client.prepare()
        # As many as there are slots keep the engine's batch full, and some wait so that none is ever empty.
        pool = ThreadPoolExecutor(2 * client.model().n_slots)
        try:
            futures = [pool.submit(_write, client, take, cache) for take in missing]
            with bar("writing", len(missing), "note", shown=progress) as shown:
                for future in as_completed(futures):
                    future.result()
                    shown.update()
        finally:
            pool.shutdown(cancel_futures=True)
    return len(missing)


def _write(client: Client, take: Take, cache: TakeCache) -> None:
    note = client.generate(take.timbre, take.pitch, take.velocity, take.seconds, take.seed)
    cache.save_codes(take, note.codes, note.truncated)
