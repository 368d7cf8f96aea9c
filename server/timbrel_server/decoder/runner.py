"""The runner of the decode graph, and of the condition encoder's before it: the only module that runs them.

The keys and values of every slot stand in arenas whose addresses are bound to the graphs once, one binding
for each batch size and first row. A step writes its new position in place; the condition encoder writes what
the decoder keeps of a new note's condition straight into its row.
"""

from __future__ import annotations

import contextlib
import functools
import logging
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from timbrel_bundle.errors import one_line
from timbrel_bundle.layout import state_output
from timbrel_bundle.manifest import release_frames
from timbrel_bundle.randomness import uniforms_batch
from timbrel_bundle.request_fields import HEADER_TEMPERATURE, SAMPLING_FIELDS
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb
from timbrel_server.decoder.memory import HOST, Arena, SharedArrays
from timbrel_server.decoder.sessions import CUDA_GATE, DecoderSessions, run_options
from timbrel_server.engine.request import NoteRequest
from timbrel_server.engine.slots import StepInput

_log = logging.getLogger(__name__)

ARENA_TYPES: Mapping[str, type[np.number]] = {
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
    "tensor(int8)": np.int8,
}
"""The types that caches and memories may have, by onnxruntime's name."""

SAMPLING_TYPES: Mapping[type, type[np.number]] = {int: np.int64, float: np.float32}
"""The types of the decode graph's inputs for sampling, by the kind of the request's field."""

TEMPERATURE = "temperature"
"""The one of them that a note's header is drawn with less of."""

NEVER_CAPTURED = -1
"""The graph id of runs that CUDA graphs have nothing to do with."""

WARM_UP_RUNS = 3
"""onnxruntime captures a CUDA graph in its second or third run."""

MOST_TOGETHER = 16
"""Notes whose conditions are encoded in one run on the CPU: more save nothing."""


class CaptureError(RuntimeError):
    """A run could not be captured as a CUDA graph. Its runner is of no use any more."""


class Runner:
    """The graphs, the slots' memory, and the bindings between them. Belongs to one thread at a time.

    onnxruntime keeps captured graphs by thread: the one that steps has to be the one that warmed up.
    """

    def __init__(
        self,
        sessions: DecoderSessions,
        manifest: pb.Manifest,
        n_slots: int,
        *,
        fast: bool = False,
    ) -> None:
        """Allocates, binds, and finds the batch sizes that can be used.

        Args:
            fast: use batch sizes, too, at which a note may get other codes than at the largest.

        Raises:
            ValueError: the graphs are not as the manifest says, or give what is no number.
        """
        self._sessions = sessions
        self._codec, self._model = manifest.codec, manifest.model
        self._n_slots = n_slots
        self._is_remote = sessions.memory != HOST
        self._row_numbers = np.arange(n_slots)
        self.can_move = not self._is_remote
        with self._device():
            self._allocate()
            sizes = bucket_sizes(n_slots, finely=not self._is_remote)
            self._bindings = {(size, 0): self._bind_decoder(size) for size in sizes}
            self.buckets: Sequence[int] = sizes if fast else self._find_agreeing(sizes)
            if self._is_remote:
                self._all_rows_binding = self._bind_condition_encoder(0, n_slots)
            else:
                self._row_bindings = [self._bind_condition_encoder(row, 1) for row in range(n_slots)]
                self._windows = sizes if fast else self._find_agreeing_windows(sizes)
        self._run_options = {size: run_options(size if sessions.captures else None) for size in self.buckets}
        self._all_rows_options = run_options(n_slots if sessions.captures else None)

    def warm_up(self) -> None:
        """Runs everything once, or often enough for CUDA graphs to be captured. On the thread that will step.

        Raises:
            CaptureError: a run could not be captured.
        """
        runs: list[Callable[[], None]] = [functools.partial(self._run, size) for size in self.buckets]
        if self._is_remote:
            runs.append(self._encode_all)
        for run in runs:
            for _ in range(WARM_UP_RUNS if self._sessions.captures else 1):
                with CUDA_GATE.capturing() if self._sessions.captures else self._device():
                    try:
                        run()
                    except RuntimeError as error:  # whatever onnxruntime raises
                        if not self._sessions.captures:
                            raise
                        raise CaptureError(one_line(error)) from None
        self.admit([(0, NoteRequest((0.0, 0.0), pitch=60, velocity=100, held_frames=1, seed=0))])

    def admit(self, notes: Sequence[tuple[int, NoteRequest]]) -> None:
        """Prepares rows for new notes, together.

        What a row's cache held before does no harm: it is overwritten from position 0 on, and later positions
        are not looked at.
        """
        rows = [row for row, _ in notes]
        condition = self._condition.arrays
        for row, request in notes:
            condition["timbre"][row] = request.timbre
            condition["pitch"][row] = request.pitch
            condition["velocity"][row] = request.velocity
            for name, array in self._settings.arrays.items():
                array[row] = getattr(request.sampling, name)
            self._asked_temperatures[row] = request.sampling.temperature
        self.note_uniforms[rows] = self._make_uniforms([request.seed for _, request in notes])
        with self._device():
            self._settings.upload()
            self._condition.upload()
            if self._is_remote:
                self._encode_all()
            else:
                for first_row, n_rows in self._windows_over(sorted(rows)):
                    self._encode(first_row, n_rows)

    def move(self, source: int, target: int) -> None:
        """Copies a running note to another row."""
        for arena in (*self._caches.values(), *self._memories.values()):
            arena.copy_row(source, target)
        for array in (self.note_uniforms, self._asked_temperatures, *self._settings.arrays.values()):
            array[target] = array[source]

    def step(self, given: StepInput) -> npt.NDArray[np.int64]:
        """Moves rows on by one position; returns tokens [n, K], in rows that move what they drew, which the
        next step overwrites.

        Raises:
            ValueError: a position beyond the cache.
        """
        n = len(given.positions)
        first, n_rows = self._window(given)
        end = min(first + n_rows, n)
        rows = slice(first, end)
        positions = given.positions[rows]
        try:
            self._uniforms[rows] = self.note_uniforms[self._row_numbers[rows], positions]
        except IndexError:
            most = self._model.max_positions
            raise ValueError(f"a note ran beyond the cache's {most} positions") from None
        self._positions[rows], self._tokens[rows] = positions, given.tokens[rows]
        self._gate[rows] = given.gate[rows]
        share = np.where(positions < self._codec.lead_frames, HEADER_TEMPERATURE, 1.0)
        self._temperatures[rows] = share * self._asked_temperatures[rows]
        if first + n_rows > end:
            self._positions[end : first + n_rows] = 0  # which a new note writes anew
        with self._device():
            self._run(n_rows, first)
        return self._next_tokens[:n]

    def _window(self, given: StepInput) -> tuple[int, int]:
        """Returns the rows that a step runs, the first and how many: as few as there is a batch size for,
        from the first note that moves to the last. On a device from row 0 on: its runs are captured."""
        first, n = 0, len(given.positions)
        if given.moving is not None and not self._is_remote:
            first, last = np.flatnonzero(given.moving)[[0, -1]].tolist()
            n = last + 1 - first
        n_rows = self.buckets[bisect_left(self.buckets, n)]
        return min(first, self._n_slots - n_rows), n_rows

    def _device(self) -> contextlib.AbstractContextManager[None]:
        """Whatever uses the device stands within; on the CPU that is nothing to wait for."""
        return CUDA_GATE.in_use() if self._is_remote else contextlib.nullcontext()

    def _run(self, n_rows: int, first_row: int = 0) -> None:
        if (binding := self._bindings.get((n_rows, first_row))) is None:
            binding = self._bindings[n_rows, first_row] = self._bind_decoder(n_rows, first_row)
        self._sessions.decoder.run_with_iobinding(binding, self._run_options[n_rows])

    def _encode(self, first_row: int, n_rows: int) -> None:
        """Runs the condition encoder for these rows, each with the condition that stands there."""
        alone = n_rows == 1
        binding = self._row_bindings[first_row] if alone else self._bind_condition_encoder(first_row, n_rows)
        self._sessions.condition_encoder.run_with_iobinding(binding)

    def _encode_all(self) -> None:
        """Runs the condition encoder for every row: new notes get their conditions, others what they have.

        On a device, where the run is a captured graph as a step is. Smaller runs would have to be launched
        kernel by kernel, and give other last bits: on an H200 none of their sizes agrees with the largest.
        """
        self._sessions.condition_encoder.run_with_iobinding(self._all_rows_binding, self._all_rows_options)

    def _windows_over(self, rows: Sequence[int]) -> Iterable[tuple[int, int]]:
        """The runs of the condition encoder, first row and number of rows, that reach all these rising rows:
        one for each stretch of neighbours."""
        found, left = [], list(rows)
        while left:
            n_neighbours = next((n for n, row in enumerate(left) if row != left[0] + n), len(left))
            size = self._windows[bisect_right(self._windows, n_neighbours) - 1]
            found.append((left[0], size))
            del left[:size]
        return found

    def _allocate(self) -> None:
        memory, n, k = self._sessions.memory, self._n_slots, self._codec.n_codebooks
        self._condition = SharedArrays(
            {"timbre": ((n, 2), np.float32), "pitch": ((n,), np.int64), "velocity": ((n,), np.float32)},
            memory,
        )
        self._inputs = SharedArrays(
            {
                "tokens": ((n, k), np.int64),
                "gate": ((n,), np.int64),
                "seqlens_k": ((n,), np.int32),
                "uniforms": ((n, k), np.float32),
                TEMPERATURE: ((n,), np.float32),
            },
            memory,
            pinned=True,
        )
        self._tokens, self._gate, self._positions, self._uniforms, self._temperatures = (
            self._inputs.arrays.values()
        )
        self._gate[:] = release_frames(self._model)  # a graph that does not count so far fails as it warms up
        self._asked_temperatures: npt.NDArray[np.float32] = np.zeros(n, dtype=np.float32)
        settings = [field for field in SAMPLING_FIELDS if field.name != TEMPERATURE]
        self._settings = SharedArrays(
            {field.name: ((n,), SAMPLING_TYPES[field.kind]) for field in settings}, memory
        )
        """The inputs that a note is drawn with from its first step to its last."""
        for field in settings:  # rows that hold no note draw, too
            self._settings.arrays[field.name][:] = field.high if field.above_low else field.low
        self._settings.upload()
        self.note_uniforms: npt.NDArray[np.float32] = np.zeros(
            (n, self._model.max_positions, k), dtype=np.float32
        )
        """The uniforms that each slot's note draws with, step by step."""
        self._outputs = SharedArrays({"next_tokens": ((n, k), np.int64)}, memory, pinned=True)
        self._next_tokens = self._outputs.arrays["next_tokens"]
        sessions = self._sessions
        memories = {output.name for output in sessions.condition_encoder.get_outputs()}
        self._memories = self._arenas(port for port in sessions.decoder.get_inputs() if port.name in memories)
        written = {output.name for output in sessions.decoder.get_outputs()}
        caches = [port for port in sessions.decoder.get_inputs() if state_output(port.name) in written]
        for port in caches:
            if len(port.shape) == 4 and port.shape[2] < self._model.max_positions:
                stated = f"{self._model.max_positions} are stated"
                raise ValueError(f"{port.name} has {port.shape[2]} positions, {stated}")
        self._caches = self._arenas(caches)

    def _arenas(self, ports: Iterable[Any]) -> dict[str, Arena]:
        """Makes an arena for each of these inputs of the decode graph, by name; the graph gives the shape."""
        memory = self._sessions.memory
        return {
            port.name: Arena(self._n_slots, tuple(port.shape[1:]), memory, ARENA_TYPES[port.type])
            for port in ports
        }

    def _make_uniforms(self, seeds: Sequence[int]) -> npt.NDArray[np.float32]:
        """Makes whole notes', [B, max_positions, K]: made at each step they would take 40 µs of it."""
        n_steps = self._model.max_positions
        steps = np.arange(n_steps, dtype=np.uint64)
        if len(seeds) > 1:
            steps = np.tile(steps, len(seeds))
        repeated = np.array(seeds, dtype=np.uint64).repeat(n_steps)
        return uniforms_batch(repeated, steps, self._codec.n_codebooks).reshape(len(seeds), n_steps, -1)

    def _bind_condition_encoder(self, first_row: int, n_rows: int) -> Any:
        binding = self._sessions.condition_encoder.io_binding()
        self._condition.bind(binding.bind_input, n_rows, first_row)
        for name, arena in self._memories.items():
            arena.bind(binding.bind_output, name, n_rows, first_row)
        return binding

    def _bind_decoder(self, n_rows: int, first_row: int = 0) -> Any:
        binding = self._sessions.decoder.io_binding()
        self._inputs.bind(binding.bind_input, n_rows, first_row)
        self._settings.bind(binding.bind_input, n_rows, first_row)
        for name, arena in self._memories.items():
            arena.bind(binding.bind_input, name, n_rows, first_row)
        for name, arena in self._caches.items():
            arena.bind(binding.bind_input, name, n_rows, first_row)
            arena.bind(binding.bind_output, state_output(name), n_rows, first_row)
        self._outputs.bind(binding.bind_output, n_rows, first_row)
        return binding

    def _find_agreeing(self, sizes: Sequence[int]) -> Sequence[int]:
        """Finds the batch sizes that give every row the very logits that the largest gives its first.

        Kernels may add up in another order at another size; where they do, a note's codes would depend on its
        company.
        """
        random = np.random.default_rng(0)
        for arena in (*self._caches.values(), *self._memories.values()):
            arena.fill(random.standard_normal(arena.row_shape, dtype=np.float32))
        agreeing = _agreeing({size: self._probe(size) for size in sizes}, sizes[-1])
        if len(agreeing) < len(sizes):
            _log.info(
                "batch sizes %s of %s give the same codes; the others are not used", agreeing, list(sizes)
            )
        if not agreeing:
            _log.warning("rows of one batch differ in their last bits: codes may depend on a note's company")
            return sizes[-1:]
        return agreeing

    def _find_agreeing_windows(self, sizes: Sequence[int]) -> Sequence[int]:
        """Finds how many notes the condition encoder may be given at once: each gets what it has alone."""
        condition = self._condition.arrays
        condition["timbre"][:], condition["pitch"][:], condition["velocity"][:] = (0.3, -0.2), 60, 100
        few = [size for size in sizes if size <= MOST_TOGETHER]
        return _agreeing({size: self._probe_conditions(size) for size in few}, 1) or few[:1]

    def _probe_conditions(self, n_rows: int) -> npt.NDArray[np.generic]:
        """Returns all that the condition encoder gives [n_rows, ...] for the first rows."""
        binding = self._bind_condition_encoder(0, n_rows)
        kept = {
            name: np.zeros((n_rows, *arena.row_shape), arena.dtype) for name, arena in self._memories.items()
        }
        for name, array in kept.items():
            _bind_host_output(binding, name, array)
        self._sessions.condition_encoder.run_with_iobinding(binding)
        return np.concatenate([array.reshape(n_rows, -1) for array in kept.values()], axis=1)

    def _probe(self, n_rows: int) -> npt.NDArray[np.float32]:
        """Returns logits [n_rows, K, V] of a step that finds the same in every row, and leaves it."""
        self._tokens[:] = self._model.bos_id
        self._positions[:] = self._model.max_positions // 2
        self._uniforms[:] = 0.5
        logits = np.zeros((n_rows, self._codec.n_codebooks, self._model.vocabulary_size), dtype=np.float32)
        binding = self._bind_decoder(n_rows)
        _bind_host_output(binding, "logits", logits)
        never = run_options(NEVER_CAPTURED if self._sessions.captures else None)
        self._sessions.decoder.run_with_iobinding(binding, never)
        if np.isnan(logits).any():
            raise ValueError("it gives logits that are no numbers")
        return logits


def _agreeing(found: Mapping[int, npt.NDArray[np.generic]], wanted: int) -> Sequence[int]:
    """Returns the batch sizes whose every row is the first row of this one; none where its own differ."""
    agreeing = [size for size, rows in found.items() if (rows == found[wanted][0]).all()]
    return agreeing if wanted in agreeing else []


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
