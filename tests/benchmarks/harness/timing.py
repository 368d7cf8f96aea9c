"""Times several ways of doing one thing side by side: a machine that slows down slows them all."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

Work = Callable[[], object]
"""Does the thing once."""


@dataclass(frozen=True)
class Plan:
    """The length of a measurement, and its clock."""

    n_runs: int = 7
    run_seconds: float = 0.05
    """A run repeats its work for at least this long."""
    clock: Callable[[], float] = time.perf_counter

    def for_threads(self, n_threads: int) -> Plan:
        """The plan for works of so many threads.

        What one thread does is timed by that thread's processor time: it is the same on a quiet machine, and
        on a busy one it leaves out the moments at which others had the core.
        """
        return replace(self, clock=time.thread_time if n_threads == 1 else time.perf_counter)


FULL = Plan()
QUICK = Plan(n_runs=3, run_seconds=0.02)


@dataclass(frozen=True)
class Times:
    """Seconds that one call of each work took, by name: the mean of each run, in the order of the runs."""

    runs: Mapping[str, list[float]]

    def seconds(self, name: str) -> float:
        """The median of the runs."""
        return statistics.median(self.runs[name])

    def ratio(self, name: str, to: str) -> float:
        """Tells how many times as long as `to` the work `name` took: the median of the rounds' ratios."""
        pairs = zip(self.runs[name], self.runs[to], strict=True)
        return statistics.median(ours / theirs for ours, theirs in pairs)

    def fastest(self, names: Iterable[str]) -> str | None:
        """The one of these works that took least, of those that were measured."""
        measured = [name for name in names if name in self.runs]
        return min(measured, key=self.seconds, default=None)


def interleave(works: Mapping[str, Work], plan: Plan = FULL) -> Times:
    """Warms every work up and counts how often it fits a run; then runs all in turn, round by round."""
    counts = {name: _calls_per_run(work, plan) for name, work in works.items()}
    runs: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(plan.n_runs):
        for name, work in works.items():
            runs[name].append(_mean_seconds(work, counts[name], plan))
    return Times(runs)


def _calls_per_run(work: Work, plan: Plan) -> int:
    work()
    if _mean_seconds(work, 1, plan) >= plan.run_seconds:
        return 1
    return max(1, math.ceil(plan.run_seconds / _mean_seconds(work, 3, plan)))


def _mean_seconds(work: Work, n_calls: int, plan: Plan) -> float:
    if n_calls > 1:
        work()  # the work before it has left its own data in the caches; one long call minds that little
    started = plan.clock()
    for _ in range(n_calls):
        work()
    return max(plan.clock() - started, 1e-9) / n_calls
