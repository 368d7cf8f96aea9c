"""Fixtures of every test that trains: synthetic notes, tokenised and as a dataset of audio."""

from training_notes import library_dir, library_table, table

__all__ = ["library_dir", "library_table", "table"]
