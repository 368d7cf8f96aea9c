"""Mostly-zero constants of a graph, stored by their other entries: a bank of mel filters is 98 % zeros."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

MIN_SIZE = 16_384
"""Smaller constants are left alone."""
MAX_DENSITY = 0.1
"""Share of entries that are not zero up to which a constant is stored sparsely."""


def store_sparsely(graph: onnx.GraphProto) -> None:
    """Replaces such float constants, in place, by nodes that make them; a runtime folds these as it loads."""
    makers: list[onnx.NodeProto] = []
    for tensor in list(graph.initializer):
        if tensor.data_location == onnx.TensorProto.EXTERNAL or tensor.data_type != onnx.TensorProto.FLOAT:
            continue
        values = numpy_helper.to_array(tensor)
        if values.size >= MIN_SIZE and np.count_nonzero(values) <= MAX_DENSITY * values.size:
            graph.initializer.remove(tensor)
            makers.extend(_make_dense(graph, tensor.name, values))
    nodes = [*makers, *graph.node]
    del graph.node[:]
    graph.node.extend(nodes)


def _make_dense(graph: onnx.GraphProto, name: str, values: NDArray[Any]) -> list[onnx.NodeProto]:
    """Nodes whose result, of this name, is the values: zeros with the other entries scattered over them."""
    flat = values.ravel()
    index = np.flatnonzero(flat)
    parts: dict[str, NDArray[Any]] = {
        "size": np.array([flat.size], dtype=np.int64),
        "index": index.astype(np.int32),
        "values": flat[index],
        "shape": np.array(values.shape, dtype=np.int64),
    }
    for part, array in parts.items():
        graph.initializer.append(numpy_helper.from_array(array, f"{name}.{part}"))
    return [
        helper.make_node("ConstantOfShape", [f"{name}.size"], [f"{name}.zeros"]),
        helper.make_node(
            "ScatterElements",
            [f"{name}.zeros", f"{name}.index", f"{name}.values"],
            [f"{name}.flat"],
            axis=0,
        ),
        helper.make_node("Reshape", [f"{name}.flat", f"{name}.shape"], [name]),
    ]
