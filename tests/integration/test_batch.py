"""GenerateBatch, on a real server inside the test: many notes asked for, each answered as it is finished."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from google.rpc import code_pb2, error_details_pb2
from in_process_server import PATIENCE_SECONDS, run, serving, slow_steps, wait_until_idle
from waiting import wait_for_async

from timbrel_bundle.bundle import Bundle
from timbrel_bundle.codec import CodecDecoder
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb
from timbrel_protos.timbrel.v1 import synthesizer_pb2_grpc as pb_grpc
from timbrel_server.decoder.runner import Runner
from timbrel_server.signals import StopSignal

LIVELY = pb.Sampling(temperature=1.0, top_k=256, top_p=1.0)


def note(seed: int, **fields: Any) -> pb.GenerateRequest:
    chosen = {"timbre": pb.Timbre(x=0.1, y=0.2), "pitch": 48 + seed % 40, "seed": seed, "sampling": LIVELY}
    return pb.GenerateRequest(**{**chosen, "seconds": 0.1 + seed % 7 * 0.05, **fields})


def item(item_id: int, **fields: Any) -> pb.GenerateBatchRequest:
    return pb.GenerateBatchRequest(id=item_id, note=note(item_id, **fields))


async def answers(stub: Any, items: Sequence[pb.GenerateBatchRequest]) -> list[pb.GenerateBatchResponse]:
    """What a stream of these items answers, in the order it comes."""
    return [response async for response in stub.GenerateBatch(iter(items))]


async def generate(stub: Any, asked: pb.GenerateRequest) -> list[pb.GenerateResponse]:
    return [reply async for reply in stub.Generate(asked)]


def served(bundle: Path, test: Callable[[Any, Any], Awaitable[None]], **options: Any) -> None:
    """Runs a test on a server, which must be idle in the end."""

    async def whole() -> None:
        async with serving(bundle, **options) as (app, stub, _):
            await test(app, stub)
            await wait_until_idle(app)

    run(whole)


def standing_still(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Has the engine take no step before this event is set."""
    go_on = threading.Event()
    step = Runner.step

    def stepping(self: Runner, rows: Any) -> list[list[int]]:
        assert go_on.wait(PATIENCE_SECONDS)
        return step(self, rows)

    monkeypatch.setattr(Runner, "step", stepping)
    return go_on


def n_in_hand(app: Any) -> int:
    """Notes in a slot or in the queue. Not read at one moment: one may go from here to there meanwhile."""
    return int(app.engine.n_occupied + app.engine.n_waiting)


def faulty_fields(status: Any) -> list[str]:
    detail = error_details_pb2.BadRequest()
    assert status.details[0].Unpack(detail)
    return [violation.field for violation in detail.field_violations]


def test_streams_that_say_nothing_leave_room_for_others_whatever_the_slots(tiny_bundle: Path) -> None:
    async def test(_: Any, stub: Any) -> None:
        silent = [stub.GenerateBatch() for _ in range(3)]
        for call in silent:
            await call.initial_metadata()
        (answer,) = await asyncio.wait_for(answers(stub, [item(1)]), PATIENCE_SECONDS)
        assert answer.status.code == code_pb2.OK
        for call in silent:
            await call.done_writing()
            assert [response async for response in call] == []

    served(tiny_bundle, test, n_slots=1, max_item_streams=128, caller_share=1 / 32)


def test_every_item_is_answered_once_with_the_note_that_generate_gives(tiny_bundle: Path) -> None:
    async def test(app: Any, stub: Any) -> None:
        responses = await answers(stub, [item(number) for number in range(40)])
        assert sorted(response.id for response in responses) == list(range(40))
        for response in responses:
            assert response.HasField("status") and response.status.code == code_pb2.OK
            alone = await generate(stub, note(response.id))
            whole = response.note
            assert whole.codes.data == b"".join(reply.codes.data for reply in alone)
            assert whole.codes.n_frames == sum(reply.codes.n_frames for reply in alone)
            assert whole.header == alone[0].header and whole.header.seed == response.id
            assert whole.finish_reason == alone[-1].finish_reason
            assert whole.held_seconds == alone[-1].held_seconds

    served(tiny_bundle, test)


def test_results_come_as_they_finish(tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(app: Any, stub: Any) -> None:
        go_on = standing_still(monkeypatch)
        long, short = item(1, seconds=2.4), item(2, seconds=0.1)
        answering = asyncio.create_task(answers(stub, [long, short]))
        await wait_for_async(lambda: n_in_hand(app) == 2, "both to be read")
        go_on.set()
        assert [response.id for response in await answering] == [2, 1]

    served(tiny_bundle, test)


def test_a_bad_item_concerns_itself_only(tiny_bundle: Path) -> None:
    async def test(app: Any, stub: Any) -> None:
        items = [
            item(1),
            item(2, pitch=5, seconds=-1.0),
            item(3, bundle="another"),
            item(4, bundle_hash="00"),
            pb.GenerateBatchRequest(id=5),
            item(6),
        ]
        by_id = {response.id: response for response in await answers(stub, items)}
        assert {number: by_id[number].status.code for number in by_id} == {
            1: code_pb2.OK,
            2: code_pb2.INVALID_ARGUMENT,
            3: code_pb2.NOT_FOUND,
            4: code_pb2.FAILED_PRECONDITION,
            5: code_pb2.INVALID_ARGUMENT,
            6: code_pb2.OK,
        }
        assert faulty_fields(by_id[2].status) == ["pitch", "seconds"]
        assert faulty_fields(by_id[5].status) == ["timbre", "pitch"]
        assert all(by_id[number].HasField("note") == (number in (1, 6)) for number in by_id)

    served(tiny_bundle, test)


def test_an_id_that_lives_is_refused_and_one_that_has_ended_is_free(
    tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(app: Any, stub: Any) -> None:
        is_refused = standing_still(monkeypatch)  # the first note lives until then
        call = stub.GenerateBatch()
        await call.write(item(7, seconds=1.0))
        await call.write(pb.GenerateBatchRequest(id=7, note=note(1)))
        refusal = await call.read()
        assert (refusal.id, refusal.status.code) == (7, code_pb2.INVALID_ARGUMENT)
        assert faulty_fields(refusal.status) == ["id"]
        is_refused.set()
        first = await call.read()
        assert first.status.code == code_pb2.OK and first.note.header.seed == 7
        await call.write(pb.GenerateBatchRequest(id=7, note=note(1)))
        second = await call.read()
        assert second.status.code == code_pb2.OK and second.note.header.seed == 1
        await call.done_writing()
        assert await call.read() is grpc.aio.EOF
        assert await call.code() is grpc.StatusCode.OK

    served(tiny_bundle, test)


@pytest.mark.parametrize("audio", [pb.AUDIO_FORMAT_FLOAT32, pb.AUDIO_FORMAT_FLAC])
def test_notes_may_come_as_audio(tiny_bundle: Path, audio: pb.AudioFormat) -> None:
    async def test(app: Any, stub: Any) -> None:
        codec = CodecDecoder(Bundle.open(tiny_bundle))
        responses = await answers(stub, [item(number, audio=audio) for number in range(20)])
        assert len(responses) == 20
        for response in responses:
            assert response.status.code == code_pb2.OK
            assert not response.note.HasField("codes")
            if audio == pb.AUDIO_FORMAT_FLAC:
                assert response.note.audio.startswith(b"fLaC")
                continue
            written = b"".join(reply.codes.data for reply in await generate(stub, note(response.id)))
            expected = codec.decode(np.frombuffer(written, "<u2").reshape(-1, 3), note(response.id).seed)
            np.testing.assert_allclose(np.frombuffer(response.note.audio, "<f4"), expected, atol=1e-4)

    served(tiny_bundle, test)


def test_no_more_is_read_than_may_be_in_flight(tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(app: Any, stub: Any) -> None:
        limit = (await stub.GetModel(pb.GetModelRequest())).engine.max_in_flight
        assert limit >= 2 * app.engine.n_slots
        go_on = standing_still(monkeypatch)
        call = stub.GenerateBatch()
        for number in range(3 * limit):
            await call.write(item(number, seconds=2.4))
        await wait_for_async(
            lambda: app.engine.n_occupied and n_in_hand(app) >= limit, "as many as may be in flight"
        )
        for _ in range(20):
            assert n_in_hand(app) == limit
            await asyncio.sleep(0.005)
        go_on.set()
        await call.done_writing()
        assert len({response.id async for response in call}) == 3 * limit

    served(tiny_bundle, test, n_slots=2)


def test_a_batch_waits_where_the_queue_is_full(tiny_bundle: Path) -> None:
    """And is refused nothing, though its stream alone holds more than the queue does."""

    async def test(app: Any, stub: Any) -> None:
        streams = [answers(stub, [item(number) for number in range(60)]) for _ in range(3)]
        for responses in await asyncio.gather(*streams):
            assert {response.status.code for response in responses} == {code_pb2.OK}
            assert len(responses) == 60

    served(tiny_bundle, test, n_slots=2, queue_capacity=1)


def test_batches_share_the_engine(tiny_bundle: Path) -> None:
    """One that comes late does not wait until the first has ended."""

    async def test(app: Any, stub: Any) -> None:
        order: list[str] = []

        async def follow(name: str, n_items: int) -> None:
            async for _ in stub.GenerateBatch(iter([item(number, seconds=0.3) for number in range(n_items)])):
                order.append(name)

        first = asyncio.create_task(follow("first", 394))
        await wait_for_async(lambda: len(order) >= 20, "20 notes of the first")
        await asyncio.gather(first, follow("second", 20))
        begun, ended = order.index("second"), len(order) - 1 - order[::-1].index("second")
        # Turn by turn, the second's 20 take about as long as 20 of the first's.
        assert order[begun:ended].count("first") < 20 + 2 * 32 + 10
        assert order[-20:].count("first") == 20

    served(tiny_bundle, test, n_slots=2)


def test_a_cancelled_batch_frees_its_slots(tiny_bundle: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def test(app: Any, stub: Any) -> None:
        with slow_steps(0.05):  # the notes outlast the looks at them
            for _ in range(5):
                call = stub.GenerateBatch()
                for number in range(40):
                    await call.write(item(number, seconds=2.4, audio=number % 2))
                await wait_for_async(lambda: app.engine.n_occupied == 2, "both slots to be in use")
                call.cancel()
                await wait_until_idle(app)
        assert len(await answers(stub, [item(1)])) == 1

    served(tiny_bundle, test, n_slots=2)
    assert "internal error" not in caplog.text and "Traceback" not in caplog.text


def test_bytes_that_are_no_message_end_the_call_once_the_rest_is_answered(tiny_bundle: Path) -> None:
    async def test() -> None:
        async with serving(tiny_bundle) as (app, _, channel):
            call: Any = channel.stream_stream("/timbrel.v1.Synthesizer/GenerateBatch")()
            for number in range(10):
                await call.write(item(number).SerializeToString())
            await call.write(b"\xff\xff\xff")
            heard = []
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                async for body in call:
                    heard.append(pb.GenerateBatchResponse.FromString(body))
            assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert sorted(response.id for response in heard) == list(range(10))
            assert all(response.status.code == code_pb2.OK for response in heard)
            await wait_until_idle(app)

    run(test)


def test_a_server_that_drains_answers_what_it_has_read(
    tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        async with serving(tiny_bundle, n_slots=2) as (app, stub, _):
            accepted = accepted_by(app, monkeypatch)
            call = stub.GenerateBatch()
            for number in range(8):
                await call.write(item(number, seconds=1.0))
            # Some may have ended before the last has come.
            await wait_for_async(
                lambda: len(accepted) == 8, "all items to be read", seen=lambda: len(accepted)
            )
            draining = asyncio.create_task(app.drain(StopSignal()))
            heard = []
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                async for response in call:
                    heard.append(response)
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
            assert sorted(response.id for response in heard) == list(range(8))
            assert all(response.status.code == code_pb2.OK for response in heard)
            await draining

    run(test)


def test_where_the_engine_dies_every_item_is_answered_so(
    tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once each: those that were being written, those that waited, and those that come later."""

    n_steps = itertools.count()
    all_are_read = threading.Event()
    step = Runner.step

    def breaking(self: Runner, rows: Any) -> list[list[int]]:
        if next(n_steps) < 5:
            return step(self, rows)
        assert all_are_read.wait(PATIENCE_SECONDS)
        raise RuntimeError("the device is gone")

    async def test() -> None:
        async with serving(tiny_bundle, n_slots=2) as (app, stub, _):
            monkeypatch.setattr(Runner, "step", breaking)
            call = stub.GenerateBatch()
            for number in range(20):
                await call.write(item(number, seconds=2.4))
            await wait_for_async(lambda: n_in_hand(app) == 20, "all items to be read")
            all_are_read.set()
            first = await call.read()
            await call.write(item(20))
            await call.done_writing()
            responses = [first]
            while (response := await call.read()) is not grpc.aio.EOF:
                responses.append(response)
            assert sorted(response.id for response in responses) == list(range(21))
            assert {response.status.code for response in responses} == {code_pb2.UNAVAILABLE}
            assert b"device" not in first.SerializeToString()
            assert await call.code() is grpc.StatusCode.OK

    run(test)


def padded(message: pb.GenerateBatchRequest, n_bytes: int) -> pb.GenerateBatchRequest:
    """The same item with a field that no server knows, so that the stream's window holds few of them."""
    message.MergeFromString(b"\xfa\x01" + bytes([n_bytes & 127 | 128, n_bytes >> 7]) + bytes(n_bytes))
    return message


def accepted_by(app: Any, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the engine takes on from now."""
    accepted: list[Any] = []
    accept = app.engine.accept

    def counting(*arguments: Any) -> None:
        accept(*arguments)
        accepted.append(arguments)

    monkeypatch.setattr(app.engine, "accept", counting)
    return accepted


def has_come_to_rest(app: Any, accepted: list[Any], n_looks: int = 20) -> Callable[[], bool]:
    """Tells whether at so many looks in a row the engine had nothing to do, and took nothing on between."""
    looks: list[tuple[int, int]] = []

    def look() -> bool:
        looks.append((len(accepted), app.engine.n_occupied + app.engine.n_waiting))
        last = set(looks[-n_looks:])
        return bool(accepted) and len(looks) >= n_looks and last == {(len(accepted), 0)}

    return look


@contextlib.asynccontextmanager
async def writing(call: Any, items: Sequence[pb.GenerateBatchRequest]) -> AsyncIterator[list[int]]:
    """Writes items as fast as the stream takes them; yields the ids written so far."""
    written: list[int] = []

    async def write_all() -> None:
        for each in items:
            await call.write(each)
            written.append(each.id)
        await call.done_writing()

    task = asyncio.create_task(write_all())
    yield written
    await task


@pytest.mark.slow
@pytest.mark.parametrize("n_items", [300, pytest.param(10_000, marks=pytest.mark.acceptance)])
def test_a_slow_reader_holds_nothing_but_itself_up(
    tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch, n_items: int
) -> None:
    """Where it reads nothing, the server stops reading and writing; nothing piles up, and nothing is lost."""

    async def test() -> None:
        async with (
            serving(tiny_bundle) as (app, stub, _),
            grpc.aio.insecure_channel(app.address, [("grpc.http2.bdp_probe", 0)]) as narrow,
        ):
            accepted = accepted_by(app, monkeypatch)
            call = pb_grpc.SynthesizerStub(narrow).GenerateBatch()
            items = [
                padded(item(number, seconds=0.1, audio=pb.AUDIO_FORMAT_FLOAT32), 4000)
                for number in range(n_items)
            ]
            async with writing(call, items) as written:
                await wait_for_async(has_come_to_rest(app, accepted), "the server to read no more")
                print("REST", len(written), len(accepted))
                assert len(accepted) < n_items, "the reader should hold the server back"
                assert (await generate(stub, note(1)))[-1].finish_reason
                seen = [response.id async for response in call]
            assert sorted(seen) == list(range(n_items))
            await wait_until_idle(app)

    asyncio.run(asyncio.wait_for(test(), 10 * PATIENCE_SECONDS))
