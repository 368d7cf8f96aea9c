"""Judges a finished bundle against the notes it learnt from, and reports."""
