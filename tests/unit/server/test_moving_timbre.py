"""What a note's frames say of its timbre on its way, over an engine whose headers are known."""

from __future__ import annotations

import asyncio
from itertools import product
from typing import Any

from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb
from timbrel_server.engine.request import ClientKey, Delivery, Frame, NoteRequest, RequestHandle
from timbrel_server.synthesizer.moving_timbre import MovingTimbre

HERE, THERE = (0.0, 0.0), (0.5, 0.0)
HOLD = 1023


class KnownHeaders:
    """An engine whose notes begin with one frame, by where they are asked for."""

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
