"""Packing of audio into the bytes that a caller asked for."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import soundfile

from timbrel_bundle.codec import Audio
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb

FILE_SUBTYPE = "PCM_24"
"""The samples of WAV and FLAC files."""


class AudioPacker(Protocol):
    """Takes a note's audio, float32 [samples], piece by piece, and gives the bytes to send."""

    def add(self, audio: Audio, last: bool) -> bytes:
        """Returns the bytes that this piece makes ready, possibly none. The last may take some ms."""


class RawPacker:
    """Packs samples without a header, ready at once."""

    def __init__(self, to_bytes: Callable[[Audio], bytes]) -> None:
        self._to_bytes = to_bytes

    def add(self, audio: Audio, last: bool) -> bytes:
        """Returns the piece's own samples."""
        return self._to_bytes(audio)


class FilePacker:
    """Packs one file, ready with the note's last piece."""

    def __init__(self, file_format: str, sample_rate: int) -> None:
        """
        Args:
            file_format: soundfile's name of it.
            sample_rate: samples per second.
        """
        self._format = file_format
        self._sample_rate = sample_rate
        self._pieces: list[Audio] = []

    def add(self, audio: Audio, last: bool) -> bytes:
        """Returns the whole file with the last piece, nothing before."""
        self._pieces.append(audio)
        return self._file(self._pieces) if last else b""

    def _file(self, pieces: Sequence[Audio]) -> bytes:
        content = io.BytesIO()
        soundfile.write(
            content, np.concatenate(pieces), self._sample_rate, format=self._format, subtype=FILE_SUBTYPE
        )
        return content.getvalue()


def make_packer(audio_format: pb.AudioFormat, sample_rate: int) -> AudioPacker:
    """Makes a packer for one note, in one of the formats that are audio. Raises ValueError for another."""
    if audio_format == pb.AUDIO_FORMAT_PCM16:
        return RawPacker(to_pcm16)
    if audio_format == pb.AUDIO_FORMAT_FLOAT32:
        return RawPacker(to_float32)
    if audio_format == pb.AUDIO_FORMAT_WAV:
        return FilePacker("WAV", sample_rate)
    if audio_format == pb.AUDIO_FORMAT_FLAC:
        return FilePacker("FLAC", sample_rate)
    raise ValueError(f"{audio_format} is no format of audio")


def to_pcm16(audio: Audio) -> bytes:
    """Writes little-endian signed 16-bit samples, clipped at full scale."""
    samples = np.clip(np.rint(audio * 32768.0), -32768, 32767)
    return bytes(samples.astype("<i2").data)


def to_float32(audio: Audio) -> bytes:
    """Writes little-endian float32 samples."""
    return audio.astype("<f4").tobytes()
