"""How good a finished bundle is, held against the notes it learnt from."""
