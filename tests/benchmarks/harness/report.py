"""The report of a benchmark: the machine first, tables of figures, one line of JSON last."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PACKAGES = ("onnxruntime", "onnxruntime-gpu", "torch", "numpy", "grpcio")

Cell = str | int | float | None


@dataclass(frozen=True)
class Bar:
    """A figure and what is asked of it."""

    name: str
    value: float | None
    """None where it could not be measured."""
    wanted: float
    at_most: bool = False
    """Tells that `wanted` is an upper limit, not a lower one."""

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


def print_table(headings: Sequence[str], rows: Iterable[Sequence[Cell]]) -> None:
    """Prints a table: text to the left, numbers to the right with three digits, `-` for what is missing."""
    rows = [list(row) for row in rows]
    texts = [list(headings), *([_text(cell) for cell in row] for row in rows)]
    widths = [max(len(row[column]) for row in texts) for column in range(len(headings))]
    is_left = [all(isinstance(row[column], str) for row in rows) for column in range(len(headings))]
    for row in texts:
        cells = zip(row, widths, is_left, strict=True)
        print(
            "  ".join(
                text.ljust(width) if left else text.rjust(width) for text, width, left in cells
            ).rstrip()
        )


def _text(cell: Cell) -> str:
    match cell:
        case None:
            return "-"
        case float():
            return f"{cell:.0f}" if abs(cell) >= 100 else f"{cell:.3g}"
        case _:
            return str(cell)


def machine_facts() -> dict[str, Any]:
    """Processor, cores, load average and the versions of what does the work."""
    return {
        "processor": processor_name(),
        "cores": os.cpu_count(),
        "usable_cores": len(usable_cores()),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "versions": {name: version for name in PACKAGES if (version := _version(name)) is not None},
    }


def load_average() -> list[float]:
    """Processes that wanted to run, over the last 1, 5 and 15 minutes. This benchmark is one of them."""
    return [round(load, 2) for load in os.getloadavg()]


def usable_cores() -> list[int]:
    """The cores that this process may run on, rising."""
    return sorted(os.sched_getaffinity(0))


def processor_name() -> str:
    """The processor, as the system names it."""
    for line in _lines(Path("/proc/cpuinfo")):
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            return value.strip()
    return platform.processor() or platform.machine()


def describe(facts: dict[str, Any]) -> str:
    """The facts in a line for people."""
    versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    return (
        f"{facts['processor']}, {facts['usable_cores']} of {facts['cores']} cores, "
        f"{facts['memory_gib']} GiB, {facts['system']}, Python {facts['python']}, {versions}"
    )


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
