"""SoundFont files (.sf2): an instrument and its chords as presets of one file that brings its samples along.

After "SoundFont Technical Specification 2.04" (E-mu, 2006). A player makes soft keys softer by itself, and
duller: both are switched off here, since softness was rendered. What `dynamics` says takes their place, as
modulators of velocity, in stretches of layers along which decibels are a straight line. Gains are applied to
the samples: players do not agree on what a decibel of `initialAttenuation` is.

The format knows no round robins and no release samples: there is the first take, which fades.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePath

import numpy as np
import numpy.typing as npt

from timbrel.library.finish.instrument_files import Region, SamplerInstrument
from timbrel.library.finish.sample_files import LARGEST_BYTES, TOO_LARGE, riff_chunk
from timbrel.library.plan.voice import plain_letters
from timbrel.library.render.level import Audio
from timbrel_bundle.audio import whole_samples

Load = Callable[[str], tuple[Audio, int]]
"""A sample's path within the library -> [samples], sample rate in Hz"""

GAP = 46
"""Silent samples that follow each sample, and one more behind an odd number of them: players pass the chunk
of the lower 8 bits over where its length is not exactly half of the other's."""

NAME_LETTERS = 19
"""Names are that long at most."""

MOST_RECORDS = 2**16 - 1
"""Zones, generators and modulators are numbered by 16 bits."""

RELEASE_DB = 100.0
"""A release goes down by this in the time that it is given; ours is that of 60 dB."""

# Generators: what a zone says of its sample.
RELEASE, INSTRUMENT, KEYS, VELOCITIES, SAMPLE, MODES, ROOT_KEY = 38, 41, 43, 44, 53, 54, 58
COARSE_TUNE, FINE_TUNE = 51, 52

# Modulators: sources (the velocity, by which curve, rising or falling) and what they act on.
RISING, FALLING, FALLING_CONCAVE, RISING_SWITCH = 0x0002, 0x0102, 0x0502, 0x0D02
FILTER_CUTOFF, ATTENUATION = 8, 48

Modulator = tuple[int, int, int, int, int]
"""Source, what it acts on, amount, second source, transform"""

DEFAULTS_OFF: tuple[Modulator, ...] = (
    (FALLING_CONCAVE, ATTENUATION, 0, 0, 0),
    (FALLING, FILTER_CUTOFF, 0, 0, 0),
    (FALLING, FILTER_CUTOFF, 0, RISING_SWITCH, 0),
)
"""The modulators of velocity that a player has by default, with no amount; the last is as 2.01 states it."""


def sf2_bytes(instruments: Sequence[SamplerInstrument], comment: str, load: Load) -> bytes:
    """Writes a whole .sf2 file, a preset for each instrument, the later ones playing samples of the first.

    The comment is one line; `load` gives the sound of a region's file. Raises ValueError: there is more in it
    than such a file can hold.
    """
    instruments = [replace(each, name=plain_letters(each.name)) for each in instruments]  # ASCII alone
    regions = {region.file: region for region in instruments[0].regions if region.round_robin == 1}
    sound, headers = _sample_chunks(regions.values(), load)
    information = (
        riff_chunk(b"ifil", struct.pack("<HH", 2, 4))
        + riff_chunk(b"isng", _text("EMU8000"))
        + riff_chunk(b"INAM", _text(instruments[0].name))
        + riff_chunk(b"ICMT", _text(comment))
    )
    body = (
        riff_chunk(b"LIST", b"INFO" + information)
        + riff_chunk(b"LIST", b"sdta" + sound)
        + riff_chunk(b"LIST", b"pdta" + _table_chunks(instruments, regions) + headers)
    )
    if len(body) + 4 > LARGEST_BYTES:
        raise ValueError(TOO_LARGE)
    return struct.pack("<4sI4s", b"RIFF", len(body) + 4, b"sfbk") + body


def _sample_chunks(regions: Iterable[Region], load: Load) -> tuple[bytes, bytes]:
    """Packs the sound of these samples, one behind the other, each at the level that it has at the top of its
    layer; and what is known of each."""
    audio: list[npt.NDArray[np.int32]] = []
    headers: list[bytes] = []
    start = 0
    for region in regions:
        sound, sample_rate = load(region.file)
        gap = GAP + len(sound) % 2
        audio.append(whole_samples(sound.astype(np.float64) * 10.0 ** (region.volume / 20.0)))
        audio.append(np.zeros(gap, np.int32))
        end = start + len(sound)
        first, last = region.loop or (0, len(sound) - 1)
        place = struct.pack("<5I", start, end, start + first, start + last + 1, sample_rate)
        name = _name(PurePath(region.file).stem[-NAME_LETTERS:])
        headers.append(name + place + struct.pack("<BbHH", region.pitch, region.tune, 0, 1))
        start = end + gap
    # Of 24 bits: 16 in one chunk, and the 8 below in another, which old players pass over.
    whole = np.concatenate(audio)
    upper = riff_chunk(b"smpl", (whole >> 8).astype("<i2").tobytes())
    lower = riff_chunk(b"sm24", (whole & 0xFF).astype(np.uint8).tobytes())
    return upper + lower, riff_chunk(b"shdr", b"".join(headers) + _name("EOS") + bytes(26))


@dataclass
class _Zones:
    """Zones with their generators and modulators: of presets, or of instruments."""

    bags: list[bytes] = field(default_factory=list)
    generators: list[bytes] = field(default_factory=list)
    modulators: list[bytes] = field(default_factory=list)

    def add(self, generators: Sequence[tuple[int, int]], modulators: Sequence[Modulator] = ()) -> None:
        self.bags.append(struct.pack("<HH", len(self.generators), len(self.modulators)))
        self.generators += [struct.pack("<HH", *each) for each in generators]
        self.modulators += [struct.pack("<HHhHH", *each) for each in modulators]
        if max(len(self.bags), len(self.generators), len(self.modulators)) >= MOST_RECORDS:
            raise ValueError(f"it needs more than {MOST_RECORDS} zones and settings; ask for fewer chords")

    def chunks(self, initial: bytes) -> bytes:
        ending = struct.pack("<HH", len(self.generators), len(self.modulators))
        return (
            riff_chunk(initial + b"bag", b"".join(self.bags) + ending)
            + riff_chunk(initial + b"mod", b"".join(self.modulators) + bytes(10))
            + riff_chunk(initial + b"gen", b"".join(self.generators) + bytes(4))
        )


def _table_chunks(instruments: Sequence[SamplerInstrument], samples: dict[str, Region]) -> bytes:
    """Packs the instruments, which play these samples, and a preset for each."""
    presets, own = b"", b""
    preset_zones, zones = _Zones(), _Zones()
    numbers = {file: index for index, file in enumerate(samples)}
    for number, (name, instrument) in enumerate(zip(_preset_names(instruments), instruments, strict=True)):
        place = struct.pack("<HHH", number % 128, number // 128, len(preset_zones.bags))
        presets += _name(name) + place + bytes(12)
        preset_zones.add([(INSTRUMENT, number)])
        own += _name(name) + struct.pack("<H", len(zones.bags))
        seconds = instrument.release_seconds * RELEASE_DB / 60.0
        zones.add([(RELEASE, round(1200.0 * math.log2(seconds)) & 0xFFFF)], DEFAULTS_OFF)
        for region in instrument.regions:
            if region.file not in samples:
                continue
            tuning = list(_tuning(region, samples[region.file]))
            softer = samples[region.file].volume - region.volume
            for velocities, at_low, at_high in instrument.dynamics.segments[region.velocities]:
                generators = [
                    (KEYS, region.keys[0] | region.keys[1] << 8),
                    (VELOCITIES, velocities[0] | velocities[1] << 8),
                    (MODES, 0 if region.loop is None else 1),
                    *tuning,
                    (SAMPLE, numbers[region.file]),
                ]
                zones.add(generators, list(_attenuations(velocities, softer - at_low, softer - at_high)))
    presets += _name("EOP") + struct.pack("<HHH", 0, 0, len(preset_zones.bags)) + bytes(12)
    own += _name("EOI") + struct.pack("<H", len(zones.bags))
    return (
        riff_chunk(b"phdr", presets)
        + preset_zones.chunks(b"p")
        + riff_chunk(b"inst", own)
        + zones.chunks(b"i")
    )


def _preset_names(instruments: Sequence[SamplerInstrument]) -> list[str]:
    """Gives each instrument a name that fits and that no other has. The first one's name is cut short, not
    what its chords add to it."""
    first = instruments[0].name
    names: list[str] = []
    for instrument in instruments:
        chord = ending = instrument.name.removeprefix(first)
        while (name := _fitting(first, ending)) in names:
            ending = f"{chord[:14]}~{len(names) + 1}"
        names.append(name)
    return names


def _fitting(name: str, ending: str) -> str:
    return (name[: max(1, NAME_LETTERS - len(ending))].rstrip() + ending)[:NAME_LETTERS]


def _tuning(region: Region, sample: Region) -> Iterator[tuple[int, int]]:
    """Gives what a zone says of its pitch, beyond what the sample's header does."""
    off = region.tune - sample.tune
    semitones = region.transpose + round(off / 100.0)
    root = min(max(region.pitch - semitones, 0), 127)
    yield ROOT_KEY, root
    for generator, amount in (
        (COARSE_TUNE, root - region.pitch + semitones),
        (FINE_TUNE, off - 100 * round(off / 100.0)),
    ):
        if amount:
            yield generator, amount & 0xFFFF


def _attenuations(velocities: tuple[int, int], at_low: float, at_high: float) -> Iterator[Modulator]:
    """Gives the modulators that attenuate by so many dB at two velocities, and in between along a line.

    One goes from 0 to its amount as velocity goes from 0 to 128, the other back: together, any line.
    """
    low, high = velocities
    slope = (at_high - at_low) / max(1, high - low)
    at_0, at_128 = at_low - slope * low, at_low + slope * (128 - low)
    yield FALLING, ATTENUATION, round(10.0 * at_0), 0, 0
    yield RISING, ATTENUATION, round(10.0 * at_128), 0, 0


def _text(text: str) -> bytes:
    """Encodes a text of any length, ended by one zero or two, of which there is an even number of bytes."""
    content = text.encode("ascii", "replace")[:254]
    return content + bytes(2 - len(content) % 2)


def _name(name: str) -> bytes:
    """Encodes a name in 20 bytes, the last of them zero."""
    return name.encode("ascii", "replace")[:NAME_LETTERS].ljust(NAME_LETTERS + 1, b"\0")
