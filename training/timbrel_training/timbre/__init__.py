"""Stage 1: the timbre map. A variational encoder turns codec latents into a point in the unit disc."""
