"""Notes to train on: where they come from, how they are cleaned and split, and where they are kept."""
