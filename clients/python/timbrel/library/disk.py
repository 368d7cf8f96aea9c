"""Many small files, each whole or not at all: written at once, and brought to the disk together."""

from __future__ import annotations

import os
from collections.abc import Iterable
from itertools import count
from pathlib import Path

_numbers = count()


def write_later(path: Path, content: bytes) -> None:
    """Writes a file by renaming a temporary one, and makes its folder if need be.

    Once this returns, no kill takes the file away. A power cut may, until `sync` or the system itself has
    brought it to the disk: waiting for that with every file would take longer than making it.
    """
    try:
        _write(path, content)
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
        _write(path, content)


def sync(paths: Iterable[Path]) -> None:
    """Returns once these files are on the disk."""
    for path in paths:
        with path.open("rb+") as file:
            os.fsync(file.fileno())


def _write(path: Path, content: bytes) -> None:
    folder, name = os.path.split(path)
    temporary = os.path.join(folder, f".{name}.{os.getpid()}-{next(_numbers)}.tmp")
    try:
        with open(temporary, "xb") as file:
            file.write(content)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
