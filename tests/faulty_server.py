"""`python tests/faulty_server.py [options]`: a real server whose engine fails when a note's seed says so."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

from timbrel_server.__main__ import main
from timbrel_server.decoder.runner import Runner
from timbrel_server.engine.request import NoteRequest

DIES = 666
STALLS = 667
LASTS = 668
"""Seeds: the step that begins such a note raises, never ends, or takes a second."""

PROGRAM = (__file__,)
"""What Python is to run."""

_admit = Runner.admit


def admit(self: Runner, notes: Sequence[tuple[int, NoteRequest]]) -> None:
    seeds = {request.seed for _, request in notes}
    if DIES in seeds:
        raise RuntimeError("out of memory")
    if STALLS in seeds:
        time.sleep(3600)
    if LASTS in seeds:
        time.sleep(1.0)
    _admit(self, notes)


if __name__ == "__main__":
    Runner.admit = admit  # type: ignore[method-assign]
    sys.exit(main())
