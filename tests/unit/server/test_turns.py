"""Turns: one call begins a round, callers in turn, and while a crowd comes in few of it begin."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

from timbrel_server.turns import CROWD, Turns


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(test(), 60.0)

    asyncio.run(bounded())


def test_whoever_begins_a_hundred_at_once_waits_for_itself() -> None:
    async def test() -> None:
        turns, order = Turns(), list[str]()

        async def begin(caller: str) -> None:
            await turns.wait(caller)
            order.append(caller)

        async with asyncio.TaskGroup() as tasks:
            for _ in range(100):
                tasks.create_task(begin("greedy"))
            tasks.create_task(begin("modest"))
        assert len(order) == 101 and order.index("modest") <= 3
        assert turns.n_waiting == 0

    run(test)


def test_one_begins_in_a_round() -> None:
    async def test() -> None:
        turns, n_begun = Turns(), 0

        async def begin() -> None:
            nonlocal n_begun
            await turns.wait("ann")
            n_begun += 1

        async with asyncio.TaskGroup() as tasks:
            for _ in range(CROWD):
                tasks.create_task(begin())
            while n_begun < CROWD:
                before = n_begun
                await asyncio.sleep(0)
                assert n_begun <= before + 1

    run(test)


def test_who_comes_alone_does_not_wait() -> None:
    async def test() -> None:
        turns = Turns()
        for _ in range(CROWD):
            turns.arrived()
            waiting = turns.wait("ann")
            try:
                waiting.send(None)
            except StopIteration:
                await asyncio.sleep(0.001)
            else:
                raise AssertionError("it waits")

    run(test)


def test_a_crowd_is_let_in_before_it_begins() -> None:
    """So a health check that comes last waits for some of it, and not for all."""

    async def test() -> None:
        turns, n_begun = Turns(), 0

        async def begin() -> None:
            nonlocal n_begun
            await turns.wait("ann")
            n_begun += 1

        async with asyncio.TaskGroup() as tasks:
            for _ in range(300):
                turns.arrived()
                tasks.create_task(begin())
                for _ in range(3):  # what gRPC takes to let one in
                    await asyncio.sleep(0)
            assert n_begun < 2 * CROWD
        assert n_begun == 300

    run(test)


def test_a_crowd_without_end_holds_nobody_up_for_ever() -> None:
    async def test() -> None:
        turns = Turns()
        crowd = [asyncio.create_task(turns.wait("crowd")) for _ in range(10 * CROWD)]
        modest = asyncio.create_task(turns.wait("modest"))
        while not modest.done():
            turns.arrived()
            crowd.append(asyncio.create_task(turns.wait("crowd")))
            await asyncio.sleep(0)
        await asyncio.gather(*crowd)

    run(test)


def test_whoever_gives_up_costs_no_turn() -> None:
    async def test() -> None:
        chance, turns = random.Random(1), Turns()
        tasks = []
        for _ in range(2000):
            tasks.append(asyncio.create_task(turns.wait(chance.choice("abc"))))
            if chance.random() < 0.5:
                chance.choice(tasks).cancel()
            if chance.random() < 0.3:
                await asyncio.sleep(0)
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0.01)
        assert turns.n_waiting == 0
        await turns.wait("d")

    run(test)
