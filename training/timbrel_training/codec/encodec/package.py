"""The `encodec` package without torchaudio."""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any, NoReturn

import torch
from torch import Tensor, nn


class Spectrogram(nn.Module):
    """Stands for torchaudio's: audio [..., S] to complex spectra [..., n_fft / 2 + 1, T]."""

    window: Tensor  # [win_length]

    def __init__(
        self,
        n_fft: int,
        hop_length: int,
        win_length: int,
        window_fn: Callable[[int], Tensor],
        normalized: bool,
        **_: object,
    ) -> None:
        super().__init__()
        self.n_fft, self.hop_length, self.win_length = n_fft, hop_length, win_length
        self.register_buffer("window", window_fn(win_length), persistent=False)
        self.scale = float(self.window.square().sum().rsqrt()) if normalized else 1.0

    def forward(self, audio: Tensor) -> Tensor:
        """Returns the spectra of whole windows only."""
        flat = audio.reshape(-1, audio.shape[-1])
        sizes = (self.n_fft, self.hop_length, self.win_length)
        spectra = torch.stft(flat, *sizes, self.window, center=False, return_complex=True)
        return self.scale * spectra.unflatten(0, audio.shape[:-1])


class TorchaudioStandIn(ModuleType):
    """Stands for torchaudio while `encodec` is imported; whoever really uses it is told that it is missing.

    The package imports it for file I/O and resampling, which timbrel does with soundfile and soxr, and for
    the discriminator's spectra. The registry's torchaudio is a CUDA build that does not load beside a CPU
    torch.
    """

    def __init__(self) -> None:
        super().__init__("torchaudio", "Stand-in while encodec is imported.")
        self.transforms = SimpleNamespace(Spectrogram=Spectrogram)

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise RuntimeError(f"torchaudio.{name} is missing: read and resample audio with soundfile and soxr")


def import_encodec() -> ModuleType:
    """Imports the `encodec` package, with its discriminator, where torchaudio cannot be imported too.

    Afterwards the rest of the program sees torchaudio as missing, as it is. Raises ImportError: the package
    is not installed; the message names the extra that brings it.
    """
    needs_stand_in = "encodec.msstftd" not in sys.modules and not _torchaudio_usable()
    if needs_stand_in:
        sys.modules["torchaudio"] = TorchaudioStandIn()
    try:
        importlib.import_module("encodec.msstftd")
        return importlib.import_module("encodec")
    except ImportError as error:
        raise ImportError(f'needs the package encodec: pip install "timbrel[train]" ({error})') from error
    finally:
        if needs_stand_in:
            del sys.modules["torchaudio"]


@contextmanager
def building() -> Iterator[None]:
    """In it networks with the package's weight norm can be made that may be copied.

    torch deprecates that weight norm; outside of `no_grad` it leaves results that cannot be copied.
    """
    with torch.no_grad(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "`torch.nn.utils.weight_norm` is deprecated", FutureWarning)
        yield


def _torchaudio_usable() -> bool:
    try:
        importlib.import_module("torchaudio")
    except (ImportError, OSError, RuntimeError, AttributeError):
        for name in [name for name in sys.modules if name.split(".")[0] == "torchaudio"]:
            del sys.modules[name]
        return False
    return True


_encodec: Any = import_encodec()
seanet: Any = _encodec.modules.seanet
"""The networks and their layers."""
quantization: Any = _encodec.quantization
"""The residual vector quantizer."""
msstftd: Any = _encodec.msstftd
"""The discriminator on spectra of several resolutions."""
