"""Names, version and row type of an audio library."""

from __future__ import annotations

import numpy as np

FORMAT = "timbrel-notes-library"
VERSION = 2
AUDIO_FILE = "audio.i16"
INDEX_FILE = "index.npy"
HEADER_FILE = "library.json"

ROW = np.dtype(
    [
        ("offset", "<i8"),  # first sample, counted in samples from the start of the audio file
        ("length", "<i4"),  # samples
        ("scale", "<f4"),  # audio = int16 * scale
        ("instrument", "<i2"),  # index into the header's instruments
        ("family", "<i2"),  # index into the header's families
        ("pitch", "u1"),  # MIDI note number
        ("velocity", "u1"),  # 1..127
        ("held_seconds", "<f4"),
        ("source", "<i2"),  # index into the header's sources
        ("split", "u1"),  # timbrel_training.notes.split.Split
        ("cut", "?"),  # still sounding where the audio ends
    ]
)

MAX_NAME = 128
"""Longest name of an instrument or family, in characters."""

PART_ROW = np.dtype(
    [
        ("offset", "<i8"),
        ("length", "<i4"),
        ("scale", "<f4"),
        ("pitch", "u1"),
        ("velocity", "u1"),
        ("held_seconds", "<f4"),
        ("cut", "?"),
        ("instrument", f"U{MAX_NAME}"),
        ("family", f"U{MAX_NAME}"),
        ("source", f"U{MAX_NAME}"),
        ("digest", "V16"),
        ("cell_digest", "V16"),
        ("has_cell_digest", "?"),
    ]
)
"""A row while the library is being made: names instead of indices, and what tells repeats."""
