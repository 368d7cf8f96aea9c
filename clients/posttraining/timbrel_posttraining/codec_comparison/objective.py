"""One training step's loss of a design."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from timbrel_posttraining.codec_comparison.design import Design
from timbrel_posttraining.codec_comparison.seanet import SeanetCodec
from timbrel_training.codec.discriminator import Discriminator
from timbrel_training.codec.interface import Codec
from timbrel_training.codec.timbrel_notes import TimbrelNotes
from timbrel_training.codec.timbrel_notes.objective import (
    COMMITMENT_WEIGHT,
    CodecObjective,
    SegmentBatch,
    SpectralLoss,
)

Losses = tuple[Tensor, dict[str, Tensor]]
"""The scalar to minimise, and its named parts."""


class SeanetObjective(nn.Module):
    """SEANet with the spectral and commitment losses of timbrel-notes."""

    def __init__(self, codec: SeanetCodec) -> None:
        super().__init__()
        self.codec = codec
        self.spectral = SpectralLoss(codec.sample_rate)

    def forward(self, batch: SegmentBatch, n_codebooks: int | None = None) -> Losses:
        """Loss (scalar) and its parts; `n_codebooks` as in CodecObjective."""
        latents = self.codec.encoder(batch.audio).float()
        with torch.autocast(batch.audio.device.type, enabled=False):
            quantized, _, commitment = self.codec.quantizer(latents, n_codebooks)
        audio = self.codec.decoder(quantized).float()
        with torch.autocast(batch.audio.device.type, enabled=False):
            spectral = self.spectral(audio, batch.audio, batch.peak)
        parts = {"spectral": spectral.detach(), "commitment": commitment.detach()}
        return spectral + COMMITMENT_WEIGHT * commitment, parts


class DesignObjective(nn.Module):
    """The codec's own objective, and what the design adds to it."""

    def __init__(self, design: Design) -> None:
        super().__init__()
        self.design = design
        self.own = _own_objective(design)
        self.discriminator = (
            Discriminator(design.discriminator, self.codec.sample_rate) if design.discriminator else None
        )

    @property
    def codec(self) -> Codec:
        """What is being trained."""
        return self.own.codec

    @property
    def n_residual_codebooks(self) -> int:
        """Codebooks that quantizer dropout chooses from."""
        return self.own.codec.quantizer.n_codebooks

    def forward(self, batch: SegmentBatch, n_codebooks: int | None = None) -> Losses:
        """Loss (scalar) and its named parts; `n_codebooks` as in CodecObjective."""
        with watched(self.own.codec.encoder) as encodings, watched(self.own.spectral) as comparisons:
            loss, parts = self.own(batch, n_codebooks)
        if self.design.added_steadiness:
            _, latents = encodings[-1]
            change = (latents[:, 1:] - latents[:, :-1]).float().abs().mean()
            loss = loss + self.design.added_steadiness * change
            parts["steadiness"] = change.detach()
        if self.discriminator is not None:
            (output, target, peak), _ = comparisons[-1]
            sides = self.discriminator.losses(output / peak[:, None], target / peak[:, None])
            loss = loss + self.discriminator.weighted(sides)
            parts |= {name: value.detach() for name, value in sides.items()}
        return loss, parts


@contextmanager
def watched(module: nn.Module) -> Iterator[list[tuple[tuple[Any, ...], Any]]]:
    """The inputs and the output of each call of a module within the block, gradients and all."""
    calls: list[tuple[tuple[Any, ...], Any]] = []
    handle = module.register_forward_hook(lambda _, inputs, output: calls.append((inputs, output)))
    try:
        yield calls
    finally:
        handle.remove()


def _own_objective(design: Design) -> CodecObjective | SeanetObjective:
    codec = design.make_codec()
    if isinstance(codec, TimbrelNotes):
        return CodecObjective(codec)
    if isinstance(codec, SeanetCodec):
        return SeanetObjective(codec)
    raise TypeError(f"{codec.id}: no objective for this codec")
