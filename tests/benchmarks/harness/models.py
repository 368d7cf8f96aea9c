"""Models of the shapes that are measured, with random weights.

Speed does not depend on what they say, but on how sure they are of it: the draw does.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn

from timbrel_bundle.bundle import Bundle
from timbrel_bundle.layout import (
    CONDITION_ENCODER,
    DECODER_STEP,
    DECODER_STEP_INT8,
    DECODER_STEP_PORTABLE,
    MANIFEST,
    MODEL_WEIGHTS,
)
from timbrel_bundle.manifest import save_manifest
from timbrel_export.bundle_folder import describe_bundle, describe_model
from timbrel_export.early_draw import N_EARLY
from timbrel_export.model_graphs import (
    export_condition_encoder,
    export_decoder_step,
    export_decoder_step_int8,
    export_decoder_step_portable,
)
from timbrel_export.onnx_export import round_to_half, save_weights
from timbrel_export.sample_note import SampleNote, find_cache_scales
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb
from timbrel_training.model import ModelConfig, NoteTransformer

SHIPPED = ModelConfig(
    codebook_size=1024,
    n_codebooks=10,
    codes_per_semitone=12,
    code_offset=800,
    codebook_delay=0,
    lead_frames=4,
    release_frames=128,
    header_width=768,
    d_model=256,
    n_heads=4,
    n_kv_heads=2,
    d_feed_forward=1024,
    n_timbre_waves=64,
    n_velocity_waves=16,
    n_encoder_layers=2,
    n_decoder_layers=3,
    max_frames=640,
)
"""That of the bundle that ships, but for longer notes."""

LARGE = ModelConfig(
    codebook_size=1024,
    n_codebooks=3,
    codes_per_semitone=12,
    code_offset=800,
    d_model=512,
    n_heads=8,
    n_kv_heads=4,
    d_feed_forward=2048,
    n_encoder_layers=2,
    n_decoder_layers=8,
    max_frames=640,
)

TINY = ModelConfig(
    codebook_size=64,
    n_codebooks=4,
    d_model=32,
    n_heads=4,
    n_kv_heads=2,
    d_feed_forward=64,
    n_encoder_layers=1,
    n_decoder_layers=2,
    max_frames=120,
)
"""The benchmarks themselves are tried on it."""

SHAPES = {"shipped": SHIPPED, "large": LARGE, "tiny": TINY}


EARLY_SHARE = 0.98
"""The probability of the 16 likeliest tokens, on average, in notes of the bundle that ships."""


def random_model(config: ModelConfig, seed: int = 0) -> NoteTransformer:
    """A model as sure of its tokens as a trained one, whose weights are rounded as a bundle's are."""
    torch.manual_seed(seed)
    model = NoteTransformer(config).eval()
    _make_certain(model)
    round_to_half(model)
    return model


@torch.no_grad()
def _make_certain(model: NoteTransformer) -> None:
    """Scales the norm before the heads until EARLY_SHARE is reached."""
    weight = cast("nn.LayerNorm", model.decoder.norm).weight
    low, high = 1.0, 64.0
    for _ in range(8):
        factor = (low * high) ** 0.5
        weight.fill_(factor)
        low, high = (factor, high) if _early_share(model) < EARLY_SHARE else (low, factor)


def _early_share(model: NoteTransformer, n_notes: int = 100, n_steps: int = 8) -> float:
    config = model.config
    random = torch.Generator().manual_seed(0)
    tokens = torch.randint(0, config.codebook_size, (n_notes, n_steps, config.n_codebooks), generator=random)
    gate = torch.ones(n_notes, n_steps, dtype=torch.int64)
    asked = (torch.zeros(n_notes, 2), torch.full((n_notes,), 60), torch.full((n_notes,), 90.0))
    logits: Tensor = model(*asked, tokens, gate)
    probability = torch.softmax(logits[:, -1], dim=-1)
    return float(probability.topk(N_EARLY, dim=-1).values.sum(dim=-1).mean())


def _noise(model: NoteTransformer) -> list[SampleNote]:
    """Notes of random codes, to play to a model with random weights."""
    config, random = model.config, np.random.default_rng(0)
    codes = random.integers(0, config.codebook_size, (4, min(64, config.max_frames), config.n_codebooks))
    return [SampleNote((0.1, 0.2), 60, 100.0, 40, each.astype(np.uint16)) for each in codes]


def write_model_bundle(model: NoteTransformer, folder: Path, *, portable: bool = True) -> Bundle:
    """A bundle with the model's graphs alone: enough for the runner, no codec and no map.

    Args:
        portable: whether the step in operators of the ONNX standard is among them.
    """
    folder.mkdir(parents=True, exist_ok=True)
    weights = save_weights(model, folder / MODEL_WEIGHTS, dataclasses.asdict(model.config))
    export_condition_encoder(model, folder / CONDITION_ENCODER, weights)
    export_decoder_step(model, folder / DECODER_STEP, weights)
    export_decoder_step_int8(
        model, folder / DECODER_STEP_INT8, weights, find_cache_scales(model, _noise(model))
    )
    if portable:
        export_decoder_step_portable(model, folder / DECODER_STEP_PORTABLE, weights)
    manifest = describe_bundle(folder, "random", "")
    manifest.model.CopyFrom(describe_model(model))
    config = model.config
    manifest.codec.CopyFrom(
        pb.CodecSpec(
            id="none",
            sample_rate=48_000,
            hop_length=1280,
            n_codebooks=config.n_codebooks,
            codebook_size=config.codebook_size,
            silence=[0] * config.n_codebooks,
        )
    )
    manifest.ranges.CopyFrom(
        pb.RequestRanges(pitch_min=0, pitch_max=127, velocity_min=1, velocity_max=127, seconds_max=1.0)
    )
    manifest.training.config = "random weights"
    save_manifest(manifest, folder / MANIFEST)
    return Bundle.open(folder)
