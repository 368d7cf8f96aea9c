"""The same step with a cache that grows by concatenation, as Optimum exports decoders to ONNX.

After Hugging Face Optimum's decoder-with-past graphs: past keys and values in, present ones out, one position
longer, and keys and values repeated for every query head. In its favour: no mask, and buffers bound once. The
variant `grouped` needs no repeating.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime as ort
import torch
from torch import Tensor, nn

from timbrel_bundle.runtime import session_options
from timbrel_export.early_draw import sample_early
from timbrel_export.interface import SAMPLING_INPUTS
from timbrel_export.onnx_export import export_program
from timbrel_training.model import NoteTransformer
from timbrel_training.model.attention import KV, attend_one, split_heads
from timbrel_training.model.config import N_CONDITION_POSITIONS
from timbrel_training.model.sampling import Sampling

DRAWN_WITH = Sampling(top_p=0.95)


class ConcatGraph(nn.Module):
    """A step whose caches are as long as the rows have come; it returns them one position longer."""

    def __init__(self, model: NoteTransformer, *, grouped: bool) -> None:
        super().__init__()
        self.model = model
        self.attention = _attend_grouped if grouped else _attend_repeated

    def forward(
        self,
        tokens: Tensor,
        gate: Tensor,
        position: Tensor,
        past: list[Tensor],
        memories: list[Tensor],
        uniforms: Tensor,
        sampling: list[Tensor],
    ) -> tuple[Tensor, ...]:
        """next_tokens [B, K], then the present keys and values of every layer."""
        memories, header = memories[: len(past)], memories[len(past) :]
        logits, present = self.model.decoder.step(
            tokens, gate, position, _pairs(past), _pairs(memories), self.attention, *header
        )
        drawn = sample_early(logits, uniforms, self.model.decoder.is_held(gate), *sampling)
        return drawn, *(tensor for cache in present for tensor in cache)


class ConcatStep:
    """One step of `n_rows` notes that all stand at one position, its inputs and outputs bound once."""

    def __init__(self, model: NoteTransformer, session: ort.InferenceSession, n_rows: int) -> None:
        self._model = model
        self._session = session
        self._n_rows = n_rows
        self._past: list[npt.NDArray[np.float32]] = []
        self._memories: list[npt.NDArray[np.float32]] = []

    @torch.inference_mode()
    def admit(self, timbre: tuple[float, float], pitch: int, velocity: float) -> None:
        """Gives every row the same note to write, from its start."""
        n, config = self._n_rows, self._model.config
        asked = (
            torch.tensor([timbre]).expand(n, 2),
            torch.full((n,), pitch),
            torch.full((n,), float(velocity)),
        )
        memories = [
            each for pair in self._model.decoder.memories(self._model.condition(*asked)) for each in pair
        ]
        empty = np.zeros((n, config.n_kv_heads, 0, config.width_per_head), np.float32)
        self._past = [empty for _ in memories]
        if (header := self._model.header_rows(*asked)) is not None:
            memories.append(header)
        self._memories = [each.contiguous().numpy() for each in memories]

    def stand_at(self, position: int) -> None:
        """Makes up a past of so many positions."""
        shape = (self._n_rows, self._past[0].shape[1], position, self._past[0].shape[3])
        self._past = [np.random.default_rng(0).standard_normal(shape, dtype=np.float32) for _ in self._past]

    def bind(self, tokens: npt.NDArray[np.int64], uniforms: npt.NDArray[np.float32]) -> BoundStep:
        """The step at the position that the past reaches."""
        return BoundStep(self._session, tokens, uniforms, self._past, self._memories)

    def step(self, tokens: npt.NDArray[np.int64], uniforms: npt.NDArray[np.float32]) -> npt.NDArray[np.int64]:
        """Tokens [B, K] drawn; the past grows by a position."""
        bound = self.bind(tokens, uniforms)
        bound.run()
        self._past = bound.present
        return bound.drawn


class BoundStep:
    """Inputs and outputs of one step at fixed addresses."""

    def __init__(
        self,
        session: ort.InferenceSession,
        tokens: npt.NDArray[np.int64],
        uniforms: npt.NDArray[np.float32],
        past: list[npt.NDArray[np.float32]],
        memories: list[npt.NDArray[np.float32]],
    ) -> None:
        n, position = len(tokens), past[0].shape[2]
        self._session = session
        self.tokens, self.uniforms = tokens, uniforms
        self.drawn = np.zeros_like(tokens)
        longer = (*past[0].shape[:2], position + 1, past[0].shape[3])
        self.present = [np.zeros(longer, np.float32) for _ in past]
        given: list[npt.NDArray[Any]] = [
            *(tokens, np.ones(n, np.int64), np.full(n, position, np.int32)),
            *(*past, *memories, uniforms),
            *(tensor.numpy() for tensor in DRAWN_WITH.rows(n)),
        ]
        self._given = given  # bound by address
        self._binding = session.io_binding()
        for name, array in zip((item.name for item in session.get_inputs()), given, strict=True):
            self._binding.bind_input(name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)
        taken: list[npt.NDArray[Any]] = [self.drawn, *self.present]
        for name, array in zip((item.name for item in session.get_outputs()), taken, strict=True):
            self._binding.bind_output(name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)

    def run(self) -> None:
        """Runs the step; `drawn` and `present` hold what came out."""
        self._session.run_with_iobinding(self._binding)


def open_concat(
    model: NoteTransformer, folder: Path, n_threads: int, *, grouped: bool = False
) -> ort.InferenceSession:
    """Exports the model into `folder` and opens the graph on the CPU."""
    path = folder / ("concat_grouped.onnx" if grouped else "concat.onnx")
    if not path.exists():
        _export(ConcatGraph(model, grouped=grouped), path)
    return ort.InferenceSession(str(path), session_options(n_threads), providers=["CPUExecutionProvider"])


def _export(graph: ConcatGraph, path: Path) -> None:
    config, rows, length = graph.model.config, 2, 7
    n_layers, heads, width = config.n_decoder_layers, config.n_kv_heads, config.width_per_head
    header = [torch.zeros(rows, config.lead_frames, config.d_model)] * config.has_header_network
    inputs = (
        torch.zeros(rows, config.n_codebooks, dtype=torch.int64),
        torch.ones(rows, dtype=torch.int64),
        torch.full((rows,), length, dtype=torch.int32),
        [torch.zeros(rows, heads, length, width) for _ in range(2 * n_layers)],
        [torch.zeros(rows, heads, N_CONDITION_POSITIONS, width) for _ in range(2 * n_layers)] + header,
        torch.full((rows, config.n_codebooks), 0.5),
        list(Sampling().rows(rows)),
    )
    batch, past = {0: torch.export.Dim("batch")}, torch.export.Dim("past")
    caches = [{**batch, 2: past}] * (2 * n_layers)
    names = [f"{part}_{layer}" for layer in range(n_layers) for part in "kv"]
    program = export_program(
        graph,
        inputs,
        input_names=[
            *("tokens", "gate", "position"),
            *(f"past_{name}" for name in names),
            *(f"cross_{name}" for name in names),
            *["header"] * len(header),
            *("uniforms", *SAMPLING_INPUTS),
        ],
        output_names=["next_tokens", *(f"present_{name}" for name in names)],
        dynamic_shapes=(
            batch,
            batch,
            batch,
            caches,
            [batch] * (2 * n_layers + len(header)),
            batch,
            [batch] * 3,
        ),
    )
    program.optimize()
    program.save(str(path))


def _attend_grouped(query: Tensor, key: Tensor, value: Tensor, cache: KV, _: Tensor) -> tuple[Tensor, KV]:
    keys, values = _concatenate(key, value, cache)
    return attend_one(query, keys, values), (keys, values)


def _attend_repeated(query: Tensor, key: Tensor, value: Tensor, cache: KV, _: Tensor) -> tuple[Tensor, KV]:
    keys, values = _concatenate(key, value, cache)
    group = query.shape[2] // (keys.shape[1] * keys.shape[3])
    repeated = (tensor[:, :, None].expand(-1, -1, group, -1, -1).flatten(1, 2) for tensor in (keys, values))
    return attend_one(query, *repeated), (keys, values)


def _concatenate(key: Tensor, value: Tensor, cache: KV) -> KV:
    keys, values = (
        torch.cat([past, split_heads(new, past.shape[1])], dim=2)
        for past, new in zip(cache, (key, value), strict=True)
    )
    return keys, values


def _pairs(tensors: list[Tensor]) -> list[KV]:
    return list(zip(tensors[::2], tensors[1::2], strict=True))
