"""What onnxruntime runs in one step: every node, its kernel's time, its inputs."""

from __future__ import annotations

import json
import statistics
import tempfile
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
from benchmarks.harness.our_step import OurStep
from benchmarks.harness.sessions import open_observed

from timbrel_bundle.bundle import Bundle
from timbrel_server.decoder.sessions import FP32

N_STEPS = 40
"""Steps that the times are medians of. Nodes within the branches of others are part of these."""

KERNEL = "_kernel_time"


@dataclass(frozen=True)
class NodeRun:
    """A node of the graph as onnxruntime runs it."""

    name: str
    op: str
    seconds: float
    """Of its kernel, the median."""
    inputs: tuple[tuple[str, tuple[int, ...]], ...]
    """Type, in onnxruntime's name, and shape of each input that is there."""


@dataclass(frozen=True)
class Observation:
    """A step seen from within."""

    nodes: list[NodeRun]
    """In the order in which they run."""
    graph: onnx.ModelProto
    """After onnxruntime's own optimization."""
    step_seconds: float
    """The whole step with the profiler on."""


def observe(bundle: Bundle, n_rows: int, position: int, n_threads: int, precision: str = FP32) -> Observation:
    """Runs steps of `n_rows` rows at a position with onnxruntime's profiler on."""
    with tempfile.TemporaryDirectory() as folder:
        sessions, optimized = open_observed(bundle, n_threads, precision, Path(folder))
        ours = OurStep(sessions, bundle, n_rows)
        work = ours.work(n_rows, position)
        for _ in range(N_STEPS):
            work()
        events = json.loads(Path(sessions.decoder.end_profiling()).read_text(encoding="utf-8"))
        graph = onnx.load(optimized)
    runs = [event for event in events if event["name"] == "model_run"][-N_STEPS:]
    nodes = [event for event in events if event["name"].endswith(KERNEL) and event["ts"] >= runs[0]["ts"]]
    seconds = statistics.median(run["dur"] for run in runs) * 1e-6
    outer = {node.name for node in graph.graph.node}
    return Observation(_by_node([event for event in nodes if _name(event) in outer]), graph, seconds)


def _by_node(events: list[dict[str, Any]]) -> list[NodeRun]:
    durations: dict[str, list[int]] = defaultdict(list)
    first: dict[str, dict[str, Any]] = {}
    for event in events:
        name = _name(event)
        durations[name].append(event["dur"])
        first.setdefault(name, event["args"])
    return [
        NodeRun(name, args["op_name"], _typical(durations[name], args["op_name"]) * 1e-6, _inputs(args))
        for name, args in first.items()
    ]


def _typical(durations: list[int], op: str) -> float:
    """The median; of a branch, which is not taken at each step, the mean."""
    return statistics.fmean(durations) if op == "If" else statistics.median(durations)


def _name(event: dict[str, Any]) -> str:
    return str(event["name"]).removesuffix(KERNEL)


def _inputs(args: dict[str, Any]) -> tuple[tuple[str, tuple[int, ...]], ...]:
    return tuple((kind, tuple(shape)) for given in args["input_type_shape"] for kind, shape in given.items())
