"""A finished library folder as one zip file."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

from timbrel.library.plan.folder import WORK

FIXED_TIME = (1980, 1, 1, 0, 0, 0)
"""Of every member, so that equal libraries make equal zips; the format begins with that year."""

PACKED_ALREADY = frozenset({".flac"})


def write_zip(folder: Path, target: Path, top: str) -> None:
    """Writes all files of a library but timbrel's own working files, whole or not at all.

    Args:
        top: the folder within the zip.
    """
    part = target.with_suffix(".part")
    with zipfile.ZipFile(part, "w") as archive:
        for path in sorted(folder.rglob("*")):
            name = path.relative_to(folder)
            if not path.is_file() or name.parts[0] == WORK:
                continue
            member = zipfile.ZipInfo(f"{top}/{name.as_posix()}", FIXED_TIME)
            member.external_attr = 0o644 << 16
            stored = path.suffix in PACKED_ALREADY
            member.compress_type = zipfile.ZIP_STORED if stored else zipfile.ZIP_DEFLATED
            archive.writestr(member, path.read_bytes(), compresslevel=None if stored else 1)
    os.replace(part, target)
