"""Codes to audio and back: streaming equals decoding at once, whatever the chunks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from timbrel_bundle.codec import CodecChunk, CodecDecoder, CodecEncoder, decode_together
from timbrel_bundle.errors import AudioError

HOP = 4


@pytest.fixture
def decoder(folder: Any) -> CodecDecoder:
    return CodecDecoder(folder.open(), n_threads=1)


@pytest.mark.parametrize(
    "chunks", [[11], [1] * 11, [2, 3, 6], [10, 1], [1, 10], [0, 5, 0, 6, 0]], ids=lambda chunks: str(chunks)
)
def test_a_stream_joins_up_to_the_whole(
    decoder: CodecDecoder, codes: np.ndarray[Any, Any], chunks: list[int]
) -> None:
    stream = decoder.stream()
    parts = [stream.push(chunk) for chunk in np.split(codes, np.cumsum(chunks)[:-1])]
    audio = np.concatenate([*parts, stream.finish()])
    assert audio.dtype == np.float32
    assert audio.shape == (len(codes) * HOP,)
    np.testing.assert_allclose(audio, decoder.decode(codes), atol=1e-4)


def test_decoded_audio_starts_and_ends_with_its_frames(
    folder: Any, decoder: CodecDecoder, codes: np.ndarray[Any, Any]
) -> None:
    np.testing.assert_allclose(decoder.decode(codes), folder.expected_audio(codes), atol=1e-5)


def test_audio_comes_as_soon_as_the_delay_allows(decoder: CodecDecoder, codes: np.ndarray[Any, Any]) -> None:
    stream = decoder.stream()
    assert [len(stream.push(frame[None])) for frame in codes[:4]] == [0, 2, HOP, HOP]
    assert len(stream.finish()) == 6


@pytest.mark.parametrize("n_frames", [0, 1, 2])
def test_the_shortest_notes(folder: Any, decoder: CodecDecoder, codes: Any, n_frames: int) -> None:
    audio = decoder.decode(codes[:n_frames])
    np.testing.assert_allclose(audio, folder.expected_audio(codes[:n_frames]), atol=1e-5)


def test_streams_do_not_disturb_one_another(decoder: CodecDecoder, codes: np.ndarray[Any, Any]) -> None:
    first, second = decoder.stream(), decoder.stream()
    heard = [np.concatenate([first.push(frame[None]), second.push(frame[None])[:0]]) for frame in codes]
    np.testing.assert_allclose(np.concatenate([*heard, first.finish()]), decoder.decode(codes), atol=1e-4)


def test_streams_decoded_together_are_as_alone(decoder: CodecDecoder, codes: np.ndarray[Any, Any]) -> None:
    """Three notes of other lengths, in chunks that are now equal and now not."""
    rng = np.random.default_rng(0)
    notes = [codes, codes[::-1], codes[:7]]
    streams, heard = [decoder.stream() for _ in notes], [[np.zeros(0, np.float32)] for _ in notes]
    places = [0] * len(notes)
    while any(place is not None for place in places):
        turn = [index for index, place in enumerate(places) if place is not None]
        ends = [places[index] + int(rng.integers(0, 4)) for index in turn]
        chunks = [
            CodecChunk(streams[index], notes[index][places[index] : end], end >= len(notes[index]))
            for index, end in zip(turn, ends, strict=True)
        ]
        for index, end, audio in zip(turn, ends, decode_together(chunks), strict=True):
            heard[index].append(audio)
            places[index] = end if end < len(notes[index]) else None  # type: ignore[call-overload]
    for note, parts in zip(notes, heard, strict=True):
        np.testing.assert_allclose(np.concatenate(parts), decoder.decode(note), atol=1e-4)


def test_a_stream_cannot_be_decoded_together_with_itself(decoder: CodecDecoder, codes: Any) -> None:
    stream = decoder.stream()
    with pytest.raises(ValueError, match="comes twice"):
        decode_together([CodecChunk(stream, codes), CodecChunk(stream, codes)])


def test_a_finished_stream_takes_no_more(decoder: CodecDecoder, codes: np.ndarray[Any, Any]) -> None:
    stream = decoder.stream()
    stream.push(codes)
    stream.finish()
    assert len(stream.finish()) == 0
    with pytest.raises(ValueError, match="the stream is finished"):
        stream.push(codes)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (np.zeros((3, 5), np.uint16), r"shape \[3, 5\]: \[frames, 2\]"),
        (np.zeros(6, np.uint16), r"shape \[6\]"),
        (np.zeros((3, 2), np.float32), "whole numbers are needed"),
        (np.full((3, 2), 16, np.uint16), "codes from 16 to 16: 0 to 15 are allowed"),
        (np.full((3, 2), -1, np.int64), "codes from -1 to -1"),
    ],
)
def test_codes_that_cannot_be_are_refused(decoder: CodecDecoder, bad: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        decoder.decode(bad)


@pytest.mark.parametrize(("pitch", "expected"), [(9.0, 9), (9.4, 9), (None, 0)])
def test_encoding(folder: Any, pitch: float | None, expected: int) -> None:
    audio = np.repeat(np.array([0.1, 0.5, 0.3], np.float32), HOP)
    codes = CodecEncoder(folder.open(), n_threads=1).encode(audio, 8000, pitch)
    assert codes.dtype == np.uint16
    assert codes.tolist() == [[1, expected], [5, expected], [3, expected]]


def test_audio_at_another_rate_is_resampled_before_encoding(folder: Any) -> None:
    codes = CodecEncoder(folder.open(), n_threads=1).encode(np.full(1600, 0.5, np.float32), 16000, None)
    assert codes.shape == (800 // HOP, 2)


@pytest.mark.parametrize(
    ("audio", "rate", "message"),
    [
        (np.zeros(0, np.float32), 8000, "the audio is empty"),
        (np.zeros((8, 2), np.float32), 8000, "mono audio"),
        (np.full(8, np.nan, np.float32), 8000, "not numbers"),
        (np.zeros(8, np.float32), 0, "a sample rate of 0 Hz"),
    ],
)
def test_audio_that_cannot_be_encoded(folder: Any, audio: Any, rate: int, message: str) -> None:
    with pytest.raises(AudioError, match=message):
        CodecEncoder(folder.open(), n_threads=1).encode(audio, rate, None)


@pytest.mark.parametrize("pitch", [float("nan"), -1.0, 128.0])
def test_a_pitch_hint_that_cannot_be(folder: Any, pitch: float) -> None:
    with pytest.raises(ValueError, match="is not a MIDI note number"):
        CodecEncoder(folder.open(), n_threads=1).encode(np.zeros(8, np.float32), 8000, pitch)
