"""Trains the model that writes notes: note sources, codecs, the timbre space, the note transformer."""
