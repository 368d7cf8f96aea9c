"""The config section `notes`."""

from __future__ import annotations

from dataclasses import dataclass

from timbrel_training.errors import ConfigError
from timbrel_training.notes.general_midi import MELODIC_PROGRAMS
from timbrel_training.notes.split import SplitRule


@dataclass(frozen=True)
class SourceConfig:
    """A source of notes, with what its files may not say themselves."""

    source: str = ""
    """As for `--source`: `sfz:FILE` and so on."""
    licence: str = ""
    """Of the recordings; empty where the source says."""
    instrument: str = ""
    """Name of the instrument of an .sfz file, or of all notes of a folder; empty for what these say."""
    family: str = ""
    """Its family."""


@dataclass(frozen=True)
class NotesConfig:
    """The notes of a dataset. Sources of recordings use the sample rate and the held-out fields only."""

    sources: tuple[SourceConfig, ...] = ()
    """Where the notes come from, unless `--source` says so."""
    sample_rate: int = 48_000
    """Hz. The codec is trained at this rate."""
    programs: tuple[int, ...] = MELODIC_PROGRAMS
    """General MIDI programs from 0."""
    low_pitch: int = 33
    """MIDI note number of A1."""
    high_pitch: int = 96
    """MIDI note number of C7: with `low_pitch` the five octaves that most instruments share."""
    n_draws: int = 4
    """Notes per instrument and pitch, each with its own velocity, hold, onset. Several fonts share them."""
    n_members: int = 2
    """Members of each synthetic instrument, each with its own settings."""
    onset_seconds: float = 0.0
    """The key goes down at a random time up to this. A codec of waveforms wants attacks anywhere within its
    frames; in one that knows where a note begins they would only blur."""
    max_font_distance: float = 3.0
    """Two fonts' programs of one name count as one instrument up to this log-mel distance in dB; beyond it,
    only the first font's is used."""
    distant_fonts: bool = False
    """Whether the other's is an instrument of its own, named after its font and held out as the first is."""
    share_alike_fonts: bool = True
    """Whether fonts that sound alike share an instrument's draws; otherwise the first font has them all, and
    an instrument is one voice."""
    max_held_seconds: float = 4.0
    """Longest hold, where keys are played; holds are log-uniform from 0.1 s."""
    max_seconds: float = 6.0
    """Longest recording: a hold of 4 s and 2 s of release."""
    cell_fraction: float = 0.08
    """Share of (instrument, pitch) cells that is held out."""
    instrument_fraction: float = 0.0
    """Share of instruments that is held out whole."""
    held_out_instruments: tuple[str, ...] = ()
    """Instruments held out whole, by name, with their variants, in any case."""
    held_out_families: tuple[str, ...] = ()
    """Families held out with all their instruments, whatever the source."""
    spacings: tuple[int, ...] = ()
    """Semitones between the trained pitches of an instrument, which gets one of these: so many as a sampler
    would have. What lies between is held out. Every pitch is trained where none is named."""
    check_pitch: bool = False
    """Whether notes that do not sound at the pitch asked are dropped."""

    def __post_init__(self) -> None:
        if not 0 <= self.low_pitch <= self.high_pitch <= 127:
            raise ConfigError(
                f"pitches must be 0 <= low <= high <= 127, got {self.low_pitch}, {self.high_pitch}"
            )
        if outside := [program for program in self.programs if not 0 <= program <= 127]:
            raise ConfigError(f"programs must be 0 to 127, got {outside[0]}")
        for name in ("sample_rate", "n_draws", "n_members", "max_held_seconds", "max_seconds"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"{name} must be positive, got {getattr(self, name)}")
        if not 0.0 <= self.onset_seconds <= 0.02:
            raise ConfigError(f"onset_seconds must be 0 to 0.02, got {self.onset_seconds}")
        _ = self.rule  # checks its fractions

    @property
    def pitches(self) -> range:
        """All MIDI note numbers asked for."""
        return range(self.low_pitch, self.high_pitch + 1)

    @property
    def rule(self) -> SplitRule:
        """The rule of what is held out."""
        return SplitRule(
            self.cell_fraction,
            self.instrument_fraction,
            self.held_out_instruments,
            self.held_out_families,
            self.spacings,
        )
