"""Stage 1: the timbre map. An encoder hears a note and places it among the instruments, in the unit disc."""
