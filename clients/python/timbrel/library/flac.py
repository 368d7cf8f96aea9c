"""FLAC files. They hold no loop points: the instrument files state these."""

from __future__ import annotations

import io

import numpy as np
import numpy.typing as npt
import soundfile

from timbrel_bundle.audio import checked_mono


def flac_bytes(audio: npt.NDArray[np.float32], sample_rate: int) -> bytes:
    """A mono 24-bit FLAC file of audio [samples]; what lies beyond -1..1 is clipped.

    Raises:
        AudioError: the audio has another shape, or samples that are no numbers.
    """
    content = io.BytesIO()
    soundfile.write(content, checked_mono(audio), sample_rate, format="FLAC", subtype="PCM_24")
    return content.getvalue()
