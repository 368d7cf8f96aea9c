"""Stage 2: the note transformer learns to write tokenised notes from points of the timbre map."""
