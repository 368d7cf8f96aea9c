"""The designs: each a codec and how it is trained, with a name and a reason; and the settings of all.

SEANet, small, stands for waveform-rate convolutional codecs: after Défossez et al., "High Fidelity Neural
Audio Compression", 2022; its layers are their package's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from timbrel_training.codec.discriminator import DiscriminatorConfig
from timbrel_training.codec.encodec import import_encodec
from timbrel_training.codec.interface import Codec
from timbrel_training.codec.quantizer import ResidualQuantizer
from timbrel_training.codec.timbrel_notes import TimbrelNotes, TimbrelNotesConfig
from timbrel_training.errors import ConfigError
from timbrel_training.optimization import AUTO, check_precision
from timbrel_training.settings import check_at_least


@dataclass(frozen=True)
class ComparisonConfig:
    """The settings of a comparison, the same for every design: how long, on what, with which decoder."""

    minutes: float = 20.0
    """Training time of each codec: processor time of one thread, in minutes."""
    decoder_minutes: float = 10.0
    """Training time of the note transformer on each codec's codes, likewise."""
    precision: str = AUTO
    """Precision of training, as `LoopConfig.precision`."""
    seed: int = 0
    """Seed of initial weights and batches."""
    batch_size: int = 12
    """Segments per step of the codec."""
    segment_seconds: float = 1.28
    """Length of a segment: an attack and its decay."""
    codec_learning_rate: float = 1e-3
    """Peak learning rate of every codec (and its discriminator)."""
    decoder_learning_rate: float = 1e-3
    """Peak learning rate of the note transformer."""
    n_training_notes: int = 1500
    """Notes that the note transformer is trained on, drawn once: coding all of a library would take longer
    than training."""
    n_held_out_notes: int = 200
    """Held-out notes that it is scored on."""
    note_seconds: float = 3.0
    """Length at which its notes are cut."""
    batch_seconds: float = 48.0
    """Audio per step of the note transformer: 16 notes, whatever the frame rate."""
    d_model: int = 128
    """Width of the note transformer."""
    n_encoder_layers: int = 1
    """Its layers over the condition."""
    n_decoder_layers: int = 3
    """Its layers over the tokens."""
    n_judged_notes: int = 100
    """Held-out notes whose reconstruction is measured."""

    def __post_init__(self) -> None:
        check_precision(self.precision)
        for name in ("minutes", "decoder_minutes", "segment_seconds", "note_seconds", "batch_seconds"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"{name}: {getattr(self, name)}, expected more than 0")
        check_at_least(self, batch_size=1, n_training_notes=1, n_held_out_notes=1, n_judged_notes=1)

    @property
    def budget(self) -> str:
        """Names the folder of a design by both times."""
        return f"{self.minutes:g}+{self.decoder_minutes:g}min"


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
    """Codebooks of the residual quantizer: 6 kbit/s at 75 frames per second."""
    codebook_size: int = 1024
    """Codes per codebook."""

    @property
    def hop_length(self) -> int:
        """Samples per frame."""
        return math.prod(self.ratios)


class SeanetEncoder(nn.Module):
    """Turns audio [B, S] into latents [B, S / hop_length, latent_dim], each seeing what came before."""

    def __init__(self, config: SeanetConfig) -> None:
        super().__init__()
        self.layers = _weight_normed(_seanet("SEANetEncoder", config))

    def forward(self, audio: Tensor) -> Tensor:
        return self.layers(audio[:, None]).transpose(1, 2)


class SeanetDecoder(nn.Module):
    """Turns latents [B, T, latent_dim] into audio [B, T * hop_length], causal and without delay."""

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
        self.encoder = SeanetEncoder(self.config)
        self.quantizer = ResidualQuantizer(self.config.latent_dim, self.n_codebooks, self.codebook_size)
        self.decoder = SeanetDecoder(self.config)

    def encode(
        self, audio: Tensor, pitch: Tensor | None = None, held_seconds: Tensor | None = None
    ) -> Tensor:
        missing = self.n_frames(audio.shape[1]) * self.hop_length - audio.shape[1]
        return self.quantizer.encode(self.encoder(nn.functional.pad(audio, (0, missing))))

    def decode(
        self,
        codes: Tensor,
        seed: Tensor | None = None,
        cents: Tensor | None = None,
        level_db: Tensor | None = None,
    ) -> Tensor:
        self.check_cents(cents)
        return self.decoder(self.quantizer.decode(codes)) * self.gain(level_db)

    @torch.no_grad()
    def silence(self) -> Tensor:
        device = self.quantizer.codebooks().device
        return self.encode(torch.zeros(1, self.sample_rate, device=device))[0, -1]


def _seanet(name: str, config: SeanetConfig) -> nn.Module:
    """Makes the package's encoder or decoder: causal, without LSTM or its weight norm (see below)."""
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
    """Adds weight norm, as the package does, in PyTorch's present form: the old one cannot be copied."""
    for layer in layers.modules():
        if isinstance(layer, nn.Conv1d | nn.ConvTranspose1d):
            nn.utils.parametrizations.weight_norm(layer)
    return layers


@dataclass(frozen=True)
class Design:
    """A codec and its training: one row of the comparison."""

    name: str
    """As the command line names it."""
    about: str
    """A description, and the question that it answers."""
    codec: TimbrelNotesConfig | SeanetConfig
    """The codec's kind and sizes."""
    added_steadiness: float = 0.0
    """Weight of the mean absolute change of latents from frame to frame, on top of the codec's own."""
    dropout_share: float = 0.25
    """Share of steps that use only the first few residual codebooks (quantizer dropout)."""
    discriminator: DiscriminatorConfig | None = None
    """Trained beside the codec, where there is one."""

    def make_codec(self) -> Codec:
        """Makes the codec, untrained."""
        if isinstance(self.codec, SeanetConfig):
            return SeanetCodec(self.codec)
        return TimbrelNotes(self.codec)


DESIGNS = (
    Design(
        "timbrel-notes-75",
        "75 frames per second: finer in time, half as many tokens again",
        TimbrelNotesConfig(sample_rate=48_000, hop_length=640, n_subframes=4),
    ),
    Design(
        "timbrel-notes-50",
        "50 frames per second, as shipped: what the variants below are beside",
        TimbrelNotesConfig(sample_rate=48_000, hop_length=960, n_subframes=4),
    ),
    Design(
        "timbrel-notes-37.5",
        "37.5 frames per second, control points 5 ms apart as at 50: a quarter fewer tokens",
        TimbrelNotesConfig(sample_rate=48_000, hop_length=1280, n_subframes=5),
    ),
    Design(
        "timbrel-notes-50-steady",
        "latents held ten times as hard from frame to frame: do codes stand still, and at what cost?",
        TimbrelNotesConfig(sample_rate=48_000, hop_length=960, n_subframes=4),
        added_steadiness=0.18,
    ),
    Design(
        "timbrel-notes-50-discriminator",
        "a multi-scale STFT discriminator beside the spectral loss: sharper, or only slower?",
        TimbrelNotesConfig(sample_rate=48_000, hop_length=960, n_subframes=4),
        discriminator=DiscriminatorConfig(),
    ),
    Design(
        "timbrel-notes-50-no-dropout",
        "every step with all codebooks: what quantizer dropout costs or brings",
        TimbrelNotesConfig(sample_rate=48_000, hop_length=960, n_subframes=4),
        dropout_share=0.0,
    ),
    Design(
        "seanet-75",
        "EnCodec's convolutions on the waveform, 24 kHz, 75 frames per second: phase is in the codes",
        SeanetConfig(ratios=(8, 5, 4, 2)),
    ),
    Design(
        "seanet-50",
        "the same at 50 frames per second",
        SeanetConfig(ratios=(8, 5, 4, 3)),
    ),
)
"""In the order of the report."""


def designs_named(names: Sequence[str]) -> list[Design]:
    """Finds the designs of these names, all of them where there are none.

    Raises:
        ConfigError: no such design.
    """
    known = {design.name: design for design in DESIGNS}
    for name in names:
        if name not in known:
            raise ConfigError(f"{name}: no such codec design; there are {', '.join(known)}")
    return [known[name] for name in names] if names else list(DESIGNS)
