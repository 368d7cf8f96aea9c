"""What the figures were measured on, and how busy it was."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from pathlib import Path
from typing import Any

PACKAGES = ("onnxruntime", "onnxruntime-gpu", "torch", "numpy", "grpcio")


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
    """As the system names it."""
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
