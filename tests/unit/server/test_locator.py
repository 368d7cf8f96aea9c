"""The locator takes turns, bounds its queue and lets those go who no longer wait."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from timbrel_bundle.bundle import Bundle
from timbrel_bundle.codec import Audio
from timbrel_bundle.timbre_encoder import Heard, TimbreEncoder
from timbrel_server.errors import InvalidRequestError
from timbrel_server.served_bundles.locator import Locator

RATE = 48_000
PATIENCE_SECONDS = 60.0


def tone(hertz: float, seconds: float = 0.5) -> Audio:
    t = np.arange(int(seconds * RATE)) / RATE
    return np.sin(2 * np.pi * hertz * t).astype(np.float32)


@pytest.fixture
def locator(tiny_bundle: Path) -> Iterator[Locator]:
    made = Locator(Bundle.open(tiny_bundle))
    yield made
    made.close()


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(test(), PATIENCE_SECONDS)

    asyncio.run(bounded())


def test_together_they_lie_where_the_encoder_puts_each(locator: Locator, tiny_bundle: Path) -> None:
    tones = [tone(hertz) for hertz in (110.0, 220.0, 440.0)]

    async def test() -> None:
        encoder = TimbreEncoder(Bundle.open(tiny_bundle), n_threads=1)
        points = await asyncio.gather(*(locator.locate(audio, RATE) for audio in tones))
        for audio, point in zip(tones, points, strict=True):
            assert math.dist(point.timbre, encoder.locate(audio, RATE)) == 0.0

    run(test)


def test_callers_take_turns(locator: Locator) -> None:
    async def test() -> None:
        order: list[str] = []

        async def locate(account: str) -> None:
            await locator.locate(tone(220.0), RATE, account)
            order.append(account)

        greedy = [asyncio.create_task(locate("greedy")) for _ in range(6)]
        await asyncio.sleep(0)  # lets them queue; none can be done before the loop turns again
        await asyncio.gather(*greedy, locate("modest"))
        assert order.index("modest") == 1

    run(test)


def test_who_gives_up_leaves_the_queue(locator: Locator) -> None:
    async def test() -> None:
        tasks: list[asyncio.Task[Any]] = [
            asyncio.create_task(locator.locate(tone(220.0), RATE)) for _ in range(3)
        ]
        await asyncio.sleep(0)
        tasks[-1].cancel()
        with pytest.raises(asyncio.CancelledError):
            await tasks[-1]
        await asyncio.gather(*tasks[:-1], locator.locate(tone(220.0), RATE))

    run(test)


def test_the_loop_goes_on_meanwhile(locator: Locator, monkeypatch: pytest.MonkeyPatch) -> None:
    loop_went_on = threading.Event()
    hear = TimbreEncoder.hear

    def hearing(*arguments: Any) -> Heard:
        assert loop_went_on.wait(PATIENCE_SECONDS / 2)
        return hear(*arguments)

    monkeypatch.setattr(TimbreEncoder, "hear", hearing)

    async def test() -> None:
        located = asyncio.create_task(locator.locate(tone(220.0), RATE))
        for _ in range(10):
            await asyncio.sleep(0)
        assert not located.done()
        loop_went_on.set()
        assert isinstance(await located, Heard)

    run(test)


def test_a_fault_is_the_request_s_and_harms_nobody_else(locator: Locator) -> None:
    async def test() -> None:
        silent = np.zeros(RATE, np.float32)
        faulty, well = await asyncio.gather(
            locator.locate(silent, RATE), locator.locate(tone(220.0), RATE), return_exceptions=True
        )
        assert isinstance(faulty, InvalidRequestError)
        ((field, description),) = faulty.violations
        assert field == "audio" and "silent" in description
        assert isinstance(well, Heard)

    run(test)
