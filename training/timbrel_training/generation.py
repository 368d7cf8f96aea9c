"""Generates many notes at once from a model in PyTorch, with a KV cache, before it is exported."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from timbrel_training.model.sampling import GREEDY, Sampling, sample
from timbrel_training.model.transformer import NoteTransformer
from timbrel_training.tokens.delay import gate_steps, remove_delay


@torch.no_grad()
def write_notes(
    model: NoteTransformer,
    timbre: NDArray[np.float32],
    pitch: NDArray[np.int64],
    velocity: NDArray[np.float32],
    held_frames: NDArray[np.int64],
    sampling: Sampling = GREEDY,
    seed: int = 0,
) -> list[NDArray[np.uint16]]:
    """Returns the codes [T, K] of B notes, as `generate` of tests/oracle.py writes them one by one.

    The model is in evaluation mode, on the CPU. Timbre is [B, 2], points in the unit disc; pitch, velocity
    and held_frames are [B]. The seed is that of the draws.
    """
    layout, config = model.config.layout, model.config
    n_notes, n_codebooks = len(pitch), layout.n_codebooks
    gates = [gate_steps(int(held), config.max_positions, config.release_frames) for held in held_frames]
    gate = torch.from_numpy(np.stack(gates))
    memories = model.decoder.memories(
        model.condition(torch.from_numpy(timbre), torch.from_numpy(pitch), torch.from_numpy(velocity).float())
    )
    header = model.header_rows(
        torch.from_numpy(timbre), torch.from_numpy(pitch), torch.from_numpy(velocity).float()
    )
    caches = model.empty_caches(n_notes)
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.full((n_notes, n_codebooks), layout.bos_id)
    n_frames = torch.full((n_notes,), config.max_frames)
    drawn: list[Tensor] = []
    for step in range(config.max_frames + layout.last_delay):
        position = torch.full((n_notes,), step, dtype=torch.int32)
        logits, caches = model.decoder.step(tokens, gate[:, step], position, caches, memories, header=header)
        tokens = _draw(logits, model.decoder.rarely_ends(gate[:, step]), sampling, generator)
        drawn.append(tokens)
        ended = (tokens[:, 0] == layout.eos_id) & (n_frames > step)
        n_frames = torch.where(ended, step, n_frames)
        if step + 1 >= int(n_frames.max()) + layout.last_delay:
            break
        # The frame that each codebook has just written.
        frame = step - layout.codebook_delay * torch.arange(n_codebooks)
        tokens = torch.where(frame < 0, layout.bos_id, tokens)
        tokens = torch.where(frame >= n_frames[:, None], layout.eos_id, tokens)
    written = torch.stack(drawn, dim=1).numpy()  # [B, S, K]
    return [
        layout.to_codes(remove_delay(written[row], int(frames), layout), int(pitch[row]))
        for row, frames in enumerate(n_frames)
    ]


def _draw(logits: Tensor, lasts: Tensor, sampling: Sampling, generator: torch.Generator) -> Tensor:
    """Draws tokens int64 [B, K] of logits [B, K, V], of notes that rarely end here or not, bool [B]."""
    if sampling.temperature == 0.0:
        return logits.argmax(dim=2)
    uniforms = torch.rand(logits.shape[:2], generator=generator).clamp(1e-7, 1.0 - 1e-7)
    return sample(logits, uniforms, lasts, *sampling.rows(len(logits)))
