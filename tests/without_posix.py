"""Runs a module in a Python that lacks what Windows's lacks: `python without_posix.py MODULE ARGUMENTS`."""

from __future__ import annotations

import asyncio
import mmap
import os
import runpy
import select
import shutil
import signal
import socket
import subprocess  # noqa: F401 - imported while what it needs is there, as those below
import sys
import tempfile  # noqa: F401
from contextlib import suppress
from types import ModuleType
from typing import Any

MODULES = ("fcntl", "resource", "pwd", "grp", "termios")

NAMES: dict[ModuleType, tuple[str, ...]] = {
    mmap: ("MADV_HUGEPAGE",),
    os: ("O_NONBLOCK", "RWF_NOWAIT", "nice", "preadv", "pread", "register_at_fork"),
    select: ("PIPE_BUF",),
    signal: ("SIGHUP", "SIGKILL", "SIGUSR1", "SIGUSR2"),
    socket: ("SO_REUSEPORT",),
}

SIGBREAK = 21
"""What Windows's Python has, and others do not: Ctrl-Break's number."""


def take_away() -> None:
    """Removes what there is not."""
    for missing in MODULES:
        sys.modules[missing] = None  # type: ignore[assignment]
    for module, names in NAMES.items():
        for name in names:
            if hasattr(module, name):
                delattr(module, name)
    for name in ("add_signal_handler", "remove_signal_handler", "add_reader", "add_writer"):
        setattr(asyncio.SelectorEventLoop, name, _not_implemented)
    os.replace = replace_what_is_closed  # type: ignore[assignment]
    os.unlink = unlink_what_is_closed  # type: ignore[assignment]
    signal.SIGBREAK = SIGBREAK  # type: ignore[attr-defined]
    # Else rmtree asks for os.O_NONBLOCK: 3.13's goes by the one, 3.14's by the other.
    shutil._use_fd_functions = False  # type: ignore[attr-defined]
    shutil._rmtree_impl = getattr(shutil, "_rmtree_unsafe", None)  # type: ignore[attr-defined]


def _not_implemented(*_: Any) -> None:
    raise NotImplementedError


_replace, _unlink, _open_files = os.replace, os.unlink, "/proc/self/fd"


def replace_what_is_closed(source: Any, target: Any) -> None:
    """Replaces as Windows does, which refuses what this process has open."""
    if _is_open(source) or _is_open(target):
        raise PermissionError(13, "Access is denied", os.fspath(source), None, os.fspath(target))
    _replace(source, target)


def unlink_what_is_closed(path: Any, *, dir_fd: int | None = None) -> None:
    """Removes as Windows does, which refuses what this process has open or mapped."""
    if dir_fd is None and _is_open(path):
        raise PermissionError(13, "Access is denied", os.fspath(path))
    _unlink(path, dir_fd=dir_fd)


def _is_open(path: Any) -> bool:
    for descriptor in os.listdir(_open_files) if os.path.isdir(_open_files) else ():
        with suppress(OSError):
            if os.path.samefile(f"{_open_files}/{descriptor}", path):
                return True
    return False


if __name__ == "__main__":
    take_away()
    sys.argv = sys.argv[1:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
