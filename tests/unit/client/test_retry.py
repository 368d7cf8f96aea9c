from __future__ import annotations

from timbrel.core.retry import SHORTEST_DELAY_SECONDS, Patience
from timbrel.errors import AuthenticationError, OverloadedError, TimbrelError, UnavailableError

GONE = UnavailableError("gone")


def delay(attempt: int, error: TimbrelError, left: float | None) -> float | None:
    """Seconds until the next attempt, None where there is none."""
    return Patience(left, now=0.0).delay_after(error, attempt, 0.0)


def test_a_server_that_is_not_there_is_asked_again_ever_more_slowly() -> None:
    delays = [delay(attempt, GONE, None) for attempt in range(1, 7)]
    assert delays == [0.25, 0.5, 1.0, 2.0, 4.0, 4.0]


def test_a_full_server_is_asked_again_when_it_says_and_never_sooner() -> None:
    assert delay(1, OverloadedError("full", 0.5), None) == 0.5
    assert delay(1, OverloadedError("full", 600.0), None) == 600.0
    assert delay(1, OverloadedError("full", 600.0), 120.0) is None
    assert delay(1000, OverloadedError("full", 0.5), None) == 0.5


def test_a_full_server_that_says_now_is_not_asked_in_a_storm() -> None:
    for said in (0.0, -1.0):
        assert delay(1, OverloadedError("full", said), None) == SHORTEST_DELAY_SECONDS > 0.0


def test_a_full_server_that_does_not_say_when_is_not_asked_again() -> None:
    assert delay(1, OverloadedError("full"), None) is None


def test_gives_up_where_waiting_would_outlast_the_time_allowed() -> None:
    assert delay(1, GONE, 0.2) is None
    assert delay(1, GONE, 0.3) == 0.25


def test_one_time_holds_for_a_call_and_all_its_retries() -> None:
    patience = Patience(10.0, now=100.0)
    assert patience.left(104.0) == 6.0
    assert patience.delay_after(GONE, 1, 104.0) == 0.25
    assert patience.delay_after(OverloadedError("full", 4.0), 2, 105.0) == 4.0
    assert patience.delay_after(GONE, 3, 109.5) is None
    assert patience.left(111.0) == 0.0
    assert Patience(None, now=0.0).left(1e9) is None


def test_a_server_that_cannot_come_back_is_not_waited_for() -> None:
    patience = Patience(10.0, now=0.0, server_returns=False)
    assert patience.delay_after(OverloadedError("full", 1.0), 1, 0.0) == 1.0
    assert patience.delay_after(GONE, 1, 0.0) is None


def test_patience_ends_after_its_limit_and_each_part_renews_it() -> None:
    patience = Patience(10.0, now=0.0)
    assert patience.left(4.0) == 6.0
    assert [patience.delay_after(GONE, attempt, 4.0) for attempt in (1, 2, 3, 50)] == [0.25, 0.5, 1.0, 4.0]
    assert patience.delay_after(GONE, 4, 8.0) is None
    patience.renew(8.0)
    assert patience.delay_after(GONE, 4, 8.0) == 2.0
    assert patience.delay_after(AuthenticationError("who?"), 1, 8.0) is None
    assert Patience(None, now=0.0).delay_after(GONE, 10_000, 1e6) == 4.0
