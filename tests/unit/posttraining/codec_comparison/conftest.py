"""Designs small enough to train in a second, and notes to train them on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from timbrel_posttraining.codec_comparison.designs import ComparisonConfig, Design, SeanetConfig
from timbrel_training.codec.discriminator import DiscriminatorConfig
from timbrel_training.codec.timbrel_notes import TimbrelNotesConfig
from timbrel_training.notes.dataset import NoteDataset
from timbrel_training.notes.render import render_dataset
from timbrel_training.notes.split import SplitRule
from timbrel_training.notes.synthetic import SyntheticSource

TINY_NOTES = TimbrelNotesConfig(
    sample_rate=24_000,
    hop_length=480,
    n_codebooks=4,
    codebook_size=256,
    fundamental_steps_per_semitone=3,
    latent_dim=16,
    width=32,
    n_encoder_blocks=1,
    n_decoder_blocks=1,
    n_harmonics=48,
    n_free_harmonics=8,
    n_envelope_bands=24,
    n_noise_bands=16,
)
TINY_SEANET = SeanetConfig(sample_rate=12_000, n_filters=2, latent_dim=16, n_codebooks=3, codebook_size=64)
TINY_DISCRIMINATOR = DiscriminatorConfig(windows=(512, 256), channels=4, piece_seconds=0.1)


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(n_threads)


@pytest.fixture(scope="session")
def notes_design() -> Design:
    return Design("tiny-notes", "timbrel-notes, tiny", TINY_NOTES)


@pytest.fixture(scope="session")
def seanet_design() -> Design:
    return Design("tiny-seanet", "SEANet, tiny", TINY_SEANET)


@pytest.fixture(scope="session")
def adversarial_design() -> Design:
    return Design("tiny-adversarial", "with all additions", TINY_NOTES, 0.1, 0.0, TINY_DISCRIMINATOR)


@pytest.fixture(scope="session")
def config() -> ComparisonConfig:
    """Seconds."""
    return ComparisonConfig(
        minutes=0.3 / 60,
        decoder_minutes=0.3 / 60,
        precision="float32",
        batch_size=2,
        segment_seconds=0.32,
        n_training_notes=24,
        n_held_out_notes=6,
        note_seconds=0.5,
        batch_seconds=2.0,
        d_model=16,
        n_decoder_layers=1,
        n_judged_notes=3,
    )


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> NoteDataset:
    """60 synthetic notes at 24 kHz, a fifth of their cells held out."""
    path = tmp_path_factory.mktemp("comparison") / "notes"
    source = SyntheticSource(n_instruments=3, pitches=range(55, 75), n_draws=1, max_held=0.6)
    render_dataset(source, path, jobs=1, rule=SplitRule(cell_fraction=0.2))
    return NoteDataset(path)
