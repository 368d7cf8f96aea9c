"""EnCodec behind the codec interface, of any size."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from timbrel_training.codec.encodec.package import building, quantization, seanet
from timbrel_training.codec.encodec.streaming import DecoderChunk, initial_contexts, padding_of
from timbrel_training.codec.interface import MAX_CODEBOOK_SIZE, Codec, Expression
from timbrel_training.errors import ConfigError
from timbrel_training.settings import check_at_least

TRAINED_WITH = ("inited", "cluster_size", "embed_avg")
"""What a codebook keeps for its training alone."""


@dataclass(frozen=True)
class EncodecSizes:
    """Sizes of an EnCodec: but for the padding, by default those of Meta's model at 24 kHz."""

    sample_rate: int = 24_000
    """Samples per second."""
    ratios: tuple[int, ...] = (8, 5, 4, 2)
    """By which the decoder upsamples, layer by layer; a frame is their product in samples."""
    n_filters: int = 32
    """Channels at the sample rate; twice as many behind each ratio."""
    n_residual_layers: int = 1
    """Residual blocks at each rate."""
    n_lstm_layers: int = 2
    """Layers of each LSTM; 0: none."""
    dimension: int = 128
    """Numbers that a frame is coded from."""
    n_codebooks: int = 4
    """Codebooks, each coding what those before it left."""
    codebook_size: int = 1024
    """Codes per codebook."""
    pad_mode: Literal["constant", "reflect"] = "constant"
    """How convolutions begin. `reflect`, Meta's, needs what comes next: a stream lags six frames behind its
    codes. `constant`, zeros, needs nothing."""

    def __post_init__(self) -> None:
        check_at_least(self, sample_rate=1, n_filters=2, n_residual_layers=1, n_lstm_layers=0, dimension=1)
        check_at_least(self, n_codebooks=1, codebook_size=2)
        if self.codebook_size > MAX_CODEBOOK_SIZE:
            raise ConfigError(f"codebook_size: {self.codebook_size}, expected at most {MAX_CODEBOOK_SIZE}")
        if not self.ratios or min(self.ratios) < 2:
            raise ConfigError(f"ratios: {self.ratios}, expected one or more, from 2 on")
        # A note's first frame must hold what is mirrored, behind the first ratio and at the sample rate.
        longest = 2**self.n_residual_layers
        if self.pad_mode == "reflect" and (self.ratios[0] <= longest or math.prod(self.ratios) < 7):
            raise ConfigError(
                f"ratios: {self.ratios}, expected a first one above {longest} and a product from 7 on"
                f" with pad_mode = 'reflect' and n_residual_layers = {self.n_residual_layers}"
            )


class EncodecCodec(Codec):
    """Causal, its codebooks residual: a model writes each a frame behind the one before.

    Its weights are random until they are trained or loaded, and without the weight norm of training.
    """

    id = "encodec"

    def __init__(self, config: EncodecSizes) -> None:
        super().__init__()
        self.config = config
        self.encoder, self.decoder, self.quantizer = make_networks(config, norm="none")
        for layer in self.quantizer.vq.layers:
            for name in TRAINED_WITH:
                delattr(layer._codebook, name)
        self.sample_rate, self.hop_length = config.sample_rate, math.prod(config.ratios)
        self.n_codebooks, self.codebook_size = config.n_codebooks, config.codebook_size
        self.n_held = padding_of(self.decoder.model[0]) if config.pad_mode == "reflect" else 0
        """Frames that a stream holds back."""
        self.delay_samples = self.n_held * self.hop_length
        self.requires_grad_(False)
        self.eval()

    def load_trained(self, state: Mapping[str, Tensor]) -> None:
        """Takes over the state dict of a model of the `encodec` package, of its first codebooks. Raises
        RuntimeError: names or shapes differ."""
        books = {f"quantizer.vq.layers.{number}._codebook.embed" for number in range(self.n_codebooks)}
        kept = {name: state[name] for name in state if name in books or not name.startswith("quantizer.")}
        self.load_state_dict(_without_weight_norm(kept))

    @torch.no_grad()
    def encode(
        self, audio: Tensor, pitch: Tensor | None = None, held_seconds: Tensor | None = None
    ) -> Tensor:
        codes: Tensor = self.quantizer.vq.encode(self.encoder(audio[:, None]))
        return codes.permute(1, 2, 0)

    @torch.no_grad()
    def decode(
        self,
        codes: Tensor,
        seed: Tensor | None = None,
        cents: Tensor | None = None,
        level_db: Tensor | None = None,
    ) -> Tensor:
        """Returns what the package's decoder gives for whole notes; see `Codec.decode`.

        A note that is shorter than what a stream holds back goes on with silence, as in a stream.
        """
        self.check_cents(cents)
        n_frames = codes.shape[1]
        if n_frames <= self.n_held:
            more = self.silence().expand(len(codes), self.n_held + 1 - n_frames, -1)
            codes = torch.cat([codes, more], dim=1)
        audio: Tensor = self.decoder(self.quantizer.decode(codes.permute(2, 0, 1)))
        return audio[:, 0, : n_frames * self.hop_length] * self.gain(level_db)

    def silence(self) -> Tensor:
        second = torch.zeros(1, self.sample_rate, device=next(self.parameters()).device)
        return self.encode(second)[0, -1]

    def initial_state(self, n_batch: int) -> dict[str, Tensor]:
        """Returns the zeros for a batch of notes that begin, by name."""
        device = next(self.parameters()).device
        return {
            "n_frames": torch.zeros(n_batch, dtype=torch.int64, device=device),
            "levels": torch.zeros(n_batch, self.n_held + 1, device=device),
            **initial_contexts(self.decoder, self.n_held, n_batch, device),
        }

    def decode_chunk(
        self, codes: Tensor, expression: Expression, state: dict[str, Tensor]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Decodes the next frames of a stream; see `Codec.decode_chunk`."""
        n_frames, n_before = codes.shape[1], state["n_frames"]
        chunk = DecoderChunk(state, self.n_held, n_frames, n_before)
        latents = self.quantizer.decode(codes.permute(2, 0, 1))
        audio = chunk.run(self.decoder.model, latents, "model")[:, 0]
        levels = torch.cat([state["levels"], expression.level_db], dim=1)
        level = levels[:, 1 : n_frames + 1]
        frame = torch.arange(n_frames, device=codes.device)
        before = torch.where(frame == chunk.n_to_start[:, None], level, levels[:, :n_frames])
        after = {"n_frames": n_before + n_frames, "levels": levels[:, n_frames:], **chunk.after}
        return audio * self.gain(level, before), {name: after[name] for name in state}


def make_networks(config: EncodecSizes, norm: str) -> tuple[nn.Module, Any, Any]:
    """Returns the package's encoder, decoder and quantizer; the norm of convolutions is `weight_norm` or
    `none`."""
    sizes = {
        "dimension": config.dimension,
        "n_filters": config.n_filters,
        "n_residual_layers": config.n_residual_layers,
        "ratios": list(config.ratios),
        "lstm": config.n_lstm_layers,
        "causal": True,
        "pad_mode": config.pad_mode,
        "norm": norm,
    }
    books = config.n_codebooks, config.codebook_size
    quantizer = quantization.ResidualVectorQuantizer(
        config.dimension, *books, kmeans_init=False, threshold_ema_dead_code=0
    )
    with building():
        return seanet.SEANetEncoder(**sizes), seanet.SEANetDecoder(**sizes), quantizer


def build_codec(sizes: dict[str, Any]) -> EncodecCodec:
    """Returns an untrained codec of EncodecSizes as plain data."""
    return EncodecCodec(EncodecSizes(**{**sizes, "ratios": tuple(sizes["ratios"])}))


def _without_weight_norm(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Returns the state dict with each weight in place of its length and direction."""
    plain = dict(state)
    for name in state:
        stem = name.removesuffix("_g")
        if stem != name and f"{stem}_v" in state:
            plain[stem] = torch._weight_norm(plain.pop(f"{stem}_v"), plain.pop(name), 0)
    return plain
