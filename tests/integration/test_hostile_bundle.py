"""A bundle's folder from somebody who means harm, or made by mistake: its server says so in one line."""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from safetensors.numpy import load_file, save_file
from server_process import ServerProcess, run_server

import timbrel
from timbrel_bundle import layout
from timbrel_bundle.errors import UNPRINTABLE
from timbrel_bundle.manifest import bundle_hash, describe_file, load_manifest, save_manifest
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb
from timbrel_training.codec.timbrel_notes.note_parameters import SHAPES, SIZES

Spoil = Callable[[Path, pb.Manifest], object]


def swap(source: str, target: str) -> Spoil:
    return lambda folder, _: shutil.copy(folder / source, folder / target)


def say(section: str, **fields: int) -> Spoil:
    return lambda _, manifest: [setattr(getattr(manifest, section), *each) for each in fields.items()]


def retype(dtype: bytes) -> Spoil:
    """Has the weights' file say that they are of another type."""

    def change(folder: Path, _: pb.Manifest) -> None:
        path = folder / layout.MODEL_WEIGHTS
        data = path.read_bytes()
        length = int.from_bytes(data[:8], "little")
        header = data[8 : 8 + length].replace(b'"F16"', b'"' + dtype + b'"')
        header += b" " * (-len(header) % 8)
        path.write_bytes(len(header).to_bytes(8, "little") + header + data[8 + length :])

    return change


def lose(name: str, number: float) -> Spoil:
    """Has one number of a file of weights be none."""

    def change(folder: Path, _: pb.Manifest) -> None:
        weights = load_file(folder / name)
        floating = next(each for each in weights.values() if each.dtype.kind == "f")
        floating.flat[-1] = number
        save_file(weights, folder / name)

    return change


def lose_positions(folder: Path, _: pb.Manifest) -> None:
    """Has a table that stands in the decode graph itself hold no numbers."""
    path = folder / layout.DECODER_STEP
    model = onnx.load(path, load_external_data=False)
    table = next(each for each in model.graph.initializer if each.name.endswith("positions.table"))
    nothing = np.full(tuple(table.dims), np.nan, dtype=np.float32)
    table.CopyFrom(onnx.numpy_helper.from_array(nothing, table.name))
    onnx.save(model, path)


def write(name: str, text: str) -> Spoil:
    return lambda folder, _: (folder / name).write_text(text)


def name_heads(folder: Path, _: pb.Manifest) -> None:
    """Has the decode graphs give a name in place of how many heads their caches have."""
    for path in folder.glob("decoder_step*.onnx"):
        graph = onnx.load(path, load_external_data=False)
        for value in (*graph.graph.input, *graph.graph.output):
            sizes = value.type.tensor_type.shape.dim
            if len(sizes) == 4:
                sizes[1].dim_param = "heads"
        onnx.save(graph, path)


def pipe(name: str) -> Spoil:
    def make(folder: Path, _: pb.Manifest) -> None:
        (folder / name).unlink()
        os.mkfifo(folder / name)

    return make


CASES: dict[str, tuple[Spoil, str]] = {
    "positions": (say("model", max_positions=2**31), "max_positions 2147483648"),
    "a large cache": (say("model", max_positions=2**17, head_dim=1024, n_kv_heads=256), "cache takes"),
    "another vocabulary": (say("model", vocabulary_size=5000), "vocabulary_size 5000, which must be"),
    "tokens in another order": (say("model", bos_id=1025, eos_id=1024), "bos_id 1025, which must be 1024"),
    "more positions than the graph has": (
        say("model", max_positions=182, max_frames=176),
        "do not run as the manifest says",
    ),
    "a gate that counts too far": (say("model", release_frames=4000), "do not run as the manifest says"),
    "another graph": (swap(layout.CODEC_DECODER, layout.DECODER_STEP), "do not run as the manifest says"),
    "another encoder": (swap(layout.CODEC_DECODER, layout.CONDITION_ENCODER), "do not run as"),
    "a cache of no size": (name_heads, "do not run as the manifest says (TypeError"),
    "bfloat16": (retype(b"BF16"), "in a type that numpy does not know"),
    "weights that are no numbers": (lose(layout.MODEL_WEIGHTS, math.nan), "that is not finite"),
    "a codec of no numbers": (lose(layout.CODEC_WEIGHTS, math.inf), "that is not finite"),
    "a timbre encoder of no numbers": (lose(layout.TIMBRE_WEIGHTS, -math.inf), "that is not finite"),
    "a graph of no numbers": (lose_positions, "do not run as the manifest says (ValueError: it gives logits"),
    "nested map": (write(layout.TIMBRE_MAP, "[" * 100_000), "nested too deeply"),
    "a point that is none": (
        write(layout.TIMBRE_MAP, json.dumps({"points": [{"instrument": "a", "x": "NaN"}]})),
        "no point of the disc",
    ),
    "references of another map": (
        write(
            layout.TIMBRE_REFERENCES,
            '{"references": [{"instrument": "Kazoo", "embedding": [1]}], "sharpness": 20, "nearness": 0.4}',
        ),
        "names other instruments than the timbre map",
    ),
    "a pipe": (pipe(layout.MODEL_WEIGHTS), "the file is missing"),
}


def describe(folder: Path, manifest: pb.Manifest) -> None:
    """Has the manifest say what the files are now."""
    files = [
        describe_file(path) if (path := folder / each.name).is_file() else each for each in manifest.files
    ]
    del manifest.files[:]
    manifest.files.extend(files)
    manifest.bundle_hash = bundle_hash(files)
    save_manifest(manifest, folder / layout.MANIFEST)


@pytest.mark.parametrize("case", CASES)
def test_a_bundle_that_cannot_be_is_told_in_one_line(tiny_bundle: Path, tmp_path: Path, case: str) -> None:
    spoil, fault = CASES[case]
    folder = tmp_path / "bundle"
    shutil.copytree(tiny_bundle, folder)
    manifest = load_manifest(folder / layout.MANIFEST)
    spoil(folder, manifest)
    describe(folder, manifest)
    done = run_server("--bundle", str(folder), "--port", "0")
    assert done.returncode == 2, done.stderr
    *_, last = done.stderr.splitlines()
    assert last.startswith("timbrel: ") and fault in last
    assert "Traceback" not in done.stderr and not UNPRINTABLE.search(last)


def test_a_codec_that_gives_no_numbers_is_told_in_one_line(
    tiny_bundle: Path,
    tmp_path: Path,
    run: Callable[..., tuple[int, str, str]],
    start_server: Callable[..., ServerProcess],
) -> None:
    """Neither a file is written of them, nor are they handed out to be played. Its weights are finite, but
    noise and burst lie further apart than float32 can say."""
    folder = tmp_path / "bundle"
    shutil.copytree(tiny_bundle, folder)
    weights = load_file(folder / layout.CODEC_WEIGHTS)
    mean = weights["header.mean"].astype(np.float32)
    ends = dict(zip(SHAPES, np.cumsum(SIZES).tolist(), strict=True))
    mean[ends["release"] : ends["noise"]], mean[ends["onset"] : ends["burst"]] = -3e38, 3e38
    weights["header.mean"] = mean
    save_file(weights, folder / layout.CODEC_WEIGHTS)
    describe(folder, load_manifest(folder / layout.MANIFEST))
    address = start_server(bundle=folder).address
    here = ("--server", address, "--seconds", "0.3")
    for out, command in {
        "note.wav": ("render", "--timbre", "Violin"),
        "library": ("library", "--timbre", "Violin", "--pitches", "60"),
    }.items():
        status, _, error = run(*command, *here, "--out", str(tmp_path / out))
        assert status != 0 and "no finite numbers" in error.splitlines()[-1], error
        assert "Traceback" not in error and not [*tmp_path.rglob("*.wav")]
    with timbrel.Client(address) as client:
        with pytest.raises(timbrel.BundleMismatchError, match="no finite numbers"):
            list(client.stream("Violin", 60, seconds=0.3))
        with client.play() as player, pytest.raises(timbrel.BundleMismatchError, match="no finite numbers"):
            list(player.note_on("Violin", 60))
