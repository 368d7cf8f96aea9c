"""Play, on a real server inside the test: keys that go down and up while notes sound."""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from cut_proxy import CutProxy
from google.rpc import code_pb2
from in_process_server import PATIENCE_SECONDS, run, serving, wait_until_idle
from waiting import wait_for_async

from timbrel_bundle.bundle import Bundle
from timbrel_bundle.codec import CodecDecoder
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb
from timbrel_protos.timbrel.v1 import synthesizer_pb2_grpc as pb_grpc
from timbrel_server import grpc_server
from timbrel_server.config import BundleSource
from timbrel_server.rpc.listener import server_options
from timbrel_server.signals import StopSignal
from timbrel_server.synthesizer.play import MAX_LIVE_NOTES

LIVELY = pb.Sampling(temperature=1.0, top_k=256, top_p=1.0)
UNHURRIED = 60.0
"""Seconds of lead: longer than any note, so that nothing waits for real time."""
HEADER_FRAMES = 4
"""Frames of a note of the tiny bundle that are not heard."""


def note(seed: int, **fields: Any) -> pb.GenerateRequest:
    chosen = {"timbre": pb.Timbre(x=0.1, y=0.2), "pitch": 48 + seed % 40, "seed": seed, "sampling": LIVELY}
    return pb.GenerateRequest(**{**chosen, **fields})


class Keyboard:
    """A Play stream, and what was heard on it by id."""

    def __init__(self, call: Any) -> None:
        self.call = call
        self.replies: defaultdict[int, list[pb.GenerateResponse]] = defaultdict(list)
        self.errors: dict[int, Any] = {}
        self.refusals: list[tuple[int, int]] = []
        self._heard = asyncio.Condition()
        self._listening = asyncio.create_task(self._listen())

    async def on(self, note_id: int, seed: int = 1, lead: float = UNHURRIED, **fields: Any) -> None:
        note_on = pb.NoteOn(note=note(seed, **fields), lead_seconds=lead)
        await self.call.write(pb.PlayRequest(id=note_id, note_on=note_on))

    async def off(self, note_id: int) -> None:
        await self.call.write(pb.PlayRequest(id=note_id, note_off=pb.NoteOff()))

    async def cancel(self, note_id: int) -> None:
        await self.call.write(pb.PlayRequest(id=note_id, cancel=pb.NoteCancel()))

    async def until(self, happened: Callable[[], object]) -> None:
        async with self._heard:
            await self._heard.wait_for(happened)

    async def close(self) -> None:
        """Half-closes, and hears what there is to hear."""
        await self.call.done_writing()
        await self._listening

    @property
    def sounding(self) -> list[int]:
        return [note_id for note_id in tuple(self.replies) if self.n_frames(note_id)]

    def n_frames(self, note_id: int) -> int:
        return sum(reply.codes.n_frames for reply in self.replies[note_id])

    def codes(self, note_id: int) -> bytes:
        return b"".join(reply.codes.data for reply in self.replies[note_id])

    def audio(self, note_id: int) -> bytes:
        return b"".join(reply.audio for reply in self.replies[note_id])

    def last(self, note_id: int) -> pb.GenerateResponse:
        return self.replies[note_id][-1]

    def finished(self, note_id: int) -> bool:
        return bool(self.replies[note_id]) and self.last(note_id).finish_reason != 0

    async def _listen(self) -> None:
        with contextlib.suppress(grpc.aio.AioRpcError):  # `call.code()` tells
            async for response in self.call:
                async with self._heard:
                    self._take(response)
                    self._heard.notify_all()

    def _take(self, response: pb.PlayResponse) -> None:
        match response.WhichOneof("event"):
            case "reply":
                assert not self.finished(response.id) or response.reply.HasField("header")
                self.replies[response.id].append(response.reply)
            case "error":
                self.errors[response.id] = response.error
            case _:
                self.refusals.append((response.id, response.refusal.code))


@contextlib.asynccontextmanager
async def playing(bundle: Path, **options: Any) -> AsyncIterator[tuple[Any, Any, Keyboard]]:
    async with serving(bundle, **options) as (app, stub, _):
        keyboard = Keyboard(stub.Play())
        try:
            yield app, stub, keyboard
        finally:
            keyboard.call.cancel()


async def generate(stub: Any, asked: pb.GenerateRequest) -> bytes:
    return b"".join([reply.codes.data async for reply in stub.Generate(asked)])


def played(bundle: Path, test: Callable[[Any, Any, Keyboard], Awaitable[None]], **options: Any) -> None:
    async def whole() -> None:
        async with playing(bundle, **options) as (app, stub, keyboard):
            await test(app, stub, keyboard)
            await wait_until_idle(app)

    run(whole)


def test_a_note_that_was_played_is_the_note_of_its_hold(tiny_bundle: Path, ticks: list[int]) -> None:
    async def test(app: Any, stub: Any, keyboard: Keyboard) -> None:
        ahead = 2 + HEADER_FRAMES
        for seed in range(6):
            await keyboard.on(seed, seed, lead=2 / 37.5)
        for seed in range(6):
            await keyboard.until(lambda n=seed: keyboard.n_frames(n) == ahead)  # type: ignore[misc]
        for seed in range(6):
            ticks[0] = 4 * seed
            await keyboard.until(lambda n=seed: keyboard.n_frames(n) == ahead + ticks[0])  # type: ignore[misc]
            await keyboard.off(seed)
        await keyboard.close()
        holds = []
        for seed in range(6):
            assert keyboard.replies[seed][0].header.seed == seed
            holds.append(keyboard.last(seed).held_seconds)
            assert await generate(stub, note(seed, seconds=holds[-1])) == keyboard.codes(seed)
        assert holds[0] < holds[5] < 2.4

    played(tiny_bundle, test)


def test_a_live_note_keeps_to_real_time(tiny_bundle: Path, ticks: list[int]) -> None:
    """Whoever plays live would otherwise let go of a key whose note has been written to its end."""

    async def test(app: Any, stub: Any, keyboard: Keyboard) -> None:
        lead = 9  # frames ahead of real time
        await keyboard.on(1, lead=lead / 37.5)
        for tick in (0, 25, 26):
            ticks[0] = tick
            n_frames = HEADER_FRAMES + lead + tick
            await keyboard.until(lambda n=n_frames: keyboard.n_frames(1) == n)  # type: ignore[misc]
        await keyboard.off(1)
        await keyboard.close()
        assert round(keyboard.last(1).held_seconds * 37.5) == lead + 26

    played(tiny_bundle, test)


def test_keys_that_are_down_go_up_where_the_stream_is_half_closed(
    tiny_bundle: Path, ticks: list[int]
) -> None:
    async def test(app: Any, stub: Any, keyboard: Keyboard) -> None:
        await keyboard.on(1, seed=1, lead=0.2)
        await keyboard.on(2, seed=2, lead=0.2)
        await keyboard.until(lambda: keyboard.replies[1] and keyboard.replies[2])
        await keyboard.close()
        assert keyboard.finished(1) and keyboard.finished(2)
        assert keyboard.last(1).held_seconds < 2.0
        assert await keyboard.call.code() is grpc.StatusCode.OK

    played(tiny_bundle, test)


def test_what_is_wrong_with_one_note_concerns_that_note_only(tiny_bundle: Path, ticks: list[int]) -> None:
    async def test(app: Any, stub: Any, keyboard: Keyboard) -> None:
        await keyboard.on(1, seed=1, lead=0.2)  # lives on until its key goes up: real time stands still
        await keyboard.on(1, seed=2)
        await keyboard.on(2, pitch=5)
        await keyboard.on(3, lead=-1.0)
        await keyboard.on(4, bundle="another")
        await keyboard.off(9)
        await keyboard.cancel(8)
        await keyboard.call.write(pb.PlayRequest(id=7))
        await keyboard.off(1)
        await keyboard.until(lambda: keyboard.finished(1))
        await keyboard.close()
        assert keyboard.codes(1) == await generate(stub, note(1, seconds=keyboard.last(1).held_seconds))
        assert {number: error.code for number, error in keyboard.errors.items()} == {
            2: code_pb2.INVALID_ARGUMENT,
            3: code_pb2.INVALID_ARGUMENT,
            4: code_pb2.NOT_FOUND,
        }
        assert keyboard.errors[2].details
        assert keyboard.refusals == [
            (1, code_pb2.INVALID_ARGUMENT),
            (9, code_pb2.NOT_FOUND),
            (8, code_pb2.NOT_FOUND),
            (7, code_pb2.INVALID_ARGUMENT),
        ]

    played(tiny_bundle, test)


def test_letting_go_of_a_note_that_has_ended_is_harmless_and_its_id_may_be_used_again(
    tiny_bundle: Path,
) -> None:
    async def test(app: Any, stub: Any, keyboard: Keyboard) -> None:
        await keyboard.on(1, seed=1, seconds=0.2)
        await keyboard.until(lambda: keyboard.finished(1))
        await keyboard.off(1)
        await keyboard.off(1)
        await keyboard.cancel(1)
        first = keyboard.codes(1)
        keyboard.replies[1].clear()
        await keyboard.on(1, seed=1, seconds=0.2)
        await keyboard.until(lambda: keyboard.finished(1))
        await keyboard.close()
        assert keyboard.codes(1) == first
        assert not keyboard.refusals and not keyboard.errors

    played(tiny_bundle, test)


def test_a_cancelled_note_ends_at_once(tiny_bundle: Path, ticks: list[int]) -> None:
    async def test(app: Any, stub: Any, keyboard: Keyboard) -> None:
        await keyboard.on(1, lead=0.2)
        await keyboard.on(2, lead=0.2)
        await keyboard.until(lambda: keyboard.replies[1])
        await keyboard.cancel(1)
        await keyboard.until(lambda: 1 in keyboard.errors)
        assert keyboard.errors[1].code == code_pb2.CANCELLED
        await wait_for_async(lambda: app.engine.n_occupied <= 1, "its slot to be free")
        await keyboard.close()
        assert not keyboard.finished(1) and keyboard.finished(2)

    played(tiny_bundle, test)


def test_a_note_that_waits_for_room_for_its_sound_is_cancelled_at_once(
    tiny_bundle: Path, ticks: list[int]
) -> None:
    async def test(app: Any, stub: Any, keyboard: Keyboard) -> None:
        limit = next(limit for limit in app._server.limits if limit.name == "max_audio_bytes")
        await keyboard.on(1, lead=0.1, audio=pb.AUDIO_FORMAT_WAV)
        await wait_for_async(lambda: limit.in_use, "the first note to have its room")
        await keyboard.on(2, lead=0.1, audio=pb.AUDIO_FORMAT_WAV)
        await wait_for_async(lambda: limit.n_waiting, "the second note to wait")
        await keyboard.cancel(2)
        await keyboard.until(lambda: 2 in keyboard.errors)
        assert keyboard.errors[2].code == code_pb2.CANCELLED and limit.n_waiting == 0
        await keyboard.close()
        assert keyboard.finished(1) and limit.in_use == 0

    played(tiny_bundle, test, max_audio_bytes=1 << 20, caller_share=0.1)


def test_a_stream_has_only_so_many_live_notes(tiny_bundle: Path, ticks: list[int]) -> None:
    async def test(app: Any, stub: Any, keyboard: Keyboard) -> None:
        model = await stub.GetModel(pb.GetModelRequest())
        assert model.engine.max_live_notes == MAX_LIVE_NOTES
        for number in range(MAX_LIVE_NOTES + 1):
            await keyboard.on(number, seed=number, lead=0.2)
        await keyboard.until(lambda: keyboard.errors)
        assert {number: error.code for number, error in keyboard.errors.items()} == {
            MAX_LIVE_NOTES: code_pb2.RESOURCE_EXHAUSTED
        }
        await keyboard.close()
        assert all(keyboard.finished(number) for number in range(MAX_LIVE_NOTES))

    played(tiny_bundle, test, n_slots=4)


def test_a_stream_that_breaks_off_frees_its_slots(
    tiny_bundle: Path, ticks: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    async def test(app: Any, stub: Any, keyboard: Keyboard) -> None:
        for number in range(12):
            await keyboard.on(number, seed=number, lead=0.05)
        await keyboard.until(lambda: len(keyboard.replies) >= 4)
        assert app.engine.n_occupied == 4
        keyboard.call.cancel()
        await wait_until_idle(app)
        assert await generate(stub, note(1, seconds=0.2))

    played(tiny_bundle, test, n_slots=4)
    assert "internal error" not in caplog.text


def test_the_notes_of_a_caller_that_vanished_free_their_slots(
    tiny_bundle: Path, ticks: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    hurried = {"grpc.keepalive_time_ms": 500, "grpc.http2.ping_timeout_ms": 3000}  # a busy machine has that

    def options(*args: Any) -> list[tuple[str, int]]:
        return [(name, hurried.get(name, value)) for name, value in server_options(*args)]

    monkeypatch.setattr(grpc_server, "server_options", options)

    async def test() -> None:
        async with serving(tiny_bundle) as (app, _, _):
            with CutProxy(app.address) as proxy:
                async with grpc.aio.insecure_channel(proxy.address) as channel:
                    keyboard = Keyboard(pb_grpc.SynthesizerStub(channel).Play())
                    await keyboard.on(1, lead=0.05)
                    await keyboard.until(lambda: keyboard.sounding)
                    proxy.forget()
                    await wait_for_async(lambda: not app.engine.n_occupied, "its slot", seconds=30.0)

    run(test)


def test_a_server_that_drains_lets_go_of_the_keys_and_waits_for_nothing_else(
    tiny_bundle: Path, ticks: list[int]
) -> None:
    async def test() -> None:
        async with playing(tiny_bundle) as (app, _, keyboard), asyncio.timeout(PATIENCE_SECONDS / 2):
            await keyboard.on(1, lead=0.2)
            await keyboard.until(lambda: keyboard.replies[1])
            await app.drain(StopSignal())  # its grace period is as long as the test's patience
            await keyboard.until(lambda: keyboard.finished(1))
            assert keyboard.last(1).held_seconds < 2.0
            assert await keyboard.call.code() is grpc.StatusCode.UNAVAILABLE

    run(test)


@pytest.mark.parametrize(
    "body",
    [
        b"\xff\xff\xff",
        pb.PlayRequest(note_on=pb.NoteOn(note={"bundle": "x" * (80 << 10)})).SerializeToString(),
    ],
)
def test_bytes_that_are_no_message_or_too_many_end_the_call(tiny_bundle: Path, body: bytes) -> None:
    async def test() -> None:
        async with serving(tiny_bundle) as (app, _, channel):
            raw: Any = channel.stream_stream("/timbrel.v1.Synthesizer/Play")
            call = raw()
            await call.write(pb.PlayRequest(id=1, note_on=pb.NoteOn(note=note(1))).SerializeToString())
            await call.write(body)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                async for _reply in call:
                    pass
            assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            await wait_until_idle(app)

    run(test)


def test_a_played_note_can_be_decoded_at_the_server(tiny_bundle: Path) -> None:
    async def test(app: Any, stub: Any, keyboard: Keyboard) -> None:
        await keyboard.on(1, seed=1, lead=0.1, audio=pb.AUDIO_FORMAT_FLOAT32)
        await keyboard.until(lambda: len(keyboard.replies[1]) > 5)
        await keyboard.close()
        held = keyboard.last(1).held_seconds
        codes = np.frombuffer(await generate(stub, note(1, seconds=held)), "<u2").reshape(-1, 3)
        heard = np.frombuffer(keyboard.audio(1), "<f4")
        codec = CodecDecoder(Bundle.open(tiny_bundle))
        np.testing.assert_allclose(heard, codec.decode(codes, seed=1), atol=1e-4)

    played(tiny_bundle, test)


def test_a_bend_is_heard_with_the_next_frames(tiny_bundle: Path, ticks: list[int]) -> None:
    """Of one note, and of all, later ones included; the sound up to then is as it was. Replies say where."""
    hop = Bundle.open(tiny_bundle).manifest.codec.hop_length

    async def test(app: Any, stub: Any, keyboard: Keyboard) -> None:
        async def bend(note_id: int, cents: float, of_all: bool = False) -> None:
            await keyboard.call.write(pb.PlayRequest(id=note_id, bend=pb.Bend(cents=cents, all=of_all)))

        await keyboard.on(1, seed=1, lead=0.02, audio=pb.AUDIO_FORMAT_FLOAT32)
        await keyboard.on(2, seed=2, lead=0.02)
        await keyboard.until(lambda: keyboard.replies[1] and keyboard.replies[2])
        ticks[0] = 6
        await keyboard.until(lambda: len(keyboard.replies[1]) > 5)
        await bend(2, 100.0)  # it is sent as codes
        await bend(3, 100.0)
        await bend(1, 2401.0)
        await keyboard.until(lambda: len(keyboard.refusals) == 3)
        assert keyboard.refusals == [
            (2, code_pb2.INVALID_ARGUMENT),
            (3, code_pb2.NOT_FOUND),
            (1, code_pb2.INVALID_ARGUMENT),
        ]
        await bend(1, 700.0)
        await bend(0, -200.0, of_all=True)
        n_before = len(keyboard.replies[1])
        ticks[0] = 12
        await keyboard.until(lambda: len(keyboard.replies[1]) > n_before + 5)
        await keyboard.on(4, seed=4, audio=pb.AUDIO_FORMAT_FLOAT32, seconds=0.3)
        await keyboard.close()
        codec = CodecDecoder(Bundle.open(tiny_bundle))
        for note_id, said in ((1, {(0.0, 500.0), (0.0, 700.0, 500.0)}), (4, {(-200.0,)})):
            assert tuple(dict.fromkeys(reply.cents for reply in audible(keyboard, note_id))) in said
            held = keyboard.last(note_id).held_seconds
            data = await generate(stub, note(note_id, seconds=held))
            codes = np.frombuffer(data, "<u2").reshape(-1, 3)
            stream = codec.stream(note_id)
            bent = [stream.push(frames, cents) for frames, cents in of_replies(codes, keyboard, note_id)]
            heard = np.frombuffer(keyboard.audio(note_id), "<f4")
            np.testing.assert_allclose(heard, np.concatenate([*bent, stream.finish()]), atol=1e-4)

    def audible(keyboard: Keyboard, note_id: int) -> list[pb.GenerateResponse]:
        return [reply for reply in keyboard.replies[note_id] if reply.HasField("cents")]

    def of_replies(codes: Any, keyboard: Keyboard, note_id: int) -> Iterator[tuple[Any, float]]:
        """The frames that each reply has the sound of, and its cents."""
        first = 0
        for reply in audible(keyboard, note_id):
            behind = (first or HEADER_FRAMES) + -(-len(reply.audio) // (4 * hop))
            yield codes[first:behind], reply.cents
            first = behind

    played(tiny_bundle, test)


def test_a_note_keeps_to_the_bundle_that_it_was_asked_of(
    tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though another takes its place before anything of the note is heard, and would free it if it could."""

    async def test(app: Any, stub: Any, keyboard: Keyboard) -> None:
        await keyboard.call.initial_metadata()
        loop = asyncio.get_running_loop()
        old = app._bundles.find()
        new = app._loader.open(BundleSource(tiny_bundle, old.name))
        new.manifest.bundle_hash = "another"
        new.attach(old.engine, old.sessions)
        find = app._bundles.find

        def find_and_switch(*names: str) -> Any:
            loop.call_soon(app._bundles.replace, new)
            return find(*names)

        monkeypatch.setattr(app._bundles, "find", find_and_switch)
        await keyboard.on(1, audio=pb.AUDIO_FORMAT_FLOAT32, seconds=2.4)
        while find() is old:
            await asyncio.sleep(0)
        assert old.in_use and not new._n_in_hand
        await keyboard.until(lambda: keyboard.finished(1))
        await keyboard.close()
        assert keyboard.replies[1][0].header.bundle_hash == old.manifest.bundle_hash
        assert len(keyboard.audio(1)) > 0
        assert new.decoding._thread is None, "it should have decoded nothing"
        assert not old._n_in_hand
        new.decoding.close()
        new.locator.close()

    played(tiny_bundle, test)


def test_a_stream_that_breaks_off_lets_go_of_its_bundle(tiny_bundle: Path) -> None:
    async def test(app: Any, stub: Any, keyboard: Keyboard) -> None:
        served = app._bundles.find()
        for note_id in range(8):
            await keyboard.on(note_id, audio=pb.AUDIO_FORMAT_FLOAT32, seconds=2.4)
        await keyboard.until(lambda: keyboard.replies)
        keyboard.call.cancel()
        await wait_for_async(lambda: not served.in_use, "the bundle to be let go of")

    played(tiny_bundle, test)
