"""Pieces of notes to train any design on: the same ones for all, at each codec's own sample rate."""

from __future__ import annotations

import numpy as np
import soxr
import torch
from numpy.typing import NDArray

from timbrel_posttraining.codec_comparison.config import ComparisonConfig
from timbrel_training.codec.interface import Codec
from timbrel_training.codec.timbrel_notes import TimbrelNotesConfig
from timbrel_training.codec.timbrel_notes.objective import SegmentBatch
from timbrel_training.codec.timbrel_notes.train import CodecTrainingConfig, SegmentSampler
from timbrel_training.errors import ConfigError
from timbrel_training.notes.dataset import NoteDataset
from timbrel_training.notes.split import Split

CPU = torch.device("cpu")


class Segments:
    """Draws batches of a library's training notes, each a function of its seed alone.

    Raises:
        ConfigError: the library's sample rate is below the codec's, or no multiple of its frame rate.
    """

    def __init__(self, library: NoteDataset, codec: Codec, config: ComparisonConfig) -> None:
        hop, rest = divmod(library.sample_rate * codec.hop_length, codec.sample_rate)
        if library.sample_rate < codec.sample_rate or rest:
            raise ConfigError(
                f"{library.path}: at {library.sample_rate} Hz, but a design works at {codec.sample_rate} Hz; "
                "render the notes at 48000 Hz"
            )
        self.library, self.codec = library, codec
        self.n_samples = max(1, round(config.segment_seconds * codec.frame_rate)) * codec.hop_length
        drawing = CodecTrainingConfig(
            codec=TimbrelNotesConfig(sample_rate=library.sample_rate, hop_length=hop),
            batch_size=config.batch_size,
            segment_frames=self.n_samples // codec.hop_length,
        )
        self.sampler = SegmentSampler(library, library.of_split(Split.TRAIN), drawing)

    def draw(self, seed: int) -> SegmentBatch:
        """The batch of a seed."""
        batch = self.sampler.draw(seed, CPU)
        if self.library.sample_rate == self.codec.sample_rate:
            return batch
        audio = resample(batch.audio.numpy().T, self.library.sample_rate, self.codec.sample_rate).T
        fitted = np.zeros((len(audio), self.n_samples), np.float32)
        fitted[:, : audio.shape[1]] = audio[:, : self.n_samples]
        return SegmentBatch(torch.from_numpy(fitted), batch.pitch, batch.peak)


def resample(audio: NDArray[np.float32], rate: int, wanted: int) -> NDArray[np.float32]:
    """Audio [samples] or [samples, channels] at another sample rate in Hz."""
    if rate == wanted:
        return audio
    return np.asarray(soxr.resample(audio, rate, wanted, quality="HQ"), np.float32)
