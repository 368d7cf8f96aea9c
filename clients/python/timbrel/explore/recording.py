"""An uploaded recording: from a file's bytes to samples, whatever the bytes are."""

from __future__ import annotations

import io

import numpy as np
import numpy.typing as npt
import soundfile

from timbrel.errors import FieldViolation, InvalidRequestError
from timbrel_bundle.audio import missing_bytes

MAX_SECONDS = 120.0
MAX_SAMPLES = 2**25
"""Of all channels together, 128 MiB: a small file can hold hours of silence."""

FORMATS = "wav, flac, ogg and mp3"


def decode_recording(content: bytes) -> tuple[npt.NDArray[np.float32], int]:
    """Samples [S, channels], of the first two minutes at most, and their rate in Hz. CPU-bound.

    Raises:
        InvalidRequestError: the file is empty, cut short, damaged or of a kind that libsndfile does not read.
    """
    if not content:
        raise _refusal("the file is empty")
    if n_missing := missing_bytes(io.BytesIO(content)):
        raise _refusal(f"the file is cut short: the last {n_missing} bytes of its sound are missing")
    try:
        with soundfile.SoundFile(io.BytesIO(content)) as file:
            n_frames = int(min(MAX_SECONDS * file.samplerate, MAX_SAMPLES / file.channels))
            samples = file.read(n_frames, dtype="float32", always_2d=True)
            rate = int(file.samplerate)
    except soundfile.SoundFileError as error:
        reason = " ".join(str(getattr(error, "error_string", error)).split()).rstrip(".")
        raise _refusal(f"this is no audio file that can be read ({reason}); {FORMATS} are") from None
    if not samples.size:
        raise _refusal("the file holds no sound")
    return samples, rate


def _refusal(reason: str) -> InvalidRequestError:
    return InvalidRequestError.of([FieldViolation("audio", reason)])
