"""Importing `encodec` where torchaudio cannot be.

The package imports torchaudio at import time, though it uses it for file I/O and resampling only, which
timbrel does with soundfile and soxr. The registry's torchaudio is a CUDA build that does not load beside a
CPU torch. So where the real one is unusable, an empty module takes its place for as long as the import
lasts; afterwards the rest of the program sees torchaudio as missing, as it is.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import NoReturn


class TorchaudioStandIn(ModuleType):
    """Stands for torchaudio; whoever really uses it is told that it is not there."""

    def __init__(self) -> None:
        super().__init__("torchaudio", "Stand-in while encodec is imported.")

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise RuntimeError(f"torchaudio.{name} is missing: read and resample audio with soundfile and soxr")


def import_encodec() -> ModuleType:
    """The `encodec` package, with its model and quantizer loaded.

    Raises:
        ImportError: the package is not installed; the message names the extra that brings it.
    """
    if (loaded := sys.modules.get("encodec")) is not None:
        return loaded
    if torchaudio_usable():
        return _import()
    sys.modules["torchaudio"] = TorchaudioStandIn()
    try:
        return _import()
    finally:
        del sys.modules["torchaudio"]


def torchaudio_usable() -> bool:
    """Whether the real torchaudio can be imported."""
    try:
        importlib.import_module("torchaudio")
    except (ImportError, OSError, RuntimeError, AttributeError):
        for name in [name for name in sys.modules if name.split(".")[0] == "torchaudio"]:
            del sys.modules[name]
        return False
    return True


def _import() -> ModuleType:
    try:
        return importlib.import_module("encodec")
    except ImportError as error:
        raise ImportError(f"needs the package encodec: pip install 'timbrel[train]' ({error})") from error
