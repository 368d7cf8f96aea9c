"""Quotas: bounded for all and for each, in turn, and nothing lost whoever gives up."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

import pytest

from timbrel_server.config import ServerConfig
from timbrel_server.errors import OverloadedError
from timbrel_server.limits import Crowd, Limits, Place, Quota
from timbrel_server.rpc.call_context import network_of
from timbrel_server.rpc.listener import server_options


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(test(), 60.0)

    asyncio.run(bounded())


async def settled() -> None:
    """Lets every task go on as far as it can."""
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.mark.parametrize("n_slots", [1, 16, 1024])
def test_one_caller_may_ask_for_more_notes_than_there_are_slots(n_slots: int) -> None:
    config = ServerConfig(n_slots=n_slots)
    assert Limits(config).calls.most_each > n_slots
    assert dict(server_options(config, 100))["grpc.max_concurrent_streams"] > n_slots


def test_nobody_has_more_than_its_share_and_all_no_more_than_there_is() -> None:
    async def test() -> None:
        quota = Quota("calls", 10, 0.5)
        held = [quota.take("ann") for _ in range(5)]
        with pytest.raises(OverloadedError, match=r"its share already \(calls\): 5") as caught:
            quota.take("ann")
        assert caught.value.retry_seconds > 0
        held += [quota.take("bob") for _ in range(5)]
        with pytest.raises(OverloadedError, match="10 of 10"):
            quota.take("cid")
        assert (quota.in_use, quota.n_refused) == (10, 2)
        held[0].close()
        held[0].close()
        with quota.take("cid"):
            assert quota.in_use == 10
        assert quota.in_use == 9

    run(test)


def test_more_than_a_share_counts_as_all_of_it() -> None:
    async def test() -> None:
        quota = Quota("bytes", 100, 0.5)
        with await quota.wait("ann", 1000):
            assert quota.held_by("ann") == 50
            with pytest.raises(OverloadedError):
                quota.take("ann")

    run(test)


def test_those_who_wait_come_in_turn_and_who_has_least_first() -> None:
    async def test() -> None:
        quota = Quota("notes", 2, 1.0)
        order: list[str] = []

        async def one(caller: str) -> None:
            with await quota.wait(caller):
                order.append(caller)
                await settled()

        async with asyncio.TaskGroup() as tasks:
            for _ in range(20):
                tasks.create_task(one("greedy"))
            await settled()
            tasks.create_task(one("modest"))
        assert len(order) == 21 and order.index("modest") <= 4
        assert quota.in_use == quota.n_waiting == 0

    run(test)


def test_a_large_part_is_not_overtaken_for_ever() -> None:
    async def test() -> None:
        quota = Quota("bytes", 10, 1.0)
        small = [quota.take("ann") for _ in range(10)]
        large = asyncio.create_task(quota.wait("bob", 10))
        await settled()
        for place in small:
            again = asyncio.create_task(quota.wait("ann"))
            place.close()
            await settled()
            again.cancel()
        (await large).close()

    run(test)


def test_whoever_gives_up_loses_nothing_of_it() -> None:
    async def test() -> None:
        chance = random.Random(1)
        quota = Quota("notes", 7, 0.6)

        async def one(caller: str, amount: int) -> None:
            with await quota.wait(caller, amount):
                assert quota.in_use <= 7 and quota.held_by(caller) <= 4
                await asyncio.sleep(0)

        tasks = []
        for _ in range(2000):
            tasks.append(asyncio.create_task(one(chance.choice("abc"), chance.randint(1, 6))))
            if chance.random() < 0.5:
                chance.choice(tasks).cancel()
            if chance.random() < 0.3:
                await asyncio.sleep(0)
        await asyncio.gather(*tasks, return_exceptions=True)
        assert quota.in_use == quota.n_waiting == 0
        assert quota.take("a", 4).__class__ is Place

    run(test)


def test_in_a_crowd_the_oldest_of_the_largest_make_room() -> None:
    async def test() -> None:
        crowd = Crowd("checks", 6, 0.5)
        sent_away: list[str] = []

        async def stay(caller: str, number: int) -> None:
            try:
                async with crowd.join(caller):
                    await asyncio.Event().wait()
            except OverloadedError:
                sent_away.append(f"{caller}{number}")

        tasks = []
        for caller, number in [*(("a", n) for n in range(5)), ("b", 0), ("c", 0), ("d", 0), ("e", 0)]:
            tasks.append(asyncio.create_task(stay(caller, number)))
            await settled()
        assert sent_away == ["a0", "a1", "a2"]
        assert (crowd.in_use, crowd.n_refused) == (6, 3)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert crowd.in_use == 0

    run(test)


def test_every_limit_has_a_name_and_a_share() -> None:
    limits = list(Limits(ServerConfig(caller_share=0.5)))
    assert len({limit.name for limit in limits}) == len(limits) >= 9
    assert all(limit.most_each == limit.most // 2 for limit in limits)


@pytest.mark.parametrize(
    ("name", "network"),
    [
        ("peer:10.1.2.3", "peer:10.1.2.0/24"),
        ("peer:2001:db8:1:2:3:4:5:6", "peer:2001:db8:1:2::/64"),
        ("peer:fe80::1%eth0", "peer:fe80::/64"),
        ("peer:::ffff:10.1.2.3", "peer:10.1.2.0/24"),
        ("peer:unix", "peer:unix"),
        ("peer:", "peer:"),
    ],
)
def test_strangers_are_told_apart_by_their_network(name: str, network: str) -> None:
    assert network_of(name) == network
