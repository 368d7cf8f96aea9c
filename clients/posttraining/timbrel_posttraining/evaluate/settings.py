"""How an evaluation is run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from timbrel_training.errors import ConfigError


@dataclass(frozen=True)
class Settings:
    """What is judged, and how thoroughly.

    Raises:
        ConfigError: a number is not positive.
    """

    bundle: Path
    """The bundle's folder."""
    notes: Path
    """The library that it is held against: the one it learnt from."""
    out: Path
    """Folder for the report, and for what makes a second run short."""
    count: int = 2000
    """Notes of the largest sections; the others take a share of it."""
    jobs: int = 1
    """Processes that measure."""
    sections: tuple[str, ...] = ()
    """Names of the sections to judge; all of them, and a report, where none is named."""

    def __post_init__(self) -> None:
        for name in ("count", "jobs"):
            if getattr(self, name) < 1:
                raise ConfigError(f"--{name} must be at least 1, got {getattr(self, name)}")
        if self.out.exists() and not self.out.is_dir():
            raise ConfigError(f"--out {self.out} is a file, a folder is needed")
