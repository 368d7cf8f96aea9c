"""A decoder-only model goes into a bundle of the same format, and its graphs agree with PyTorch too."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import torch

from timbrel_bundle.bundle import Bundle
from timbrel_export.exporter import export_bundle
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb
from timbrel_training.model import NoteTransformer
from timbrel_training.timbre.encoder import TimbreEncoder


def prefix_model(recipe: ModuleType) -> NoteTransformer:
    """The tiny bundle's, decoder-only, with weights that all matter."""
    model = NoteTransformer(replace(recipe.MODEL, conditioning="prefix", n_encoder_layers=0)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def test_a_decoder_only_model_is_exported(recipe: ModuleType, tmp_path: Path) -> None:
    torch.set_num_threads(1)
    rng = np.random.default_rng(7)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model, codec = prefix_model(recipe), recipe.make_codec()
        encoder = TimbreEncoder(recipe.TIMBRE, recipe.CODEC.latent_dim)
    out_dir = tmp_path / "bundle"
    manifest = export_bundle(  # which raises if a graph's interface or its logits are not what they should be
        model,
        codec,
        encoder,
        pb.TimbreMap(points=[pb.TimbrePoint(instrument="Flute", pitch_min=36, pitch_max=96)]),
        pb.TrainingInfo(),
        recipe.RANGES,
        out_dir,
        [recipe.sample_note(rng, held) for held in (3, 11, 24)],
    )
    assert (manifest.model.conditioning, manifest.model.n_encoder_layers) == ("prefix", 0)
    assert manifest.model.n_parameters == model.n_parameters
    assert manifest.parity.n_tokens > 1000
    assert manifest.parity.n_flips_outside_margin == 0
    config = model.config
    for graph in ("decoder_step.onnx", "decoder_step_portable.onnx"):
        shapes = {value.name: value.shape[1:] for value in Bundle.open(out_dir).session(graph).get_inputs()}
        assert shapes["self_k_0"] == [config.n_kv_heads, config.max_positions, config.width_per_head]
        assert shapes["prefix_k_0"] == [config.n_kv_heads, 3, config.width_per_head]
