"""Fixtures of every test that trains: synthetic notes, tokenised and as a dataset of audio."""

from training_notes import latents_codec, library_dir, table

__all__ = ["latents_codec", "library_dir", "table"]
