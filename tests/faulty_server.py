"""`python tests/faulty_server.py [options]`: a real server whose engine fails when a note's seed says so."""

from __future__ import annotations

import sys
import time

from timbrel_server.__main__ import main
from timbrel_server.decoder.runner import Runner
from timbrel_server.engine.request import NoteRequest

DIES = 666
STALLS = 667
LASTS = 668
"""Seeds: the step that begins such a note raises, never ends, or takes a second."""

_admit = Runner.admit


def admit(self: Runner, row: int, request: NoteRequest) -> None:
    if request.seed == DIES:
        raise RuntimeError("out of memory")
    if request.seed == STALLS:
        time.sleep(3600)
    if request.seed == LASTS:
        time.sleep(1.0)
    _admit(self, row, request)


if __name__ == "__main__":
    Runner.admit = admit  # type: ignore[method-assign]
    sys.exit(main())
