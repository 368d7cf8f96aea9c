"""Scales of an 8-bit cache, found by playing notes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from timbrel_export.sample_note import SampleNote
from timbrel_training.model import NoteTransformer
from timbrel_training.model.attention import SelfAttention
from timbrel_training.model.layers import CrossLayer
from timbrel_training.tokens.delay import apply_delay, gate_steps

LARGEST = 127
HEADROOM = 1.25
"""How much larger than the largest number met a number may be before it is clipped."""


class CacheScales(NamedTuple):
    """Of one layer's keys and values: number = scale * code, by channel, float32 [n_kv_heads * head_dim]."""

    keys: Tensor
    values: Tensor


@torch.no_grad()
def find_cache_scales(model: NoteTransformer, notes: Sequence[SampleNote]) -> list[CacheScales]:
    """Scales for each decoder layer, such that what these notes put into its cache fits with headroom."""
    layers = cast("Iterable[CrossLayer]", model.decoder.layers)
    attentions = [layer.self_attention for layer in layers]
    peaks = [torch.zeros(attention.sizes[1] + attention.sizes[2]) for attention in attentions]
    with ExitStack() as hooks:
        for attention, peak in zip(attentions, peaks, strict=True):
            handle = attention.qkv.register_forward_hook(_watcher(attention, peak))
            hooks.callback(handle.remove)
        for note in notes:
            _play(model, note)
    scales = [(HEADROOM / LARGEST * peak).clamp(min=1e-6) for peak in peaks]
    return [CacheScales(*scale.chunk(2)) for scale in scales]


def _watcher(attention: SelfAttention, peak: Tensor) -> Callable[[nn.Module, Any, Tensor], None]:
    """Keeps in `peak` the largest keys and values that the attention's projection gives."""

    def watch(module: nn.Module, inputs: Any, qkv: Tensor) -> None:
        new = qkv[..., attention.sizes[0] :].abs().flatten(0, -2).amax(dim=0)
        torch.maximum(peak, new.float(), out=peak)

    return watch


def _play(model: NoteTransformer, note: SampleNote) -> None:
    layout = model.config.layout
    codes = note.codes[: model.config.max_frames]
    tokens = apply_delay(layout.to_tokens(codes, note.pitch), layout)[0]
    model(
        torch.tensor([note.timbre], dtype=torch.float32),
        torch.tensor([note.pitch]),
        torch.tensor([note.velocity], dtype=torch.float32),
        torch.from_numpy(tokens)[None],
        torch.from_numpy(gate_steps(note.held_frames, len(tokens)))[None],
    )
