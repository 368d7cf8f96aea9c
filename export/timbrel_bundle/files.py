"""Hashing files, and writing them whole or not at all."""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path


def sha256_file(path: Path | str) -> str:
    """SHA-256 of a file's bytes, in hex."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextlib.contextmanager
def atomic_path(path: Path | str) -> Iterator[Path]:
    """A temporary path beside `path` to write to; it takes `path`'s place when the block ends well.

    Where the block raises, `path` stays as it was and the temporary file goes.

    Raises:
        FileNotFoundError: the folder does not exist.
        IsADirectoryError: `path` is a folder.
    """
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder, a file name is needed")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"cannot write {path}: there is no folder {path.parent}")
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def atomic_write(path: Path | str, data: bytes | str) -> None:
    """Writes a whole file by renaming a temporary one; text becomes UTF-8. Raises as `atomic_path` does."""
    content = data.encode() if isinstance(data, str) else data
    with atomic_path(path) as temporary, open(temporary, "xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
