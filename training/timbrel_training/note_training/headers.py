"""Fits what says a note's header and what plays it to each other: `timbrel train headers`.

Stage 2 learns which codes a header has, each code by itself. What is heard are the parameters that the codec
makes of all of them, and a code that is nearly right is heard as nearly right. So the network that says
headers and the decoder that the codec plays them by learn once more, together, by the error of the parameters
that come out of headers drawn as the engine draws them: the network to be right where it is heard, the
decoder to make the best of what is said. The codec's encoder, its codes and the rest of the model stay.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from timbrel_training.checkpoint import load_description, load_weights, save_weights
from timbrel_training.codec import registry
from timbrel_training.codec.interface import CODES_OF, WEIGHTS_NAME, codec_hash, codes_hash, file_hash
from timbrel_training.codec.timbrel_notes.analysed_notes import ANALYSIS_FOLDER, kept_analysis
from timbrel_training.codec.timbrel_notes.codec import TimbrelNotes
from timbrel_training.errors import CheckpointError
from timbrel_training.loop import Loop
from timbrel_training.note_training.batches import TimbreConditions
from timbrel_training.note_training.header_fitting import (
    Batch,
    HeaderFitter,
    HeaderFitting,
    HeaderTrainingConfig,
)
from timbrel_training.note_training.train import (
    MODEL,
    NoteTrainingConfig,
    build_model,
    check_learnt_from,
    digests,
    read_config,
)
from timbrel_training.notes.dataset import NoteDataset
from timbrel_training.timbre.map import read_map
from timbrel_training.timbre.train import check_same_notes
from timbrel_training.tokens.table import TokenTable

FITTED_CODEC = "codec"
"""In what the description of a model says of its headers: the hash of the codec that they were fitted to."""


@dataclass(frozen=True)
class HeaderFolders:
    """The folders that the stages before left."""

    notes: Path
    tokens: Path
    codec: Path
    timbre: Path
    model: Path


def train_headers(
    config: HeaderTrainingConfig,
    training: NoteTrainingConfig,
    folders: HeaderFolders,
    out_dir: Path,
    device: torch.device,
) -> Loop[Batch] | None:
    """Trains in `out_dir`, or resumes it; leaves `codec/` and `model/` there, which are exported.

    None where there is nothing to fit, since the codec has no header or the model no network that says it:
    both are then as they were. Raises CheckpointError: a folder is not finished, they do not belong together,
    or the codec's holds no measurements of the notes.
    """
    dataset, table = NoteDataset(folders.notes), TokenTable.read(folders.tokens)
    check_same_notes(table, dataset)
    if codes_hash(folders.codec) != table.header.codec_hash:
        raise CheckpointError(f"{folders.codec}: the tokens in {folders.tokens} were made by another codec")
    description = load_description(folders.model, MODEL)
    check_learnt_from(folders.model, description, folders.timbre, folders.tokens, table)
    codec = registry.load_codec(folders.codec)
    model = build_model(read_config(folders.model, description), str(folders.model))
    load_weights(folders.model, MODEL, model)
    loop = None
    if isinstance(codec, TimbrelNotes) and model.header is not None:
        codec.templates.measure_depths()
        notes = kept_analysis(dataset, folders.codec / ANALYSIS_FOLDER)
        if notes is None:
            raise CheckpointError(
                f"{folders.codec}: holds no measurements of {folders.notes}; `timbrel train codec` makes them"
            )
        chart, points = read_map(folders.timbre)
        conditions = TimbreConditions.from_map(chart, points, table, training.noise_fraction)
        plain = model.with_plain_embeddings().eval()
        plain.header = model.header  # the very same, so that it is the model's that learns
        fitting = HeaderFitting(plain.to(device), codec.to(device), config).to(device)
        fitter = HeaderFitter(fitting, notes, dataset, table, conditions, training, codec, device)
        loop = Loop(
            *(config.loop, fitting, fitting.loss, fitter.batch, out_dir),
            validate=fitter.validate,
            identity={
                "headers": {name: each for name, each in asdict(config).items() if name != "loop"},
                "codec": codec_hash(folders.codec),
                "model": file_hash(folders.model / f"{MODEL}.safetensors"),
            },
            later_identity={
                "centroid_share": training.centroid_share,
                "noise_fraction": training.noise_fraction,
                **digests(folders.timbre, table.notes_hash),
            },
            name="headers",
        )
        loop.run()
        average = loop.ema.model
        assert isinstance(average, HeaderFitting)
        codec.header.decoder.load_state_dict(average.decoder.state_dict())
        model.header.load_state_dict(average.network.state_dict())
        description["headers"] = {"steps": loop.step, "figures": loop.history[-1] if loop.history else {}}
    about_codec = {**load_description(folders.codec, WEIGHTS_NAME), CODES_OF: table.header.codec_hash}
    save_weights(out_dir / "codec", WEIGHTS_NAME, codec, about_codec)
    if loop is not None:
        description["headers"][FITTED_CODEC] = codec_hash(out_dir / "codec")
    save_weights(out_dir / "model", MODEL, model, description)
    return loop
