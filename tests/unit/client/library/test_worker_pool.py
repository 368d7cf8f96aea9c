"""Threads that take the most urgent work first."""

from __future__ import annotations

import os
import sys
import threading

import pytest

from timbrel.library.render.worker_pool import NICE, Urgency, WorkerPool


def test_urgent_work_is_taken_first_and_equal_work_in_order() -> None:
    done: list[str] = []
    with WorkerPool(1) as pool:
        futures = [pool.submit(Urgency.MEASURE, done.append, f"measure {number}") for number in range(3)]
        futures += [pool.submit(Urgency.FINISH, done.append, f"finish {number}") for number in range(2)]
        pool.set_low_priority(low=False)
        for future in futures:
            future.result(10.0)
    assert done == ["finish 0", "finish 1", "measure 0", "measure 1", "measure 2"]


def test_errors_are_for_who_asks_and_the_thread_goes_on() -> None:
    with WorkerPool(1) as pool:
        pool.set_low_priority(low=True)
        bad = pool.submit(Urgency.MEASURE, int, "seven")
        with pytest.raises(ValueError, match="seven"):
            bad.result(10.0)
        assert pool.submit(Urgency.MEASURE, int, "7").result(10.0) == 7


def test_what_has_not_begun_is_dropped_at_the_end() -> None:
    begun, go_on = threading.Event(), threading.Event()
    with WorkerPool(1) as pool:
        pool.set_low_priority(low=False)
        running = pool.submit(Urgency.FINISH, lambda: (begun.set(), go_on.wait(10.0)))
        waiting = pool.submit(Urgency.FINISH, int)
        assert begun.wait(10.0)
        threading.Timer(0.1, go_on.set).start()
    assert running.done() and not running.cancelled() and waiting.cancelled()


def test_the_end_does_not_wait_for_work_that_a_thread_took(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between its look at the queue and its taking from it."""
    pool = WorkerPool(1)
    monkeypatch.setattr(pool._waiting, "empty", iter([False, True, True]).__next__)
    ending = threading.Thread(target=pool.__exit__, daemon=True)
    ending.start()
    ending.join(30.0)
    assert not ending.is_alive()


def test_others_take_over_where_the_priority_changes() -> None:
    def priority() -> int:
        return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

    usual = priority()
    with WorkerPool(2) as pool:
        for low in (True, False, True):
            pool.set_low_priority(low)
            found = {pool.submit(Urgency.MEASURE, priority).result(10.0) for _ in range(8)}
            # Elsewhere, a thread has no priority of its own.
            lower = low and sys.platform == "linux"
            assert found == {min(19, usual + NICE) if lower else usual}
