"""The waiting helper of the tests returns what it waited for, and says what never came."""

from __future__ import annotations

import asyncio
import threading

import pytest
from waiting import wait_for, wait_for_async, wait_until_blocked


def test_what_was_waited_for_is_returned() -> None:
    values = iter([0, "", None, "here"])
    assert wait_for(lambda: next(values), "a value") == "here"


def test_a_wait_in_vain_says_for_what_and_what_was_seen_last() -> None:
    with pytest.raises(AssertionError, match=r"waited 0 s for two notes; seen last: \['one'\]"):
        wait_for(lambda: False, "two notes", seen=lambda: ["one"], seconds=0)
    with pytest.raises(AssertionError, match=r"waited 0 s for a slot; seen last: 0"):
        wait_for(lambda: 0, "a slot", seconds=0)


def test_the_event_loop_runs_on_meanwhile() -> None:
    async def main() -> None:
        happened = asyncio.Event()
        asyncio.get_running_loop().call_later(0.01, happened.set)
        assert await wait_for_async(happened.is_set, "the event")
        with pytest.raises(AssertionError, match="for another; seen last: False"):
            await wait_for_async(lambda: False, "another", seconds=0)

    asyncio.run(main())


def test_a_thread_that_waits_is_told_from_one_that_works() -> None:
    working, over = threading.Event(), threading.Event()

    def work_then_wait() -> None:
        while not working.is_set():
            sum(range(1000))
        over.wait(60.0)

    thread = threading.Thread(target=work_then_wait)
    thread.start()
    working.set()
    wait_until_blocked(thread)
    assert thread.is_alive()
    over.set()
    thread.join()
