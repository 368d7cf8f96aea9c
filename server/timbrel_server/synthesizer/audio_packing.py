"""Packing of audio into the bytes that a caller asked for."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping

import numpy as np
import soundfile

from timbrel_bundle.audio import never_empty, whole_samples
from timbrel_bundle.codec import Audio
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb

FILE_SUBTYPE = "PCM_24"
"""The samples of WAV and FLAC files."""


def to_pcm16(audio: Audio) -> bytes:
    """Writes little-endian signed 16-bit samples, clipped at full scale."""
    samples = np.clip(np.rint(audio * 32768.0), -32768, 32767)
    return bytes(samples.astype("<i2").data)


def to_float32(audio: Audio) -> bytes:
    """Writes little-endian float32 samples."""
    return audio.astype("<f4").tobytes()


RAW_FORMATS: Mapping[int, Callable[[Audio], bytes]] = {
    pb.AUDIO_FORMAT_PCM16: to_pcm16,
    pb.AUDIO_FORMAT_FLOAT32: to_float32,
}
"""The formats of samples without a header."""

FILE_FORMATS: Mapping[int, str] = {pb.AUDIO_FORMAT_WAV: "WAV", pb.AUDIO_FORMAT_FLAC: "FLAC"}
"""The formats of files, by soundfile's name."""


class AudioPacker:
    """Takes a note's audio, float32 [samples], piece by piece, and gives the bytes to send: samples at once,
    a file with the last piece."""

    def __init__(self, audio_format: pb.AudioFormat, sample_rate: int) -> None:
        """
        Args:
            audio_format: one of the formats that are audio.
            sample_rate: samples per second.
        """
        self._format = audio_format
        self._sample_rate = sample_rate
        self._pieces: list[Audio] = []

    def add(self, audio: Audio, last: bool) -> bytes:
        """Returns the bytes that this piece makes ready, possibly none. May take some ms with the last."""
        if self._format in RAW_FORMATS:
            return RAW_FORMATS[self._format](audio)
        self._pieces.append(audio)
        return self._file() if last else b""

    def _file(self) -> bytes:
        content = io.BytesIO()
        name = FILE_FORMATS[self._format]
        samples = whole_samples(never_empty(np.concatenate(self._pieces), name)) << 8
        soundfile.write(content, samples, self._sample_rate, format=name, subtype=FILE_SUBTYPE)
        return content.getvalue()
