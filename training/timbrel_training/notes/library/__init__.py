"""The audio library: cleaned, split notes as one memory-mapped file of audio and an index of fixed-size rows.

A library is a folder: `audio.i16` (all notes' samples, one after the other, each note scaled to its own peak
so that 16 bits serve quiet notes as well as loud ones), `index.npy` (one row a note) and `library.json`.
"""

from timbrel_training.notes.library.reader import AudioLibrary, LibraryError
from timbrel_training.notes.library.render import render_library
from timbrel_training.notes.library.summary import LibrarySummary

__all__ = ["AudioLibrary", "LibraryError", "LibrarySummary", "render_library"]
