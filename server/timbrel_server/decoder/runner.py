"""The runner of the decode graph, and of the condition encoder's before it: the only module that runs them.

The keys and values of every slot stand in arenas whose addresses are bound to the graphs once, one binding
for each batch size. A step writes its new position in place; the condition encoder writes what the decoder
keeps of a new note's condition straight into its row.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from timbrel_bundle.layout import state_output
from timbrel_bundle.randomness import uniforms_batch
from timbrel_bundle.request_fields import SAMPLING_FIELDS
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb
from timbrel_server.decoder.memory import HOST, Arena, HostInput, HostOutput
from timbrel_server.decoder.sessions import DecoderSessions, run_options
from timbrel_server.engine.engine import StepRow
from timbrel_server.engine.request import NoteRequest

_log = logging.getLogger(__name__)

ARENA_TYPES: Mapping[str, type[np.number]] = {
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
    "tensor(int8)": np.int8,
}
"""The types that caches and memories may have, by onnxruntime's name."""

SAMPLING_TYPES: Mapping[type, type[np.number]] = {int: np.int64, float: np.float32}
"""The types of the decode graph's inputs for sampling, by the kind of the request's field."""

NEVER_CAPTURED = -1
"""The graph id of runs that CUDA graphs have nothing to do with."""

WARM_UP_RUNS = 3
"""onnxruntime captures a CUDA graph in its second or third run."""


class Runner:
    """The graphs, the slots' memory, and the bindings between them. Belongs to one thread at a time."""

    def __init__(
        self, sessions: DecoderSessions, manifest: pb.Manifest, n_slots: int, *, fast: bool = False
    ) -> None:
        """Allocates, binds and runs each batch size.

        Args:
            fast: use batch sizes, too, at which a note may get other codes than at the largest.
        """
        self._sessions = sessions
        self._codec, self._model = manifest.codec, manifest.model
        self._n_slots = n_slots
        self._is_remote = sessions.memory != HOST
        self._first_rows = tuple(range(n_slots))
        self._row_numbers = np.arange(n_slots)
        self._allocate()
        self._condition_bindings = [self._bind_condition_encoder(row) for row in range(n_slots)]
        sizes = bucket_sizes(n_slots, finely=sessions.memory == HOST)
        self._bindings = {size: self._bind_decoder(size) for size in sizes}
        self.buckets: Sequence[int] = sizes if fast else self._find_agreeing(sizes)
        self._run_options = {size: run_options(size if sessions.captures else None) for size in self.buckets}
        self._warm_up()
        self.can_move = sessions.memory == HOST

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
        self.note_uniforms[row] = self._make_uniforms(request.seed)
        for name, value in self._sampling.items():
            value.array[row] = getattr(request.sampling, name)

    def move(self, source: int, target: int) -> None:
        """Copies a running note to another row."""
        for arena in (*self._caches.values(), *self._memories.values()):
            arena.copy_row(source, target)
        for array in (self.note_uniforms, *(value.array for value in self._sampling.values())):
            array[target] = array[source]

    def step(self, rows: Sequence[StepRow]) -> list[list[int]]:
        """Moves these rows on by one position; returns the tokens [K] that each drew, in the order given.

        Rows of the batch that are not named run along at position 0, which a new note writes anew.

        Raises:
            ValueError: a position beyond the cache.
        """
        numbers, steps, tokens, held = zip(*rows, strict=True)
        if max(steps) >= self._model.max_positions:
            raise ValueError(f"a note ran beyond the cache's {self._model.max_positions} positions")
        n_rows = self.buckets[bisect_right(self.buckets, max(numbers))]
        where = self._where(numbers)
        if n_rows > len(numbers):
            self._positions.array[:n_rows] = 0
        self._positions.array[where] = steps
        self._tokens.array[where] = tokens
        self._gate.array[where] = held
        self._uniforms.array[where] = self.note_uniforms[
            self._row_numbers[where], self._positions.array[where]
        ]
        self._run(n_rows, self._run_options[n_rows])
        drawn: list[list[int]] = self._next_tokens.array[where].tolist()
        return drawn

    def _where(self, numbers: Sequence[int]) -> slice | npt.NDArray[np.intp]:
        """Makes an index of these rows: nearly always the first ones, and a slice takes half the time."""
        n_first = len(numbers)
        return slice(n_first) if numbers == self._first_rows[:n_first] else np.array(numbers)

    def _run(self, n_rows: int, options: Any) -> None:
        if self._is_remote:
            for value in self._step_inputs:
                value.upload(n_rows)
        self._sessions.decoder.run_with_iobinding(self._bindings[n_rows], options)
        if self._is_remote:
            self._next_tokens.download(n_rows)

    def _allocate(self) -> None:
        memory, n, k = self._sessions.memory, self._n_slots, self._codec.n_codebooks
        self._timbre = HostInput("timbre", (1, 2), np.float32, memory)
        self._pitch = HostInput("pitch", (1,), np.int64, memory)
        self._velocity = HostInput("velocity", (1,), np.float32, memory)
        self._tokens = HostInput("tokens", (n, k), np.int64, memory)
        self._gate = HostInput("gate", (n,), np.int64, memory)
        self._positions = HostInput("seqlens_k", (n,), np.int32, memory)
        self._uniforms = HostInput("uniforms", (n, k), np.float32, memory)
        self._sampling: dict[str, HostInput] = {}
        """The inputs that a note is drawn with from its first step to its last."""
        for field in SAMPLING_FIELDS:
            value = self._sampling[field.name] = HostInput(
                field.name, (n,), SAMPLING_TYPES[field.kind], memory
            )
            value.array[:] = field.high if field.above_low else field.low  # rows that hold no note draw, too
        self.note_uniforms: npt.NDArray[np.float32] = np.zeros(
            (n, self._model.max_positions, k), dtype=np.float32
        )
        """The uniforms that each slot's note draws with, step by step."""
        self._next_tokens = HostOutput("next_tokens", (n, k), np.int64, memory)
        sessions = self._sessions
        memories = {output.name for output in sessions.condition_encoder.get_outputs()}
        self._memories = self._arenas(port for port in sessions.decoder.get_inputs() if port.name in memories)
        written = {output.name for output in sessions.decoder.get_outputs()}
        self._caches = self._arenas(
            port for port in sessions.decoder.get_inputs() if state_output(port.name) in written
        )

    def _arenas(self, ports: Iterable[Any]) -> dict[str, Arena]:
        """Makes an arena for each of these inputs of the decode graph, by name; the graph gives the shape."""
        memory = self._sessions.memory
        return {
            port.name: Arena(self._n_slots, tuple(port.shape[1:]), memory, ARENA_TYPES[port.type])
            for port in ports
        }

    def _make_uniforms(self, seed: int) -> npt.NDArray[np.float32]:
        """Makes a whole note's, [max_positions, K]: made at each step they would take 40 µs of it."""
        steps = np.arange(self._model.max_positions, dtype=np.uint64)
        return uniforms_batch(np.full(len(steps), seed, dtype=np.uint64), steps, self._codec.n_codebooks)

    @property
    def _step_inputs(self) -> Iterable[HostInput]:
        return (self._tokens, self._gate, self._positions, self._uniforms, *self._sampling.values())

    def _bind_condition_encoder(self, row: int) -> Any:
        binding = self._sessions.condition_encoder.io_binding()
        for value in (self._timbre, self._pitch, self._velocity):
            value.bind(binding, 1)
        for name, arena in self._memories.items():
            arena.bind_output(binding, name, 1, first_row=row)
        return binding

    def _bind_decoder(self, n_rows: int) -> Any:
        binding = self._sessions.decoder.io_binding()
        for value in self._step_inputs:
            value.bind(binding, n_rows)
        for name, arena in self._memories.items():
            arena.bind_input(binding, name, n_rows)
        for name, arena in self._caches.items():
            arena.bind_input(binding, name, n_rows)
            arena.bind_output(binding, state_output(name), n_rows)
        self._next_tokens.bind(binding, n_rows)
        return binding

    def _warm_up(self) -> None:
        """Runs everything once, or often enough for CUDA graphs to be captured."""
        for size in self.buckets:
            for _ in range(WARM_UP_RUNS if self._sessions.captures else 1):
                self._run(size, self._run_options[size])
        self.admit(0, NoteRequest((0.0, 0.0), pitch=60, velocity=100, held_frames=1, seed=0))

    def _find_agreeing(self, sizes: Sequence[int]) -> Sequence[int]:
        """Finds the batch sizes that give every row the very logits that the largest gives its first.

        Kernels may add up in another order at another size; where they do, a note's codes would depend on its
        company.
        """
        random = np.random.default_rng(0)
        for arena in (*self._caches.values(), *self._memories.values()):
            arena.fill(random.standard_normal(arena.row_shape, dtype=np.float32))
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
        """Returns logits [n_rows, K, V] of a step that finds the same in every row, and leaves it."""
        self._tokens.array[:] = self._model.bos_id
        self._positions.array[:] = self._model.max_positions // 2
        self._uniforms.array[:] = 0.5
        logits = np.zeros((n_rows, self._codec.n_codebooks, self._model.vocabulary_size), dtype=np.float32)
        _bind_host_output(self._bindings[n_rows], "logits", logits)
        self._run(n_rows, run_options(NEVER_CAPTURED if self._sessions.captures else None))
        self._bindings[n_rows] = self._bind_decoder(n_rows)
        return logits


def bucket_sizes(n_slots: int, *, finely: bool = False) -> Sequence[int]:
    """Returns powers of two below the number of slots, then that number.

    Finely: every size up to 16, and seven more between each two powers of two from there on. So next to no
    row is run for nothing, where a step takes the longer the more rows it has.
    """
    sizes, size = [], 1
    while size < n_slots:
        sizes.append(size)
        power = 1 << size.bit_length() - 1
        size += max(1, power // 8) if finely else power
    return [*sizes, n_slots]


def _bind_host_output(binding: Any, name: str, array: npt.NDArray[Any]) -> None:
    binding.bind_output(name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)
