"""A small bundle of real ONNX graphs: a codec whose decoder carries state and lags by a frame and a half."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from safetensors.numpy import save_file

from timbrel_bundle import layout
from timbrel_bundle.bundle import Bundle
from timbrel_bundle.manifest import bundle_hash, describe_file, save_manifest
from timbrel_bundle.timbre_map import save_timbre_map
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb

HOP = 4
DELAY = 6
N_CODEBOOKS = 2
CODEBOOK_SIZE = 16
SAMPLE_RATE = 8000
OPSET = helper.make_opsetid("", 21)

FLOAT, DOUBLE, INT64 = TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.INT64


def _constant(name: str, value: Any, dtype: Any) -> onnx.TensorProto:
    return onnx.numpy_helper.from_array(np.array(value, dtype=dtype), name)


def _external_weight(name: str, shape: tuple[int, ...]) -> onnx.TensorProto:
    tensor = TensorProto(name=name, data_type=FLOAT, dims=shape, data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value=layout.CODEC_WEIGHTS)
    return tensor


def _save_graph(
    path: Path, nodes: list[Any], inputs: list[Any], outputs: list[Any], initializers: list[Any]
) -> None:
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info(*given) for given in inputs],
        [helper.make_tensor_value_info(*given) for given in outputs],
        initializers,
    )
    path.write_bytes(helper.make_model(graph, opset_imports=[OPSET], ir_version=10).SerializeToString())


def _save_decoder(path: Path) -> None:
    """Each frame's codes times a matrix, plus the running sum of all codes, late by DELAY samples."""
    node = helper.make_node
    nodes = [
        node("Cast", ["codes"], ["x"], to=FLOAT),
        node("MatMul", ["x", "head.weight"], ["shape"]),
        node("Cast", ["codes"], ["wide"], to=DOUBLE),
        node("ReduceSum", ["wide", "axis_2"], ["sums"], keepdims=0),
        node("CumSum", ["sums", "axis_1"], ["so_far"]),
        node("Add", ["so_far", "total"], ["sum"]),
        node("Slice", ["sum", "minus_1", "end", "axis"], ["last"]),
        node("Identity", ["last"], ["total_out"]),
        node("Mul", ["sum", "scale"], ["ramp_wide"]),
        node("Cast", ["ramp_wide"], ["ramp"], to=FLOAT),
        node("Unsqueeze", ["ramp", "axis_2"], ["ramp_3"]),
        node("Add", ["shape", "ramp_3"], ["frames"]),
        node("Reshape", ["frames", "flat"], ["fresh"]),
        node("Concat", ["tail", "fresh"], ["all"], axis=1),
        node("Slice", ["all", "zero", "minus_delay", "axis"], ["audio"]),
        node("Slice", ["all", "minus_delay", "end", "axis"], ["tail_out"]),
    ]
    initializers = [
        _external_weight("head.weight", (N_CODEBOOKS, HOP)),
        _constant("axis_2", [2], np.int64),
        _constant("axis_1", 1, np.int64),
        _constant("axis", [1], np.int64),
        _constant("zero", [0], np.int64),
        _constant("minus_1", [-1], np.int64),
        _constant("minus_delay", [-DELAY], np.int64),
        _constant("end", [2**31], np.int64),
        _constant("flat", [0, -1], np.int64),
        _constant("scale", 1e-3, np.float64),
    ]
    _save_graph(
        path,
        nodes,
        [
            ("codes", INT64, ["B", "T", N_CODEBOOKS]),
            ("tail", FLOAT, ["B", DELAY]),
            ("total", DOUBLE, ["B", 1]),
        ],
        [("audio", FLOAT, ["B", "S"]), ("tail_out", FLOAT, ["B", DELAY]), ("total_out", DOUBLE, ["B", 1])],
        initializers,
    )


@dataclass(frozen=True)
class BundleFolder:
    """A bundle on disk, to be damaged."""

    path: Path
    manifest: pb.Manifest
    head: np.ndarray[Any, Any]
    """The decoder's weight, fp16 [K, hop]."""

    def save(self, **fields: Any) -> None:
        """Writes the manifest anew, with these fields changed and the files as they now are."""
        files = [describe_file(self.path / file.name) for file in self.manifest.files]
        changed = pb.Manifest()
        changed.CopyFrom(self.manifest)
        del changed.files[:]
        changed.MergeFrom(pb.Manifest(files=files, bundle_hash=bundle_hash(files)))
        for name, value in fields.items():
            setattr(changed, name, value)
        save_manifest(changed, self.path / layout.MANIFEST)

    def open(self, verify: bool = True) -> Bundle:
        return Bundle.open(self.path, verify)

    def expected_audio(self, codes: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """The audio that the decoder's graph stands for: [T * hop], without delay."""
        ramp = 1e-3 * codes.astype(np.float64).sum(axis=1).cumsum()
        return (codes.astype(np.float64) @ self.head.astype(np.float64) + ramp[:, None]).reshape(-1)


@pytest.fixture
def folder(tmp_path: Path) -> BundleFolder:
    path = tmp_path / "bundle"
    path.mkdir()
    head = (np.random.default_rng(0).normal(size=(N_CODEBOOKS, HOP)) / 20).astype(np.float16)
    _save_decoder(path / layout.CODEC_DECODER)
    save_file({"head.weight": head}, path / layout.CODEC_WEIGHTS)
    points = [
        pb.TimbrePoint(instrument=name, family="Family", x=x / 4, y=0.1, pitch_min=36, pitch_max=94)
        for x, name in enumerate(("Violin", "Viola", "Church Organ", "Marimba"))
    ]
    save_timbre_map(pb.TimbreMap(points=points), path / layout.TIMBRE_MAP)
    names = (layout.CODEC_DECODER, layout.CODEC_WEIGHTS, layout.TIMBRE_MAP)
    made = BundleFolder(path, _describe([describe_file(path / name) for name in names]), head)
    made.save()
    return made


def _describe(files: list[pb.BundleFile]) -> pb.Manifest:
    return pb.Manifest(
        format_version=layout.FORMAT_VERSION,
        name="small",
        bundle_hash=bundle_hash(files),
        files=files,
        codec=pb.CodecSpec(
            id="small",
            sample_rate=SAMPLE_RATE,
            hop_length=HOP,
            n_codebooks=N_CODEBOOKS,
            codebook_size=CODEBOOK_SIZE,
            delay_samples=DELAY,
            silence=[3] * N_CODEBOOKS,
            decoder_state=[
                pb.StateTensor(name="tail", shape=[DELAY], dtype="float32"),
                pb.StateTensor(name="total", shape=[1], dtype="float64"),
            ],
        ),
        model=pb.ModelSpec(
            n_kv_heads=1,
            head_dim=8,
            n_decoder_layers=1,
            vocabulary_size=CODEBOOK_SIZE + 2,
            bos_id=CODEBOOK_SIZE,
            eos_id=CODEBOOK_SIZE + 1,
            max_frames=40,
            max_positions=43,
        ),
        ranges=pb.RequestRanges(
            pitch_min=36, pitch_max=94, velocity_min=1, velocity_max=127, seconds_min=0.1, seconds_max=4.0
        ),
    )


@pytest.fixture
def codes() -> np.ndarray[Any, Any]:
    """uint16 [11, 2]."""
    return np.random.default_rng(1).integers(0, CODEBOOK_SIZE, (11, N_CODEBOOKS)).astype(np.uint16)


@pytest.fixture
def rename_input() -> Callable[[Path, str, str], None]:
    """Renames one input of a graph file."""

    def rename(path: Path, before: str, after: str) -> None:
        model = onnx.load(path, load_external_data=False)
        for value in model.graph.input:
            value.name = after if value.name == before else value.name
        for node in model.graph.node:
            node.input[:] = [after if name == before else name for name in node.input]
        path.write_bytes(model.SerializeToString())

    return rename
