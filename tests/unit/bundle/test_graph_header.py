"""A graph's declarations are read as the onnx package reads them."""

from __future__ import annotations

from typing import Any

import onnx
import pytest

from timbrel_bundle import layout
from timbrel_bundle.graph_header import ExternalWeight, parse_graph_header


def test_names_and_external_weights(folder: Any) -> None:
    path = folder.path / layout.CODEC_DECODER
    header = parse_graph_header(path.read_bytes())
    graph = onnx.load(path, load_external_data=False).graph
    assert header.inputs == tuple(value.name for value in graph.input)
    assert header.outputs == tuple(value.name for value in graph.output)
    assert header.external_weights == (
        ExternalWeight("head.weight", (2, 4), "float32", layout.CODEC_WEIGHTS),
    )


@pytest.mark.parametrize("data", [b"", b"\x00\x01", b"RIFF....WAVE", b"\x3a\xff\xff"])
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="ONNX"):
        parse_graph_header(data)
