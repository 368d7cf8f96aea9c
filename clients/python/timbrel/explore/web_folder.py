"""Where the page lies."""

from __future__ import annotations

from pathlib import Path

INDEX = "index.html"


def find_web_folder() -> Path:
    """In the installed package, or beside it in the repository."""
    here = Path(__file__).resolve()
    packed = here.parent / "web"
    return packed if (packed / INDEX).is_file() else here.parents[3] / "web"
