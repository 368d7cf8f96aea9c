"""Training of designs: their segments, and what they add to their codec's own objective."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from timbrel_posttraining.codec_comparison.codec_training import (
    DROPOUT_AFTER,
    DesignObjective,
    Losses,
    Segments,
    n_codebooks_of,
    resample,
)
from timbrel_posttraining.codec_comparison.designs import ComparisonConfig, Design, SeanetCodec, SeanetConfig
from timbrel_training.codec.timbrel_notes.objective import SegmentBatch
from timbrel_training.errors import ConfigError
from timbrel_training.notes.dataset import NoteDataset


@pytest.fixture
def batch(library: NoteDataset, notes_design: Design, config: ComparisonConfig) -> SegmentBatch:
    return Segments(library, notes_design.make_codec(), config).draw(1)


def loss_of(design: Design, batch: SegmentBatch) -> Losses:
    torch.manual_seed(0)
    objective = DesignObjective(design).eval()  # all resolutions: nothing drawn
    return objective(batch)


def test_steadiness_is_added_with_its_weight(notes_design: Design, batch: SegmentBatch) -> None:
    plain, _ = loss_of(notes_design, batch)
    held, parts = loss_of(dataclasses.replace(notes_design, added_steadiness=0.5), batch)
    assert float(parts["steadiness"]) > 0
    assert float((held - plain).detach()) == pytest.approx(0.5 * float(parts["steadiness"]), rel=1e-3)


def test_steadiness_reaches_the_encoder_of_any_codec(seanet_design: Design, batch: SegmentBatch) -> None:
    design = dataclasses.replace(seanet_design, added_steadiness=1e6)
    torch.manual_seed(0)
    objective = DesignObjective(design)
    loss, _ = objective(batch)
    loss.backward()
    gradients = [
        float(p.grad.abs().max()) for p in objective.codec.encoder.parameters() if p.grad is not None
    ]
    assert max(gradients) > 1e3


def test_a_discriminator_trains_with_the_codec(adversarial_design: Design, batch: SegmentBatch) -> None:
    torch.manual_seed(0)
    objective = DesignObjective(adversarial_design)
    loss, parts = objective(batch)
    loss.backward()
    assert {"discriminator", "adversarial", "matching", "spectral"} <= parts.keys()
    assert objective.discriminator is not None
    assert all(p.grad is not None for p in objective.discriminator.parameters())
    assert any(p.grad is not None and float(p.grad.abs().max()) > 0 for p in objective.codec.parameters())


def test_dropout_comes_with_its_share(notes_design: Design) -> None:
    chosen = [n_codebooks_of(step, notes_design, 6, seed=0) for step in range(2000)]
    assert chosen[:DROPOUT_AFTER] == [None] * DROPOUT_AFTER
    dropped = [n for n in chosen if n is not None]
    assert set(dropped) == {1, 2, 3, 4, 5}
    assert len(dropped) / 2000 == pytest.approx(notes_design.dropout_share, abs=0.05)
    without = dataclasses.replace(notes_design, dropout_share=0.0)
    assert {n_codebooks_of(step, without, 6, seed=0) for step in range(200)} == {None}


def test_designs_of_other_rates_get_the_same_sounds(
    library: NoteDataset, notes_design: Design, config: ComparisonConfig
) -> None:
    full = Segments(library, notes_design.make_codec(), config).draw(3)
    half = Segments(
        library, SeanetCodec(SeanetConfig(sample_rate=12_000, ratios=(8, 5, 3, 2), n_filters=2)), config
    ).draw(3)
    assert full.audio.shape == (2, 16 * 480)
    assert half.audio.shape == (2, 16 * 240)
    assert torch.equal(full.pitch, half.pitch) and torch.equal(full.peak, half.peak)
    lowered = resample(full.audio[0].numpy(), 24_000, 12_000)[: half.audio.shape[1]]
    assert float(np.abs(lowered).max()) > 0.001
    assert np.allclose(lowered, half.audio[0].numpy(), atol=1e-4)


def test_a_library_at_too_low_a_rate_is_refused(library: NoteDataset, config: ComparisonConfig) -> None:
    with pytest.raises(ConfigError, match=r"at 24000 Hz, but a design works at 48000 Hz; render the notes"):
        Segments(library, Design("full", "", _full_rate()).make_codec(), config)


def _full_rate() -> SeanetConfig:
    return SeanetConfig(sample_rate=48_000, n_filters=2)
