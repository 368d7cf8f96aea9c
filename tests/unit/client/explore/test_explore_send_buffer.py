"""The bounded queue of what a page is sent."""

from __future__ import annotations

import asyncio

import pytest

from timbrel.explore.messages import SendBuffer, StalledError


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
