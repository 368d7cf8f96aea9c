"""What a test needs beyond Python: a system package, a GPU, a package of an extra.

A test states its need, `require_system("fluidsynth")`, and skips with a reason that names what to install.
Where TIMBREL_REQUIRE_ALL=1 (the continuous integration) the same need, unmet, fails the test instead: nothing
that a machine should have goes missing in silence. A GPU is never demanded: most machines have none.
"""

from __future__ import annotations

import ctypes.util
import importlib
import importlib.util
import os
import platform
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import pytest

SOUNDFONT_FOLDERS = (
    Path("/usr/share/sounds/sf2"),
    Path("/usr/share/sounds/sf3"),
    Path("/usr/share/soundfonts"),
)
"""Where distributions put their soundfonts."""

DEFAULT_SOUNDFONT = "FluidR3_GM.sf2"
"""The font of Debian's fluid-soundfont-gm."""


@dataclass(frozen=True)
class SystemRequirement:
    """Something that only the system's package manager brings."""

    package: str
    """Debian's name of the package, named in the skip reason."""

    present: Callable[[], bool]


def find_faketime() -> Path | None:
    """The library that gives a program another wall clock, or None."""
    return next(iter(sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))), None)


def find_browser() -> str | None:
    """Chromium without a window or, where that package is missing, the whole of it; or None.

    A page of the whole browser takes a second of CPU more, for a window that nobody sees.
    """
    return shutil.which("chromium-headless-shell") or shutil.which("chromium")


def find_soundfont(name: str = DEFAULT_SOUNDFONT) -> Path | None:
    """The soundfont file of this name in the places distributions use, or None."""
    candidates = (folder / name for folder in SOUNDFONT_FOLDERS)
    return next((path for path in candidates if path.is_file()), None)


REQUIREMENTS = {
    "c++": SystemRequirement(
        "g++ pkg-config libgrpc++-dev protobuf-compiler-grpc",
        lambda: all(map(shutil.which, ("c++", "pkg-config", "protoc", "grpc_cpp_plugin"))),
    ),
    "bubblewrap": SystemRequirement("bubblewrap", lambda: shutil.which("bwrap") is not None),
    "faketime": SystemRequirement("libfaketime", lambda: find_faketime() is not None),
    "browser": SystemRequirement("chromium-headless-shell", lambda: find_browser() is not None),
    "fluidsynth": SystemRequirement(
        "fluidsynth", lambda: _has_library("fluidsynth") and shutil.which("fluidsynth") is not None
    ),
    "go": SystemRequirement(
        "golang-go golang-google-grpc-dev golang-github-golang-protobuf-1-5-dev protobuf-compiler "
        "protoc-gen-go protoc-gen-go-grpc",
        lambda: (
            all(map(shutil.which, ("go", "protoc", "protoc-gen-go", "protoc-gen-go-grpc")))
            and Path("/usr/share/gocode/src/google.golang.org/grpc").is_dir()
        ),
    ),
    "openssl": SystemRequirement("openssl", lambda: shutil.which("openssl") is not None),
    "polyphone": SystemRequirement("polyphone", lambda: shutil.which("polyphone") is not None),
    "soundfont": SystemRequirement("fluid-soundfont-gm", lambda: find_soundfont() is not None),
}


def _has_library(name: str) -> bool:
    return ctypes.util.find_library(name) is not None


def all_required() -> bool:
    """Whether TIMBREL_REQUIRE_ALL=1 asks that no test be skipped for something missing."""
    return os.environ.get("TIMBREL_REQUIRE_ALL", "") == "1"


def missing_packages(names: Iterable[str]) -> list[str]:
    """The Debian packages that are absent, of these requirements (keys of REQUIREMENTS)."""
    return [REQUIREMENTS[name].package for name in names if not REQUIREMENTS[name].present()]


def require_system(*names: str) -> None:
    """Skips the running test, or fails it under TIMBREL_REQUIRE_ALL=1, unless all of these are installed."""
    if missing := missing_packages(names):
        give_up(f"needs the system package {' '.join(missing)} (apt-get install {' '.join(missing)})")


def require_module(module: str, extra: str) -> None:
    """Skips or fails likewise unless this Python module, which the named extra brings, can be found."""
    if importlib.util.find_spec(module) is None:
        give_up(f"needs {module} (pip install 'timbrel[{extra}]')")


def require_sfizz(extra: str) -> None:
    """Skips or fails likewise unless sfizz can be loaded: its package lacks a library of the system."""
    if platform.machine() in ("aarch64", "ARM64"):
        give_up("needs sfizz, of which there is none for Linux and Windows on ARM")
    require_module("pysfizz", extra)
    try:
        importlib.import_module("pysfizz")
    except ImportError as error:
        give_up(f"needs sfizz, which cannot be loaded: {error} (apt-get install libatomic1)")


def require_cuda() -> None:
    """Skips the running test where no CUDA device is usable, whatever TIMBREL_REQUIRE_ALL says."""
    if shutil.which("nvidia-smi") is None:
        pytest.skip("needs a CUDA device")


def give_up(reason: str) -> NoReturn:
    """Ends the running test: skipped, or failed under TIMBREL_REQUIRE_ALL=1.

    pytest folds skips by place and reason, and this is the one place: each unmet need is one summary line.
    """
    if all_required():
        pytest.fail(f"{reason}, and TIMBREL_REQUIRE_ALL=1 forbids skipping", pytrace=False)
    pytest.skip(reason)
