"""The errors of training; each tells in one line what went wrong.

TrainingError (ValueError)
├── ConfigError       a config file or an override that cannot be used
├── CheckpointError   a checkpoint that is missing, damaged or made by another config
├── DivergedError     the loss stayed infinite or NaN
└── WriteError        the disk is full, or will not be written to
"""

from __future__ import annotations

import errno
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class TrainingError(ValueError):
    """Base of the errors raised by training."""


class ConfigError(TrainingError):
    """A config file or an override names something unknown, or has a value that is not allowed."""


class CheckpointError(TrainingError):
    """A checkpoint is missing, damaged or was made by another config."""


class DivergedError(TrainingError):
    """The gradients were infinite or NaN for many steps in a row."""


class WriteError(TrainingError):
    """A file cannot be written; what was complete before stays, and is gone on from."""


_REMEDIES: dict[int | None, str] = {
    errno.EACCES: "allow writing in its folder",
    errno.EPERM: "allow writing in its folder",
    errno.EROFS: "make its disk writable",
    errno.ENOENT: "make its folder",
    errno.ENOTDIR: "make its folder",
    errno.ENOSPC: "make room",
    errno.EDQUOT: "make room",
    errno.EFBIG: "make room",
    None: "make room",  # numpy's, which tells only how much it has written
}
"""What to do about an error of the system."""


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Raises WriteError, which names the file, for an error of the system in what is done within."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or "no space left on device"
        remedy = _REMEDIES.get(error.errno, "put that right")
        if error.errno == errno.EACCES and sys.platform == "win32":
            remedy += ", or end what has it open,"
        raise WriteError(
            f"{path}: cannot be written ({reason}); {remedy} and run the same command again"
        ) from error
