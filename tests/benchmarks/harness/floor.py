"""What no way of running a step in one precision can beat: its matrix products, and its cache read once.

The products are those of the step, each alone in a graph. Of the cache it is the live part, without gaps. Of
everything else - softmax, norms, the draw - nothing is counted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from benchmarks.harness.one_node import ATTENTIONS, GROUP_QUERY_CACHES, Bound, OneNode


class Floor:
    """The products of a step, and its caches, in its order."""

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
        """All of it, once."""
        for work in self._works:
            work()


def _reader(node: OneNode, position: int) -> Callable[[], Any]:
    """Reads keys and values as a dot product of the two does: each once."""
    keys, values = (
        torch.from_numpy(np.ascontiguousarray(cache[:, :, : position + 1]).reshape(-1).view(np.float32))
        for cache in _caches(node)
    )
    return lambda: torch.dot(keys, values)


def _caches(node: OneNode) -> list[npt.NDArray[Any]]:
    """Keys and values [rows, heads, positions, size] of an attention."""
    return [node.arrays[node.inputs[place]] for place in GROUP_QUERY_CACHES]
