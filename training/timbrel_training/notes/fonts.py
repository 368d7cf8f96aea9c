"""Several soundfonts as one source: a program of one name is one instrument, where it sounds alike."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from timbrel_training.notes.cleaning import SILENCE_PEAK
from timbrel_training.notes.config import NotesConfig
from timbrel_training.notes.general_midi import PROGRAM_NAMES, family_of
from timbrel_training.notes.soundfont import BLOCK, FluidRenderer, SoundfontSource
from timbrel_training.notes.spectrum import log_mel, log_mel_distance
from timbrel_training.notes.split import VARIANT

SAMPLE_RATE = 24_000
HELD_BLOCKS = 375
RELEASE_BLOCKS = 150
"""A reference sounding is held for 1 s and recorded for 0.4 s more."""
MIN_HELD_OUT_DISTANCE = 4.0
"""An instrument held out whole should lie at least this many dB from every trained one, to be a test."""
PITCHES = (40, 52, 64, 76, 88)
VELOCITIES = (50, 100)

Soundings = list[NDArray[np.float32] | None]
"""Log-mel spectra [frames, bands] of one program's reference soundings; None where it is silent."""


def reference_soundings(font: Path, programs: Iterable[int]) -> dict[int, Soundings]:
    """Plays each program at five octaves and two velocities; programs that the font lacks are left out.
    Raises SourceError: the font cannot be read, or FluidSynth is not installed."""
    with closing(FluidRenderer(font, SAMPLE_RATE)) as renderer:
        return {
            program: _soundings(renderer, program) for program in programs if renderer.has_program(program)
        }


def distance(first: Soundings, second: Soundings) -> float:
    """Returns the median log-mel distance in dB over the soundings that both have, or infinity."""
    distances = [
        log_mel_distance(a, b) for a, b in zip(first, second, strict=True) if a is not None and b is not None
    ]
    return float(np.median(distances)) if distances else float("inf")


def _soundings(renderer: FluidRenderer, program: int) -> Soundings:
    renderer.select(program)
    return [_sounding(renderer, pitch, velocity) for pitch in PITCHES for velocity in VELOCITIES]


def _sounding(renderer: FluidRenderer, pitch: int, velocity: int) -> NDArray[np.float32] | None:
    renderer.note_on(pitch, velocity)
    held = renderer.read(HELD_BLOCKS * BLOCK)
    renderer.note_off()
    audio = np.concatenate([held, renderer.read(RELEASE_BLOCKS * BLOCK)], axis=1).mean(axis=0)
    return log_mel(audio, SAMPLE_RATE) if float(np.abs(audio).max()) >= SILENCE_PEAK else None


@dataclass(frozen=True)
class FontPlan:
    """The draws of each program that every font plays, and the names that some go by."""

    draws: tuple[dict[int, range], ...]  # per font: program -> numbers of its draws
    names: tuple[dict[int, str], ...]  # per font: program -> name, unless it is General MIDI's
    report: tuple[str, ...]  # lines for people: what was left out, and how far held-out instruments lie


def plan_fonts(fonts: Sequence[SoundfontSource], config: NotesConfig) -> FontPlan:
    """Shares the draws of each cell among the fonts whose program sounds like the first font's."""
    soundings = [reference_soundings(font.font, font.programs) for font in fonts]
    draws: tuple[dict[int, range], ...] = tuple({} for _ in fonts)
    names: tuple[dict[int, str], ...] = tuple({} for _ in fonts)
    report = []
    for program in config.programs:
        players = [number for number, heard in enumerate(soundings) if program in heard]
        for number in players[1:]:
            apart = distance(soundings[players[0]][program], soundings[number][program])
            if apart > config.max_font_distance:
                players.remove(number)
                other, first = fonts[number].font, fonts[players[0]].font
                what = "left out"
                if config.distant_fonts:
                    what = "an instrument of its own"
                    names[number][program] = (
                        f"{PROGRAM_NAMES[program]}{VARIANT}{other.stem.replace('_', ' ')}"
                    )
                    draws[number][program] = range(config.n_draws)
                who = f"{PROGRAM_NAMES[program]} of {other.name}"
                report.append(f"{who} {what}: {apart:.1f} dB from that of {first.name}")
        sharing = players if config.share_alike_fonts else players[:1]
        for place, number in enumerate(sharing):
            draws[number][program] = range(place, config.n_draws, len(sharing))
    report.extend(_held_out_lines(soundings, draws, config))
    return FontPlan(draws, names, tuple(report))


def _held_out_lines(
    soundings: Sequence[dict[int, Soundings]], draws: Sequence[dict[int, range]], config: NotesConfig
) -> Iterable[str]:
    held_out = [
        program
        for program in config.programs
        if config.rule.names(PROGRAM_NAMES[program], family_of(program))
    ]
    for program in held_out:
        found = [
            (distance(heard[program], others[other]), other)
            for heard, own in zip(soundings, draws, strict=True)
            if program in own
            for others, played in zip(soundings, draws, strict=True)
            for other in played
            if other not in held_out
        ]
        if not found:
            lacking = not any(program in own for own in draws)
            why = "which no font plays" if lacking else "with nothing to train on beside it"
            yield f"held out whole: {PROGRAM_NAMES[program]}, {why}"
            continue
        apart, closest = min(found, key=lambda pair: pair[0])
        line = f"held out whole: {PROGRAM_NAMES[program]}, {apart:.1f} dB from {PROGRAM_NAMES[closest]}"
        yield line if apart >= MIN_HELD_OUT_DISTANCE else f"{line}: too close to be a test"
