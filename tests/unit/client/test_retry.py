from __future__ import annotations

from timbrel.core.retry import RetryPolicy
from timbrel.errors import OverloadedError, UnavailableError

POLICY = RetryPolicy(attempts=4, first_delay_seconds=1.0, longest_delay_seconds=3.0)


def test_waits_twice_as_long_each_time_and_gives_up() -> None:
    error = OverloadedError("full")
    assert [POLICY.delay(attempt, error, None) for attempt in (1, 2, 3, 4)] == [1.0, 2.0, 3.0, None]


def test_takes_the_servers_suggestion_within_reason() -> None:
    assert POLICY.delay(1, OverloadedError("full", 0.5), None) == 0.5
    assert POLICY.delay(1, OverloadedError("full", 600.0), None) == 3.0


def test_gives_up_where_waiting_would_outlast_the_time_allowed() -> None:
    assert POLICY.delay(1, OverloadedError("full"), 0.9) is None
    assert POLICY.delay(1, OverloadedError("full"), 1.1) == 1.0


def test_a_server_that_is_not_there_is_asked_again_but_not_for_long() -> None:
    policy = RetryPolicy()
    gone = UnavailableError("gone")
    delays = [policy.delay(attempt, gone, None) for attempt in range(1, 6)]
    assert delays == [0.25, 0.5, 1.0, None, None]
    assert policy.delay(1, gone, remaining_seconds=0.1) is None
