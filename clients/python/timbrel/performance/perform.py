"""From a score to its sound: each different note is rendered once, and put wherever the score has it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from timbrel.audio import check_sample_rate, resampled
from timbrel.client import Client
from timbrel.core.model import Model
from timbrel.core.request import NoteRequest
from timbrel.errors import InvalidRequestError, refusal
from timbrel.note import Note
from timbrel.performance.instrumentation import DRUM_CHANNEL, AskedTimbres, Part, assign_parts
from timbrel.performance.mix import Faders, Levelled, Stereo, StereoMix, levelled
from timbrel.performance.score import Score, ScoreNote
from timbrel.performance.sustain import Sustain, TrimmedNote

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


@dataclass(frozen=True)
class PerformanceOptions:
    """The options of a performance."""

    seed: int = 1
    """The same piece with the same seed sounds the same."""

    takes: int = 1
    """Renderings of a note that comes again and again, in turn."""

    fold: bool = False
    """Transpose what the bundle cannot play by octaves; otherwise it is left out."""

    normalize: bool = False
    """Bring the peak to -1 dB of full scale even where nothing would clip."""

    sample_rate: int | None = None
    """Samples per second of the result; None: the bundle's."""

    progress: bool = False
    """Show a bar on standard error."""

    def check(self) -> None:
        """Raises InvalidRequestError where a number is out of range."""
        if self.takes < 1:
            raise refusal("takes", f"must be 1 or more, got {self.takes}")
        if self.sample_rate is not None:
            check_sample_rate(self.sample_rate)


@dataclass(frozen=True)
class Performance:
    """A piece as it was played."""

    audio: Stereo
    """[samples, 2]: left and right; the score's time 0 is sample 0."""

    sample_rate: int
    """Samples per second."""

    score: Score
    plan: Plan
    parts: tuple[Part, ...]
    """Who played what."""

    n_cut: int
    """Long notes that no loop could lengthen: they end when the bundle's longest hold does."""

    peak_db: float
    """Before normalising, in dB of full scale."""

    gain_db: float
    """The change by normalising: 0 where nothing was done."""

    @property
    def seconds(self) -> float:
        """Length, the last note's release included."""
        return len(self.audio) / self.sample_rate


def perform(
    client: Client, score: Score, asked: AskedTimbres, options: PerformanceOptions | None = None
) -> Performance:
    """Renders each different note once and mixes the piece.

    Attacks lie at the score's times. The level is the model's own: a velocity sounds as loud as the note that
    it gives; channel volume, expression and pan are applied to it.

    Raises:
        InvalidRequestError: an unknown instrument, a channel without notes, an option out of range, or no
            note that can be played.
    """
    options = options or PerformanceOptions()
    options.check()
    model = client.model()
    parts = assign_parts(score, asked, client.timbre_map())
    plan = plan_piece(score, parts, model, seed=options.seed, takes=options.takes, fold=options.fold)
    if not plan.entries:
        raise _nothing_to_play(plan, model)
    mixdown = _Mixdown(score, model)
    notes = client.generate_many(list(plan.entries), progress=options.progress)
    for note, places in zip(notes, plan.entries.values(), strict=True):
        mixdown.play(note, places)
    rate = options.sample_rate or model.sample_rate
    mixed: Levelled = levelled(resampled(mixdown.mix.audio(), model.sample_rate, rate), options.normalize)
    return Performance(mixed.audio, rate, score, plan, parts, mixdown.n_cut, mixed.peak_db, mixed.gain_db)


def _nothing_to_play(plan: Plan, model: Model) -> InvalidRequestError:
    lowest, highest = model.pitch_range
    description = (
        f"none of its notes can be played: {plan.n_drums} are drums, which want a timbre for channel "
        f"{DRUM_CHANNEL}; {plan.n_out_of_range} lie outside of {lowest}..{highest}, and want to be folded"
    )
    return refusal("file", description)


class _Mixdown:
    """Where rendered notes are put into the mix, each wherever the score has it."""

    def __init__(self, score: Score, model: Model) -> None:
        self.n_cut = 0
        self._sample_rate = model.sample_rate
        self._longest_hold = model.seconds_range[1]
        self.mix = StereoMix(model.sample_rate, score.seconds + model.max_seconds)
        self._faders = {
            channel: Faders(states, model.sample_rate) for channel, states in score.states.items()
        }

    def play(self, note: Note, places: Sequence[ScoreNote]) -> None:
        """One rendering, at all its places."""
        trimmed = TrimmedNote.of(note)
        sustain = Sustain(trimmed)
        for place in places:
            is_long = place.held > self._longest_hold
            played = (self._lengthened(sustain, place) if is_long else None) or trimmed
            start = round(place.start * self._sample_rate) - played.attack
            self.mix.add(played.audio, start, self._faders[place.channel])

    def _lengthened(self, sustain: Sustain, place: ScoreNote) -> TrimmedNote | None:
        """The note held for longer than the bundle can hold it; None, and counted, where that cannot be."""
        longer = sustain.lengthened(round((place.held - self._longest_hold) * self._sample_rate))
        self.n_cut += longer is None
        return longer
