"""Sound on disk: 24-bit WAV and FLAC, written whole or not at all."""

from __future__ import annotations

import io
import os
from pathlib import Path

import numpy as np
import numpy.typing as npt
import soundfile

from timbrel.errors import FieldViolation, InvalidRequestError
from timbrel_bundle.audio import checked_mono, write_wav
from timbrel_bundle.files import atomic_write

ENDINGS = (".wav", ".flac")

SUBTYPE = "PCM_24"


def check_audio_path(path: str | os.PathLike[str]) -> Path:
    """The path, if a sound can be written there: worth asking before a long piece of work.

    Raises:
        InvalidRequestError: the ending is neither .wav nor .flac, or there is no such folder.
    """
    target = Path(path)
    if target.suffix.lower() not in ENDINGS:
        raise _refusal(f"{target} must end in {' or '.join(ENDINGS)}")
    if target.is_dir():
        raise _refusal(f"{target} is a folder")
    if not target.parent.is_dir():
        raise _refusal(f"the folder {target.parent} does not exist")
    return target


def write_audio(path: str | os.PathLike[str], audio: npt.NDArray[np.float32], sample_rate: int) -> Path:
    """Writes mono audio [samples] to a .wav or .flac file; samples beyond -1..1 are clipped.

    Neither format carries a time or a name: equal audio makes byte-identical files.

    Raises:
        InvalidRequestError: see check_audio_path.
        OSError: the file cannot be written.
    """
    target = check_audio_path(path)
    if target.suffix.lower() == ".wav":
        write_wav(target, audio, sample_rate, SUBTYPE)
    else:
        content = io.BytesIO()
        soundfile.write(content, checked_mono(audio, True), sample_rate, format="FLAC", subtype=SUBTYPE)
        atomic_write(target, content.getvalue())
    return target


def _refusal(description: str) -> InvalidRequestError:
    return InvalidRequestError.of([FieldViolation("out", description)])
