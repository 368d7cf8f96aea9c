"""How every benchmark begins and ends: the machine first, one line of JSON last."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.harness.machine import describe, load_average, machine_facts


@dataclass(frozen=True)
class Bar:
    """A figure and what is asked of it."""

    name: str
    value: float | None
    """None where it could not be measured."""
    wanted: float
    at_most: bool = False
    """Whether `wanted` is an upper limit, not a lower one."""

    @property
    def met(self) -> bool | None:
        """None where there is nothing to compare."""
        if self.value is None:
            return None
        return self.value <= self.wanted if self.at_most else self.value >= self.wanted

    def __str__(self) -> str:
        verdict = {True: "met", False: "MISSED", None: "not measured"}[self.met]
        value = "-" if self.value is None else f"{self.value:.3g}"
        limit = "at most" if self.at_most else "at least"
        return f"{verdict:12s} {self.name}: {value} ({limit} {self.wanted:g})"


class Report:
    """Prints what a benchmark measures on; ends it with its figures as JSON."""

    def __init__(self, benchmark: str, *, quick: bool) -> None:
        self._head = {"benchmark": benchmark, "quick": quick}
        self._machine = machine_facts()
        self._load_before = load_average()
        print(f"{benchmark}: {describe(self._machine)}")
        print(f"load average at the start: {' '.join(map(str, self._load_before))}", flush=True)

    def finish(self, figures: dict[str, Any], bars: Sequence[Bar] = ()) -> None:
        """Prints the bars, the load average and, last, the line of JSON."""
        if bars:
            print()
        for bar in bars:
            print(bar)
        after = load_average()
        print(f"load average at the end: {' '.join(map(str, after))}")
        verdicts = {bar.name: bar.met for bar in bars}
        load = {"start": self._load_before, "end": after}
        whole = self._head | figures | {"bars_met": verdicts, "load_average": load, "machine": self._machine}
        print(json.dumps(whole), flush=True)
