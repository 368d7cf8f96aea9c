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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath

import numpy as np
import numpy.typing as npt

from timbrel.library.finish.instrument_files import Region, SamplerInstrument
from timbrel.library.finish.sample_files import LARGEST_BYTES, TOO_LARGE, riff_chunk
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
    regions = {region.file: region for region in instruments[0].regions if region.round_robin == 1}
    samples = _Samples()
    for region in regions.values():
        samples.add(region, *load(region.file))
    tables = _Tables()
    for number, (name, instrument) in enumerate(zip(_preset_names(instruments), instruments, strict=True)):
        tables.add(number, name, instrument, regions)
    information = (
        riff_chunk(b"ifil", struct.pack("<HH", 2, 4))
        + riff_chunk(b"isng", _text("EMU8000"))
        + riff_chunk(b"INAM", _text(instruments[0].name))
        + riff_chunk(b"ICMT", _text(comment))
    )
    body = (
        riff_chunk(b"LIST", b"INFO" + information)
        + riff_chunk(b"LIST", b"sdta" + samples.chunks())
        + riff_chunk(b"LIST", b"pdta" + tables.chunks() + samples.headers())
    )
    if len(body) + 4 > LARGEST_BYTES:
        raise ValueError(TOO_LARGE)
    return struct.pack("<4sI4s", b"RIFF", len(body) + 4, b"sfbk") + body


class _Samples:
    """The sound of a file, one sample behind the other, and what is known of each."""

    def __init__(self) -> None:
        self._audio: list[npt.NDArray[np.int32]] = []
        self._headers: list[bytes] = []
        self._length = 0

    def add(self, region: Region, audio: Audio, sample_rate: int) -> None:
        """Appends a sample, at the level that it has at the top of its layer."""
        self._audio.append(whole_samples(audio.astype(np.float64) * 10.0 ** (region.volume / 20.0)))
        gap = GAP + len(audio) % 2
        self._audio.append(np.zeros(gap, np.int32))
        start, end = self._length, self._length + len(audio)
        self._length = end + gap
        first, last = region.loop or (0, len(audio) - 1)
        place = struct.pack("<5I", start, end, start + first, start + last + 1, sample_rate)
        name = _name(PurePath(region.file).stem[-NAME_LETTERS:])
        self._headers.append(name + place + struct.pack("<BbHH", region.pitch, region.tune, 0, 1))

    def chunks(self) -> bytes:
        # Of 24 bits: 16 in one chunk, and the 8 below in another, which old players pass over.
        audio = np.concatenate(self._audio)
        return riff_chunk(b"smpl", (audio >> 8).astype("<i2").tobytes()) + riff_chunk(
            b"sm24", (audio & 0xFF).astype(np.uint8).tobytes()
        )

    def headers(self) -> bytes:
        return riff_chunk(b"shdr", b"".join(self._headers) + _name("EOS") + bytes(26))


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


class _Tables:
    """Presets and instruments, one for one."""

    def __init__(self) -> None:
        self._presets: list[bytes] = []
        self._instruments: list[bytes] = []
        self._preset_zones = _Zones()
        self._zones = _Zones()

    def add(self, number: int, name: str, instrument: SamplerInstrument, samples: dict[str, Region]) -> None:
        """Adds an instrument, and a preset of this number for it, both of this name, that play these
        samples."""
        place = struct.pack("<HHH", number % 128, number // 128, len(self._preset_zones.bags))
        self._presets.append(_name(name) + place + bytes(12))
        self._preset_zones.add([(INSTRUMENT, number)])
        self._instruments.append(_name(name) + struct.pack("<H", len(self._zones.bags)))
        seconds = instrument.release_seconds * RELEASE_DB / 60.0
        self._zones.add([(RELEASE, round(1200.0 * math.log2(seconds)) & 0xFFFF)], DEFAULTS_OFF)
        numbers = {file: index for index, file in enumerate(samples)}
        for region in instrument.regions:
            if region.file in samples:
                tuning = list(_tuning(region, samples[region.file]))
                for velocities, at_low, at_high in instrument.dynamics.segments[region.velocities]:
                    softer = samples[region.file].volume - region.volume
                    self._zones.add(
                        [
                            (KEYS, region.keys[0] | region.keys[1] << 8),
                            (VELOCITIES, velocities[0] | velocities[1] << 8),
                            (MODES, 0 if region.loop is None else 1),
                            *tuning,
                            (SAMPLE, numbers[region.file]),
                        ],
                        list(_attenuations(velocities, softer - at_low, softer - at_high)),
                    )

    def chunks(self) -> bytes:
        end_of_presets = _name("EOP") + struct.pack("<HHH", 0, 0, len(self._preset_zones.bags)) + bytes(12)
        end_of_instruments = _name("EOI") + struct.pack("<H", len(self._zones.bags))
        return (
            riff_chunk(b"phdr", b"".join(self._presets) + end_of_presets)
            + self._preset_zones.chunks(b"p")
            + riff_chunk(b"inst", b"".join(self._instruments) + end_of_instruments)
            + self._zones.chunks(b"i")
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
