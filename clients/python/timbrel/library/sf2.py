"""The .sf2 file, by Polyphone, where that is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

PROGRAM = "polyphone"
TIMEOUT_SECONDS = 120.0
"""For one instrument: it takes seconds; where it fails, it may wait for ever behind a dialog nobody sees."""

MISSING = "--sf2: polyphone is not installed, so no .sf2 was written (Debian: apt-get install polyphone)"


def write_sf2(folder: Path, slugs: Sequence[str]) -> list[str]:
    """Converts each SLUG.sfz to SLUG.sf2 beside it; returns what went wrong, a line each."""
    program = shutil.which(PROGRAM)
    if program is None:
        return [MISSING]
    return [fault for slug in slugs if (fault := _convert(program, folder, slug))]


def _convert(program: str, folder: Path, slug: str) -> str | None:
    command = [program, "-1", "-i", str(folder / f"{slug}.sfz"), "-d", str(folder), "-o", slug]
    environment = {**os.environ, "QT_QPA_PLATFORM": "offscreen"}
    try:
        done = subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"--sf2: polyphone did not finish {slug}.sf2 within {TIMEOUT_SECONDS:g} s"
    if done.returncode == 0 and (folder / f"{slug}.sf2").is_file():
        return None
    reason = " ".join((done.stderr or done.stdout).split())[:200] or f"status {done.returncode}"
    return f"--sf2: polyphone failed on {slug}.sfz ({reason})"
