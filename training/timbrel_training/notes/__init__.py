"""Notes to train on: where they come from, how they are cleaned and split, and where they are kept."""

from timbrel_training.notes.note import Note, Source, SourceError

__all__ = ["Note", "Source", "SourceError"]
