"""A sound bundle opens and computes; any damage is one line that names file, fault and remedy."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from safetensors.numpy import save_file

from timbrel_bundle import layout
from timbrel_bundle.bundle import Bundle
from timbrel_bundle.codec import CodecDecoder
from timbrel_bundle.errors import BundleError


def assert_names(error: pytest.ExceptionInfo[BundleError], file: str, fault: str) -> None:
    """One line: the file, the fault, what to do."""
    message = str(error.value)
    assert "\n" not in message
    assert file in message.split(":")[0]
    assert re.search(fault, message), message
    assert re.search(r"; (export|use|name|check) ", message), message


def test_a_sound_bundle_opens(folder: Any) -> None:
    bundle = folder.open()
    bundle.require()
    assert bundle.path == folder.path
    assert bundle.manifest.name == "small"
    assert [point.instrument for point in bundle.timbre_map.points][:2] == ["Violin", "Viola"]


def test_weights_are_computed_with_in_fp32(folder: Any, codes: np.ndarray[Any, Any]) -> None:
    audio = CodecDecoder(folder.open(), n_threads=1).decode(codes)
    np.testing.assert_allclose(audio, folder.expected_audio(codes), atol=1e-5)


def test_a_session_outlives_its_bundle_and_its_folder(folder: Any, codes: np.ndarray[Any, Any]) -> None:
    decoder = CodecDecoder(folder.open(), n_threads=1)
    for file in folder.path.iterdir():
        file.unlink()
    np.testing.assert_allclose(decoder.decode(codes), folder.expected_audio(codes), atol=1e-5)


def test_fields_of_a_later_version_are_skipped(folder: Any) -> None:
    path = folder.path / layout.MANIFEST
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, "mood": "bright"}))
    assert folder.open().manifest.name == "small"


def _rewrite_manifest(**fields: Any) -> Callable[[Path], None]:
    def rewrite(path: Path) -> None:
        content = json.loads((path / layout.MANIFEST).read_text())
        (path / layout.MANIFEST).write_text(json.dumps({**content, **fields}))

    return rewrite


def _write(name: str, data: bytes) -> Callable[[Path], None]:
    return lambda path: (path / name).write_bytes(data) and None


def _truncate(name: str) -> Callable[[Path], None]:
    return lambda path: (path / name).write_bytes((path / name).read_bytes()[:-5]) and None


def _flip_last_byte(name: str) -> Callable[[Path], None]:
    def flip(path: Path) -> None:
        data = bytearray((path / name).read_bytes())
        data[-1] ^= 1
        (path / name).write_bytes(data)

    return flip


def _drop(name: str) -> Callable[[Path], None]:
    return lambda path: (path / name).unlink()


LONG_FILE = {"name": "\u00e9" * 128, "sha256": "0" * 64, "size": 1}
EVIL_FILE = {"name": "../evil", "sha256": "", "size": "1"}


@pytest.mark.parametrize(
    ("damage", "file", "fault"),
    [
        (_drop(layout.MANIFEST), "bundle", "holds no manifest.json"),
        (_write(layout.MANIFEST, b"{ not json"), layout.MANIFEST, "not valid JSON"),
        (_write(layout.MANIFEST, b"\xff\xfe\x00"), layout.MANIFEST, "not valid JSON"),
        (_write(layout.MANIFEST, b"[1]"), layout.MANIFEST, "holds a JSON list"),
        (_write(layout.MANIFEST, b"[" * 100_000), layout.MANIFEST, "not valid JSON"),
        (_rewrite_manifest(format_version=1), layout.MANIFEST, "format_version 1, this timbrel reads 2"),
        (_rewrite_manifest(format_version="one"), layout.MANIFEST, "format_version 'one'"),
        (_rewrite_manifest(codec={"sample_rate": "high"}), layout.MANIFEST, "does not describe a Manifest"),
        (_rewrite_manifest(codec={}), layout.MANIFEST, r"gives no codec\.sample_rate"),
        (_rewrite_manifest(files=[EVIL_FILE]), layout.MANIFEST, "not a plain file name"),
        (_rewrite_manifest(files=[LONG_FILE]), layout.MANIFEST, "255 bytes are the most for a name"),
        (_rewrite_manifest(bundle_hash="0" * 64), layout.MANIFEST, "bundle_hash that does not match"),
        (_truncate(layout.CODEC_WEIGHTS), layout.CODEC_WEIGHTS, "cut short"),
        (_truncate(layout.CODEC_DECODER), layout.CODEC_DECODER, "cut short"),
        (_flip_last_byte(layout.CODEC_WEIGHTS), layout.CODEC_WEIGHTS, "was altered"),
        (_write(layout.TIMBRE_MAP, b"x" * 100_000), layout.TIMBRE_MAP, "too long"),
    ],
)
def test_damage_is_found_on_opening(
    folder: Any, damage: Callable[[Path], None], file: str, fault: str
) -> None:
    damage(folder.path)
    with pytest.raises(BundleError) as error:
        folder.open()
    assert_names(error, file, fault)


@pytest.mark.parametrize(
    ("damage", "file", "fault"),
    [
        (_drop(layout.CODEC_DECODER), layout.CODEC_DECODER, "the file is missing"),
        (_drop(layout.CODEC_WEIGHTS), layout.CODEC_WEIGHTS, "the file is missing"),
        (_truncate(layout.CODEC_DECODER), layout.CODEC_DECODER, "not a whole ONNX file"),
        (_write(layout.CODEC_DECODER, b""), layout.CODEC_DECODER, "holds no ONNX graph"),
        (_truncate(layout.CODEC_WEIGHTS), layout.CODEC_WEIGHTS, "not a whole safetensors file"),
        (_write(layout.CODEC_WEIGHTS, b""), layout.CODEC_WEIGHTS, "not a whole safetensors file"),
    ],
)
def test_damage_is_found_without_hashes_too(
    folder: Any, damage: Callable[[Path], None], file: str, fault: str
) -> None:
    damage(folder.path)
    with pytest.raises(BundleError) as error:
        CodecDecoder(folder.open(verify=False))
    assert_names(error, file, fault)


def test_a_path_that_is_no_bundle(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="there is no such folder"):
        Bundle.open(tmp_path / "absent")
    (tmp_path / "file").write_text("")
    with pytest.raises(BundleError, match="is not a folder"):
        Bundle.open(tmp_path / "file")


def test_a_cache_folder_opens_and_misses_a_file_only_once_asked(folder: Any) -> None:
    (folder.path / layout.TIMBRE_MAP).unlink()
    bundle = folder.open()
    CodecDecoder(bundle, n_threads=1)
    with pytest.raises(BundleError) as error:
        _ = bundle.timbre_map
    assert_names(error, layout.TIMBRE_MAP, "the file is missing")
    with pytest.raises(BundleError) as error:
        bundle.require()
    assert_names(error, layout.TIMBRE_MAP, "the file is missing")


def test_a_file_that_comes_after_opening_is_checked_when_asked_for(folder: Any) -> None:
    path = folder.path / layout.CODEC_DECODER
    data = path.read_bytes()
    path.unlink()
    bundle = folder.open()
    path.write_bytes(data[:-1] + b"?")
    with pytest.raises(BundleError, match="was altered"):
        bundle.file(layout.CODEC_DECODER)
    path.write_bytes(data)
    assert bundle.file(layout.CODEC_DECODER) == path


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "manifest.json", ""])
def test_a_file_that_the_manifest_does_not_list_is_refused(folder: Any, name: str) -> None:
    with pytest.raises(BundleError, match="has no such file"):
        folder.open().file(name)


@pytest.mark.parametrize("name", ["codes", "tail"])
def test_a_graph_without_an_input_is_refused(folder: Any, rename_input: Any, name: str) -> None:
    rename_input(folder.path / layout.CODEC_DECODER, name, "other")
    folder.save()
    with pytest.raises(BundleError) as error:
        CodecDecoder(folder.open())
    assert_names(error, layout.CODEC_DECODER, f"the graph has no input '{name}'")


def test_a_graph_that_onnxruntime_refuses(folder: Any) -> None:
    path = folder.path / layout.CODEC_DECODER
    path.write_bytes(path.read_bytes().replace(b"CumSum", b"SumCum"))
    folder.save()
    with pytest.raises(BundleError) as error:
        CodecDecoder(folder.open())
    assert_names(error, layout.CODEC_DECODER, "onnxruntime cannot load it")


@pytest.mark.parametrize(
    ("weights", "fault"),
    [
        ({"other": np.zeros((2, 4), np.float16)}, r"lacks the weight 'head\.weight'"),
        ({"head.weight": np.zeros((2, 5), np.float16)}, r"as \[2, 5\], the graph wants \[2, 4\]"),
    ],
)
def test_weights_that_do_not_fit_are_refused(folder: Any, weights: dict[str, Any], fault: str) -> None:
    save_file(weights, folder.path / layout.CODEC_WEIGHTS)
    folder.save()
    with pytest.raises(BundleError) as error:
        CodecDecoder(folder.open())
    assert_names(error, layout.CODEC_WEIGHTS, fault)


def test_a_state_that_the_manifest_describes_wrongly_is_refused(folder: Any) -> None:
    folder.manifest.codec.decoder_state[0].shape[0] = 5
    folder.save()
    with pytest.raises(BundleError) as error:
        CodecDecoder(folder.open())
    assert_names(error, layout.CODEC_DECODER, r"the state 'tail' as \[6\]")


def test_a_state_that_is_listed_twice_is_refused(folder: Any) -> None:
    folder.manifest.codec.decoder_state.append(folder.manifest.codec.decoder_state[0])
    folder.save()
    with pytest.raises(BundleError) as error:
        folder.open()
    assert_names(error, layout.MANIFEST, "lists a state of codec.decoder_state twice")


@pytest.mark.parametrize("location", ["../codec.safetensors", "unlisted.safetensors"])
def test_weights_outside_the_manifest_are_not_read(folder: Any, location: str) -> None:
    path = folder.path / layout.CODEC_DECODER
    model = onnx.load(path, load_external_data=False)
    model.graph.initializer[0].external_data[0].value = location
    path.write_bytes(model.SerializeToString())
    folder.save()
    with pytest.raises(BundleError) as error:
        CodecDecoder(folder.open())
    assert_names(error, layout.CODEC_DECODER, "which the manifest does not list")
