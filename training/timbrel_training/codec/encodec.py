"""Meta's EnCodec at 24 kHz, through its own package.

After Défossez et al., "High Fidelity Neural Audio Compression", 2022.
"""

from __future__ import annotations

import importlib
import pickle
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn
from urllib.error import URLError

import torch
from torch import Tensor

from timbrel_training.checkpoint import save_weights
from timbrel_training.codec.interface import WEIGHTS_NAME, Codec, CodecDesign
from timbrel_training.errors import TrainingError
from timbrel_training.notes.dataset import NoteDataset
from timbrel_training.settings import check_at_least

CHECKPOINT = "encodec_24khz-d7cc33bc.th"
"""Meta's file name; its tail begins the SHA-256 of its content."""
URL = f"https://dl.fbaipublicfiles.com/encodec/v0/{CHECKPOINT}"
MAX_CODEBOOKS = 32


class TorchaudioStandIn(ModuleType):
    """Stands for torchaudio while `encodec` is imported; whoever really uses it is told that it is missing.

    The package imports it for file I/O and resampling only, which timbrel does with soundfile and soxr. The
    registry's torchaudio is a CUDA build that does not load beside a CPU torch.
    """

    def __init__(self) -> None:
        super().__init__("torchaudio", "Stand-in while encodec is imported.")

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise RuntimeError(f"torchaudio.{name} is missing: read and resample audio with soundfile and soxr")


def import_encodec() -> ModuleType:
    """Imports the `encodec` package, with its model and quantizer, where torchaudio cannot be imported too.

    Afterwards the rest of the program sees torchaudio as missing, as it is.

    Raises:
        ImportError: the package is not installed; the message names the extra that brings it.
    """
    if (loaded := sys.modules.get("encodec")) is not None:
        return loaded
    needs_stand_in = not _torchaudio_usable()
    if needs_stand_in:
        sys.modules["torchaudio"] = TorchaudioStandIn()
    try:
        return importlib.import_module("encodec")
    except ImportError as error:
        raise ImportError(f"needs the package encodec: pip install 'timbrel[train]' ({error})") from error
    finally:
        if needs_stand_in:
            del sys.modules["torchaudio"]


def _torchaudio_usable() -> bool:
    try:
        importlib.import_module("torchaudio")
    except (ImportError, OSError, RuntimeError, AttributeError):
        for name in [name for name in sys.modules if name.split(".")[0] == "torchaudio"]:
            del sys.modules[name]
        return False
    return True


class CodecWeightsError(TrainingError):
    """A codec's weights cannot be had; the message is one line that says what to do."""


class EncodecCodec(Codec):
    """Causal, 75 frames a second, any number of 1 to 32 codebooks of 1024 codes.

    Args:
        n_codebooks: how many of the 32 codebooks to use: 8 are 6 kbit/s.

    The weights are untrained until `load_weights`; `pretrained` gives the codec with Meta's weights.
    """

    def __init__(self, n_codebooks: int = 8) -> None:
        super().__init__()
        if not 1 <= n_codebooks <= MAX_CODEBOOKS:
            raise ValueError(f"EnCodec has 1 to {MAX_CODEBOOKS} codebooks, asked for {n_codebooks}")
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "`torch.nn.utils.weight_norm` is deprecated", FutureWarning)
            self.model: Any = import_encodec().EncodecModel.encodec_model_24khz(pretrained=False)
        self.n_codebooks = n_codebooks
        self.id = f"encodec_24khz-{n_codebooks}"
        self.sample_rate = int(self.model.sample_rate)
        self.hop_length = int(self.model.encoder.hop_length)
        self.codebook_size = int(self.model.quantizer.bins)
        self.requires_grad_(False)
        self.eval()

    @classmethod
    def pretrained(cls, weights: str | Path | None = None, n_codebooks: int = 8) -> EncodecCodec:
        """Makes the codec with Meta's weights, from a file or its folder, else downloaded and cached.

        Raises:
            CodecWeightsError: the file is missing or not EnCodec's, or the download failed.
        """
        codec = cls(n_codebooks)
        codec.load_weights(read_weights(Path(weights)) if weights is not None else download_weights())
        return codec

    def load_weights(self, weights: dict[str, Tensor]) -> None:
        """Takes over a state dict of the `encodec` package's 24 kHz model.

        Raises:
            CodecWeightsError: names or shapes differ.
        """
        try:
            self.model.load_state_dict(weights)
        except RuntimeError as error:
            reason = str(error).splitlines()[-1].strip()
            raise CodecWeightsError(f"not the weights of EnCodec's 24 kHz model: {reason}") from None

    @torch.no_grad()
    def encode(
        self, audio: Tensor, pitch: Tensor | None = None, held_seconds: Tensor | None = None
    ) -> Tensor:
        latents = self.model.encoder(audio[:, None])
        codes: Tensor = self.model.quantizer.vq.encode(latents, n_q=self.n_codebooks)
        return codes.permute(1, 2, 0)

    @torch.no_grad()
    def decode(
        self,
        codes: Tensor,
        seed: Tensor | None = None,
        cents: Tensor | None = None,
        level_db: Tensor | None = None,
    ) -> Tensor:
        self.check_cents(cents)
        audio: Tensor = self.model.decoder(self.model.quantizer.decode(codes.permute(2, 0, 1)))
        return audio[:, 0, : codes.shape[1] * self.hop_length] * self.gain(level_db)

    def silence(self) -> Tensor:
        second = torch.zeros(1, self.sample_rate, device=next(self.parameters()).device)
        return self.encode(second)[0, -1]


def read_weights(path: Path) -> dict[str, Tensor]:
    """Reads the state dict from a local file, or in Meta's file in a local folder.

    Raises:
        CodecWeightsError: there is none, or it cannot be read.
    """
    file = path / CHECKPOINT if path.is_dir() else path
    if not file.is_file():
        raise CodecWeightsError(f"{file}: no such file; EnCodec's weights are published at {URL}")
    try:
        weights = torch.load(file, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, EOFError, ValueError, pickle.UnpicklingError):
        raise CodecWeightsError(f"{file}: not a PyTorch checkpoint, or truncated") from None
    if not isinstance(weights, dict):
        raise CodecWeightsError(f"{file}: not a state dict of EnCodec")
    return weights


def download_weights() -> dict[str, Tensor]:
    """Returns the state dict from Meta's server, kept in torch.hub's cache.

    Raises:
        CodecWeightsError: the server cannot be reached or the file is damaged.
    """
    try:
        weights: dict[str, Tensor] = torch.hub.load_state_dict_from_url(
            URL, map_location="cpu", check_hash=True, weights_only=True, progress=False
        )
    except (URLError, OSError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise CodecWeightsError(
            f"EnCodec's weights could not be downloaded from {URL} ({reason}); "
            "fetch that file by other means and give its path"
        ) from None
    return weights


@dataclass(frozen=True)
class EncodecConfig:
    """The choice among Meta's weights; there is nothing to train."""

    n_codebooks: int = 8
    """Codebooks used, of 32: 8 are 6 kbit/s."""
    weights: str = ""
    """Meta's file, or the folder that holds it; "" for a download."""
    device: str = "auto"
    """It is ignored, and there since every codec's config has one."""

    def __post_init__(self) -> None:
        check_at_least(self, n_codebooks=1)


def save_pretrained(config: EncodecConfig, notes: NoteDataset, out_dir: Path) -> EncodecCodec:
    """Leaves the codec in `out_dir`, as training leaves one of another design. The notes are not needed.

    Raises:
        CodecWeightsError: see `EncodecCodec.pretrained`.
    """
    codec = EncodecCodec.pretrained(config.weights or None, config.n_codebooks)
    description = {"id": DESIGN.id, "config": {"n_codebooks": config.n_codebooks}, "figures": {}}
    save_weights(out_dir, WEIGHTS_NAME, codec, description)
    return codec


DESIGN = CodecDesign(
    "encodec_24khz", EncodecConfig, save_pretrained, lambda sizes: EncodecCodec(sizes["n_codebooks"])
)
