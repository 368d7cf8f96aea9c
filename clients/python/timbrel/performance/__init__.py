"""Performs a MIDI file: reads a score, casts its channels, renders each different note once, mixes them."""

from timbrel.performance.instrumentation import AskedTimbres, Part, parse_timbres
from timbrel.performance.midi_file import read_score
from timbrel.performance.perform import Performance, PerformanceOptions, perform
from timbrel.performance.score import Score, ScoreNote

__all__ = [
    "AskedTimbres",
    "Part",
    "Performance",
    "PerformanceOptions",
    "Score",
    "ScoreNote",
    "parse_timbres",
    "perform",
    "read_score",
]
