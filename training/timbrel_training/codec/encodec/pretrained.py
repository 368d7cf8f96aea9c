"""Meta's weights of EnCodec at 24 kHz."""

from __future__ import annotations

import pickle
from pathlib import Path
from urllib.error import URLError

import torch
from torch import Tensor

from timbrel_training.codec.encodec.codec import EncodecCodec, EncodecSizes
from timbrel_training.codec.interface import file_hash
from timbrel_training.errors import TrainingError

CHECKPOINT = "encodec_24khz-d7cc33bc.th"
"""Meta's file name; its tail begins the SHA-256 of its content."""
URL = f"https://dl.fbaipublicfiles.com/encodec/v0/{CHECKPOINT}"
HASH = CHECKPOINT[-11:-3]
LICENCE = "CC-BY-NC-4.0"
META_CODEBOOKS = 32


class CodecWeightsError(TrainingError):
    """A codec's weights cannot be had; the message is one line that says what to do."""


def load_meta(path: Path, n_codebooks: int) -> tuple[EncodecCodec, list[dict[str, str]]]:
    """Returns a codec of Meta's model at 24 kHz, and what its weights are: name and licence.

    `path` is the file, or a folder that holds it under Meta's name. Raises CodecWeightsError: there is no
    such file, or it holds no such weights.
    """
    file = path / CHECKPOINT if path.is_dir() else path
    state = _read_weights(file)
    n_found = sum(name.endswith("._codebook.embed") for name in state)
    if n_found not in (0, META_CODEBOOKS):
        raise CodecWeightsError(
            f"{file}: has {n_found} codebooks, EnCodec's 24 kHz model has {META_CODEBOOKS}"
        )
    codec = EncodecCodec(EncodecSizes(n_codebooks=n_codebooks, pad_mode="reflect"))
    try:
        codec.load_trained(state)
    except RuntimeError as error:
        reason = str(error).splitlines()[-1].strip()
        raise CodecWeightsError(f"{file}: not the weights of EnCodec's 24 kHz model: {reason}") from None
    sha256 = file_hash(file)
    known = sha256.startswith(HASH)
    name = "EnCodec 24 kHz, Meta's weights" if known else f"weights of EnCodec's form, {file.name}"
    return codec, [{"name": f"{name} (SHA-256 {sha256})", "licence": LICENCE if known else "unknown"}]


def _read_weights(file: Path) -> dict[str, Tensor]:
    if not file.is_file():
        raise CodecWeightsError(f"{file}: no such file; EnCodec's weights are published at {URL}")
    try:
        state = torch.load(file, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, EOFError, ValueError, pickle.UnpicklingError):
        raise CodecWeightsError(f"{file}: not a PyTorch checkpoint, or truncated") from None
    if not isinstance(state, dict) or not all(isinstance(each, Tensor) for each in state.values()):
        raise CodecWeightsError(f"{file}: not a state dict of EnCodec")
    return state


def download_weights() -> Path:
    """Returns Meta's file, fetched from Meta's server into torch.hub's cache unless it is there. Raises
    CodecWeightsError: the server cannot be reached or the file is damaged."""
    path = Path(torch.hub.get_dir()) / "checkpoints" / CHECKPOINT
    try:
        if not path.is_file():
            path.parent.mkdir(parents=True, exist_ok=True)
            print(f"downloading EnCodec's weights, some 90 MB, to {path}")
            torch.hub.download_url_to_file(URL, str(path), HASH, progress=False)
    except (URLError, OSError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise CodecWeightsError(
            f"EnCodec's weights could not be downloaded from {URL} ({reason}); "
            "fetch that file by other means and give its path: --weights FILE"
        ) from None
    return path
