"""Locks of files."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

import pytest

from timbrel_bundle import file_lock
from timbrel_bundle.file_lock import LOCKED_BYTE, try_lock


class WindowsLocks:
    """Locks a byte of a file as Windows's C library does, by its descriptor and where that stands."""

    LK_NBLCK = 2

    def __init__(self, fault: int | None = None) -> None:
        self._locked: dict[tuple[int, int], int] = {}
        self._fault = fault

    def locking(self, descriptor: int, mode: int, n_bytes: int) -> None:
        assert (mode, n_bytes) == (self.LK_NBLCK, 1)
        place = (os.fstat(descriptor).st_ino, os.lseek(descriptor, 0, os.SEEK_CUR))
        fault = self._fault or (errno.EACCES if place in self._locked else None)
        if fault is not None:
            raise OSError(fault, os.strerror(fault))
        self._locked[place] = descriptor


def windows(monkeypatch: pytest.MonkeyPatch, fault: int | None = None) -> None:
    monkeypatch.setattr(file_lock, "fcntl", None)
    monkeypatch.setitem(sys.modules, "msvcrt", WindowsLocks(fault))  # type: ignore[arg-type]


@pytest.mark.parametrize("system", ["this", "windows"])
def test_a_locked_file_is_read_and_written_by_who_has_it_and_read_by_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, system: str
) -> None:
    if system == "windows":
        windows(monkeypatch)
    path = tmp_path / "lock"
    with path.open("a+", encoding="utf-8") as one, path.open("a+", encoding="utf-8") as other:
        assert try_lock(one)
        one.truncate(0)
        one.write("process 1\n")
        one.flush()
        assert not try_lock(other)
        other.seek(0)
        assert other.read() == "process 1\n"
    assert path.stat().st_size < 100 < LOCKED_BYTE


@pytest.mark.skipif(sys.platform == "win32", reason="that system's own lock is not to be replaced")
def test_what_windows_says_of_a_disk_without_locks_is_what_others_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    windows(monkeypatch, errno.EINVAL)
    with (tmp_path / "lock").open("w") as file, pytest.raises(OSError) as raised:
        try_lock(file)
    assert raised.value.errno == errno.ENOLCK
