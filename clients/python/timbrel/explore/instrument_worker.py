"""Builds one instrument, in a process of its own: `python -m timbrel.explore.instrument_worker`.

Measuring notes keeps a processor and Python's lock busy; a process of low priority leaves both to those who
play. It reads one line of JSON (`Errand`) from its standard input and writes lines of JSON to its standard
output: how many notes are done, and last {"slug": NAME} or {"error": LINE}. It ends when its input does.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
from collections.abc import Generator, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from timbrel.client import Client
from timbrel.errors import TimbrelError
from timbrel.explore.backend import Endpoint
from timbrel.explore.instrument_order import InstrumentOrder
from timbrel.explore.instrument_zip import write_zip
from timbrel.library import BuildOptions, build_library
from timbrel.library.plan import NoteOrder
from timbrel.library.source import ClientSource, Name
from timbrel.library.store import RawNote
from timbrel.settings import Security

NICENESS = 5
"""Enough to stand back behind those who play, and not so much as to starve on a busy machine."""

NOTES_AT_ONCE = 2
"""Asked of the server: the other slots are for those who play."""

PATIENCE_SECONDS = 60.0
"""How long the server may be away."""


@dataclass(frozen=True)
class Errand:
    """What the process is told on its standard input, never on its command line: there is a token in it."""

    address: str
    token: str | None = field(repr=False)
    security: Security
    order: InstrumentOrder
    folder: Path
    """Where to build."""

    target: Path
    """The zip to write."""

    @classmethod
    def of(cls, endpoint: Endpoint, order: InstrumentOrder, folder: Path, target: Path) -> Errand:
        return cls(endpoint.address, endpoint.token, endpoint.security, order, folder, target)

    def to_line(self) -> bytes:
        fields = {
            "address": self.address,
            "token": self.token,
            "security": asdict(self.security),
            "order": self.order.to_json(),
            "folder": str(self.folder),
            "target": str(self.target),
        }
        return json.dumps(fields, default=str).encode() + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> Errand:
        fields = json.loads(line)
        return cls(
            address=fields["address"],
            token=fields["token"],
            security=Security(**fields["security"]),
            order=InstrumentOrder.from_json(fields["order"]),
            folder=Path(fields["folder"]),
            target=Path(fields["target"]),
        )


class CountedSource:
    """Raw notes from a server, told of as they come."""

    def __init__(self, inner: ClientSource) -> None:
        self._inner = inner
        self._n_done = 0

    def render(self, orders: Iterable[tuple[Name, NoteOrder]]) -> Generator[tuple[Name, RawNote], None, None]:
        with contextlib.closing(self._inner.render(orders)) as notes:
            for each in notes:
                self._n_done += 1
                _say(n_done=self._n_done)
                yield each


def build(errand: Errand) -> str:
    """Builds, zips and returns the instrument's name as files have it.

    Raises:
        TimbrelError, OSError: it cannot be built.
    """
    # An empty token is none, and keeps the client from looking for another in the environment.
    with Client(errand.address, errand.token or "", security=errand.security) as client:
        job = errand.order.job(client.model(), client.timbre_map())
        source = CountedSource(ClientSource(client, NOTES_AT_ONCE, PATIENCE_SECONDS))
        build_library(client, job, errand.folder, BuildOptions(n_threads=1), source)
    slug = job.voices[0].slug
    write_zip(errand.folder, errand.target, slug)
    return slug


def main() -> int:
    with contextlib.suppress(OSError):
        os.nice(NICENESS)
    errand = Errand.from_line(sys.stdin.buffer.readline())
    threading.Thread(target=_end_with_input, daemon=True).start()
    try:
        _say(slug=build(errand))
    except (TimbrelError, OSError, ValueError) as error:
        _say(error=" ".join(str(error).split()))
        return 1
    return 0


def _say(**fields: Any) -> None:
    print(json.dumps(fields), flush=True)


def _end_with_input() -> None:
    """Whoever wants the instrument holds the other end."""
    with contextlib.suppress(OSError):
        while os.read(0, 4096):
            pass
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
