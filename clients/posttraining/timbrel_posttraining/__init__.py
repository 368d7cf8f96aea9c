"""Work that goes on from a finished bundle: it is judged, described, compared and fine-tuned."""
