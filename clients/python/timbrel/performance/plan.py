"""Which notes have to be rendered for a piece: each different one once."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from timbrel.core.model import Model
from timbrel.core.request import NoteRequest
from timbrel.performance.casting import Part
from timbrel.performance.score import Score, ScoreNote

OCTAVE = 12


@dataclass(frozen=True)
class Plan:
    """The renderings that a piece needs, and where each of them is heard."""

    entries: Mapping[NoteRequest, tuple[ScoreNote, ...]]
    """Request -> the notes that it serves; by first appearance."""

    n_drums: int
    """Notes of the drum channel, left out."""

    n_out_of_range: int
    """Notes that the bundle cannot play, left out, or transposed by octaves where folded."""

    n_long: int
    """Notes held for longer than the bundle can: they are lengthened by a loop."""

    @property
    def n_notes(self) -> int:
        return sum(len(notes) for notes in self.entries.values())


def plan_piece(
    score: Score, parts: Sequence[Part], model: Model, *, seed: int, takes: int, fold: bool
) -> Plan:
    """Sorts a piece's notes by what has to be rendered for them.

    Holds are rounded to the codec's frames, as the server does; holds and velocities are brought into the
    bundle's range.

    Args:
        seed: of the first take.
        takes: of each note that is repeated, in turn.
        fold: transpose notes beyond the bundle's range by octaves, instead of leaving them out.
    """
    players = {(part.channel, part.program): part.timbre for part in parts}
    lowest, highest = model.pitch_range
    entries: defaultdict[NoteRequest, list[ScoreNote]] = defaultdict(list)
    repetitions: Counter[NoteRequest] = Counter()
    n_drums = n_out = n_long = 0
    for note in score.notes:
        if (timbre := players.get((note.channel, note.program))) is None:
            n_drums += 1
            continue
        pitch = note.pitch
        if not lowest <= pitch <= highest:
            n_out += 1
            folded = folded_pitch(pitch, lowest, highest) if fold else None
            if folded is None:
                continue
            pitch = folded
        n_long += note.held > model.seconds_range[1]
        first = NoteRequest(timbre, pitch, _velocity(note, model), _seconds(note.held, model), seed)
        request = replace(first, seed=seed + repetitions[first] % takes)
        repetitions[first] += 1
        entries[request].append(note)
    return Plan({request: tuple(notes) for request, notes in entries.items()}, n_drums, n_out, n_long)


def folded_pitch(pitch: int, lowest: int, highest: int) -> int | None:
    """The nearest octave of a pitch that lies in the range; None where a narrow range holds none."""
    if pitch < lowest:
        pitch += -(-(lowest - pitch) // OCTAVE) * OCTAVE
    elif pitch > highest:
        pitch -= -(-(pitch - highest) // OCTAVE) * OCTAVE
    return pitch if lowest <= pitch <= highest else None


def _velocity(note: ScoreNote, model: Model) -> int:
    least, most = model.velocity_range
    return min(max(note.velocity, least), most)


def _seconds(held: float, model: Model) -> float:
    least, most = model.seconds_range
    return min(max(round(held * model.frame_rate) / model.frame_rate, least), most)
