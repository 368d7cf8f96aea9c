"""Instrument files, which tell a sampler what each sample is for: .sfz, .dspreset and, by Polyphone, .sf2.

Sforzando, sfizz, ARIA, LinuxSampler and others play .sfz, text with one opcode a line; Decent Sampler plays
.dspreset, XML.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

LONE_REACH = 6
"""Semitones that the only pitch of an instrument is stretched either way."""

POLYPHONE = "polyphone"
POLYPHONE_SECONDS = 120.0
"""Time for one instrument, which takes seconds: a failing one may wait for ever behind an unseen dialog."""

NO_POLYPHONE = "--sf2: polyphone is not installed, so no .sf2 was written (Debian: apt-get install polyphone)"


@dataclass(frozen=True)
class Region:
    """One sample, and the keys and velocities that play it."""

    file: str
    """Path within the library, with forward slashes."""

    pitch: int
    """MIDI note number that it is recorded at."""

    keys: tuple[int, int] = (0, 127)
    """Lowest and highest key that it is for."""

    velocities: tuple[int, int] = (1, 127)
    round_robin: int = 1
    """Number of the take, from 1."""

    tune: int = 0
    """Cents to add when it is played, -99..99, so that it sounds at that pitch."""

    loop: tuple[int, int] | None = None
    """First and last sample of the loop, both played."""

    @property
    def loop_mode(self) -> str:
        return "no_loop" if self.loop is None else "loop_continuous"


@dataclass(frozen=True)
class SamplerInstrument:
    """An instrument as an instrument file describes it."""

    name: str
    slug: str
    comment: str
    """One line."""

    regions: Sequence[Region]
    round_robins: int
    velocity_tracking: int
    """How much softer keys play softer, in percent."""

    release_seconds: float
    """Fade after a key is let go."""


def velocity_tracking(n_layers: int) -> int:
    """Gives 0 where softness was rendered, which is not to be applied twice; 100 where there is one layer."""
    return 0 if n_layers > 1 else 100


def key_zones(pitches: Sequence[int]) -> dict[int, tuple[int, int]]:
    """Gives each pitch a lowest and a highest key, without gaps; the outermost reach as far out as in.

    Args:
        pitches: MIDI note numbers, rising.
    """
    zones = {}
    for index, pitch in enumerate(pitches):
        gap_below = pitch - pitches[index - 1] if index else None
        gap_above = pitches[index + 1] - pitch if index + 1 < len(pitches) else None
        below = _reach_below(gap_below if gap_below is not None else gap_above)
        above = _reach_above(gap_above if gap_above is not None else gap_below)
        zones[pitch] = (max(0, pitch - below), min(127, pitch + above))
    return zones


def velocity_zones(velocities: Sequence[int]) -> dict[int, tuple[int, int]]:
    """Gives each velocity the range of its layer: 1..127 in all, cut halfway between neighbours.

    Args:
        velocities: MIDI velocities, rising.
    """
    cuts = [(one + other) // 2 for one, other in pairwise(velocities)]
    lows, highs = [1, *(cut + 1 for cut in cuts)], [*cuts, 127]
    return dict(zip(velocities, zip(lows, highs, strict=True), strict=True))


def _reach_above(gap: int | None) -> int:
    """Counts the keys above a pitch: of two neighbours, the lower one gets the key in the middle."""
    return LONE_REACH if gap is None else gap // 2


def _reach_below(gap: int | None) -> int:
    return LONE_REACH if gap is None else (gap - 1) // 2


def sfz_text(instrument: SamplerInstrument) -> str:
    """Writes a whole .sfz file. Every region states its loop mode, its tuning and its zones."""
    return "\n".join(_sfz_lines(instrument)) + "\n"


def _sfz_lines(instrument: SamplerInstrument) -> Iterator[str]:
    yield f"// {instrument.name}"
    yield f"// {instrument.comment}"
    yield ""
    yield "<global>"
    yield f"amp_veltrack={instrument.velocity_tracking}"
    yield f"ampeg_release={instrument.release_seconds:.3f}"
    if instrument.round_robins > 1:
        yield f"seq_length={instrument.round_robins}"
    for region in instrument.regions:
        yield ""
        yield "<region>"
        yield from _region_lines(region, instrument.round_robins)


def _region_lines(region: Region, round_robins: int) -> Iterator[str]:
    yield f"sample={region.file}"
    yield f"pitch_keycenter={region.pitch}"
    yield f"lokey={region.keys[0]}"
    yield f"hikey={region.keys[1]}"
    yield f"lovel={region.velocities[0]}"
    yield f"hivel={region.velocities[1]}"
    yield f"tune={region.tune}"
    if round_robins > 1:
        yield f"seq_position={region.round_robin}"
    yield f"loop_mode={region.loop_mode}"
    if region.loop is not None:
        yield f"loop_start={region.loop[0]}"
        yield f"loop_end={region.loop[1]}"


def dspreset_text(instrument: SamplerInstrument) -> str:
    """Writes a whole .dspreset file: one group, whose samples all state their zones, tuning and loop."""
    root = ElementTree.Element("DecentSampler", minVersion="1.0.0")
    root.append(ElementTree.Comment(f" {instrument.name}. {instrument.comment} ".replace("--", "-")))
    group = ElementTree.SubElement(
        ElementTree.SubElement(root, "groups"),
        "group",
        ampVelTrack=f"{instrument.velocity_tracking / 100:g}",
        attack="0",
        decay="0",
        sustain="1",
        release=f"{instrument.release_seconds:.3f}",
    )
    if instrument.round_robins > 1:
        group.set("seqMode", "round_robin")
        group.set("seqLength", str(instrument.round_robins))
    for region in instrument.regions:
        ElementTree.SubElement(group, "sample", _sample_attributes(region, instrument.round_robins))
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _sample_attributes(region: Region, round_robins: int) -> dict[str, str]:
    attributes = {
        "path": region.file,
        "rootNote": str(region.pitch),
        "loNote": str(region.keys[0]),
        "hiNote": str(region.keys[1]),
        "loVel": str(region.velocities[0]),
        "hiVel": str(region.velocities[1]),
        "tuning": f"{region.tune / 100:.2f}",
        "loopEnabled": "false" if region.loop is None else "true",
    }
    if round_robins > 1:
        attributes["seqPosition"] = str(region.round_robin)
    if region.loop is not None:
        attributes["loopStart"], attributes["loopEnd"] = str(region.loop[0]), str(region.loop[1])
    return attributes


def write_sf2(folder: Path, slugs: Sequence[str]) -> list[str]:
    """Converts each SLUG.sfz to SLUG.sf2 beside it; returns what went wrong, a line each."""
    program = shutil.which(POLYPHONE)
    if program is None:
        return [NO_POLYPHONE]
    return [fault for slug in slugs if (fault := _convert_to_sf2(program, folder, slug))]


def _convert_to_sf2(program: str, folder: Path, slug: str) -> str | None:
    command = [program, "-1", "-i", str(folder / f"{slug}.sfz"), "-d", str(folder), "-o", slug]
    environment = {**os.environ, "QT_QPA_PLATFORM": "offscreen"}
    (folder / f"{slug}.sf2").unlink(missing_ok=True)  # it may be a link, which polyphone would follow
    try:
        done = subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=POLYPHONE_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"--sf2: polyphone did not finish {slug}.sf2 within {POLYPHONE_SECONDS:g} s"
    if done.returncode == 0 and (folder / f"{slug}.sf2").is_file():
        return None
    reason = " ".join((done.stderr or done.stdout).split())[:200] or f"status {done.returncode}"
    return f"--sf2: polyphone failed on {slug}.sfz ({reason})"
