"""What a bundle says of itself."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from timbrel_bundle.layout import FORMAT_VERSION, MANIFEST
from timbrel_bundle.manifest import bundle_hash, describe_file
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb
from timbrel_training.model import NoteTransformer
from timbrel_training.model.config import N_CONDITION_POSITIONS


def describe_bundle(folder: Path, name: str, git_revision: str) -> pb.Manifest:
    """A manifest that lists and hashes the files of `folder`; its other sections are left to be filled in."""
    files = [describe_file(path) for path in sorted(folder.iterdir()) if path.name != MANIFEST]
    return pb.Manifest(
        format_version=FORMAT_VERSION,
        name=name,
        bundle_hash=bundle_hash(files),
        created=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        git_revision=git_revision,
        files=files,
    )


def describe_model(model: NoteTransformer) -> pb.ModelSpec:
    """The manifest's account of the model."""
    config, layout = model.config, model.config.layout
    return pb.ModelSpec(
        d_model=config.d_model,
        n_heads=config.n_heads,
        n_kv_heads=config.n_kv_heads,
        head_dim=config.width_per_head,
        d_feed_forward=config.d_feed_forward,
        n_encoder_layers=config.n_encoder_layers,
        n_decoder_layers=config.n_decoder_layers,
        vocabulary_size=layout.vocabulary_size,
        bos_id=layout.bos_id,
        eos_id=layout.eos_id,
        max_frames=config.max_frames,
        max_positions=config.max_positions,
        n_condition_positions=N_CONDITION_POSITIONS,
        conditioning=config.conditioning,
        n_parameters=model.n_parameters,
        codes_per_semitone=config.codes_per_semitone,
        code_offset=config.code_offset,
    )
