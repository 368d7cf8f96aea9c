"""Where a bundle to be served is, and what requests call it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_NAMED = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)=(?P<folder>.+)", re.DOTALL)


@dataclass(frozen=True)
class BundleSource:
    """A bundle's folder, and its name."""

    folder: Path

    name: str = ""
    """Empty: the manifest's own."""

    def __str__(self) -> str:
        return f"{self.name}={self.folder}" if self.name else str(self.folder)


def read_bundle_source(text: str) -> BundleSource:
    """Reads "DIR" or "NAME=DIR".

    Raises:
        ValueError: it is neither.
    """
    named = _NAMED.fullmatch(text)
    folder = named["folder"] if named else text
    if not folder.strip():
        raise ValueError("expected DIR or NAME=DIR")
    return BundleSource(Path(folder).expanduser(), named["name"] if named else "")
