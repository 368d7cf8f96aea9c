"""The errors of training; each tells in one line what went wrong.

TrainingError (ValueError)
├── ConfigError       a config file or an override that cannot be used
├── CheckpointError   a checkpoint that is missing, damaged or made by another config
├── DivergedError     the loss stayed infinite or NaN
└── WriteError        the disk is full, or will not be written to
"""

from __future__ import annotations

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


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Raises WriteError, which names the file, for an error of the system in what is done within."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or "no space left on device"  # numpy tells only how much it has written
        raise WriteError(
            f"{path}: cannot be written ({reason}); make room and run the same command again"
        ) from error
