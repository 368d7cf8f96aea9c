"""The timbre encoder as an ONNX graph: the same points as PyTorch's, of audio of any length."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from timbrel_bundle.bundle import Bundle
from timbrel_bundle.codec import CodecDecoder
from timbrel_bundle.layout import TIMBRE_ENCODER, TIMBRE_WEIGHTS
from timbrel_bundle.timbre_encoder import TimbreEncoder, longest_seconds, prepare_recording, transpositions
from timbrel_training.notes.dataset import NoteDataset


@pytest.fixture(scope="module")
def notes(tiny: Any) -> list[np.ndarray]:
    """Notes that the codec plays, from some frames to more than the encoder looks at."""
    decoder = CodecDecoder(tiny.bundle, n_threads=1)
    return [decoder.decode(note.codes) for note in tiny.notes]


def run(session: Any, audio: np.ndarray, n_samples: list[int]) -> np.ndarray:
    """Points and embeddings, side by side."""
    found = session.run(["timbre", "embedding"], {"audio": audio, "n_samples": np.array(n_samples)})
    return np.concatenate(found, axis=1)


def padded(notes: list[np.ndarray], length: int, padding: float = 0.0) -> np.ndarray:
    audio = np.full((len(notes), length), padding, np.float32)
    for row, note in zip(audio, notes, strict=True):
        row[: len(note)] = note
    return audio


def test_graph_and_module_agree_on_notes_of_all_lengths_in_one_batch(
    tiny: Any, notes: list[np.ndarray], library_dir: Path
) -> None:
    library = NoteDataset(library_dir)
    real = [library.audio(row) for row in range(0, len(library), 31)]
    together = [*notes, *real, real[0][:1], real[0][:4000]]
    audio, n_samples = padded(together, max(map(len, together)) + 77), list(map(len, together))
    with torch.no_grad():
        expected = torch.cat(tiny.timbre_encoder(torch.from_numpy(audio), torch.tensor(n_samples)), 1).numpy()
    found = run(tiny.session(TIMBRE_ENCODER), audio, n_samples)
    np.testing.assert_allclose(found, expected, atol=1e-4)
    assert np.std(expected, axis=0).min() > 0.01


def test_padding_does_not_count(tiny: Any, notes: list[np.ndarray]) -> None:
    session, n_samples = tiny.session(TIMBRE_ENCODER), list(map(len, notes))
    together = run(session, padded(notes, max(n_samples) + 5000, padding=0.9), n_samples)
    for note, point in zip(notes, together, strict=True):
        np.testing.assert_allclose(run(session, note[None], [len(note)])[0], point, atol=1e-5)


def test_locate_feeds_what_it_prepares(tiny: Any, recipe: ModuleType, notes: list[np.ndarray]) -> None:
    encoder = TimbreEncoder(tiny.bundle, n_threads=1)
    for note in notes:
        spec = tiny.bundle.manifest.codec
        heard = prepare_recording(note, spec.sample_rate, spec, longest_seconds(tiny.bundle.manifest))
        assert len(heard) <= len(note)  # silence is trimmed
        sounds = [heard, *transpositions(heard, spec.sample_rate)]
        with torch.no_grad():
            expected = [
                tiny.timbre_encoder(torch.from_numpy(each)[None], torch.tensor([len(each)]))
                for each in sounds
            ]
        mean = torch.cat([embedding for _, embedding in expected]).mean(dim=0)
        found = encoder.hear(5.0 * note, recipe.CODEC.sample_rate)
        np.testing.assert_allclose(found.heard_at, expected[0][0][0], atol=1e-3)
        np.testing.assert_allclose(found.embedding, mean / mean.norm(), atol=1e-3)


def test_the_front_end_takes_kilobytes(tiny: Any) -> None:
    bundle: Bundle = tiny.bundle
    sizes = {file.name: file.size for file in bundle.manifest.files}
    assert sizes[TIMBRE_ENCODER] < 200_000
    assert sizes[TIMBRE_WEIGHTS] < 2.5 * sum(each.numel() for each in tiny.timbre_encoder.parameters())
