"""Codecs: audio to codes and back."""
