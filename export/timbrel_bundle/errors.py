"""The errors of bundles, runtimes and audio files.

ValueError
├── BundleError           a file of the bundle is missing, altered, unreadable or does not fit the others
├── AudioError            an audio file cannot be read, or audio cannot be written
├── UnknownInstrumentError
└── ProviderError         an execution provider is unknown or cannot be used here
    └── (also ImportError) RuntimeMissingError: no ONNX runtime is installed

Every message is one line: what, what is wrong with it, and what to do.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

EXPORT_AGAIN = "export or fetch the bundle again"


class BundleError(ValueError):
    """A bundle's file is missing, altered, unreadable or does not fit the others."""

    def __init__(self, path: Path | str, fault: str, remedy: str = EXPORT_AGAIN) -> None:
        super().__init__(f"{path}: {one_line(fault)}; {remedy}")
        self.path = Path(path)
        self._said = (path, fault, remedy)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._said  # on the way out of a worker process


class AudioError(ValueError):
    """An audio file cannot be read, or audio cannot be written as asked."""


class UnknownInstrumentError(ValueError):
    """The timbre map has no instrument of this name."""


class ProviderError(ValueError):
    """An execution provider is unknown, or cannot be used on this machine."""


class RuntimeMissingError(ProviderError, ImportError):
    """No ONNX runtime is installed: one of two extras brings it."""

    def __init__(self) -> None:
        super().__init__(
            'onnxruntime is not installed: pip install "timbrel[cpu]", or "timbrel[gpu]" for an NVIDIA GPU'
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), ()


def one_line(message: object, limit: int = 300) -> str:
    """The first line that says something, shortened to `limit` characters, without a closing full stop."""
    lines = (line.strip() for line in str(message).splitlines())
    first = next((line for line in lines if line), "no further detail")
    return printable(first[:limit]).rstrip(".")


UNPRINTABLE = re.compile(
    "[\\x00-\\x1f\\x7f-\\x9f\\xad\\u061c\\u180e\\u200b-\\u200f\\u2028-\\u202e\\u2060-\\u206f"
    "\\ufeff\\ufff9-\\ufffb\\ud800-\\udfff\\U000e0000-\\U000e007f]"
)
"""What no text of one line needs, and what acts on a terminal or misleads its reader: control characters,
separators of lines, what is invisible or turns the direction of writing, halves of surrogate pairs."""


def printable(text: str) -> str:
    """Text from elsewhere as it may be shown: one line, with "?" for each character of UNPRINTABLE."""
    return UNPRINTABLE.sub("?", text)
