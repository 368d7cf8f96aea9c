"""The errors of training; each tells in one line what went wrong.

TrainingError (ValueError)
├── ConfigError       a config file or an override that cannot be used
├── CheckpointError   a checkpoint that is missing, damaged or made by another config
└── DivergedError     the loss stayed infinite or NaN
"""

from __future__ import annotations


class TrainingError(ValueError):
    """Base of the errors raised by training."""


class ConfigError(TrainingError):
    """A config file or an override names something unknown, or has a value that is not allowed."""


class CheckpointError(TrainingError):
    """A checkpoint is missing, damaged or was made by another config."""


class DivergedError(TrainingError):
    """The gradients were infinite or NaN for many steps in a row."""
