"""From a score to its sound: each different note is rendered once, and put wherever the score has it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from timbrel.audio import check_sample_rate, resampled
from timbrel.client import Client
from timbrel.core.model import Model
from timbrel.core.request import NoteRequest
from timbrel.errors import InvalidRequestError, refusal
from timbrel.library.render.level import Audio, decibels
from timbrel.note import Note
from timbrel.performance.drums import at_volume, check_drums, play_drums
from timbrel.performance.expression import Curve, brightened, swelled
from timbrel.performance.instrumentation import AskedTimbres, Part, assign_parts
from timbrel.performance.mix import Faders, Stereo, StereoMix, level
from timbrel.performance.score import Score, ScoreNote
from timbrel.performance.sustain import Sustain, TrimmedNote
from timbrel.pitch import frequency
from timbrel_bundle.request_fields import FIELD, is_unbent

OCTAVE = 12

FURTHEST_BEND = (FIELD["cents"].high or 0.0) / 100.0
"""Semitones, either way."""

SILENT_DB = -80.0
"""A note whose peak is below this is taken for silence; of velocity 1, peaks are at -50 to -70."""


@dataclass(frozen=True)
class Plan:
    """The renderings that a piece needs, and where each of them is heard."""

    entries: Mapping[NoteRequest, tuple[ScoreNote, ...]]
    """Request -> the notes that it serves; by first appearance."""

    drums: Mapping[int, int]
    """Channel -> how many drums of it no timbre was asked to play, left out."""

    effects: Mapping[tuple[int, int], int]
    """Channel and program -> how many notes of it, a sound effect that no instrument comes near, left out."""

    n_out_of_range: int
    """Notes that the bundle cannot play, left out, or transposed by octaves where folded."""

    n_stretched: int
    """Notes beyond the bundle's pitches that are its nearest one, bent to theirs."""

    n_long: int
    """Notes held for longer than the bundle can: they are lengthened."""

    n_unbent: int
    """Notes that are to be bent, with a bundle whose codec does not."""

    @property
    def n_notes(self) -> int:
        return sum(len(notes) for notes in self.entries.values())

    @property
    def n_drums(self) -> int:
        return sum(self.drums.values())

    @property
    def n_effects(self) -> int:
        return sum(self.effects.values())


def plan_piece(
    score: Score, parts: Sequence[Part], model: Model, *, seed: int, takes: int, fold: bool
) -> Plan:
    """Sorts a piece's notes by what has to be rendered for them: of repeated ones `takes`, the first of this
    seed.

    Holds are rounded to the codec's frames, as the server does; holds and velocities are brought into the
    bundle's range. Notes beyond its pitches are bent from the nearest of them, where that is near enough and
    the codec bends, else left out; `fold` transposes them by octaves instead.
    """
    players = {(part.channel, part.program): part for part in parts}
    (lowest, highest), (softest, loudest) = model.pitch_range, model.velocity_range
    entries: defaultdict[NoteRequest, list[ScoreNote]] = defaultdict(list)
    repetitions: Counter[NoteRequest] = Counter()
    drums: Counter[int] = Counter()
    effects: Counter[tuple[int, int]] = Counter()
    n_out = n_stretched = n_long = n_unbent = 0
    for note in score.notes:
        part = players.get((note.channel, note.program))
        if note.is_drum and (part is None or not part.plays_drums):
            drums[note.channel] += 1
            continue
        if part is None:
            effects[note.channel, note.program] += 1
            continue
        pitch = min(max(note.pitch, lowest), highest)
        if pitch != note.pitch and not fold and model.bends and abs(note.pitch - pitch) <= FURTHEST_BEND:
            n_stretched += 1
            note = replace(note, cents=_further(note.cents, 100.0 * (note.pitch - pitch)))
        elif pitch != note.pitch:
            n_out += 1
            folded = folded_pitch(note.pitch, lowest, highest) if fold else None
            if folded is None:
                continue
            pitch = folded
        n_long += note.held > model.seconds_range[1]
        n_unbent += not (model.bends or is_unbent(note.cents))
        # What is bent on its way is so when it is decoded: the codes are those of the note unbent.
        cents = note.cents if model.bends and isinstance(note.cents, float) else 0.0
        velocity, seconds = min(max(note.velocity, softest), loudest), _seconds(note.held, model)
        first = NoteRequest(part.timbre, pitch, velocity, seconds, seed, cents=cents)
        request = replace(first, seed=seed + repetitions[first] % takes)
        repetitions[first] += 1
        entries[request].append(note)
    served = {request: tuple(notes) for request, notes in entries.items()}
    return Plan(served, drums, effects, n_out, n_stretched, n_long, n_unbent)


def folded_pitch(pitch: int, lowest: int, highest: int) -> int | None:
    """The nearest octave of a pitch that lies in the range; None where a narrow range holds none."""
    if pitch < lowest:
        pitch += -(-(lowest - pitch) // OCTAVE) * OCTAVE
    elif pitch > highest:
        pitch -= -(-(pitch - highest) // OCTAVE) * OCTAVE
    return pitch if lowest <= pitch <= highest else None


def _further(cents: float | Curve, more: float) -> float | Curve:
    """A bend that goes so many cents further, as far as notes are bent."""
    limit = 100.0 * FURTHEST_BEND
    if isinstance(cents, float):
        return min(max(cents + more, -limit), limit)
    return tuple((second, min(max(value + more, -limit), limit)) for second, value in cents)


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
    """Transpose what lies beyond the bundle's pitches by octaves. Otherwise it is bent from the nearest of
    them, or left out where that lies too far off or the codec does not bend."""

    normalize: bool = False
    """Bring the peak to -1 dB of full scale even where nothing would clip."""

    sample_rate: int | None = None
    """Samples per second of the result; None: the bundle's."""

    drums: Path | None = None
    """A SoundFont that FluidSynth plays drums with; None: they are left out."""

    progress: bool = False
    """Show a bar on standard error."""

    def check(self) -> None:
        """Raises InvalidRequestError where one is out of range, DrumsError where FluidSynth is missing."""
        if self.takes < 1:
            raise refusal("takes", f"must be 1 or more, got {self.takes}")
        if self.sample_rate is not None:
            check_sample_rate(self.sample_rate)
        if self.drums is not None:
            check_drums(self.drums)


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

    n_silent: int
    """Notes in which the model wrote no sound: another seed may."""

    with_drums: bool
    """Whether FluidSynth played the drums."""

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
    it gives; channel volume, expression and pan are applied to it. Raises InvalidRequestError: an unknown
    instrument, a channel without notes, an option out of range, or no note that can be played.
    """
    options = options or PerformanceOptions()
    options.check()
    model = client.model()
    parts = assign_parts(score, asked, client.timbre_map())
    plan = plan_piece(score, parts, model, seed=options.seed, takes=options.takes, fold=options.fold)
    # A timbre asked for a channel with drums plays it; else FluidSynth may.
    with_drums = options.drums is not None and plan.n_drums > 0
    if not (plan.entries or with_drums):
        raise _nothing_to_play(plan, model)
    mixdown = _Mixdown(client, score, model)
    if options.drums is not None and with_drums:
        left = [(time, message) for time, message in score.drums if message.channel + 1 in plan.drums]
        drums = play_drums(left, options.drums, model.sample_rate)
        mixdown.mix.add_stereo(at_volume(drums, score.volume_db, model.sample_rate))
    notes = client.generate_many(list(plan.entries), progress=options.progress)
    for note, places in zip(notes, plan.entries.values(), strict=True):
        mixdown.play(note, places)
    rate = options.sample_rate or model.sample_rate
    audio = resampled(mixdown.mix.audio(), model.sample_rate, rate)
    peak_db, gain_db = level(audio, options.normalize)
    n_cut, n_silent = mixdown.n_cut, mixdown.n_silent
    return Performance(audio, rate, score, plan, parts, n_cut, n_silent, with_drums, peak_db, gain_db)


def _nothing_to_play(plan: Plan, model: Model) -> InvalidRequestError:
    lowest, highest = model.pitch_range
    reasons = {
        "drums want a font (--drums) or a timbre for their channel": plan.n_drums,
        "sound effects want a timbre": plan.n_effects,
        f"those outside of {lowest}..{highest} want to be folded": plan.n_out_of_range,
    }
    told = "; ".join(f"{reason} ({count})" for reason, count in reasons.items() if count)
    return refusal("file", f"none of its notes can be played: {told}")


class _Mixdown:
    """Where rendered notes are put into the mix, each wherever the score has it."""

    def __init__(self, client: Client, score: Score, model: Model) -> None:
        self.n_cut = self.n_silent = 0
        self._client = client
        self._model = model
        self.mix = StereoMix(model.sample_rate, score.seconds + model.max_seconds - model.seconds_range[1])
        self._faders = {
            channel: Faders(states, model.sample_rate) for channel, states in score.states.items()
        }

    def play(self, note: Note, places: Sequence[ScoreNote]) -> None:
        """One rendering, at all its places."""
        trimmed = TrimmedNote.of(note)
        if decibels(float(np.abs(note.audio).max(initial=0.0))) < SILENT_DB:
            self.n_silent += len(places)
        sustain = Sustain(trimmed)
        for place in places:
            longer = max(0.0, place.held - self._model.seconds_range[1])
            if self._model.bends and (longer or not isinstance(place.cents, float)):
                played = self._decoded(note, trimmed, sustain, place.cents, longer)
            elif longer:
                played = sustain.lengthened(round(longer * self._model.sample_rate)) or self._cut(trimmed)
            else:
                played = trimmed
            start = round(place.start * self._model.sample_rate) - played.attack
            self.mix.add(_expressed(played, note.pitch, place), start, self._faders[place.channel])

    def _decoded(
        self, note: Note, trimmed: TrimmedNote, sustain: Sustain, bend: float | Curve, longer: float
    ) -> TrimmedNote:
        """The note decoded anew: bent along its way, and held for so many seconds more."""
        rate = self._model.frame_rate
        order = sustain.lengthened_frames(note, round(longer * rate), rate)
        if not isinstance(bend, float):
            # A bend counts from the attack, which the decoded note has some time after its beginning.
            bend = tuple((max(0.0, second + trimmed.attack_seconds), cents) for second, cents in bend)
        audio = self._client.decode(note.codes[order], note.seed, bend)
        held = note.seconds + (len(order) - len(note.codes)) / rate
        return TrimmedNote.of(note, audio, held)

    def _cut(self, trimmed: TrimmedNote) -> TrimmedNote:
        """A long note as it is, where there is no loop to lengthen it by: counted."""
        self.n_cut += 1
        return trimmed


def _expressed(played: TrimmedNote, pitch: int, place: ScoreNote) -> Audio:
    """The note's sound with its own level and brightness over time."""
    if not (place.level_db or place.brightness_db):
        return played.audio
    seconds = played.seconds()
    audio = brightened(played.audio, played.sample_rate, seconds, place.brightness_db, frequency(pitch))
    return swelled(audio, seconds, place.level_db)
