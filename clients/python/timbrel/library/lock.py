"""One process at a time in a folder."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from types import TracebackType
from typing import IO

from timbrel.errors import TimbrelError

try:
    import fcntl
except ImportError:  # not a POSIX system: two jobs on one folder are not noticed there
    fcntl = None  # type: ignore[assignment]


class LockedError(TimbrelError):
    """Another process is at work in the folder."""


class FolderLock:
    """Held while the `with` block runs. The system lets go of it when the process ends, however it ends.

    Raises:
        LockedError: another process holds it; the message says which.
    """

    def __init__(self, path: Path, folder: Path) -> None:
        """`path` is the lock's own file, `folder` what it guards, for the message."""
        self._path = path
        self._folder = folder
        self._file: IO[str] | None = None

    def __enter__(self) -> FolderLock:
        file = self._path.open("a+", encoding="utf-8")
        if fcntl is not None:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                file.seek(0)
                holder = file.read().strip() or "another process"
                file.close()
                raise LockedError(
                    f"{self._folder} is in use by {holder}; wait for it, or choose another folder"
                ) from None
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}\n")
        file.flush()
        self._file = file
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
