"""A process's standard streams: closed ones, and the input whose end tells it to end as well."""

from __future__ import annotations

import contextlib
import os
import sys
import time

TURN_SECONDS = 0.2
"""Between two looks, on Windows."""

STANDARD_INPUT = 0


def fill_closed() -> None:
    """Has closed standard streams (`>&-`) lead nowhere; some schedulers leave them so. Python has None there,
    and prints what was for the standard error to the standard output; the next file or connection would take
    the number, and get what native libraries say."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115 - as long as the program runs
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115


def wait_for_end_of_input() -> None:
    """Returns once the standard input has ended, at once where it is closed. What comes by it is dropped."""
    with contextlib.suppress(OSError):
        if sys.platform == "win32":
            _look_again_and_again()
        while os.read(STANDARD_INPUT, 4096):
            pass


def _look_again_and_again() -> None:
    """Returns once the pipe has ended, or where it is none. Windows has one thread at a time do anything with
    a pipe: while one waits to read from it, another that loads a library that asks what the standard input
    is, as numpy's and onnxruntime's may, waits too, for as long as the pipe is held."""
    import _winapi
    import msvcrt

    pipe = msvcrt.get_osfhandle(STANDARD_INPUT)  # type: ignore[attr-defined, unused-ignore]
    while True:
        try:
            n_bytes = _winapi.PeekNamedPipe(pipe, 0)[0]  # type: ignore[attr-defined, unused-ignore]
        except OSError:  # it has ended, or is a console or a file, which reading tells
            return
        if n_bytes:
            os.read(STANDARD_INPUT, n_bytes)
        time.sleep(TURN_SECONDS)
