"""The words of the explorer's WebSocket, and the bounded buffer of what a page is sent."""

from __future__ import annotations

import asyncio
import bisect
import json
import math
import struct
from typing import Any

import pytest

from timbrel.errors import DeadlineExceededError, OverloadedError, ServerError
from timbrel.explore import messages
from timbrel.explore.messages import (
    BadMessageError,
    NoteChange,
    NoteOn,
    Ping,
    SendBuffer,
    StalledError,
    parse_message,
)
from timbrel.explore.session import PageNote
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb


def test_what_a_page_may_say() -> None:
    text = json.dumps({"type": "on", "id": 4294967295, "x": 0.1, "pitch": 60, "lead": 0.05, "live": False})
    assert parse_message(text) == NoteOn(4294967295, {"x": 0.1, "pitch": 60}, False, 0.05)
    assert parse_message('{"type":"on","id":1}') == NoteOn(1, {}, True, None)
    assert parse_message('{"type":"off","id":1}') == NoteChange(1, "off")
    assert parse_message('{"type":"cancel","id":1}') == NoteChange(1, "cancel")
    assert parse_message('{"type":"bend","id":1,"cents":-50.5}') == NoteChange(1, "bend", -50.5)
    assert parse_message('{"type":"ping","t":[1.5,null]}') == Ping([1.5, None])


def test_a_token_nested_as_deep_as_can_be_is_said_or_refused() -> None:
    def answer(message: messages.Message) -> str:
        assert isinstance(message, Ping)
        return messages.pong(message.token)

    def is_refused(depth: int) -> bool:
        text = '{"type":"ping","t":' + "[" * depth + "1" + "]" * depth + "}"
        try:
            assert answer(parse_message(text)).count("[") == depth
        except BadMessageError:
            return True
        return False

    # Python 3.11 reads nearly a thousand, 3.13 nearly ten thousand; what is read cannot always be written.
    deepest = bisect.bisect_left(range(100_000), True, key=is_refused)
    assert 500 < deepest < 100_000
    assert {is_refused(depth) for depth in range(deepest - 50, deepest + 50)} == {False, True}


@pytest.mark.parametrize("fields", ['"id":1,"live":', '"id":1,"lead":', '"id":'])
def test_a_field_nested_as_deep_as_can_be_is_refused(fields: str) -> None:
    for depth in [*range(800, 1100), *range(5_000, 8_000, 10)]:  # a page's message has no more
        with pytest.raises(BadMessageError):
            parse_message('{"type":"on",' + fields + "[" * depth + "]" * depth + "}")


@pytest.mark.parametrize(
    ("text", "note_id"),
    [
        ('{"type":"on","id":4294967296}', None),
        ('{"type":"on","id":1.0}', None),
        ('{"type":"bend","id":3}', 3),
        ('{"type":"bend","id":3,"cents":2401}', 3),
        ('{"type":"bend","id":3,"cents":[[0,1]]}', 3),
        ('{"type":"bend","id":3,"cents":true}', 3),
        ('{"type":"off","id":3,"x":1}', 3),
        ('{"type":"on","id":3,"lead":true}', 3),
        ('{"type":"on","id":3,"lead":61}', 3),
        ('{"type":"on","id":3,"lead":1' + "0" * 400 + "}", 3),
        ('{"type":["on"]}', None),
        ('{"type":"on","id":' + "9" * 5000 + "}", None),
        ("", None),
        ("null", None),
    ],
)
def test_what_it_may_not(text: str, note_id: int | None) -> None:
    with pytest.raises(BadMessageError) as caught:
        parse_message(text)
    assert caught.value.note_id == note_id
    assert len(str(caught.value)) < 300


def test_what_a_page_is_told() -> None:
    assert json.loads(messages.start(1, 2**64 - 1, 48000)) == {
        **{"type": "start", "id": 1, "seed": 2**64 - 1, "sample_rate": 48000}
    }
    assert messages.audio(258, b"abcd") == struct.pack("<I", 258) + b"abcd"
    assert json.loads(messages.release(1, 1.2)) == {"type": "release", "id": 1, "held_seconds": 1.2}
    assert json.loads(messages.server(True, "")) == {"type": "server", "state": "back"}
    assert json.loads(messages.server(False, "gone")) == {
        "type": "server",
        "state": "away",
        "message": "gone",
    }


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        *(({"held_seconds": each}, "the key was held for") for each in (math.nan, math.inf, -math.inf)),
        *(({"cents": each}, "the sound is bent by") for each in (math.nan, math.inf, 2401.0)),
    ],
)
def test_a_note_with_a_number_that_cannot_be_ends_in_one_line_of_json(
    numbers: dict[str, float], words: str
) -> None:
    """JSON has no such numbers: a page could not read what the server has said."""

    async def told() -> tuple[str | bytes, int]:
        buffer = SendBuffer()
        note = PageNote(1, buffer, lambda: None, errors.append)
        await note.take(pb.GenerateResponse(**numbers, audio=bytes(4)))
        await note.take(pb.GenerateResponse(**numbers, finish_reason=pb.FINISH_REASON_EOS))
        return await buffer.take(), buffer.n_bytes

    errors: list[Exception] = []
    said, n_bytes_left = asyncio.run(told())
    assert json.loads(said)["type"] == "error" and words in json.loads(said)["message"]
    assert n_bytes_left == 0 and len(errors) == 1


def test_a_page_is_told_how_its_sound_is_bent_before_the_sound_comes() -> None:
    """Once for each bend, the first of none included; never by a server that says nothing of it."""

    async def told(*cents: float | None) -> list[Any]:
        buffer = SendBuffer()
        note = PageNote(1, buffer, lambda: None, lambda error: None)
        note.codec = pb.CodecSpec(delay_samples=256, hop_length=1280)
        for each in cents:
            await note.take(pb.GenerateResponse(audio=bytes(4), cents=each))
        frames = [await buffer.take() for _ in range(len(buffer._frames))]
        return [json.loads(frame) if isinstance(frame, str) else "sound" for frame in frames]

    plain, bent = (
        {"type": "bent", "id": 1, "cents": each, "after": 256, "within": 1280} for each in (0, 50.5)
    )
    assert asyncio.run(told(0.0, 0.0, 50.5, 50.5)) == [plain, "sound", "sound", bent, "sound", "sound"]
    assert asyncio.run(told(None, None)) == ["sound", "sound"]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (OverloadedError("full"), "overloaded"),
        (DeadlineExceededError("late"), "deadline"),
        (ServerError("bug\nsecond line"), "internal"),
    ],
)
def test_errors_have_a_code_and_one_line(error: Exception, code: str) -> None:
    told = json.loads(messages.error_of_note(7, error))  # type: ignore[arg-type]
    assert (told["type"], told["id"], told["code"]) == ("error", 7, code)
    assert "\n" not in told["message"]


def test_frames_come_out_in_order_and_putting_waits_for_room() -> None:
    async def test() -> None:
        buffer = SendBuffer(max_bytes=10, patience_seconds=60)
        await buffer.put("12345")
        await buffer.put(b"67890")
        late = asyncio.create_task(buffer.put("x"))
        await asyncio.sleep(0)
        assert not late.done() and buffer.n_bytes == 10
        assert await buffer.take() == "12345"
        await late
        assert [await buffer.take(), await buffer.take()] == [b"67890", "x"]
        assert buffer.n_bytes == 0

    asyncio.run(test())


def test_where_no_room_comes_the_page_is_given_up() -> None:
    async def test() -> None:
        buffer = SendBuffer(max_bytes=10, patience_seconds=0.01)
        await buffer.put(bytes(10))
        with pytest.raises(StalledError, match="its notes were ended"):
            await buffer.put("x")
        buffer.put_at_once("must be said")
        buffer.drop_sound()
        assert buffer.n_bytes == len("must be said")
        assert await buffer.take() == "must be said"

    asyncio.run(test())


def test_a_frame_larger_than_the_buffer_passes_alone() -> None:
    async def test() -> None:
        buffer = SendBuffer(max_bytes=10, patience_seconds=0.01)
        await buffer.put(bytes(100))
        assert len(await buffer.take()) == 100

    asyncio.run(test())
