"""The least that a step could take: its own matrix products and attentions, each alone in a graph.

Each keeps its own weights and its own cache, and all are run in the step's order, so that by the time one
comes round again the others have pushed its weights out of the caches, as they do in the step. What calling a
graph costs is measured on a graph that does nothing, and taken off.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime as ort
from benchmarks.harness.observe import NodeRun, Observation

from timbrel_bundle.runtime import session_options

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
        self.arrays = _inputs(node, proto, graph, position)
        """What it is given that is no weight, by name."""
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
        """Once."""
        self._session.run_with_iobinding(self._binding)


class Bound:
    """All of a step's products and attentions, each alone, one after another."""

    def __init__(self, step: Observation, position: int, n_threads: int) -> None:
        self.nodes = [
            OneNode(node, step.graph, position, n_threads) for node in step.nodes if node.op in BOUND_BY
        ]
        self._nothing = _do_nothing(n_threads)

    def run(self) -> None:
        """All of them."""
        for node in self.nodes:
            node.run()

    def run_nothing(self) -> None:
        """As many calls of a graph that does nothing."""
        for _ in self.nodes:
            self._nothing()


def _inputs(
    node: NodeRun, proto: onnx.NodeProto, graph: onnx.ModelProto, position: int
) -> dict[str, npt.NDArray[Any]]:
    """What the node is given that is no weight.

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
