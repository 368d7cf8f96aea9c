"""A bundle's folder appears whole, or not at all."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from timbrel_bundle.layout import MANIFEST
from timbrel_export.errors import ExportError


def check_free(out_dir: Path) -> None:
    """Raises ExportError where `out_dir` holds something that is no bundle: a bundle may be replaced."""
    if out_dir.is_file() or (out_dir.is_dir() and not _may_be_replaced(out_dir)):
        raise ExportError(f"{out_dir}: exists and is no bundle; choose another folder or empty it")


@contextmanager
def new_bundle(out_dir: Path) -> Iterator[Path]:
    """A folder to write a bundle's files to; it becomes `out_dir` when the block ends well, else it goes."""
    out_dir.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f".{out_dir.name}.", suffix=".tmp", dir=out_dir.parent))
    try:
        yield folder
        _make_readable(folder)
        _replace_folder(folder, out_dir)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _may_be_replaced(folder: Path) -> bool:
    return (folder / MANIFEST).is_file() or not any(folder.iterdir())


def _make_readable(folder: Path) -> None:
    """Undoes the privacy of temporary files."""
    folder.chmod(0o755)
    for path in folder.iterdir():
        path.chmod(0o644)


def _replace_folder(folder: Path, out_dir: Path) -> None:
    """Renames `folder` to `out_dir`, setting aside what was there until that has worked."""
    if not out_dir.exists():
        folder.rename(out_dir)
        return
    old = out_dir.with_name(f".{out_dir.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    out_dir.rename(old)
    folder.rename(out_dir)
    shutil.rmtree(old)
