"""Codes as the decoder sees them, and where they are kept."""
