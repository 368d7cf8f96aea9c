"""A runner that keeps what every step of a note read, and the logits that it gave."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from timbrel_server.decoder.memory import SharedArrays
from timbrel_server.decoder.runner import Runner
from timbrel_server.engine.request import NoteRequest
from timbrel_server.engine.slots import StepInput


@dataclass(frozen=True)
class RecordedStep:
    """One position of one note, in whatever company it was run."""

    row: int
    n_rows: int
    """The batch size at which it ran."""
    drawn: Sequence[int]  # [K]
    logits: NDArray[np.float32]  # [K, V]


@dataclass
class RecordedNote:
    """The steps of a note by position."""

    steps: dict[int, RecordedStep] = field(default_factory=dict)
    row_was_used: bool = False
    """Whether another note had its first row before."""

    def __iter__(self) -> Iterator[RecordedStep]:
        return (self.steps[position] for position in range(len(self.steps)))

    @property
    def drawn(self) -> NDArray[np.int64]:
        """Tokens [S, K]."""
        return np.array([step.drawn for step in self], dtype=np.int64)

    @property
    def logits(self) -> NDArray[np.float32]:
        """[S, K, V]."""
        return np.stack([step.logits for step in self])


class RecordingRunner(Runner):
    """The runner with one more of the graph's outputs bound: its logits. All else is as ever."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self._notes: dict[NoteRequest, RecordedNote] = {}
        self._in_row: dict[int, RecordedNote] = {}
        self._n_rows = 0
        super().__init__(*args, **options)

    def take(self, request: NoteRequest) -> RecordedNote:
        """The record of a note, which is kept no longer. No two requests may be equal."""
        return self._notes.pop(request)

    @property
    def memory(self) -> dict[str, tuple[int, int]]:
        """Address and bytes of each arena."""
        arenas = {**self._caches, **self._memories}
        return {name: (arena._base, self._n_slots * arena._row_bytes) for name, arena in arenas.items()}

    def warm_up(self) -> None:
        super().warm_up()
        self._notes.clear()
        self._in_row.clear()

    def admit(self, notes: Sequence[tuple[int, NoteRequest]]) -> None:
        super().admit(notes)
        for row, request in notes:
            note = RecordedNote(row_was_used=row in self._in_row)
            self._notes[request] = self._in_row[row] = note

    def move(self, source: int, target: int) -> None:
        super().move(source, target)
        self._in_row[target] = self._in_row[source]

    def step(self, given: StepInput) -> NDArray[np.int64]:
        drawn = super().step(given)
        moving = given.active if given.moving is None else given.moving
        for row in moving.nonzero()[0].tolist():
            recorded = RecordedStep(
                row, self._n_rows, drawn[row].tolist(), self._logits.arrays["logits"][row].copy()
            )
            self._in_row[row].steps[int(given.positions[row])] = recorded
        return drawn

    def _run(self, n_rows: int, first_row: int = 0) -> None:
        super()._run(n_rows, first_row)
        self._n_rows = n_rows

    def _allocate(self) -> None:
        super()._allocate()
        shape = (self._n_slots, self._codec.n_codebooks, self._model.vocabulary_size)
        self._logits = SharedArrays({"logits": (shape, np.float32)}, self._sessions.memory, pinned=True)

    def _bind_decoder(self, n_rows: int, first_row: int = 0) -> Any:
        binding = super()._bind_decoder(n_rows, first_row)
        self._logits.bind(binding.bind_output, n_rows, first_row)
        return binding
