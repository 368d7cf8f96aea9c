"""Real notes, to compare graphs with the model on, and to find the scales of an 8-bit cache by."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from timbrel_export.absorbed_attention import cross_layers
from timbrel_training.model import ModelConfig, NoteTransformer
from timbrel_training.model.attention import SelfAttention
from timbrel_training.tokens.delay import apply_delay, gate_steps
from timbrel_training.tokens.table import TokenTable

Watch = Callable[[nn.Module, Any, Tensor], None]
"""Takes a module, its inputs and its output."""

LARGEST = 127
"""The largest code of a cache of 8 bits."""
HEADROOM = 1.25
"""A number may be this much larger than the largest one met before it is clipped."""


@dataclass(frozen=True)
class SampleNote:
    """A real note. Parity is checked on it, and it tells how large the numbers in a cache get."""

    timbre: tuple[float, float]
    pitch: int
    velocity: float
    held_frames: int
    codes: NDArray[np.uint16]  # [T, K]


def sample_notes(
    notes: TokenTable, points: NDArray[np.float32], rows: NDArray[np.int64], max_frames: int
) -> list[SampleNote]:
    """Picks notes by their numbers, at these points of the map [N, 2]; codes end where a model's notes do."""
    return [
        SampleNote(
            (float(points[row, 0]), float(points[row, 1])),
            int(notes.pitch[row]),
            float(notes.velocity[row]),
            int(notes.held_frames[row]),
            np.array(notes.note(row)[:max_frames]),
        )
        for row in rows.tolist()
    ]


def note_tokens(config: ModelConfig, note: SampleNote) -> NDArray[np.int64]:
    """Tokens int64 [S, K] that the steps of a given note read."""
    codes = note.codes[: config.max_frames]
    return apply_delay(config.layout.to_tokens(codes, note.pitch), config.layout)[0]


@torch.no_grad()
def note_logits(model: NoteTransformer, note: SampleNote, tokens: NDArray[np.int64]) -> NDArray[np.float32]:
    """The model's logits [S, K, V] of a note whose steps read these tokens: all at once, without a cache."""
    logits = model(
        torch.tensor([note.timbre], dtype=torch.float32),
        torch.tensor([note.pitch]),
        torch.tensor([note.velocity], dtype=torch.float32),
        torch.from_numpy(tokens)[None],
        torch.from_numpy(gate_steps(note.held_frames, len(tokens), model.config.release_frames))[None],
    )
    return logits[0].numpy()


@torch.no_grad()
def largest_number(model: NoteTransformer, notes: Sequence[SampleNote]) -> float:
    """Returns the largest number, either way, that goes into or out of the decoder's layers, or comes from
    the header network, on these notes."""
    peaks = [0.0]

    def watch(module: nn.Module, inputs: Any, output: Tensor) -> None:
        peaks.extend(float(each.abs().max()) for each in (*inputs, output))

    layers = [each for each in model.decoder.modules() if isinstance(each, (nn.Linear, nn.LayerNorm))]
    if model.header is not None:
        layers.append(model.header.out)
    _run_watched(model, notes, dict.fromkeys(layers, watch))
    return max(peaks)


class CacheScales(NamedTuple):
    """The scales of one layer's keys and values by channel: number = scale * code."""

    keys: Tensor  # float32 [n_kv_heads * head_dim]
    values: Tensor  # likewise


@torch.no_grad()
def find_cache_scales(model: NoteTransformer, notes: Sequence[SampleNote]) -> list[CacheScales]:
    """Scales for each decoder layer, such that what these notes put into its cache fits with headroom."""
    attentions = [layer.self_attention for layer in cross_layers(model)]
    peaks = [torch.zeros(attention.sizes[1] + attention.sizes[2]) for attention in attentions]
    qkv = zip(attentions, peaks, strict=True)
    _run_watched(model, notes, {each.qkv: _watcher(each, peak) for each, peak in qkv})
    scales = [(HEADROOM / LARGEST * peak).clamp(min=1e-6) for peak in peaks]
    return [CacheScales(*scale.chunk(2)) for scale in scales]


def _run_watched(
    model: NoteTransformer, notes: Sequence[SampleNote], watchers: Mapping[nn.Module, Watch]
) -> None:
    """Runs the model over notes, and has each watcher see what goes into and out of its module."""
    handles = [module.register_forward_hook(watch) for module, watch in watchers.items()]
    try:
        for note in notes:
            note_logits(model, note, note_tokens(model.config, note))
    finally:
        for handle in handles:
            handle.remove()


def _watcher(attention: SelfAttention, peak: Tensor) -> Watch:
    """Keeps in `peak` the largest keys and values that the attention's projection gives."""

    def watch(module: nn.Module, inputs: Any, qkv: Tensor) -> None:
        new = qkv[..., attention.sizes[0] :].abs().flatten(0, -2).amax(dim=0)
        torch.maximum(peak, new.float(), out=peak)

    return watch
