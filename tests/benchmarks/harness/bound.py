"""A step seen from within, and the least that it could take.

`observe` has onnxruntime tell every node, its kernel's time and its inputs. `Bound` runs the step's own
matrix products and attentions, each alone in a graph. Each keeps its own weights and its own cache, and all
are run in the step's order, so that by the time one comes round again the others have pushed its weights out
of the caches, as they do in the step. What calling a graph costs is measured on a graph that does nothing,
and taken off.
"""

from __future__ import annotations

import json
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime as ort
from benchmarks.harness.our_step import OurStep, open_observed

from timbrel_bundle.bundle import Bundle
from timbrel_bundle.runtime import session_options
from timbrel_server.decoder.sessions import FP32

N_OBSERVED_STEPS = 40
"""Steps that the times are medians of. Nodes within the branches of others are part of these."""

KERNEL = "_kernel_time"

PRODUCTS = frozenset({"MatMul", "Gemm", "FusedMatMul", "FusedGemm", "MatMulNBits", "DynamicQuantizeMatMul"})
ATTENTIONS = frozenset(
    {"GroupQueryAttention", "Attention", "MultiHeadAttention", "DecoderMaskedMultiHeadAttention"}
)
BOUND_BY = PRODUCTS | ATTENTIONS
"""Operators whose work no way of running the model can do without."""

GROUP_QUERY_CACHES = {3: 1, 4: 2}
"""GroupQueryAttention: past input -> present output, which share a buffer."""

DTYPES: dict[str, type[np.generic]] = {
    "float": np.float32,
    "float16": np.float16,
    "double": np.float64,
    "int32": np.int32,
    "int64": np.int64,
    "uint8": np.uint8,
    "int8": np.int8,
    "bool": np.bool_,
}


@dataclass(frozen=True)
class NodeRun:
    """A node of the graph as onnxruntime runs it."""

    name: str
    op: str
    seconds: float
    """The median time of its kernel."""
    inputs: tuple[tuple[str, tuple[int, ...]], ...]
    """Type, in onnxruntime's name, and shape of each input that is there."""


@dataclass(frozen=True)
class Observation:
    """A step seen from within."""

    nodes: list[NodeRun]
    """They stand in the order in which they run."""
    graph: onnx.ModelProto
    """The graph after onnxruntime's own optimization."""
    step_seconds: float
    """The whole step with the profiler on."""


def observe(bundle: Bundle, n_rows: int, position: int, n_threads: int, precision: str = FP32) -> Observation:
    """Runs steps of `n_rows` rows at a position with onnxruntime's profiler on."""
    with tempfile.TemporaryDirectory() as folder:
        sessions, optimized = open_observed(bundle, n_threads, precision, Path(folder))
        ours = OurStep(sessions, bundle, n_rows)
        work = ours.work(n_rows, position)
        for _ in range(N_OBSERVED_STEPS):
            work()
        events = json.loads(Path(sessions.decoder.end_profiling()).read_text(encoding="utf-8"))
        graph = onnx.load(optimized)
    runs = [event for event in events if event["name"] == "model_run"][-N_OBSERVED_STEPS:]
    nodes = [event for event in events if event["name"].endswith(KERNEL) and event["ts"] >= runs[0]["ts"]]
    seconds = statistics.median(run["dur"] for run in runs) * 1e-6
    outer = {node.name for node in graph.graph.node}
    return Observation(_by_node([event for event in nodes if _name(event) in outer]), graph, seconds)


class OneNode:
    """One node of a step in a graph of its own."""

    def __init__(self, node: NodeRun, graph: onnx.ModelProto, position: int, n_threads: int) -> None:
        """
        Args:
            node: with the shapes that it saw.
            graph: that it stands in, with its weights.
            position: where the rows stand, for an attention to look back from.
        """
        self.node = node
        proto = next(proto for proto in graph.graph.node if proto.name == node.name)
        self.inputs = list(proto.input)
        """Names, in the operator's order."""
        self.arrays = _given(node, proto, graph, position)
        """Its inputs that are no weights, by name."""
        model = _cut_out(proto, graph, self.arrays)
        self._session = ort.InferenceSession(
            model.SerializeToString(), session_options(n_threads), providers=["CPUExecutionProvider"]
        )
        self._binding = self._session.io_binding()
        for name, array in self.arrays.items():
            self._binding.bind_input(name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)
        shared = GROUP_QUERY_CACHES if proto.op_type == "GroupQueryAttention" else {}
        caches = {proto.output[out]: self.arrays[proto.input[into]] for into, out in shared.items()}
        self._outputs = _bind_outputs(self._session, self._binding, caches)

    def run(self) -> None:
        """Runs it once."""
        self._session.run_with_iobinding(self._binding)


class Bound:
    """All of a step's products and attentions, each alone, one after another."""

    def __init__(self, step: Observation, position: int, n_threads: int) -> None:
        self.nodes = [
            OneNode(node, step.graph, position, n_threads) for node in step.nodes if node.op in BOUND_BY
        ]
        self._nothing = _do_nothing(n_threads)

    def run(self) -> None:
        """Runs all of them."""
        for node in self.nodes:
            node.run()

    def run_nothing(self) -> None:
        """Calls a graph that does nothing as many times."""
        for _ in self.nodes:
            self._nothing()


class Floor:
    """The products of a step, and its caches read once: no way of running a step in one precision beats it.

    The products are those of the step, each alone in a graph. Of the cache it is the live part, without gaps.
    Of everything else - softmax, norms, the draw - nothing is counted.
    """

    def __init__(self, bound: Bound, position: int) -> None:
        """
        Args:
            bound: its products are run as they are.
            position: where the rows stand: so many positions and one are live.
        """
        self._works = [
            _reader(node, position) if node.node.op in ATTENTIONS else node.run for node in bound.nodes
        ]

    def run(self) -> None:
        """Runs all of it once."""
        for work in self._works:
            work()


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


def _given(
    node: NodeRun, proto: onnx.NodeProto, graph: onnx.ModelProto, position: int
) -> dict[str, npt.NDArray[Any]]:
    """Makes the inputs of the node that are no weights.

    The profiler lists the inputs in order, but not the weights that a kernel has packed for itself.
    """
    weights = {tensor.name: tuple(tensor.dims) for tensor in graph.graph.initializer}
    listed = list(node.inputs)
    random = np.random.default_rng(0)
    arrays: dict[str, npt.NDArray[Any]] = {}
    for name in filter(None, proto.input):
        if name in weights:
            if listed and listed[0][1] == weights[name]:
                listed.pop(0)
            continue
        kind, shape = listed.pop(0)
        dtype = DTYPES[kind]
        if np.issubdtype(dtype, np.floating):
            arrays[name] = random.standard_normal(shape).astype(dtype)
        else:
            arrays[name] = np.full(shape, position if dtype is np.int32 else 1).astype(dtype)
    return arrays


def _cut_out(
    proto: onnx.NodeProto, graph: onnx.ModelProto, arrays: dict[str, npt.NDArray[Any]]
) -> onnx.ModelProto:
    weights = [tensor for tensor in graph.graph.initializer if tensor.name in proto.input]
    inputs = [
        onnx.helper.make_tensor_value_info(
            name, onnx.helper.np_dtype_to_tensor_dtype(array.dtype), list(array.shape)
        )
        for name, array in arrays.items()
    ]
    first = next(iter(arrays.values()))
    kind = onnx.helper.np_dtype_to_tensor_dtype(first.dtype)
    outputs = [onnx.helper.make_tensor_value_info(name, kind, None) for name in proto.output if name]
    alone = onnx.helper.make_graph([proto], "one node", inputs, outputs, initializer=weights)
    return onnx.helper.make_model(alone, opset_imports=graph.opset_import, ir_version=graph.ir_version)


def _bind_outputs(
    session: Any, binding: Any, caches: dict[str, npt.NDArray[Any]]
) -> dict[str, npt.NDArray[Any]]:
    """Gives every output a fixed place: a cache's is that of the input, the others' are found by one run."""
    names = [output.name for output in session.get_outputs()]
    for name in names:
        if name in caches:
            _bind_output(binding, name, caches[name])
        else:
            binding.bind_output(name, "cpu")
    session.run_with_iobinding(binding)
    found = dict(zip(names, binding.copy_outputs_to_cpu(), strict=True)) | caches
    for name in names:
        _bind_output(binding, name, found[name])
    return found


def _bind_output(binding: Any, name: str, array: npt.NDArray[Any]) -> None:
    binding.bind_output(name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)


def _do_nothing(n_threads: int) -> Any:
    value = onnx.helper.make_tensor_value_info
    number = onnx.TensorProto.FLOAT
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Identity", ["x"], ["y"])],
        "nothing",
        [value("x", number, [1])],
        [value("y", number, [1])],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 20)], ir_version=10)
    session = ort.InferenceSession(
        model.SerializeToString(), session_options(n_threads), providers=["CPUExecutionProvider"]
    )
    given, taken = np.zeros(1, np.float32), np.zeros(1, np.float32)
    binding = session.io_binding()
    binding.bind_input("x", "cpu", 0, np.float32, given.shape, given.ctypes.data)
    _bind_output(binding, "y", taken)

    def call(_kept: tuple[npt.NDArray[np.float32], ...] = (given, taken)) -> None:
        session.run_with_iobinding(binding)

    return call


def _reader(node: OneNode, position: int) -> Callable[[], Any]:
    """Reads keys and values as a dot product of the two does: each once."""
    import torch  # which whoever wants no floor does without

    keys, values = (
        torch.from_numpy(np.ascontiguousarray(cache[:, :, : position + 1]).reshape(-1).view(np.float32))
        for cache in _caches(node)
    )
    return lambda: torch.dot(keys, values)


def _caches(node: OneNode) -> list[npt.NDArray[Any]]:
    """Keys and values [rows, heads, positions, size] of an attention."""
    return [node.arrays[node.inputs[place]] for place in GROUP_QUERY_CACHES]
