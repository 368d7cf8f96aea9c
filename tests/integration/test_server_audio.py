"""Notes that the server decodes: as the client would, whatever the chunks and the company."""

from __future__ import annotations

import asyncio
import io
import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import numpy.typing as npt
import pytest
import soundfile
from in_process_server import run, serving, wait_until_idle
from waiting import PATIENCE_SECONDS, wait_for_async

from timbrel_bundle.bundle import Bundle
from timbrel_bundle.codec import CodecDecoder
from timbrel_bundle.request_fields import Cents
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb
from timbrel_server.config import default_bundle_path
from timbrel_server.errors import UnavailableError
from timbrel_server.served_bundles import codec_decoding
from timbrel_server.served_bundles.codec_decoding import (
    LARGEST_CHUNK_FRAMES,
    LARGEST_CHUNK_FRAMES_IN_COMPANY,
    LARGEST_RUN_FRAMES,
    LARGEST_RUN_IN_COMPANY,
    CodecDecoding,
)
from timbrel_server.synthesizer.note_stream import AUDIO_CHUNK_BYTES

LIVELY = pb.Sampling(temperature=1.0, top_k=256, top_p=1.0)
TOLERANCE = 1e-4

default_bundle = pytest.param(default_bundle_path(), id="default", marks=pytest.mark.acceptance)


@pytest.fixture(params=["tiny", default_bundle])
def bundle(request: pytest.FixtureRequest, tiny_bundle: Path) -> Bundle:
    return Bundle.open(tiny_bundle if request.param == "tiny" else request.param)


def note(seed: int, **fields: Any) -> pb.GenerateRequest:
    chosen = {"timbre": pb.Timbre(x=0.1, y=0.2), "pitch": 48 + seed % 40, "seed": seed, "seconds": 0.5}
    return pb.GenerateRequest(sampling=LIVELY, **{**chosen, **fields})


async def generate(stub: Any, asked: pb.GenerateRequest) -> list[pb.GenerateResponse]:
    return [reply async for reply in stub.Generate(asked)]


async def audio_of(stub: Any, asked: pb.GenerateRequest, audio: pb.AudioFormat) -> bytes:
    asked.audio = audio
    replies = await generate(stub, asked)
    assert not any(reply.HasField("codes") for reply in replies)
    assert [bool(reply.finish_reason) for reply in replies] == [False] * (len(replies) - 1) + [True]
    assert all(len(reply.audio) <= AUDIO_CHUNK_BYTES for reply in replies)
    return b"".join(reply.audio for reply in replies)


async def expected_audio(
    stub: Any, bundle: Bundle, asked: pb.GenerateRequest, cents: Cents = 0.0
) -> npt.NDArray[np.float32]:
    data = b"".join(reply.codes.data for reply in await generate(stub, asked))
    codes = np.frombuffer(data, "<u2").reshape(-1, bundle.manifest.codec.n_codebooks)
    return CodecDecoder(bundle, n_threads=1).decode(codes, asked.seed, cents)


def test_streamed_samples_are_the_whole_note_decoded_in_any_company(bundle: Bundle) -> None:
    async def test() -> None:
        async with serving(bundle.path, n_slots=8) as (app, stub, _):
            asked = [note(seed, seconds=0.1 + 0.27 * seed) for seed in range(6)]
            expected = [await expected_audio(stub, bundle, one) for one in asked]
            for audio in await asyncio.gather(
                *(audio_of(stub, one, pb.AUDIO_FORMAT_FLOAT32) for one in asked)
            ):
                whole = expected.pop(0)
                heard = np.frombuffer(audio, "<f4")
                assert len(heard) == len(whole) > 0
                np.testing.assert_allclose(heard, whole, atol=TOLERANCE)
            await wait_until_idle(app)

    run(test)


def test_every_format_holds_the_same_sound(tiny_bundle: Path) -> None:
    bundle = Bundle.open(tiny_bundle)

    async def test() -> None:
        async with serving(tiny_bundle) as (_, stub, _channel):
            whole = await expected_audio(stub, bundle, note(3))
            pcm = np.frombuffer(await audio_of(stub, note(3), pb.AUDIO_FORMAT_PCM16), "<i2")
            np.testing.assert_allclose(pcm / 32768, np.clip(whole, -1, 1), atol=TOLERANCE + 1 / 32768)
            for kind, name in ((pb.AUDIO_FORMAT_WAV, "WAV"), (pb.AUDIO_FORMAT_FLAC, "FLAC")):
                content = io.BytesIO(await audio_of(stub, note(3), kind))
                facts = soundfile.info(content)
                assert (facts.format, facts.subtype) == (name, "PCM_24")
                content.seek(0)
                samples, sample_rate = soundfile.read(content)
                assert sample_rate == bundle.manifest.codec.sample_rate
                np.testing.assert_allclose(samples, np.clip(whole, -1, 1), atol=TOLERANCE)

    run(test)


def test_a_bend_is_the_one_that_a_client_decodes(tiny_bundle: Path) -> None:
    bundle = Bundle.open(tiny_bundle)
    curve = ((0.1, 0.0), (0.3, 700.0), (0.35, -1200.0))
    points = [pb.CentsPoint(seconds=seconds, cents=cents) for seconds, cents in curve]

    async def test() -> None:
        async with serving(tiny_bundle) as (_, stub, _channel):
            whole = await expected_audio(stub, bundle, note(5), curve)
            heard = np.frombuffer(await audio_of(stub, note(5, cents=points), pb.AUDIO_FORMAT_FLOAT32), "<f4")
            np.testing.assert_allclose(heard, whole, atol=TOLERANCE)
            assert np.abs(heard - await expected_audio(stub, bundle, note(5))).max() > 0.05

    run(test)


@pytest.mark.parametrize(
    ("points", "audio", "fault"),
    [
        ([(0.0, 50.0)], pb.AUDIO_FORMAT_UNSPECIFIED, "codes are bent where they are decoded"),
        ([(0.0, 2401.0)], pb.AUDIO_FORMAT_PCM16, "2401 is not allowed; -2400 to 2400 is"),
        ([(0.0, float("nan"))], pb.AUDIO_FORMAT_PCM16, "is no point of a bend"),
        ([(1.0, 0.0), (0.5, 0.0)], pb.AUDIO_FORMAT_PCM16, "points are given in order"),
        ([(0.0, 0.0)] * 4097, pb.AUDIO_FORMAT_PCM16, "has 4097 points; up to 4096 are allowed"),
    ],
)
def test_a_bend_that_cannot_be_is_refused(
    tiny_bundle: Path, points: list[tuple[float, float]], audio: pb.AudioFormat, fault: str
) -> None:
    cents = [pb.CentsPoint(seconds=seconds, cents=value) for seconds, value in points]

    async def test() -> None:
        async with serving(tiny_bundle) as (_, stub, _channel):
            call = stub.Generate(note(1, audio=audio, cents=cents))
            assert await call.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert "cents: " in await call.details() and fault in await call.details()

    run(test)


def test_the_first_sound_comes_before_the_note_is_finished_and_the_header_with_it(tiny_bundle: Path) -> None:
    async def test() -> None:
        async with serving(tiny_bundle) as (_, stub, _channel):
            asked = note(2, seconds=1.5, audio=pb.AUDIO_FORMAT_PCM16)
            first, *others = await generate(stub, asked)
            assert first.header.seed == 2 and first.header.sample_rate == 48000
            assert sum(len(other.audio) for other in others) > 4 * len(first.audio) > 0
            codec = Bundle.open(tiny_bundle).manifest.codec
            whole_frames = round(1.5 * codec.sample_rate / codec.hop_length)
            assert others[-1].held_seconds == whole_frames * codec.hop_length / codec.sample_rate

    run(test)


def test_an_unknown_format_is_refused(tiny_bundle: Path) -> None:
    async def test() -> None:
        async with serving(tiny_bundle) as (_, stub, _channel):
            call = stub.Generate(note(1, audio=99))
            assert await call.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert "audio: 99 is no format" in await call.details()

    run(test)


def test_callers_who_do_not_read_hold_nobody_up(tiny_bundle: Path) -> None:
    """Their samples, more than a connection takes in advance, wait for them; the slots do not."""

    async def test() -> None:
        async with serving(tiny_bundle, n_slots=2) as (app, stub, _):
            asked = [note(seed, seconds=2.0, audio=pb.AUDIO_FORMAT_FLOAT32) for seed in range(6)]
            silent = [stub.Generate(one) for one in asked]
            await asyncio.gather(*(call.initial_metadata() for call in silent))
            assert await audio_of(stub, note(7), pb.AUDIO_FORMAT_PCM16)
            await wait_until_idle(app)
            assert not any(call.done() for call in silent)
            for call, one in zip(silent, asked, strict=True):
                late = np.frombuffer(b"".join([reply.audio async for reply in call]), "<f4")
                again = np.frombuffer(await audio_of(stub, one, pb.AUDIO_FORMAT_FLOAT32), "<f4")
                np.testing.assert_allclose(late, again, atol=TOLERANCE)

    run(test)


def test_a_caller_that_leaves_gives_its_place_up(tiny_bundle: Path) -> None:
    async def test() -> None:
        async with serving(tiny_bundle, n_slots=2) as (app, stub, _):
            for seed in range(6):
                call = stub.Generate(note(seed, seconds=2.0, audio=pb.AUDIO_FORMAT_PCM16))
                await call.read()
                call.cancel()
            await wait_until_idle(app)
            served = app._bundles.find()
            await wait_for_async(lambda: not served.in_use, "the places to be free")
            assert not served.decoding._streams

    run(test)


@pytest.fixture
def decoding(bundle: Bundle) -> Iterator[CodecDecoding]:
    made = CodecDecoding(bundle)
    yield made
    made.close()


async def decode(
    decoding: CodecDecoding, codes: npt.NDArray[np.uint16], sizes: npt.NDArray[np.int64]
) -> npt.NDArray[np.float32]:
    """A note, in chunks of these sizes; the last is said to be so with the last codes or after them."""
    chunks = np.split(codes, np.cumsum(sizes)[np.cumsum(sizes) < len(codes)])
    heard = []
    with decoding.stream() as stream:
        for number, chunk in enumerate(chunks):
            last = number == len(chunks) - 1 and len(codes) % 2 == 0
            heard.append(await stream.decode([tuple(frame) for frame in chunk], last))
        if len(codes) % 2:
            heard.append(await stream.decode([], last=True))
    return np.concatenate(heard)


@pytest.mark.parametrize("largest", [1, 9])
def test_chunks_of_any_size_join_without_a_click(
    bundle: Bundle, decoding: CodecDecoding, largest: int
) -> None:
    """Eight notes at once, each in its own chunks. A click would be a difference at a joint, a lost tail one
    at the end."""
    rng = np.random.default_rng(largest)
    codec = bundle.manifest.codec
    shapes = [(int(rng.integers(1, 60)), codec.n_codebooks) for _ in range(8)]
    notes = [rng.integers(0, codec.codebook_size, shape).astype(np.uint16) for shape in shapes]

    async def test() -> None:
        sizes = [rng.integers(1, largest + 1, 100) for _ in notes]
        heard = await asyncio.gather(*(decode(decoding, *each) for each in zip(notes, sizes, strict=True)))
        for codes, audio in zip(notes, heard, strict=True):
            np.testing.assert_allclose(audio, CodecDecoder(bundle, 1).decode(codes), atol=TOLERANCE)

    run(test)


def test_a_code_that_cannot_be_fails_no_note_but_its_own(bundle: Bundle, decoding: CodecDecoding) -> None:
    codec = bundle.manifest.codec
    good = [(0,) * codec.n_codebooks] * 4
    bad = [(codec.codebook_size,) * codec.n_codebooks] * 4

    async def test() -> None:
        streams = [decoding.stream() for _ in range(12)]
        notes = (stream.decode(bad if n == 5 else good, last=True) for n, stream in enumerate(streams))
        heard = await asyncio.gather(*notes, return_exceptions=True)
        assert [n for n, each in enumerate(heard) if isinstance(each, Exception)] == [5]
        assert isinstance(heard[5], ValueError)

    run(test)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many notes each run of the codec decodes, as they come."""
    counts: list[int] = []
    plain = CodecDecoder.run

    def counted(self: CodecDecoder, codes: Any, *given: Any) -> Any:
        counts.append(len(codes))
        return plain(self, codes, *given)

    monkeypatch.setattr(CodecDecoder, "run", counted)
    return counts


def test_chunks_that_wait_together_are_decoded_in_one_run(
    bundle: Bundle, decoding: CodecDecoding, runs: list[int]
) -> None:
    frames = [(0,) * bundle.manifest.codec.n_codebooks] * 4

    async def test() -> None:
        streams = [decoding.stream() for _ in range(8)]
        for _ in range(3):
            await asyncio.gather(*(stream.decode(frames, last=False) for stream in streams))

    run(test)
    assert sum(runs) == 24
    assert max(runs) > 4


def test_however_many_wait_a_run_is_of_so_many_frames_at_most(
    bundle: Bundle, decoding: CodecDecoding, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The codec's working memory grows with them."""
    n_frames: list[int] = []
    plain = CodecDecoder.run

    def counted(self: CodecDecoder, codes: Any, *given: Any) -> Any:
        n_frames.append(codes.shape[0] * codes.shape[1])
        return plain(self, codes, *given)

    monkeypatch.setattr(CodecDecoder, "run", counted)
    frames = [(0,) * bundle.manifest.codec.n_codebooks] * LARGEST_CHUNK_FRAMES

    async def test() -> None:
        streams = [decoding.stream() for _ in range(12)]
        await asyncio.gather(*(stream.decode(frames, last=False) for stream in streams))

    run(test)
    assert sum(n_frames) == 12 * LARGEST_CHUNK_FRAMES
    assert LARGEST_CHUNK_FRAMES < max(n_frames) <= LARGEST_RUN_FRAMES


def test_callers_take_turns_and_small_ones_where_they_are_several(
    bundle: Bundle, decoding: CodecDecoding, runs: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    frames = [(0,) * bundle.manifest.codec.n_codebooks] * 4
    order: list[str] = []
    all_have_asked, counted = threading.Event(), CodecDecoder.run

    def held_up(self: CodecDecoder, codes: Any, *given: Any) -> Any:
        assert all_have_asked.wait(PATIENCE_SECONDS)
        return counted(self, codes, *given)

    monkeypatch.setattr(CodecDecoder, "run", held_up)

    async def test() -> None:
        async def decode(stream: Any) -> None:
            await stream.decode(frames, last=False)
            order.append(stream.account)

        streams = [decoding.stream("greedy") for _ in range(40)] + [decoding.stream("modest")]
        decoded = [asyncio.create_task(decode(stream)) for stream in streams]
        await asyncio.sleep(0)  # each has its turn: it asks, and waits
        all_have_asked.set()
        await asyncio.gather(*decoded)

    run(test)
    assert order.index("modest") <= 2, "after the run that was going on"
    assert max(runs) <= 2


def test_who_has_less_waits_for_one_run_of_others_however_its_chunk_is_cut(
    bundle: Bundle, decoding: CodecDecoding, monkeypatch: pytest.MonkeyPatch
) -> None:
    greedy, modest = (
        [(code,) * bundle.manifest.codec.n_codebooks] * LARGEST_CHUNK_FRAMES for code in range(2)
    )
    owners: list[int] = []
    plain = CodecDecoder.run

    def noted(self: CodecDecoder, codes: Any, *given: Any) -> Any:
        owners.append(int(codes[0, 0, 0]))
        return plain(self, codes, *given)

    monkeypatch.setattr(CodecDecoder, "run", noted)

    async def test() -> None:
        many, one = [decoding.stream("greedy") for _ in range(20)], decoding.stream("modest")
        decoded = [stream.decode(greedy, last=False) for stream in many]
        audio, *_ = await asyncio.gather(one.decode(modest, last=False), *decoded)
        assert len(audio)

    run(test)
    n_runs = LARGEST_CHUNK_FRAMES // LARGEST_CHUNK_FRAMES_IN_COMPANY
    first = owners.index(1)
    assert first <= 1 and owners[first:][:n_runs] == [1] * n_runs
    assert owners.count(1) == n_runs


def test_who_was_there_a_moment_ago_is_company(
    bundle: Bundle, decoding: CodecDecoding, runs: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(codec_decoding, "COMPANY_SECONDS", 3600.0)
    frames = [(0,) * bundle.manifest.codec.n_codebooks] * 4

    async def test() -> None:
        with decoding.stream("modest") as stream:
            await stream.decode(frames, last=True)
        streams = [decoding.stream("greedy") for _ in range(12)]
        await asyncio.gather(*(stream.decode(frames, last=False) for stream in streams))

    run(test)
    assert sum(runs) == 13
    assert max(runs) <= LARGEST_RUN_IN_COMPANY


def test_in_light_company_runs_leave_as_much_time_between_them_as_they_take(
    bundle: Bundle, decoding: CodecDecoding, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_seconds, n_runs = 0.05, 6
    begun: list[float] = []
    plain = CodecDecoder.run

    def slow(self: CodecDecoder, codes: Any, *given: Any) -> Any:
        begun.append(time.monotonic())
        time.sleep(run_seconds)
        return plain(self, codes, *given)

    monkeypatch.setattr(CodecDecoder, "run", slow)
    frames = [(0,) * bundle.manifest.codec.n_codebooks] * 4

    async def test() -> None:
        many = [decoding.stream("greedy") for _ in range(n_runs * LARGEST_RUN_IN_COMPANY)]
        with decoding.stream("modest"):
            await asyncio.gather(*(stream.decode(frames, last=False) for stream in many))

    run(test)
    assert len(begun) >= n_runs
    assert all(later - earlier >= 2 * run_seconds for earlier, later in pairwise(begun))


def test_a_closed_decoding_gives_up_what_waits(tiny_bundle: Path) -> None:
    async def test() -> None:
        decoding = CodecDecoding(Bundle.open(tiny_bundle))
        stream = decoding.stream()
        assert len(await stream.decode([(0, 0, 0)] * 6, last=False)) > 0
        decoding.close()
        with pytest.raises(UnavailableError):
            await stream.decode([(0, 0, 0)], last=False)

    run(test)
