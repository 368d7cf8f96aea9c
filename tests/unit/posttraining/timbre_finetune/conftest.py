"""Stages that fit the tiny bundle: its codec's sizes, its map, an encoder that has learnt nothing."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from data.make_tiny_bundle import CODEC, TIMBRE, make_codec

from timbrel_bundle.bundle import Bundle
from timbrel_posttraining.bundles import published_map
from timbrel_training.checkpoint import save_weights
from timbrel_training.codec.timbrel_notes import TimbrelNotes
from timbrel_training.config import load_config
from timbrel_training.notes.dataset import NoteDataset
from timbrel_training.posttraining_config import TimbreFinetuneConfig
from timbrel_training.timbre.encoder import TimbreEncoder
from timbrel_training.timbre.map import ENCODER, TimbreMap, write_map
from timbrel_training.tokens.table import TokenTable


@pytest.fixture
def bundle(tiny_bundle: Path) -> Bundle:
    """The tiny bundle, open."""
    return Bundle.open(tiny_bundle)


@pytest.fixture
def library(library_dir: Path) -> NoteDataset:
    """A library of its instruments."""
    return NoteDataset(library_dir)


@pytest.fixture
def config() -> TimbreFinetuneConfig:
    """The tiny one, every way of hearing in it."""
    return replace(load_config("tiny").hearing, hinted_share=0.3, cut_share=0.3)


@pytest.fixture
def codec() -> TimbrelNotes:
    """Random weights, of the bundle's sizes."""
    torch.manual_seed(0)
    return make_codec().eval().requires_grad_(False)


@pytest.fixture
def timbre_dir(tmp_path: Path, bundle: Bundle, table: TokenTable) -> Path:
    """A stage-1 folder with the bundle's map."""
    return write_stage_1(tmp_path / "timbre", published_map(bundle), table)


@pytest.fixture
def codec_dir(tmp_path: Path, codec: TimbrelNotes) -> Path:
    """A folder of that codec."""
    save_weights(tmp_path / "codec", "codec", codec, {"id": codec.id, "config": asdict(codec.config)})
    return tmp_path / "codec"


def write_stage_1(folder: Path, chart: TimbreMap, table: TokenTable) -> Path:
    """Writes what `timbrel train timbre` leaves; the notes' points are made up."""
    torch.manual_seed(0)
    encoder = TimbreEncoder(TIMBRE, CODEC.latent_dim)
    description = {"encoder": asdict(TIMBRE), "latent_dim": CODEC.latent_dim, "steps": 0}
    save_weights(folder, ENCODER, encoder, description)
    points = np.random.default_rng(0).uniform(-0.7, 0.7, (table.n_notes, 2)).astype(np.float32)
    write_map(folder, chart, points, table)
    return folder
