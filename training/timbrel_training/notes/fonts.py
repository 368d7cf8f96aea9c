"""Several soundfonts as one source: a program of one name is one instrument, where it sounds alike."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from timbrel_training.notes.agreement import Soundings, distance, nearest, reference_soundings
from timbrel_training.notes.config import NotesConfig
from timbrel_training.notes.programs import PROGRAM_NAMES
from timbrel_training.notes.soundfont import SoundfontSource

MIN_HELD_OUT_DISTANCE = 4.0
"""An instrument held out whole should lie at least this many dB from every trained one, to be a test."""


@dataclass(frozen=True)
class FontPlan:
    """Which draws of each program every font plays."""

    draws: tuple[dict[int, range], ...]  # per font: program -> numbers of its draws
    report: tuple[str, ...]  # lines for people: what was left out, and how far held-out instruments lie


def plan_fonts(fonts: Sequence[SoundfontSource], config: NotesConfig) -> FontPlan:
    """Shares the draws of each cell among the fonts whose program sounds like the first font's."""
    soundings = [reference_soundings(font.font, font.programs) for font in fonts]
    draws: tuple[dict[int, range], ...] = tuple({} for _ in fonts)
    report = []
    for program in config.programs:
        players = [number for number, heard in enumerate(soundings) if program in heard]
        for number in players[1:]:
            apart = distance(soundings[players[0]][program], soundings[number][program])
            if apart > config.max_font_distance:
                players.remove(number)
                other, first = fonts[number].font.name, fonts[players[0]].font.name
                report.append(
                    f"{PROGRAM_NAMES[program]} of {other} left out: {apart:.1f} dB from that of {first}"
                )
        for place, number in enumerate(players):
            draws[number][program] = range(place, config.n_draws, len(players))
    report.extend(_held_out_lines(soundings, draws, config))
    return FontPlan(draws, tuple(report))


def _held_out_lines(
    soundings: Sequence[dict[int, Soundings]], draws: Sequence[dict[int, range]], config: NotesConfig
) -> Iterable[str]:
    held_out = [p for p in config.programs if PROGRAM_NAMES[p] in config.held_out_instruments]
    for program in held_out:
        found = [
            nearest(heard[program], {p: heard_by[p] for p in played if p not in held_out and p != program})
            for heard, own in zip(soundings, draws, strict=True)
            if program in own
            for heard_by, played in zip(soundings, draws, strict=True)
        ]
        closest = min(found, key=lambda neighbour: neighbour.distance)
        line = (
            f"held out whole: {PROGRAM_NAMES[program]}, {closest.distance:.1f} dB from "
            f"{PROGRAM_NAMES[closest.program]}"
        )
        yield line if closest.distance >= MIN_HELD_OUT_DISTANCE else f"{line}: too close to be a test"
