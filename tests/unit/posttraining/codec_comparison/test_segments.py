"""Segments at each codec's rate."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from timbrel_posttraining.codec_comparison.config import ComparisonConfig
from timbrel_posttraining.codec_comparison.design import Design
from timbrel_posttraining.codec_comparison.seanet import SeanetCodec, SeanetConfig
from timbrel_posttraining.codec_comparison.segments import Segments, resample
from timbrel_training.errors import ConfigError
from timbrel_training.notes.dataset import NoteDataset


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
