"""Threads that take the most urgent work first."""

from __future__ import annotations

import os
import sys
import threading

import pytest

from timbrel.library.render.worker_pool import MAX_THREADS, NICE, Urgency, WorkerPool, default_threads
from timbrel_bundle import runtime


def test_urgent_work_is_taken_first_and_equal_work_in_order() -> None:
    done: list[str] = []
    go_on = threading.Event()
    with WorkerPool(1) as pool:
        pool.submit(Urgency.FINISH, go_on.wait, 10.0)
        futures = [pool.submit(Urgency.MEASURE, done.append, f"measure {number}") for number in range(3)]
        futures += [pool.submit(Urgency.FINISH, done.append, f"finish {number}") for number in range(2)]
        go_on.set()
        for future in futures:
            future.result(10.0)
    assert done == ["finish 0", "finish 1", "measure 0", "measure 1", "measure 2"]


def test_errors_are_for_who_asks_and_the_thread_goes_on() -> None:
    with WorkerPool(1) as pool:
        bad = pool.submit(Urgency.MEASURE, int, "seven")
        with pytest.raises(ValueError, match="seven"):
            bad.result(10.0)
        assert pool.submit(Urgency.MEASURE, int, "7").result(10.0) == 7


def test_what_has_not_begun_is_dropped_at_the_end() -> None:
    begun, go_on = threading.Event(), threading.Event()
    with WorkerPool(1) as pool:
        running = pool.submit(Urgency.FINISH, lambda: (begun.set(), go_on.wait(10.0)))
        waiting = pool.submit(Urgency.FINISH, int)
        waiting.add_done_callback(lambda _: go_on.set())  # the pool is at its end
        assert begun.wait(10.0)
    assert running.done() and not running.cancelled() and waiting.cancelled()


def test_the_end_does_not_wait_for_work_that_a_thread_took(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between its look at the queue and its taking from it."""
    pool = WorkerPool(1)
    monkeypatch.setattr(pool._waiting, "empty", iter([False, True, True]).__next__)
    ending = threading.Thread(target=pool.__exit__, daemon=True)
    ending.start()
    ending.join(30.0)
    assert not ending.is_alive()


@pytest.mark.skipif(os.name != "posix", reason="priorities are numbers of POSIX's")
def test_threads_leave_their_time_to_others() -> None:
    def priority() -> int:
        return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

    with WorkerPool(2) as pool:
        found = {pool.submit(Urgency.MEASURE, priority).result(10.0) for _ in range(8)}
    # Elsewhere than on Linux, a thread has no priority of its own.
    assert found == {min(19, priority() + NICE) if sys.platform == "linux" else priority()}


def test_threads_are_no_more_than_a_container_s_quota_is_worth(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "n_cores", lambda: 64)
    monkeypatch.setattr(runtime, "_quotas", lambda: iter([3.0]))
    assert default_threads() == 3
    monkeypatch.setattr(runtime, "_quotas", lambda: iter([]))
    assert default_threads() == MAX_THREADS
