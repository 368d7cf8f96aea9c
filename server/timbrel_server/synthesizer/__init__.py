"""The service timbrel.v1.Synthesizer: notes, streams of notes, and what callers want to know of a bundle."""
