"""Locks of files: they keep other processes out until the file is closed, or the process ends in any way."""

from __future__ import annotations

import errno
import os
from typing import IO, Any

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

LOCKED_BYTE = 2**30
"""What is locked on Windows, where nobody reads what is: a byte beyond all that such a file holds."""


def try_lock(file: IO[Any]) -> bool:
    """Locks a file that is open for writing; returns False where another has it. Raises OSError: it is on a
    file system that locks no files, as some network's."""
    if fcntl is None:
        return _try_lock_byte(file.fileno())
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _try_lock_byte(descriptor: int) -> bool:
    import msvcrt

    place = os.lseek(descriptor, 0, os.SEEK_CUR)
    os.lseek(descriptor, LOCKED_BYTE, os.SEEK_SET)
    try:
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined, unused-ignore]
    except OSError as error:
        if error.errno == errno.EINVAL:  # what it makes of such a file system
            raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK)) from error
        return False
    finally:
        os.lseek(descriptor, place, os.SEEK_SET)
    return True
