"""Runs the decode graph, the condition encoder's before it: the only module that does.

The keys and values of every slot stand in arenas whose addresses are bound to the graphs once, one binding
for each batch size. A step writes its new position in place; the condition encoder writes a new note's
cross-attention keys and values straight into its row.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from timbrel_bundle.randomness import uniforms_batch
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb
from timbrel_server.arena import Arena, HostInput
from timbrel_server.engine import StepRow
from timbrel_server.request import NoteRequest
from timbrel_server.sessions import DecoderSessions

_log = logging.getLogger(__name__)


class Runner:
    """The graphs, the slots' memory, and the bindings between them. Belongs to one thread at a time."""

    def __init__(self, sessions: DecoderSessions, manifest: pb.Manifest, n_slots: int) -> None:
        """Allocates, binds and runs each batch size once. Those at which a note would get other codes than at
        the largest are not used."""
        self._sessions = sessions
        self._codec, self._model = manifest.codec, manifest.model
        self._n_slots = n_slots
        self._allocate()
        self._condition_bindings = [self._bind_condition_encoder(row) for row in range(n_slots)]
        sizes = bucket_sizes(n_slots)
        self._bindings = {size: self._bind_decoder(size) for size in sizes}
        self.buckets: Sequence[int] = self._find_agreeing(sizes)
        # The one thing that is not warm yet.
        self.admit(0, NoteRequest((0.0, 0.0), pitch=60, velocity=100, held_frames=1, seed=0))
        self.can_move = sessions.memory == "cpu"

    def admit(self, row: int, request: NoteRequest) -> None:
        """Prepares a row for a new note.

        What its cache held before does no harm: it is overwritten from position 0 on, and later positions are
        not looked at.
        """
        self._timbre.array[0] = request.timbre
        self._pitch.array[0] = request.pitch
        self._velocity.array[0] = request.velocity
        for value in (self._timbre, self._pitch, self._velocity):
            value.upload(1)
        self._sessions.condition_encoder.run_with_iobinding(self._condition_bindings[row])
        self._seeds[row] = request.seed
        self._temperature.array[row] = request.sampling.temperature
        self._top_k.array[row] = request.sampling.top_k
        self._top_p.array[row] = request.sampling.top_p

    def move(self, source: int, target: int) -> None:
        """Copies a running note to another row."""
        for arena in (*self._self_kv.values(), *self._cross_kv.values()):
            arena.copy_row(source, target)
        for array in (self._seeds, self._temperature.array, self._top_k.array, self._top_p.array):
            array[target] = array[source]

    def step(self, rows: Sequence[StepRow]) -> list[list[int]]:
        """Moves these rows on by one position; returns the tokens [K] that each drew, in the order given.

        Rows of the batch that are not named run along at position 0, which a new note writes anew.

        Raises:
            ValueError: a position beyond the cache.
        """
        index = [row.row for row in rows]
        steps = [row.position for row in rows]
        if max(steps) >= self._model.max_positions:
            raise ValueError(f"a note ran beyond the cache's {self._model.max_positions} positions")
        n_rows = next(size for size in self.buckets if size > max(index))
        self._positions.array[:n_rows] = 0
        self._positions.array[index] = steps
        self._tokens.array[index] = [row.tokens for row in rows]
        self._gate.array[index] = [row.held for row in rows]
        self._uniforms.array[index] = uniforms_batch(self._seeds[index], steps, self._codec.n_codebooks)
        self._run(n_rows)
        drawn: list[list[int]] = self._next_tokens[index].tolist()
        return drawn

    def _run(self, n_rows: int) -> None:
        for value in self._step_inputs:
            value.upload(n_rows)
        self._sessions.decoder.run_with_iobinding(self._bindings[n_rows])

    def _allocate(self) -> None:
        memory, n, k = self._sessions.memory, self._n_slots, self._codec.n_codebooks
        self._timbre = HostInput("timbre", (1, 2), np.float32, memory)
        self._pitch = HostInput("pitch", (1,), np.int64, memory)
        self._velocity = HostInput("velocity", (1,), np.float32, memory)
        self._tokens = HostInput("tokens", (n, k), np.int64, memory)
        self._gate = HostInput("gate", (n,), np.int64, memory)
        self._positions = HostInput("seqlens_k", (n,), np.int32, memory)
        self._uniforms = HostInput("uniforms", (n, k), np.float32, memory)
        self._temperature = HostInput("temperature", (n,), np.float32, memory)
        self._top_k = HostInput("top_k", (n,), np.int64, memory)
        self._top_p = HostInput("top_p", (n,), np.float32, memory)
        self._top_k.array[:] = 1
        self._top_p.array[:] = 1.0
        self._seeds = np.zeros(n, dtype=np.uint64)
        self._next_tokens = np.zeros((n, k), dtype=np.int64)
        model = self._model
        self._self_kv = self._arenas("self", (model.n_kv_heads, model.max_positions, model.head_dim))
        self._cross_kv = self._arenas(
            "cross", (model.n_kv_heads, model.n_condition_positions, model.head_dim)
        )

    def _arenas(self, kind: str, row_shape: tuple[int, ...]) -> dict[str, Arena]:
        names = (f"{kind}_{part}_{layer}" for layer in range(self._model.n_decoder_layers) for part in "kv")
        return {name: Arena(self._n_slots, row_shape, self._sessions.memory) for name in names}

    @property
    def _step_inputs(self) -> Iterable[HostInput]:
        return (
            *(self._tokens, self._gate, self._positions, self._uniforms),
            *(self._temperature, self._top_k, self._top_p),
        )

    def _bind_condition_encoder(self, row: int) -> Any:
        binding = self._sessions.condition_encoder.io_binding()
        for value in (self._timbre, self._pitch, self._velocity):
            value.bind(binding, 1)
        for name, arena in self._cross_kv.items():
            arena.bind_output(binding, name, 1, first_row=row)
        return binding

    def _bind_decoder(self, n_rows: int) -> Any:
        binding = self._sessions.decoder.io_binding()
        for value in self._step_inputs:
            value.bind(binding, n_rows)
        for name, arena in self._cross_kv.items():
            arena.bind_input(binding, name, n_rows)
        for name, arena in self._self_kv.items():
            arena.bind_input(binding, name, n_rows)
            arena.bind_output(binding, f"{name}_out", n_rows)
        _bind_host_output(binding, "next_tokens", self._next_tokens[:n_rows])
        return binding

    def _find_agreeing(self, sizes: Sequence[int]) -> Sequence[int]:
        """The batch sizes that give every row the very logits that the largest gives its first.

        Kernels may add up in another order at another size; where they do, a note's codes would depend on its
        company.
        """
        logits = {size: self._probe(size) for size in sizes}
        wanted = logits[sizes[-1]][0]
        agreeing = [size for size in sizes if all(np.array_equal(row, wanted) for row in logits[size])]
        if len(agreeing) < len(sizes):
            _log.info(
                "batch sizes %s of %s give the same codes; the others are not used", agreeing, list(sizes)
            )
        if sizes[-1] not in agreeing:
            _log.warning("rows of one batch differ in their last bits: codes may depend on a note's company")
            return sizes[-1:]
        return agreeing

    def _probe(self, n_rows: int) -> npt.NDArray[np.float32]:
        """Logits [n_rows, K, V] of a step that finds the same numbers in every row."""
        random = np.random.default_rng(0)
        for arena in (*self._self_kv.values(), *self._cross_kv.values()):
            arena.fill(random.standard_normal(arena.row_shape, dtype=np.float32))
        self._tokens.array[:] = self._model.bos_id
        self._positions.array[:] = self._model.max_positions // 2
        self._uniforms.array[:] = 0.5
        logits = np.zeros((n_rows, self._codec.n_codebooks, self._model.vocabulary_size), dtype=np.float32)
        _bind_host_output(self._bindings[n_rows], "logits", logits)
        self._run(n_rows)
        self._bindings[n_rows] = self._bind_decoder(n_rows)
        return logits


def bucket_sizes(n_slots: int) -> Sequence[int]:
    """Powers of two below the number of slots, then that number."""
    return [*(1 << power for power in range(n_slots.bit_length()) if 1 << power < n_slots), n_slots]


def _bind_host_output(binding: Any, name: str, array: npt.NDArray[Any]) -> None:
    binding.bind_output(name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)
