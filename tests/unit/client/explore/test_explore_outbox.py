"""The bounded queue of what a page is sent."""

from __future__ import annotations

import asyncio

import pytest

from timbrel.explore.outbox import Outbox, StalledError


def test_frames_come_out_in_order_and_putting_waits_for_room() -> None:
    async def test() -> None:
        outbox = Outbox(max_bytes=10, patience_seconds=60)
        await outbox.put("12345")
        await outbox.put(b"67890")
        late = asyncio.create_task(outbox.put("x"))
        await asyncio.sleep(0)
        assert not late.done() and outbox.n_bytes == 10
        assert await outbox.take() == "12345"
        await late
        assert [await outbox.take(), await outbox.take()] == [b"67890", "x"]
        assert outbox.n_bytes == 0

    asyncio.run(test())


def test_where_no_room_comes_the_page_is_given_up() -> None:
    async def test() -> None:
        outbox = Outbox(max_bytes=10, patience_seconds=0.01)
        await outbox.put(bytes(10))
        with pytest.raises(StalledError, match="its notes were ended"):
            await outbox.put("x")
        outbox.put_at_once("must be said")
        outbox.drop_sound()
        assert outbox.n_bytes == len("must be said")
        assert await outbox.take() == "must be said"

    asyncio.run(test())


def test_a_frame_larger_than_the_outbox_passes_alone() -> None:
    async def test() -> None:
        outbox = Outbox(max_bytes=10, patience_seconds=0.01)
        await outbox.put(bytes(100))
        assert len(await outbox.take()) == 100

    asyncio.run(test())
