"""When a note begins, and how fast it comes in."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from timbrel_posttraining.evaluate.measure.envelope import Envelope, envelope_of

ONSET_SHARE = 0.1
"""The note begins where its level first reaches this share of its peak: 20 dB below it."""

ATTACKED_SHARE = 0.8
"""The attack is over where the level first reaches this share: 2 dB below the peak, so that a tremolo in the
held part does not count as attack. (Two thresholds on the envelope: after Peeters 2004, "A large set of audio
features for sound description".)"""


def onset_seconds(audio: NDArray[np.float32], sample_rate: int) -> float | None:
    """Seconds from the start of the audio to the note's onset; None of silence. Good to about 8 ms."""
    return envelope_of(audio, sample_rate).first_above(ONSET_SHARE)


def attack_seconds(audio: NDArray[np.float32], sample_rate: int) -> float | None:
    """Seconds in which the level rises from 10 % to 80 % of its peak; None of silence.

    A linear rise over T seconds measures 0.7 T; the shortest that can be told is about 10 ms.
    """
    return attack_of(envelope_of(audio, sample_rate))


def attack_of(envelope: Envelope) -> float | None:
    """As `attack_seconds`, of an envelope."""
    onset, attacked = envelope.first_above(ONSET_SHARE), envelope.first_above(ATTACKED_SHARE)
    return None if onset is None or attacked is None else attacked - onset
