"""A stage 1 that fits the tiny bundle: its sample rate, its map, its encoder."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from data.make_tiny_bundle import CODEC, INSTRUMENTS, TIMBRE, make_timbre_encoder
from safetensors.torch import load_file

from timbrel_bundle.bundle import Bundle
from timbrel_bundle.layout import TIMBRE_WEIGHTS
from timbrel_posttraining.bundles import published_map
from timbrel_training.checkpoint import save_weights
from timbrel_training.config import load_config
from timbrel_training.notes.dataset import NoteDataset
from timbrel_training.posttraining_config import TimbreFinetuneConfig
from timbrel_training.timbre.map import ENCODER, TimbreMap, write_map
from timbrel_training.timbre.references import References, write_references
from timbrel_training.tokens.table import TokenTable

TINY_BUNDLE = Path(__file__).resolve().parents[3] / "data" / "tiny_bundle"


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
    return replace(load_config("tiny").hearing, cut_share=0.3)


@pytest.fixture
def timbre_dir(tmp_path: Path, bundle: Bundle, table: TokenTable) -> Path:
    """A stage-1 folder with the bundle's map."""
    return write_stage_1(tmp_path / "timbre", published_map(bundle), table)


def write_stage_1(folder: Path, chart: TimbreMap, table: TokenTable) -> Path:
    """Writes what `timbrel train timbre` leaves; the notes' points are made up."""
    facts = {"sample_rate": CODEC.sample_rate, "n_instruments": len(INSTRUMENTS), "steps": 0}
    description = {"encoder": asdict(TIMBRE), **facts}
    encoder = make_timbre_encoder()
    weights = {name: each.float() for name, each in load_file(TINY_BUNDLE / TIMBRE_WEIGHTS).items()}
    encoder.load_state_dict(weights)
    save_weights(folder, ENCODER, encoder, description)
    points = np.random.default_rng(0).uniform(-0.7, 0.7, (table.n_notes, 2)).astype(np.float32)
    write_map(folder, chart, points, table)
    embeddings = np.eye(len(chart.points), TIMBRE.embedding_width, dtype=np.float32)
    write_references(folder, References(embeddings, 20.0, 0.5), [point.instrument for point in chart.points])
    return folder
