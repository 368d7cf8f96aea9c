"""A timbre encoder trained in two minutes tells notes from what is none, and says how sure it is of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from foreign_sounds import FOREIGN, RATE, Audio, song
from training_notes import table_of

from timbrel_bundle.bundle import Bundle
from timbrel_bundle.timbre_encoder import TimbreEncoder, parts, prepare_recording, transpositions
from timbrel_bundle.yin import wanders
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb
from timbrel_server.config import default_bundle_path
from timbrel_training.config import load_config
from timbrel_training.notes.dataset import NoteDataset
from timbrel_training.notes.render import render_dataset
from timbrel_training.notes.sources import open_sources
from timbrel_training.notes.split import Split, SplitRule
from timbrel_training.timbre.features import levels_of
from timbrel_training.timbre.map import read_map
from timbrel_training.timbre.recordings import as_recorded
from timbrel_training.timbre.references import read_references, unreliability
from timbrel_training.timbre.train import load_encoder, train_timbre

pytestmark = pytest.mark.acceptance

NAMES = ("Nylon String", "Piano String", "Wooden Bars", "FM Bell", "Hollow Square", "String Machine")
NAMES += ("Clarinet Reed", "Breathy Flute", "Soft Brass", "Tonewheel Organ")
N_RECORDINGS = 4
"""Of each held-out note, each with other flaws."""
N_FOREIGN = 12
CONFIG = [
    "notes.low_pitch=52",
    "notes.high_pitch=69",
    "notes.n_members=1",
    "notes.max_held_seconds=1.5",
    "notes.max_seconds=3.0",
    "timbre.batch_size=128",
    "timbre.recorded_notes=500",
    "timbre.foreign_sounds=400",
    "timbre.encoder.width=96",
    "timbre.loop.n_steps=600",
]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> NoteDataset:
    """Ten synthetic instruments over an octave and a half, some cells held out."""
    path = tmp_path_factory.mktemp("synthetic") / "notes"
    config = load_config("cpu", CONFIG).notes
    source = open_sources([f"synthetic:{name}" for name in NAMES], config)
    render_dataset(source, path, jobs=2, rule=SplitRule(cell_fraction=0.33))
    return NoteDataset(path)


@pytest.fixture(scope="module")
def trained(library: NoteDataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("timbre")
    config = load_config("cpu", CONFIG).timbre
    train_timbre(config, table_of(library), library, folder, torch.device("cpu"))
    return folder


def embeddings(folder: Path, sounds: list[Audio]) -> np.ndarray:
    """Embeddings of sounds, heard as `locate` hears them: mean directions of several."""
    encoder, spec = load_encoder(folder), pb.CodecSpec(sample_rate=RATE)
    found = []
    for sound in sounds:
        prepared = prepare_recording(sound, RATE, spec, 6.0)
        levels = levels_of(encoder, [prepared, *transpositions(prepared, RATE), *parts(prepared, RATE)])
        padded = np.zeros((len(levels), encoder.config.n_frames, encoder.config.n_bands), np.float32)
        for row, each in zip(padded, levels, strict=True):
            row[: len(each)] = each
        with torch.no_grad():
            heard = encoder.hear(torch.from_numpy(padded), torch.tensor([len(each) for each in levels]))
        total = heard.sum(dim=0)
        found.append((total / total.norm()).numpy())
    return np.stack(found)


def test_what_is_no_note_is_refused_and_shares_are_calibrated(library: NoteDataset, trained: Path) -> None:
    references = read_references(trained)
    held_out = np.repeat(library.of_split(Split.HELD_OUT_CELL), N_RECORDINGS)
    notes = [library.audio(int(row)) for row in held_out]
    recorded = [as_recorded(note, RATE, np.random.default_rng([9, row])) for row, note in enumerate(notes)]
    heard = embeddings(trained, recorded)
    near = references.near(heard) & [not wanders(sound, RATE) for sound in recorded]
    assert near.mean() > 0.9, f"{1 - near.mean():.0%} of held-out notes are refused"
    shares = references.shares(heard)
    names = [point.instrument for point in read_map(trained)[0].points]
    right = np.array(
        [names[best] == library.name(int(row)) for best, row in zip(shares.argmax(1), held_out, strict=True)]
    )
    assert right.mean() > 0.6
    # A tenth is recordings of some twenty notes: by chance alone the worst of ten is off by about 0.1.
    assert unreliability(shares.max(axis=1), right) < 0.15
    makers = {**FOREIGN, "song": lambda seed: song(seed, notes)}
    for name, make in makers.items():
        sounds = [make(seed) for seed in range(N_FOREIGN)]
        wandering = np.array([wanders(sound, RATE) for sound in sounds])
        refused = 1 - (references.near(embeddings(trained, sounds)) & ~wandering).mean()
        assert refused >= 0.75, f"{name}: {refused:.0%} are refused"


def test_the_bundle_that_ships_refuses_what_is_no_note() -> None:
    encoder = TimbreEncoder(Bundle.open(default_bundle_path()), n_threads=1)
    for name, make in FOREIGN.items():
        refused = [encoder.hear(make(seed), RATE).near is False for seed in range(N_FOREIGN)]
        assert np.mean(refused) >= 0.75, f"{name}: {np.mean(refused):.0%} are refused"
