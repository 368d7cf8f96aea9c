"""EnCodec's SEANet, small: the waveform-rate convolutional codec that frame-rate designs are compared with.

After Défossez et al., "High Fidelity Neural Audio Compression", 2022; the layers are their package's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from timbrel_training.codec.encodec import import_encodec
from timbrel_training.codec.interface import Codec
from timbrel_training.codec.quantizer import ResidualQuantizer


@dataclass(frozen=True)
class SeanetConfig:
    """Sizes of the codec. EnCodec's own has 32 filters, 128 dimensions and two LSTM layers."""

    sample_rate: int = 24_000
    """Samples per second: at waveform rate every doubling doubles the cost."""
    ratios: tuple[int, ...] = (8, 5, 4, 2)
    """Strides, from codes to audio; their product is the hop: 320 samples, 75 frames per second."""
    n_filters: int = 8
    """Channels at waveform rate; each stride doubles them. More are too slow to train on a CPU."""
    latent_dim: int = 128
    """Width of the quantized latent."""
    n_codebooks: int = 8
    """Of the residual quantizer: 6 kbit/s at 75 frames per second."""
    codebook_size: int = 1024
    """Codes per codebook."""

    @property
    def hop_length(self) -> int:
        """Samples per frame."""
        return math.prod(self.ratios)


class SeanetEncoder(nn.Module):
    """Audio [B, S] -> latents [B, S / hop_length, latent_dim], each seeing what came before."""

    def __init__(self, config: SeanetConfig) -> None:
        super().__init__()
        self.layers = _weight_normed(_seanet("SEANetEncoder", config))

    def forward(self, audio: Tensor) -> Tensor:
        return self.layers(audio[:, None]).transpose(1, 2)


class SeanetDecoder(nn.Module):
    """Latents [B, T, latent_dim] -> audio [B, T * hop_length], causal and without delay."""

    def __init__(self, config: SeanetConfig) -> None:
        super().__init__()
        self.layers = _weight_normed(_seanet("SEANetDecoder", config))

    def forward(self, latents: Tensor) -> Tensor:
        return self.layers(latents.transpose(1, 2))[:, 0]


class SeanetCodec(Codec):
    """Causal convolutions on the waveform around a residual quantizer."""

    id = "seanet"

    def __init__(self, config: SeanetConfig | None = None) -> None:
        super().__init__()
        self.config = config or SeanetConfig()
        self.sample_rate = self.config.sample_rate
        self.hop_length = self.config.hop_length
        self.n_codebooks = self.config.n_codebooks
        self.codebook_size = self.config.codebook_size
        self.latent_dim = self.config.latent_dim
        self.encoder = SeanetEncoder(self.config)
        self.quantizer = ResidualQuantizer(self.latent_dim, self.n_codebooks, self.codebook_size)
        self.decoder = SeanetDecoder(self.config)

    def encode(self, audio: Tensor, pitch: Tensor | None = None) -> Tensor:
        missing = self.n_frames(audio.shape[1]) * self.hop_length - audio.shape[1]
        return self.quantizer.encode(self.encoder(nn.functional.pad(audio, (0, missing))))

    def decode(self, codes: Tensor) -> Tensor:
        return self.decoder(self.latents(codes))

    def latents(self, codes: Tensor) -> Tensor:
        return self.quantizer.decode(codes)

    @torch.no_grad()
    def silence(self) -> Tensor:
        device = self.quantizer.codebooks().device
        return self.encode(torch.zeros(1, self.sample_rate, device=device))[0, -1]


def _seanet(name: str, config: SeanetConfig) -> nn.Module:
    """The package's encoder or decoder, causal, without LSTM, and without its weight norm (see below)."""
    import_encodec()
    from encodec.modules import seanet

    settings: dict[str, Any] = {
        "channels": 1,
        "dimension": config.latent_dim,
        "n_filters": config.n_filters,
        "ratios": list(config.ratios),
        "norm": "none",
        "causal": True,
        "pad_mode": "constant",  # the package's reflection would need the future at a stream's start
        "lstm": 0,
    }
    layers: nn.Module = getattr(seanet, name)(**settings)
    return layers


def _weight_normed(layers: nn.Module) -> nn.Module:
    """Weight norm, as the package has it, in PyTorch's present form: the old one cannot be copied."""
    for layer in layers.modules():
        if isinstance(layer, nn.Conv1d | nn.ConvTranspose1d):
            nn.utils.parametrizations.weight_norm(layer)
    return layers
