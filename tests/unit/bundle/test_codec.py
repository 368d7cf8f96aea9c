"""Codes to audio and back: streaming equals decoding at once, whatever the chunks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from timbrel_bundle.bundle import Bundle
from timbrel_bundle.codec import (
    CodecChunk,
    CodecDecoder,
    _cents_at,
    _points,
    begin_softly,
    decode_together,
)
from timbrel_bundle.errors import BundleError
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb

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


def test_who_keeps_the_audio_of_a_stream_keeps_none_of_the_others(decoder: CodecDecoder, codes: Any) -> None:
    for audio in decode_together([CodecChunk(decoder.stream(), codes, True) for _ in range(8)]):
        kept = audio if audio.base is None else audio.base
        assert kept.nbytes < 2 * audio.nbytes


def test_a_stream_cannot_be_decoded_together_with_itself(decoder: CodecDecoder, codes: Any) -> None:
    stream = decoder.stream()
    with pytest.raises(ValueError, match="comes twice"):
        decode_together([CodecChunk(stream, codes), CodecChunk(stream, codes)])


def test_what_is_refused_moves_no_stream_on(decoder: CodecDecoder, codes: Any) -> None:
    stream, other = decoder.stream(), decoder.stream()
    with pytest.raises(ValueError, match="codes from 16 to 16"):
        decode_together([CodecChunk(stream, codes, True), CodecChunk(other, np.full((3, 2), 16, np.uint16))])
    heard = decode_together([CodecChunk(stream, codes, True), CodecChunk(other, codes, True)])
    for audio in heard:
        np.testing.assert_allclose(audio, decoder.decode(codes), atol=1e-4)


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


def test_a_bundle_without_these_inputs_is_read_and_asks_for_none(decoder: CodecDecoder, codes: Any) -> None:
    """Its notes sound alike whatever the seed."""
    np.testing.assert_array_equal(decoder.decode(codes, seed=7), decoder.decode(codes))
    with pytest.raises(ValueError, match="does not bend notes"):
        decoder.decode(codes, cents=50.0)
    with pytest.raises(ValueError, match="takes no level"):
        decoder.stream().push(codes, level_db=-6.0)


def test_a_graph_that_cannot_bend_though_the_manifest_says_so(folder: Any) -> None:
    folder.manifest.codec.bends = True
    folder.save()
    with pytest.raises(BundleError, match="has no input 'cents', and the manifest says that it bends"):
        CodecDecoder(folder.open())


@pytest.mark.parametrize("chunks", [[11], [1] * 11, [3, 8], [4, 7], [5, 6]], ids=str)
def test_frames_that_hold_no_sound_are_not_heard(folder: Any, codes: Any, chunks: list[int]) -> None:
    folder.manifest.codec.lead_frames = 4
    folder.save()
    decoder = CodecDecoder(folder.open(), n_threads=1)
    expected = begin_softly(folder.expected_audio(codes)[4 * HOP :], decoder.spec)
    np.testing.assert_allclose(decoder.decode(codes), expected, atol=1e-5)
    stream = decoder.stream()
    parts = [stream.push(chunk) for chunk in np.split(codes, np.cumsum(chunks)[:-1])]
    np.testing.assert_allclose(np.concatenate([*parts, stream.finish()]), expected, atol=1e-5)
    assert len(decoder.decode(codes[:4])) == len(decoder.decode(codes[:2])) == 0


def test_a_bend_follows_the_time_that_is_heard() -> None:
    spec = pb.CodecSpec(sample_rate=1000, hop_length=100, lead_frames=2)
    curve = [(0.1, 0.0), (0.3, 200.0)]
    assert _cents_at(_points(curve), spec, 0, 6).tolist() == [0, 0, 0, 100, 200, 200]
    assert _cents_at(_points(curve), spec, 3, 2).tolist() == [100, 200]
    assert _cents_at(_points(-7), spec, 3, 2).tolist() == [-7, -7]


@pytest.fixture(scope="module")
def player(tiny_bundle: Path) -> CodecDecoder:
    """The decoder of a codec that bends."""
    return CodecDecoder(Bundle.open(tiny_bundle), n_threads=1)


STEADY = np.tile(np.array([(60 - 24) * 12, 0, 1023], np.uint16), (60, 1))
STEADY[:4, 2] = 527, 3, 2 * (110 - 24), 0
"""A note at MIDI 60, of -14 dB, that stands still."""


def fundamental(audio: Any, rate: int, near: float) -> float:
    """Hz of the strongest partial within an eighth of `near`."""
    spectrum = np.abs(np.fft.rfft(audio * np.hanning(len(audio)), 2**18))
    hertz = np.fft.rfftfreq(2**18, 1 / rate)
    window = (hertz > 0.94 * near) & (hertz < 1.06 * near)
    return float(hertz[window][spectrum[window].argmax()])


@pytest.mark.parametrize("cents", [0.0, 50.0, -50.0, 700.0, -1200.0, 1200.0, 2400.0])
def test_notes_are_bent_as_far_as_asked(player: CodecDecoder, cents: float) -> None:
    wanted = 440 * 2 ** ((60 - 69 + cents / 100) / 12)
    rate = player.sample_rate
    found = fundamental(player.decode(STEADY, 3, cents)[rate // 10 :], rate, wanted)
    assert abs(1200 * np.log2(found / wanted)) < 2.0


def test_a_bend_stops_where_bends_end(player: CodecDecoder) -> None:
    stream = player.stream(1, 2000.0)
    beyond = np.concatenate([stream.push(STEADY, 900.0), stream.finish()])
    np.testing.assert_array_equal(beyond, player.decode(STEADY, 1, 2400.0))


@pytest.mark.parametrize("chunks", [[1] * 60, [7, 20, 33]], ids=["frames", "chunks"])
def test_a_stream_bends_and_swells_as_the_whole(player: CodecDecoder, chunks: list[int]) -> None:
    rng = np.random.default_rng(0)
    cents, level = rng.uniform(-1200, 1200, 60), rng.uniform(-30, 6, 60)
    curve = [(0.1, -300.0), (0.9, 300.0)]
    whole = player.stream(5, curve)
    expected = np.concatenate([whole.push(STEADY, cents, level), whole.finish()])
    stream = player.stream(5, curve)
    cuts = np.cumsum(chunks)[:-1]
    parts = [
        stream.push(*each) for each in zip(*(np.split(x, cuts) for x in (STEADY, cents, level)), strict=True)
    ]
    np.testing.assert_allclose(np.concatenate([*parts, stream.finish()]), expected, atol=1e-4)


@pytest.mark.parametrize("seed", range(4))
def test_a_note_begins_without_a_click(player: CodecDecoder, seed: int) -> None:
    """Its waves begin anywhere in their course, and the first sample is silent all the same."""
    audio = player.decode(STEADY, seed)
    bends = np.abs(np.diff(np.pad(audio, (10, 0)).astype(np.float64), 2))
    assert audio[0] == 0.0 and bends[:60].max() < 0.1 * bends[480:].max()
    stream = player.stream(seed)
    streamed = np.concatenate([*(stream.push(frame[None]) for frame in STEADY), stream.finish()])
    np.testing.assert_allclose(streamed, audio, atol=1e-4)


def test_a_recording_that_was_coded_begins_as_it_did() -> None:
    audio = np.ones(200, np.float32)
    assert begin_softly(audio, pb.CodecSpec(sample_rate=48_000)) is audio
    spec = pb.CodecSpec(sample_rate=48_000, lead_frames=4)
    whole = begin_softly(audio, spec)
    assert whole[0] == 0.0 and (whole[48:] == 1.0).all() and (np.diff(whole[:49]) > 0.0).all()
    parts = [begin_softly(audio[at : at + 10], spec, at) for at in range(0, 200, 10)]
    np.testing.assert_array_equal(np.concatenate(parts), whole)


def test_a_level_is_a_gain(player: CodecDecoder) -> None:
    plain, loud = player.decode(STEADY, 1), player.decode(STEADY, 1, level_db=6.0)
    np.testing.assert_allclose(loud, plain * 10 ** (6 / 20), atol=1e-4)


def test_a_seed_decides_the_sound(player: CodecDecoder) -> None:
    """The largest, and 0, are seeds like others; another seed is another sound of the same level."""
    sounds = [player.decode(STEADY, seed) for seed in (0, 1, 2**64 - 1)]
    for seed, sound in zip((0, 1, 2**64 - 1), sounds, strict=True):
        np.testing.assert_array_equal(player.decode(STEADY, seed), sound)
    one, two, three = (sound[4000:] - sound[4000:].mean() for sound in sounds)
    for other in (two, three):
        assert abs(np.log(np.std(one) / np.std(other))) < 0.1
        assert np.abs(one - other).max() > 0.01


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"cents": [0.0, 1.0]}, r"cents of shape \[2\]"),
        ({"cents": np.zeros(3)}, r"cents of shape \[3\]: one number, or \[60\]"),
        ({"cents": float("nan")}, "cents that are not finite"),
        ({"level_db": float("-inf")}, "level_db that are not finite"),
        ({"level_db": 1000.0}, "level_db 1000: 120 at most is allowed"),
    ],
)
def test_what_is_no_bend_and_no_level(player: CodecDecoder, given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        player.stream().push(STEADY, **given)


def test_a_whole_bend_is_of_numbers(player: CodecDecoder) -> None:
    with pytest.raises(ValueError, match="cents that are not finite: numbers are needed"):
        player.decode(STEADY, cents=[(0.0, float("nan"))])


@pytest.mark.parametrize("seed", [-1, 2**64])
def test_what_is_no_seed(player: CodecDecoder, seed: int) -> None:
    with pytest.raises(ValueError, match=f"seed {seed}: 0 to {2**64 - 1} are allowed"):
        player.decode(STEADY, seed)
