"""Synthesizes notes of instruments that need no recordings: strings, bars, bells, FM, waves, voices.

Three ways of making sound: modes that each die away by themselves (the poles that a Karplus-Strong loop has,
exactly in tune), waves with their harmonics, and frequency modulation. An instrument is ranges
of settings; each of its members stands somewhere in them, and each note a little beside its member. Nothing
aliases: no partial is made that the sample rate cannot hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
import soxr
from numpy.typing import NDArray
from scipy.signal import butter, sosfilt

from timbrel_training.notes.config import NotesConfig
from timbrel_training.notes.note import Draw, Note, Source, SourceError, draw_note, unit_interval
from timbrel_training.notes.playing import FADE_SECONDS, NoteRecorder
from timbrel_training.notes.recording import fade_out, sounding_samples
from timbrel_training.notes.synthetic_instruments import INSTRUMENTS, Fm, Modes, Range, Waves

Array = NDArray[np.float64]

LEVEL = 0.15
"""RMS of the loudest tenth of a second at velocity 127."""
VELOCITY_CURVE = 1.5
"""Levels follow the velocity to this power."""
HIGHEST = 0.45
"""No partial lies above this share of the sample rate."""
DECAYED = 7.0
"""A sound is 60 dB down after this many of its time constants."""
JITTER = 0.1
"""A note's settings lie within this share of the range of its member's."""
UNEVEN = 0.08
"""Standard deviation of a struck mode's level from note to note."""
BLOCK = 64
TABLE = 1 << 16
OVERSAMPLING = 4
SIDEBANDS = 6.0
"""Beyond its index, frequency modulation has this many audible sidebands more."""


@dataclass(frozen=True)
class _Playing:
    """Tells how one note is to be made."""

    hertz: float
    hardness: float  # 0 to 1
    held_seconds: float
    n_samples: int
    sample_rate: int
    settings: Mapping[str, float]
    random: np.random.Generator

    @property
    def time(self) -> Array:
        return np.arange(self.n_samples) / self.sample_rate

    def slope(self) -> float:
        return self.settings["slope"] + self.settings["touch"] * (1.0 - self.hardness)


class SynthesizerSource(Source):
    """Members of one instrument of `INSTRUMENTS`, or of all of them; one group per member. Raises
    SourceError: there is no instrument of this name."""

    licence = "CC0-1.0"

    def __init__(
        self,
        name: str,
        *,
        recorder: NoteRecorder | None = None,
        pitches: Sequence[int] = range(NotesConfig.low_pitch, NotesConfig.high_pitch + 1),
        n_draws: int = NotesConfig.n_draws,
        n_members: int = NotesConfig.n_members,
    ) -> None:
        if name != "all" and name not in INSTRUMENTS:
            raise SourceError(
                f"no synthetic instrument {name!r}; expected all or one of {', '.join(INSTRUMENTS)}"
            )
        names = [*INSTRUMENTS] if name == "all" else [name]
        self.name = f"synthetic {name}"
        self.recorder = recorder or NoteRecorder()
        self.sample_rate = self.recorder.sample_rate
        self.pitches = tuple(pitches)
        self.n_draws = n_draws
        self.members = {name: name for name in names}
        self.members |= {f"{name} {member}": name for name in names for member in range(2, n_members + 1)}

    def settings(self) -> Mapping[str, object]:
        recipes = {name: asdict(INSTRUMENTS[name]) for name in self.members.values()}
        return {
            "members": self.members,
            "instruments": recipes,
            "pitches": list(self.pitches),
            "n_draws": self.n_draws,
            **asdict(self.recorder),
        }

    def groups(self) -> Sequence[str]:
        return [*self.members]

    def notes(self, group: str) -> Iterator[Note]:
        for pitch in self.pitches:
            for index in range(self.n_draws):
                draw = draw_note(group, pitch, index, max_held=self.recorder.max_held_seconds)
                yield self._note(group, pitch, index, draw)

    def _note(self, instrument: str, pitch: int, index: int, draw: Draw) -> Note:
        recipe = INSTRUMENTS[self.members[instrument]]
        settings = {
            field.name: _setting(getattr(recipe, field.name), field.name, instrument, (pitch, index))
            for field in fields(recipe)
            if field.type == "Range"
        } | {
            f"bar {bar}": _setting((0.0, 0.9), f"bar {bar}", instrument, (pitch, index))
            for bar in getattr(recipe, "drawbars", ())
        }
        onset = round(draw.onset * self.recorder.onset_seconds * self.sample_rate)
        limit = int(self.recorder.max_seconds * self.sample_rate) - onset
        seconds = draw.held_seconds + DECAYED * settings["release"]
        playing = _Playing(
            hertz=440.0 * 2.0 ** ((pitch - 69) / 12),
            hardness=draw.velocity / 127,
            held_seconds=draw.held_seconds,
            n_samples=min(limit, int(seconds * self.sample_rate)),
            sample_rate=self.sample_rate,
            settings=settings,
            random=np.random.default_rng(int(2**53 * unit_interval("noise", instrument, pitch, index))),
        )
        sound = MAKERS[type(recipe)](recipe, playing) * _attack_and_release(playing)
        sound *= LEVEL * playing.hardness**VELOCITY_CURVE / _loudest(sound, self.sample_rate)
        audio = np.concatenate([np.zeros(onset), sound]).astype(np.float32)
        length = sounding_samples(audio, self.sample_rate)
        if cut := length == onset + limit:
            audio = fade_out(audio, int(FADE_SECONDS * self.sample_rate))
        return Note(
            audio=audio[:length],
            sample_rate=self.sample_rate,
            instrument=instrument,
            family=recipe.family,
            pitch=pitch,
            velocity=draw.velocity,
            held_seconds=draw.held_seconds + onset / self.sample_rate,
            source=self.name,
            cut=cut,
        )


def _setting(range: Range, name: str, member: str, note: tuple[int, int]) -> float:
    """A member's place in a range, and a note's beside it."""
    at = unit_interval("setting", name, member) + JITTER * (
        unit_interval("jitter", name, member, *note) - 0.5
    )
    return range[0] + (range[1] - range[0]) * min(max(at, 0.0), 1.0)


def _loudest(sound: Array, sample_rate: int) -> float:
    """Returns the RMS of the loudest tenth of a second."""
    energy = np.concatenate([[0.0], np.cumsum(np.square(sound))])
    length = min(len(sound), sample_rate // 10)
    return float(np.sqrt((energy[length:] - energy[:-length]).max() / length)) + 1e-9


def _attack_and_release(playing: _Playing) -> Array:
    """Returns the gain [samples] that opens with the key and closes once it is let go."""
    time, settings = playing.time, playing.settings
    rise = 0.5 - 0.5 * np.cos(np.pi * np.minimum(time / settings["attack"], 1.0))
    fall: Array = np.exp(-np.maximum(time - playing.held_seconds, 0.0) / settings["release"])
    return rise * fall


def _resonance(hertz: Array, peaks: Sequence[tuple[float, float, float]]) -> Array:
    """Returns the gain at each of these frequencies of resonances (hertz, octaves, dB)."""
    octaves = [(level, np.log2(hertz / centre) / width) for centre, width, level in peaks]
    decibels = sum((level * np.exp(-0.5 * away**2) for level, away in octaves), np.zeros_like(hertz))
    return np.asarray(10.0 ** (decibels / 20.0))


def _modes(recipe: Modes, playing: _Playing) -> Array:
    settings, ring = playing.settings, playing.settings["ring"] * (261.6 / playing.hertz) ** 0.5
    number = np.arange(1.0, 1.0 + HIGHEST * playing.sample_rate / playing.hertz)
    stiff = np.sqrt((1.0 + settings["stiffness"] * number**2) / (1.0 + settings["stiffness"]))
    ratio = np.array(recipe.ratios) if recipe.ratios else number * stiff
    ratio = ratio[ratio * playing.hertz < HIGHEST * playing.sample_rate]
    level = np.maximum(ratio, 1.0 / ratio) ** -playing.slope()
    level = level * _resonance(ratio * playing.hertz, recipe.body)
    if settings["position"]:
        level = level * np.abs(np.sin(np.pi * number[: len(ratio)] * settings["position"]))
    level = level * (1.0 + UNEVEN * playing.random.standard_normal(len(ratio)).clip(-2.0, 2.0))
    level = level * np.exp(2j * np.pi * playing.random.random(len(ratio)))  # in phase: struck as one
    strings = (-0.5, 0.5) if settings["detune"] else (0.0,)
    sound = np.zeros(playing.n_samples)
    for string in strings:
        turns = ratio * playing.hertz * 2.0 ** (string * settings["detune"] / 1200.0)
        decay = np.maximum(ratio, 1.0) ** settings["damping"] / ring
        rate = (2j * np.pi * turns - decay) / playing.sample_rate
        # Every 64 samples anew times the 64 that follow: a product of two small matrices.
        starts = np.exp(np.outer(np.arange(0, playing.n_samples, BLOCK), rate)) * level
        sound += (starts @ np.exp(np.outer(rate, np.arange(BLOCK)))).imag.ravel()[: playing.n_samples]
    sound *= 1.0 - settings["tremolo"] * (0.5 - 0.5 * np.cos(2 * np.pi * 5.0 * playing.time))
    knock = _noise(playing, 2.0, 8.0) * np.exp(-playing.time / 0.012)
    return np.asarray(sound + settings["knock"] * playing.hardness * np.abs(sound).max() * knock)


def _waves(recipe: Waves, playing: _Playing) -> Array:
    settings, time = playing.settings, playing.time
    # Voices either side begin at opposite phases: together they are exactly in tune.
    turns = playing.random.random(recipe.voices)
    turns = turns - turns[::-1]
    place = np.linspace(-1.0, 1.0, recipe.voices) if recipe.voices > 1 else np.zeros(1)
    depth = settings["vibrato"] * np.minimum(time / 0.4, 1.0) * (np.log(2) / 1200)
    wander = np.cumsum(1.0 + depth * np.sin(2 * np.pi * 5.3 * time)) / playing.sample_rate
    bright, settled = (_wave(recipe, playing, more) for more in (0.0, settings["sweep"]))
    fading = np.exp(-time / settings["settling"])
    sound = np.zeros(playing.n_samples)
    for cents, turn, weight in zip(settings["detune"] * place, turns, 1.0 - 0.5 * np.abs(place), strict=True):
        cycle = (playing.hertz * 2.0 ** (cents / 1200.0) * wander + turn) % 1.0 * TABLE
        sound += weight * (_read(settled, cycle) + fading * _read(bright - settled, cycle))
    sound *= settings["sustain"] + (1.0 - settings["sustain"]) * fading
    breath = _noise(playing, 1.0, 6.0) * settings["noise"] * np.abs(sound).max()
    return sound + breath


def _wave(recipe: Waves, playing: _Playing, steeper: float) -> Array:
    """Returns one period [TABLE + 1] of the harmonics that the sample rate holds."""
    settings = playing.settings
    number = np.arange(1.0, 1.0 + max(1, int(0.98 * HIGHEST * playing.sample_rate / playing.hertz)))
    level = number ** -(playing.slope() + steeper) * np.where(number % 2 == 0, settings["even"], 1.0)
    if recipe.drawbars:
        pulled = {bar: settings[f"bar {bar}"] for bar in recipe.drawbars} | {1: 1.0}
        bars = np.array([pulled.get(int(n), 0.0) for n in number])
        level = bars * number ** -(playing.slope() - settings["slope"])
    if settings["width"]:
        level = level * np.abs(np.sin(np.pi * number * settings["width"]))
    spectrum = np.zeros(TABLE // 2 + 1, np.complex128)
    spectrum[1 : 1 + len(number)] = (
        -0.5j * TABLE * level * _resonance(number * playing.hertz, recipe.formants)
    )
    return np.pad(np.fft.irfft(spectrum), (0, 1), mode="wrap")


def _read(table: Array, at: Array) -> Array:
    whole = at.astype(np.intp)
    return np.asarray(table[whole] + (at - whole) * (table[whole + 1] - table[whole]))


def _fm(recipe: Fm, playing: _Playing) -> Array:
    settings, rate = playing.settings, OVERSAMPLING * playing.sample_rate
    time = np.arange(OVERSAMPLING * playing.n_samples) / rate
    fading = settings["settled"] + (1.0 - settings["settled"]) * np.exp(-time / settings["settling"])
    sound = np.zeros(len(time))
    for place, (carrier, modulator) in enumerate(zip(recipe.carriers, recipe.modulators, strict=True)):
        room = (0.85 * rate - carrier * playing.hertz) / (modulator * playing.hertz) - SIDEBANDS
        index = min(settings["index"] * (0.15 + 0.85 * playing.hardness), max(room, 0.0))
        turn = 2 * np.pi * playing.hertz * time
        wave = np.sin(carrier * turn + index * fading * np.sin(modulator * turn))
        sound += wave * (settings["second"] if place else 1.0)
    sound *= np.exp(-time / (settings["ring"] * (261.6 / playing.hertz) ** 0.5))
    return np.asarray(soxr.resample(sound, rate, playing.sample_rate)[: playing.n_samples], np.float64)


def _noise(playing: _Playing, low: float, high: float) -> Array:
    """Returns noise [samples] between these multiples of the pitch, of about unit level."""
    edges = np.clip(np.array([low, high]) * playing.hertz, 20.0, HIGHEST * playing.sample_rate)
    edges[0] = min(edges[0], 0.5 * edges[1])
    white = playing.random.standard_normal(playing.n_samples)
    noise = sosfilt(butter(2, edges, "bandpass", fs=playing.sample_rate, output="sos"), white)
    return np.asarray(noise / max(float(noise.std()), 1e-9))


MAKERS: Mapping[type, Callable[[Any, _Playing], Array]] = {Modes: _modes, Waves: _waves, Fm: _fm}
