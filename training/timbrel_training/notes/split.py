"""Decides what is held out of training by a hash of names alone, so that it never changes as data grows.

Cells are (instrument, pitch): all velocities, holds and sources of a cell fall together. The instrument's
name counts and its source does not, so two fonts that derive from each other never straddle the border.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from timbrel_training.errors import ConfigError
from timbrel_training.notes.note import fold_name, unit_interval

VARIANT = " of "
"""What follows this in an instrument's name tells variants of it apart, which always fall together."""


def _variants(name: str) -> str:
    """Returns what the names of an instrument's variants have in common."""
    return fold_name(name.partition(VARIANT)[0])


class Split(IntEnum):
    """The part that a note belongs to."""

    TRAIN = 0
    HELD_OUT_CELL = 1  # a pitch of an instrument that is trained at its other pitches
    HELD_OUT_INSTRUMENT = 2  # an instrument never trained on


@dataclass(frozen=True)
class SplitRule:
    """The shares and names that are held out."""

    cell_fraction: float = 0.08
    """About five of an instrument's 61 pitches: enough to measure, few enough not to be missed."""
    instrument_fraction: float = 0.0
    """Share of instruments held out by hash. A small set of instruments has none to spare."""
    instruments: tuple[str, ...] = ()
    """Instruments held out by name, on top of `instrument_fraction`."""
    families: tuple[str, ...] = ()
    """Families held out by name, with all their instruments."""
    spacings: tuple[int, ...] = ()
    """Semitones from one trained pitch to the next, as in sampled instruments: each instrument gets one of
    these, by its name. All other pitches are held out. Without any, every pitch is trained."""
    salt: str = "timbrel"
    """Another salt gives another split."""

    def __post_init__(self) -> None:
        for name in ("cell_fraction", "instrument_fraction"):
            value = getattr(self, name)
            if not 0.0 <= value < 1.0:
                raise ConfigError(f"{name} must be at least 0 and below 1, got {value}")
        if wrong := [spacing for spacing in self.spacings if spacing < 1]:
            raise ConfigError(f"spacings must be at least 1 semitone, got {wrong[0]}")

    def split_of(self, instrument: str, pitch: int, family: str = "") -> Split:
        """Returns the part that every note of this cell belongs to."""
        if self.names(instrument, family):
            return Split.HELD_OUT_INSTRUMENT
        instrument = instrument.partition(VARIANT)[0]
        if unit_interval(self.salt, "instrument", instrument) < self.instrument_fraction:
            return Split.HELD_OUT_INSTRUMENT
        if unit_interval(self.salt, "cell", instrument, pitch) < self.cell_fraction:
            return Split.HELD_OUT_CELL
        return Split.HELD_OUT_CELL if pitch % self.spacing(instrument) else Split.TRAIN

    def names(self, instrument: str, family: str) -> bool:
        """Whether an instrument is held out by its name or by that of its family."""
        by_name = _variants(instrument) in map(_variants, self.instruments)
        return by_name or fold_name(family) in map(fold_name, self.families)

    def unmatched(self, instruments: Iterable[tuple[str, str]]) -> list[str]:
        """Returns the held-out names that none of these instruments, each with its family, has."""
        instruments = list(instruments)
        names = {_variants(name) for name, _ in instruments}
        families = {fold_name(family) for _, family in instruments}
        lacking = [name for name in self.instruments if _variants(name) not in names]
        return lacking + [name for name in self.families if fold_name(name) not in families]

    def spacing(self, instrument: str) -> int:
        """Returns the semitones from one trained pitch of an instrument to the next; variants share it."""
        if not self.spacings:
            return 1
        name = instrument.partition(VARIANT)[0]
        return self.spacings[int(unit_interval(self.salt, "spacing", name) * len(self.spacings))]

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> SplitRule:
        """Returns the rule of these fields, as JSON has them; what an older one does not say is as by
        default. Raises TypeError, ValueError: it is none."""
        fields: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in dict(values).items()
        }
        return cls(**fields)
