"""Which revision of the code is running."""

from __future__ import annotations

import subprocess
from pathlib import Path


def git_revision() -> str:
    """The commit of the checkout that this file lies in, with "-dirty" where it was edited; "" elsewhere."""
    head = _git("rev-parse", "HEAD")
    if not head:
        return ""
    return f"{head}-dirty" if _git("status", "--porcelain", "--untracked-files=no") else head


def _git(*arguments: str) -> str:
    folder = Path(__file__).resolve().parent
    try:
        result = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return result.stdout.strip()
