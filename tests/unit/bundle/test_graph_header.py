"""A graph's declarations are read as the onnx package reads them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import AttributeProto, ModelProto, SparseTensorProto, TensorProto, helper

from timbrel_bundle import layout
from timbrel_bundle.codec import CodecDecoder
from timbrel_bundle.errors import BundleError
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


def _from_file(name: str = "inner") -> TensorProto:
    """A tensor whose values onnxruntime would read from a file of the working directory."""
    tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=[1], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="secret.bin")
    return tensor


def _sparse() -> SparseTensorProto:
    return SparseTensorProto(values=_from_file(), indices=TensorProto(data_type=TensorProto.INT64, dims=[1]))


def _constant(name: str) -> Any:
    return helper.make_node("Constant", [], [name], value=_from_file())


def _branch() -> Any:
    return helper.make_graph(
        [_constant("z")], "branch", [], [helper.make_tensor_value_info("z", TensorProto.FLOAT, [1])]
    )


def _branch_with_weight() -> Any:
    branch = _branch()
    branch.initializer.append(_from_file())
    del branch.node[:]
    return branch


def _if(then_branch: Any, else_branch: Any) -> Callable[[ModelProto], None]:
    node = helper.make_node("If", ["flag"], ["unused"], then_branch=then_branch, else_branch=else_branch)
    return lambda model: model.graph.node.append(node)


def _function(model: ModelProto) -> None:
    opset = helper.make_opsetid("", 21)
    model.functions.append(helper.make_function("own", "F", [], ["y"], [_constant("y")], [opset]))


def _default_of_a_function(model: ModelProto) -> None:
    _function(model)
    del model.functions[0].node[:]
    model.functions[0].attribute_proto.append(helper.make_attribute("default", _from_file()))


def _sparse_attribute(model: ModelProto) -> None:
    attribute = AttributeProto(
        name="sparse_value", type=AttributeProto.SPARSE_TENSOR, sparse_tensor=_sparse()
    )
    model.graph.node.add(op_type="Constant", output=["unused"]).attribute.append(attribute)


def _unmarked(model: ModelProto) -> None:
    node = _constant("unused")
    node.attribute[0].t.ClearField("data_location")
    model.graph.node.append(node)


HIDING_PLACES: dict[str, Callable[[ModelProto], Any]] = {
    "attribute": lambda model: model.graph.node.append(_constant("unused")),
    "attribute that is not marked": _unmarked,
    "list of tensors": lambda model: model.graph.node.append(
        helper.make_node("Own", [], ["unused"], domain="own", values=[_from_file()])
    ),
    "branch": _if(_branch(), _branch()),
    "weight of a branch": _if(_branch_with_weight(), _branch_with_weight()),
    "body of a loop": lambda model: model.graph.node.append(
        helper.make_node("Loop", ["", ""], ["unused"], body=_branch_with_weight())
    ),
    "list of graphs": lambda model: model.graph.node.append(
        helper.make_node("Own", [], ["unused"], domain="own", bodies=[_branch()])
    ),
    "function": _function,
    "default of a function": _default_of_a_function,
    "sparse weight": lambda model: model.graph.sparse_initializer.append(_sparse()),
    "sparse attribute": _sparse_attribute,
    "training": lambda model: model.training_info.add().algorithm.CopyFrom(_branch()),
}


@pytest.mark.parametrize("place", HIDING_PLACES)
def test_no_file_is_read_for_a_tensor_within_the_graph(
    folder: Any, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the weights of the main graph lie in files: those that the manifest lists."""
    (tmp_path / "secret.bin").write_bytes(bytes(4))
    monkeypatch.chdir(tmp_path)
    path = folder.path / layout.CODEC_DECODER
    model = onnx.load(path, load_external_data=False)
    HIDING_PLACES[place](model)
    path.write_bytes(model.SerializeToString())
    folder.save()
    with pytest.raises(BundleError, match=r"takes the tensor 'inner' from a file"):
        CodecDecoder(folder.open())


def test_a_tensor_within_a_branch_within_a_branch_is_found() -> None:
    branch = _branch()
    for _ in range(5):
        node = helper.make_node("If", ["flag"], ["z"], then_branch=branch, else_branch=branch)
        branch = helper.make_graph([node], "outer", [], branch.output)
    with pytest.raises(ValueError, match="'inner' from a file"):
        parse_graph_header(helper.make_model(branch).SerializeToString())
