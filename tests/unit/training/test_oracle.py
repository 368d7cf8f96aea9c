"""The oracle: its own rules, and that decoding with a cache writes the same notes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from oracle import OracleNote, generate

from timbrel_training.model import ModelConfig, NoteTransformer
from timbrel_training.model.sampling import Sampling
from timbrel_training.tokens.delay import apply_delay

CONFIG = ModelConfig(
    codebook_size=14,
    n_codebooks=3,
    d_model=32,
    n_heads=4,
    n_kv_heads=2,
    d_feed_forward=48,
    n_encoder_layers=1,
    n_decoder_layers=2,
    max_frames=15,
)
ASKED = ((0.3, -0.2), 62, 90.0, 4)


@pytest.fixture
def model() -> NoteTransformer:
    torch.set_num_threads(1)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        model = NoteTransformer(CONFIG).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.15 * torch.randn_like(parameter))
    return model


def ending_at(model: NoteTransformer, step: int, uniforms: NDArray[np.float32]) -> OracleNote:
    """A note of `step` frames: EOS is made certain from that step on, and impossible before."""
    original = model.forward

    def forward(*given: torch.Tensor) -> torch.Tensor:
        logits = original(*given)
        logits[:, step:, 0, CONFIG.layout.eos_id] = 1e6
        logits[:, :step, 0, CONFIG.layout.eos_id] = -1e6
        return logits

    model.forward = forward  # type: ignore[method-assign]
    try:
        return generate(model, *ASKED, uniforms=uniforms, sampling=Sampling())
    finally:
        model.forward = original  # type: ignore[method-assign]


@pytest.mark.parametrize("n_frames", [0, 1, 2, 9, 14])
def test_a_note_reads_what_training_would_have_given_it(model: NoteTransformer, n_frames: int) -> None:
    uniforms = np.random.default_rng(n_frames).random((30, 3), dtype=np.float32)
    note = ending_at(model, n_frames, uniforms)
    assert note.codes.shape == (n_frames, 3)
    assert not note.truncated
    assert note.codes.max(initial=0) < CONFIG.codebook_size
    inputs, _ = apply_delay(note.codes, CONFIG.layout)
    assert (note.inputs[: len(inputs)] == inputs[: len(note.inputs)]).all()


def test_the_cap_cuts_a_note_that_will_not_end(model: NoteTransformer) -> None:
    uniforms = np.random.default_rng(0).random((30, 3), dtype=np.float32)
    note = ending_at(model, 99, uniforms)
    assert note.truncated
    assert note.codes.shape == (CONFIG.max_frames, 3)
    assert len(note.inputs) == CONFIG.max_frames + CONFIG.n_codebooks - 1


@torch.no_grad()
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_decoding_with_a_cache_gives_the_same_logits(model: NoteTransformer, temperature: float) -> None:
    uniforms = np.random.default_rng(1).random((30, 3), dtype=np.float32)
    note = generate(model, *ASKED, uniforms=uniforms, sampling=Sampling(temperature))
    timbre, pitch, velocity, _ = ASKED
    condition = model.condition(torch.tensor([timbre]), torch.tensor([pitch]), torch.tensor([velocity]))
    memories, caches = model.decoder.memories(condition), model.empty_caches(1)
    for step in range(len(note.inputs)):
        read, gate = torch.from_numpy(note.inputs[step])[None], torch.from_numpy(note.gate[step : step + 1])
        position = torch.tensor([step], dtype=torch.int32)
        logits, caches = model.decoder.step(read, gate, position, caches, memories)
        np.testing.assert_allclose(logits[0].numpy(), note.logits[step], atol=1e-5)


def test_the_margin_is_between_the_best_two(model: NoteTransformer) -> None:
    note = generate(model, *ASKED)
    best = np.sort(note.logits, axis=2)
    np.testing.assert_allclose(note.margins, best[..., -1] - best[..., -2])
    assert (note.tokens == note.logits.argmax(axis=2)).all()


def test_the_same_uniforms_give_the_same_note(model: NoteTransformer) -> None:
    rng = np.random.default_rng(2)
    first, other = rng.random((2, 30, 3), dtype=np.float32)
    notes = [generate(model, *ASKED, uniforms=each, sampling=Sampling()) for each in (first, first, other)]
    assert notes[0].codes.tolist() == notes[1].codes.tolist() != notes[2].codes.tolist()


def test_sampling_needs_uniforms(model: NoteTransformer) -> None:
    with pytest.raises(ValueError, match="uniforms"):
        generate(model, *ASKED, sampling=Sampling())
