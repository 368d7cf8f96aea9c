"""Export writes a bundle that agrees with the PyTorch modules, and none that does not."""

from __future__ import annotations

import contextlib
import copy
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import numpy as np
import onnx
import pytest
import torch
from safetensors.numpy import load_file, save_file

from timbrel_bundle.bundle import Bundle
from timbrel_bundle.errors import BundleError
from timbrel_export.bundle_parity import check_decoders, check_timbre_encoder, compare_codec_decoder
from timbrel_export.errors import ExportError, InterfaceError, ParityError
from timbrel_export.exporter import Parts, export_bundle
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb
from timbrel_training.codec.interface import Codec
from timbrel_training.model import NoteTransformer
from timbrel_training.timbre.encoder import TimbreEncoder

Export = Callable[..., pb.Manifest]
Alter = Callable[[Path], None]


@pytest.fixture
def export(tiny: Any, recipe: ModuleType, tmp_path: Path) -> Export:
    """Exports the tiny bundle's modules to tmp_path / "bundle"."""

    def run(**changes: Any) -> pb.Manifest:
        parts: dict[str, Any] = {
            "model": tiny.model,
            "codec": tiny.codec,
            "timbre_encoder": tiny.timbre_encoder,
            "timbre_map": tiny.bundle.timbre_map,
            "training": tiny.bundle.manifest.training,
            "ranges": recipe.RANGES,
            "sample_notes": tiny.notes,
        }
        parts |= {name: changes.pop(name) for name in parts if name in changes}
        return export_bundle(Parts(**parts), **{"out_dir": tmp_path / "bundle", **changes})

    return run


def edit_graph(name: str, edit: Callable[[onnx.GraphProto], None]) -> Alter:
    def alter(folder: Path) -> None:
        model = onnx.load(folder / name, load_external_data=False)
        edit(model.graph)
        (folder / name).write_bytes(model.SerializeToString())

    return alter


def edit_weights(file: str, weight: str, change: float) -> Alter:
    def alter(folder: Path) -> None:
        weights = load_file(folder / file)
        weights[weight] = weights[weight] + np.float16(change)
        save_file(weights, folder / file)

    return alter


def forget_an_output(graph: onnx.GraphProto) -> None:
    del graph.output[-1]


def rename_an_input(graph: onnx.GraphProto) -> None:
    value = next(value for value in graph.input if value.name == "gate")
    for node in graph.node:
        node.input[:] = ["door" if name == "gate" else name for name in node.input]
    value.name = "door"


def shorten_the_cache(graph: onnx.GraphProto) -> None:
    for value in (*graph.input, *graph.output):
        if value.name.startswith("self_"):
            value.type.tensor_type.shape.dim[2].dim_value -= 1


def divide_scores_wrongly(graph: onnx.GraphProto) -> None:
    for node in graph.node:
        if node.op_type == "Attention":
            for attribute in node.attribute:
                if attribute.name == "scale":
                    attribute.f *= 1.1


def see_only_one_position(graph: onnx.GraphProto) -> None:
    for node in graph.node:
        if node.op_type == "GroupQueryAttention":
            node.attribute.append(onnx.helper.make_attribute("local_window_size", 2))


def take_the_worst(graph: onnx.GraphProto) -> None:
    """At the first look, which would be settled by the second, and at the second."""
    for node in graph.node:
        for attribute in node.attribute:
            if node.op_type == "TopK" and attribute.name == "largest":
                attribute.i = 0
            if node.op_type == "If":
                take_the_worst(attribute.g)


def never_look_again(graph: onnx.GraphProto) -> None:
    """Keeps what the first look found where another should be taken."""
    branch = next(node for node in graph.node if node.op_type == "If")
    kept = next(each.g for each in branch.attribute if each.name == "then_branch")
    again = next(each.g for each in branch.attribute if each.name == "else_branch")
    name = again.output[0].name
    again.CopyFrom(kept)
    again.node[-1].output[0] = again.output[0].name = name


TAMPERED = {
    "an output is gone": (edit_graph("decoder_step.onnx", forget_an_output), InterfaceError, "self_v_1_out"),
    "an input is renamed": (edit_graph("decoder_step.onnx", rename_an_input), InterfaceError, "gate"),
    "the cache is too short": (
        edit_graph("decoder_step_portable.onnx", shorten_the_cache),
        InterfaceError,
        r"self_k_0 tensor\(float\) \[\*, 2, 95, 8\], expected",
    ),
    "attention is scaled wrongly": (
        edit_graph("decoder_step_portable.onnx", divide_scores_wrongly),
        ParityError,
        "decoder_step_portable.onnx: logits differ",
    ),
    "attention forgets": (
        edit_graph("decoder_step.onnx", see_only_one_position),
        ParityError,
        "decoder_step.onnx: logits differ",
    ),
    "the draw is wrong": (
        edit_graph("decoder_step.onnx", take_the_worst),
        ParityError,
        "tokens differ from the oracle's",
    ),
    "the draw does not look again": (
        edit_graph("decoder_step_int8.onnx", never_look_again),
        ParityError,
        r"decoder_step_int8.onnx: \d+ of 900 draws are not those that its logits ask for",
    ),
    "a model weight is off": (
        edit_weights("model.safetensors", "decoder.norm.weight", 0.05),
        ParityError,
        "logits differ",
    ),
    "a codec weight is off": (
        edit_weights("codec.safetensors", "header.decoder.3.bias", 0.1),
        ParityError,
        "samples differ",
    ),
    "a timbre weight is off": (
        edit_weights("timbre.safetensors", "embed.bias", 0.1),
        ParityError,
        "points or embeddings differ",
    ),
}


@pytest.mark.parametrize("case", TAMPERED)
def test_a_graph_that_disagrees_is_refused(
    case: str, export: Export, tamper: Callable[[Alter], None], tmp_path: Path
) -> None:
    alter, error, message = TAMPERED[case]
    tamper(alter)
    with pytest.raises(error, match=message):
        export()
    assert list(tmp_path.iterdir()) == []


def test_a_codec_that_has_hardly_learnt_is_to_be_trained_for_longer(tiny: Any, tiny_bundle: Path) -> None:
    """What it plays beyond full scale is rounded more than is allowed below."""
    loud = SimpleNamespace(bends=tiny.codec.bends, decode=lambda *given: 1e6 * tiny.codec.decode(*given))
    hint = "in sounds that reach .* of full scale, .*; a codec that has hardly learnt plays so: train it"
    with pytest.raises(ParityError, match=hint):
        compare_codec_decoder(cast(Codec, loud), Bundle.open(tiny_bundle), [tiny.notes[0].codes])


@pytest.mark.parametrize(
    ("plain", "bent", "message"),
    [
        (2e-3, 0.0, "samples differ by up to 0.00"),
        (0.0, 2e-3, ""),
        (0.0, 8e-3, "samples of bent notes differ by up to 0.008"),
        (np.nan, 0.0, "samples differ by up to nan"),  # neither more nor less than what is allowed
    ],
)
def test_bent_notes_may_differ_by_what_their_phases_sum(
    plain: float, bent: float, message: str, tiny: Any, tiny_bundle: Path
) -> None:
    def decode(codes: Any, seed: Any, cents: Any, level: Any) -> Any:
        return tiny.codec.decode(codes, seed, cents, level) + (bent if cents.any() else plain)

    codec = cast(Codec, SimpleNamespace(bends=True, decode=decode))
    refused = pytest.raises(ParityError, match=message) if message else contextlib.nullcontext()
    with refused:
        compare_codec_decoder(codec, Bundle.open(tiny_bundle), [tiny.notes[0].codes])


def test_weights_that_are_no_numbers_are_refused(tiny: Any, tiny_bundle: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny_bundle, tmp_path / "bundle")
    for file, weight in (("codec", "header.decoder.3.bias"), ("timbre", "embed.bias")):
        weights = load_file(tmp_path / "bundle" / f"{file}.safetensors")
        weights[weight][-1:] = np.nan
        save_file(weights, tmp_path / "bundle" / f"{file}.safetensors")
    bundle = Bundle.open(tmp_path / "bundle", verify=False)
    with pytest.raises(BundleError, match=r"'header\.decoder\.3\.bias' that is not finite"):
        compare_codec_decoder(tiny.codec, bundle, [note.codes for note in tiny.notes])
    sounds = [np.sin(np.arange(9600, dtype=np.float32))]
    with pytest.raises(BundleError, match=r"'embed\.bias' that is not finite"):
        check_timbre_encoder(bundle, tiny.timbre_encoder, sounds)


def test_numbers_too_large_for_fp16_are_refused(tiny: Any) -> None:
    """Values of attention are scaled up, and what it gives down again: in fp32 the logits stay."""
    model = copy.deepcopy(tiny.model)
    attention = model.decoder.layers[1].self_attention
    with torch.no_grad():
        attention.qkv.weight[-attention.sizes[2] :] *= 2.0**14
        attention.out.weight /= 2.0**14
    message = r"decoder_step_half.onnx: the model's numbers reach \S+, allowed are 16376: fp16 ends at 65504"
    with pytest.raises(ParityError, match=message):
        check_decoders(tiny.bundle, model, tiny.notes)
    assert not any(module._forward_hooks for module in model.modules())


def test_what_agrees_is_written(
    export: Export, tamper: Callable[[Alter], None], tiny: Any, tmp_path: Path
) -> None:
    tamper(lambda folder: None)
    manifest = export(name="again", git_revision="abc")
    bundle = Bundle.open(tmp_path / "bundle")
    assert bundle.manifest == manifest
    assert (manifest.name, manifest.git_revision) == ("again", "abc")
    assert manifest.bundle_hash == tiny.bundle.manifest.bundle_hash
    assert manifest.parity.n_tokens > 400
    assert manifest.parity.n_flips_outside_margin == 0
    assert 0 < manifest.parity.max_logit_difference < 1e-3
    assert 0 < manifest.parity.max_audio_difference < 1e-3
    assert manifest.model.max_positions == tiny.model.config.max_positions
    assert [path.name for path in tmp_path.iterdir()] == ["bundle"]


def test_an_older_bundle_is_replaced_and_nothing_else(
    export: Export, tamper: Callable[[Alter], None], tmp_path: Path
) -> None:
    tamper(lambda folder: None)
    export()
    export(name="newer")
    assert Bundle.open(tmp_path / "bundle").manifest.name == "newer"
    other = tmp_path / "other"
    other.mkdir()
    (other / "precious.txt").write_text("keep")
    with pytest.raises(ExportError, match="is no bundle"):
        export(out_dir=other)
    assert (other / "precious.txt").read_text() == "keep"


def test_parts_that_do_not_belong_together_are_refused(
    export: Export, tiny: Any, recipe: ModuleType, tmp_path: Path
) -> None:
    stranger = NoteTransformer(replace(tiny.model.config, n_codebooks=5, held_codes=()))
    with pytest.raises(ExportError, match="n_codebooks = 5"):
        export(model=stranger)
    with pytest.raises(ExportError, match="head_dim is 12"):
        export(model=NoteTransformer(replace(tiny.model.config, head_dim=12)))
    with pytest.raises(ExportError, match="hears audio at 44100 Hz, the codec's is at 48000 Hz"):
        export(timbre_encoder=TimbreEncoder(recipe.TIMBRE, 44_100, 4))
    with pytest.raises(ExportError, match="no sample notes"):
        export(sample_notes=[])
    assert list(tmp_path.iterdir()) == []
