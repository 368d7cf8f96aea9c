"""From a score to its sound: cast, plan, render, mix, level."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from timbrel.audio.file import check_sample_rate, resampled
from timbrel.client import Client
from timbrel.core.model import Model
from timbrel.errors import FieldViolation, InvalidRequestError
from timbrel.note import Note
from timbrel.performance.casting import Casting, Part, cast
from timbrel.performance.faders import Faders
from timbrel.performance.general_midi import DRUM_CHANNEL
from timbrel.performance.level import Levelled, levelled
from timbrel.performance.mix import Stereo, StereoMix
from timbrel.performance.plan import Plan, plan_piece
from timbrel.performance.score import Score, ScoreNote
from timbrel.performance.strike import Strike
from timbrel.performance.sustain import Sustain

DEFAULT_SEED = 1


@dataclass(frozen=True)
class PerformanceOptions:
    """How a piece is performed."""

    seed: int = DEFAULT_SEED
    """The same piece with the same seed sounds the same."""

    takes: int = 1
    """Renderings of a note that comes again and again, in turn."""

    fold: bool = False
    """Transpose what the bundle cannot play by octaves; otherwise it is left out."""

    normalize: bool = False
    """Bring the peak to -1 dB of full scale even where nothing would clip."""

    sample_rate: int | None = None
    """Of the result; None: the bundle's."""

    progress: bool = False
    """Show a bar on standard error."""

    def check(self) -> None:
        """Raises InvalidRequestError where a number is out of range."""
        if self.takes < 1:
            raise InvalidRequestError.of([FieldViolation("takes", f"must be 1 or more, got {self.takes}")])
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
    """Of the normalising: 0 where nothing was done."""

    @property
    def seconds(self) -> float:
        """Length, the last note's release included."""
        return len(self.audio) / self.sample_rate


def perform(
    client: Client, score: Score, casting: Casting, options: PerformanceOptions | None = None
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
    parts = cast(score, casting, client.timbre_map())
    plan = plan_piece(score, parts, model, seed=options.seed, takes=options.takes, fold=options.fold)
    if not plan.entries:
        raise _nothing_to_play(plan, model)
    stage = _Stage(score, model)
    notes = client.generate_many(list(plan.entries), progress=options.progress)
    for note, places in zip(notes, plan.entries.values(), strict=True):
        stage.play(note, places)
    rate = options.sample_rate or model.sample_rate
    mixed: Levelled = levelled(resampled(stage.audio(), model.sample_rate, rate), options.normalize)
    return Performance(mixed.audio, rate, score, plan, parts, stage.n_cut, mixed.peak_db, mixed.gain_db)


def _nothing_to_play(plan: Plan, model: Model) -> InvalidRequestError:
    lowest, highest = model.pitch_range
    description = (
        f"none of its notes can be played: {plan.n_drums} are drums, which want a timbre for channel "
        f"{DRUM_CHANNEL}; {plan.n_out_of_range} lie outside of {lowest}..{highest}, and want to be folded"
    )
    return InvalidRequestError.of([FieldViolation("file", description)])


class _Stage:
    """Where rendered notes are put into the mix, each wherever the score has it."""

    def __init__(self, score: Score, model: Model) -> None:
        self.n_cut = 0
        self._sample_rate = model.sample_rate
        self._longest_hold = model.seconds_range[1]
        self._mix = StereoMix(model.sample_rate, score.seconds + model.max_seconds)
        self._faders = {
            channel: Faders(states, model.sample_rate) for channel, states in score.states.items()
        }

    def play(self, note: Note, places: Sequence[ScoreNote]) -> None:
        """One rendering, at all its places."""
        strike = Strike.of(note)
        sustain = Sustain(strike)
        for place in places:
            is_long = place.held > self._longest_hold
            played = (self._lengthened(sustain, place) if is_long else None) or strike
            start = round(place.start * self._sample_rate) - played.attack
            self._mix.add(played.audio, start, self._faders[place.channel])

    def audio(self) -> Stereo:
        """The mix so far."""
        return self._mix.audio()

    def _lengthened(self, sustain: Sustain, place: ScoreNote) -> Strike | None:
        """The note held for longer than the bundle can hold it; None, and counted, where that cannot be."""
        longer = sustain.lengthened(round((place.held - self._longest_hold) * self._sample_rate))
        self.n_cut += longer is None
        return longer
