"""The timbre map, drawn for terminals and as a picture."""
