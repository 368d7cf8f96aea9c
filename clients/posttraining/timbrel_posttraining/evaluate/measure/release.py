"""How long a note sounds after its key is released."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from timbrel_posttraining.evaluate.measure.envelope import Envelope, envelope_of

SOUNDING_DB = 60.0
"""A note has ended where it stays this far below its peak."""


def release_seconds(audio: NDArray[np.float32], sample_rate: int, held_seconds: float) -> float:
    """Seconds from the release of the key until the note stays 60 dB below its peak.

    0 where it had ended before; the rest of the audio where it never falls so far. The key is pressed where
    the audio starts.
    """
    return release_of(envelope_of(audio, sample_rate), held_seconds)


def release_of(envelope: Envelope, held_seconds: float) -> float:
    """As `release_seconds`, of an envelope."""
    end = envelope.last_above(10.0 ** (-SOUNDING_DB / 20.0))
    return 0.0 if end is None else max(0.0, end - held_seconds)
