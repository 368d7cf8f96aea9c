"""The slow, obvious decoding: everything faster must agree with it.

It keeps no cache: every step runs the whole sequence again.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from timbrel_training.model.sampling import GREEDY, Sampling, sample
from timbrel_training.model.transformer import NoteTransformer
from timbrel_training.tokens.delay import gate_steps, remove_delay


@dataclass(frozen=True)
class OracleNote:
    """A note as plain PyTorch writes it. S is the number of steps taken."""

    codes: NDArray[np.uint16]  # [n_frames, K]
    truncated: bool
    """True if the cap ended it rather than the model."""
    inputs: NDArray[np.int64]  # [S, K], tokens read by each step
    tokens: NDArray[np.int64]  # [S, K], tokens drawn by each step, meaningless where no frame is behind them
    gate: NDArray[np.int64]  # [S]
    logits: NDArray[np.float32]  # [S, K, V]
    margins: NDArray[np.float32]  # [S, K], best logit minus second best


@torch.no_grad()
def generate(
    model: NoteTransformer,
    timbre: tuple[float, float],
    pitch: int,
    velocity: float,
    held_frames: int,
    *,
    uniforms: NDArray[np.float32] | None = None,
    sampling: Sampling = GREEDY,
    max_frames: int | None = None,
) -> OracleNote:
    """Writes one note; the model is in evaluation mode.

    `uniforms` float32 [steps, K] in (0, 1), one per step and codebook, are needed unless temperature is 0.
    The cap on frames is at most the model's own, which is the default. Raises ValueError: there are none.
    """
    if uniforms is None and sampling.temperature > 0:
        raise ValueError("uniforms are needed where temperature is above 0")
    layout = model.config.layout
    n_codebooks = layout.n_codebooks
    cap = model.config.max_frames if max_frames is None else min(max_frames, model.config.max_frames)
    condition = (torch.tensor([timbre]).float(), torch.tensor([pitch]), torch.tensor([float(velocity)]))
    gate = gate_steps(held_frames, model.config.max_positions, model.config.release_frames)
    n_frames: int | None = None
    inputs = [np.full(n_codebooks, layout.bos_id, dtype=np.int64)]
    drawn: list[NDArray[np.int64]] = []
    while True:
        step = len(drawn)
        logits = model(
            *condition, torch.from_numpy(np.stack(inputs))[None], torch.from_numpy(gate[None, : step + 1])
        )
        lasts = model.decoder.rarely_ends(torch.from_numpy(gate[step : step + 1]))
        tokens = _draw(logits[:, -1], lasts, uniforms, step, sampling)
        drawn.append(tokens)
        if n_frames is None and tokens[0] == layout.eos_id:
            n_frames = step
        if n_frames is None and step + 1 == cap:
            n_frames = cap
        if n_frames is not None and step + 1 >= n_frames + layout.last_delay:
            break
        read = tokens.copy()
        for q in range(n_codebooks):
            frame = step - q * layout.codebook_delay
            if frame < 0:
                read[q] = layout.bos_id
            elif n_frames is not None and frame >= n_frames:
                read[q] = layout.eos_id
        inputs.append(read)
    written = np.stack(drawn)
    best = logits[0].topk(2, dim=2).values
    return OracleNote(
        codes=layout.to_codes(remove_delay(written, n_frames, layout), pitch),
        truncated=n_frames == cap,
        inputs=np.stack(inputs),
        tokens=written,
        gate=gate[: len(drawn)],
        logits=logits[0].numpy(),
        margins=(best[:, :, 0] - best[:, :, 1]).numpy(),
    )


def _draw(
    logits: Tensor, lasts: Tensor, uniforms: NDArray[np.float32] | None, step: int, sampling: Sampling
) -> NDArray[np.int64]:
    """Draws tokens int64 [K] from logits [1, K, V], of a note that rarely ends here or not, bool [1]."""
    if uniforms is None:
        return logits[0].argmax(dim=1).numpy()
    uniform = torch.from_numpy(uniforms[step : step + 1])
    return sample(logits, uniform, lasts, *sampling.rows(1))[0].numpy()
