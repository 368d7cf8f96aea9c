"""What a note's frames say of its timbre on its way, over an engine whose headers are known."""

from __future__ import annotations

import asyncio
from itertools import product
from typing import Any

from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb
from timbrel_server.engine.request import ClientKey, Delivery, Frame, NoteRequest, RequestHandle
from timbrel_server.synthesizer.moving_timbre import MovingTimbre

HERE, THERE, ELSEWHERE = (0.0, 0.0), (0.5, 0.0), (0.0, 0.5)
HOLD = 1023


class KnownHeaders:
    """An engine whose notes begin with one frame, by where they are asked for."""

    is_full = False

    def __init__(self, headers: dict[tuple[float, float], Frame]) -> None:
        self._headers = headers

    def accept(self, handle: RequestHandle, **given: Any) -> None:
        handle.receive(Delivery([self._headers[handle.request.timbre]]))

    def cancel(self, handle: RequestHandle) -> None:
        """They have ended."""


def test_between_two_codes_is_none_beyond_the_codebook() -> None:
    """The digits go over one by one: a 1 of the thousands may still be there with a 4 of the hundreds."""
    codes = (*range(895, 1000), *range(1000, 1024, 3), HOLD)
    pairs = list(product(codes, repeat=2))
    n = len(pairs)
    codec = pb.CodecSpec(
        n_codebooks=n,
        codebook_size=1024,
        lead_frames=1,
        hold=[HOLD] * n,
        code_bases=[10] * n,
        sample_rate=10,
        hop_length=1,
    )
    here, there = (tuple(pair[side] for pair in pairs) for side in (0, 1))
    engine: Any = KnownHeaders({HERE: here, THERE: there})
    request = NoteRequest(HERE, 60, 100, held_frames=20, seed=1, path=((1.0, THERE),))

    async def test() -> None:
        moving = MovingTimbre(engine, codec, request, ClientKey())
        moved = await moving.pass_on(Delivery([here] * 12))
        assert tuple(moved.frames[10]) == there
        assert all(0 <= code < codec.codebook_size for frame in moved.frames for code in frame)

    asyncio.run(test())


def test_a_note_that_is_sent_elsewhere_leaves_its_path() -> None:
    """A path that went on would take it back with its next frame."""
    codec = pb.CodecSpec(
        n_codebooks=1,
        codebook_size=1024,
        lead_frames=1,
        hold=[HOLD],
        code_bases=[10],
        sample_rate=10,
        hop_length=1,
    )
    engine: Any = KnownHeaders({HERE: (100,), THERE: (900,), ELSEWHERE: (500,)})
    request = NoteRequest(HERE, 60, 100, held_frames=20, seed=1, path=((2.0, THERE),))

    async def test() -> None:
        moving = MovingTimbre(engine, codec, request, ClientKey())
        (_, *on_its_way) = (await moving.pass_on(Delivery([(100,), *[(HOLD,)] * 5]))).frames
        assert all(code < HOLD for (code,) in on_its_way)
        moving.move(ELSEWHERE)
        await asyncio.sleep(0)  # the header is asked for
        moved = await moving.pass_on(Delivery([(HOLD,)] * 30))
        assert [*moved.frames] == [(500,), *[(HOLD,)] * 29]

    asyncio.run(test())
