"""manifest.json says what a bundle is and which files it is made of: reading, checking and writing it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from timbrel_bundle.errors import BundleError
from timbrel_bundle.files import parse_message, read_json_object, sha256_file, write_message
from timbrel_bundle.layout import CLIENT_FETCHABLE, FORMAT_VERSION
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb

MAX_CODEBOOK_SIZE = 2**16
"""Codes travel as uint16."""

STATE_DTYPES = ("float32", "float64", "int64")


def load_manifest(path: Path | str) -> pb.Manifest:
    """Reads and checks a manifest.json.

    Raises:
        BundleError: it is missing, is not JSON, is of another format version, or contradicts itself.
    """
    path = Path(path)
    content = read_json_object(path)
    version = content.get("format_version", content.get("formatVersion"))
    if version != FORMAT_VERSION:
        raise BundleError(
            path,
            f"has format_version {version!r}, this timbrel reads {FORMAT_VERSION}",
            "use the timbrel that wrote it, or export the bundle again",
        )
    manifest = parse_message(content, pb.Manifest(), path)
    for fault in manifest_faults(manifest):
        raise BundleError(path, fault)
    return manifest


def save_manifest(manifest: pb.Manifest, path: Path | str) -> None:
    """Writes a manifest.json, whole or not at all."""
    write_message(manifest, path)


def describe_file(path: Path | str) -> pb.BundleFile:
    """The manifest's entry for a file of a bundle."""
    path = Path(path)
    return pb.BundleFile(
        name=path.name,
        sha256=sha256_file(path),
        size=path.stat().st_size,
        client_fetchable=path.name in CLIENT_FETCHABLE,
    )


def bundle_hash(files: Iterable[pb.BundleFile]) -> str:
    """SHA-256, in hex, over the sorted "name sha256" lines: names a whole bundle."""
    lines = sorted(f"{file.name} {file.sha256}\n" for file in files)
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def manifest_faults(manifest: pb.Manifest) -> Iterator[str]:
    """Yields each contradiction in a manifest; nothing where it is sound."""
    yield from _missing_sections(manifest)
    yield from _file_faults(manifest)
    yield from _codec_faults(manifest.codec)
    yield from _model_faults(manifest.model, manifest.codec)
    yield from _range_faults(manifest.ranges)


def _missing_sections(manifest: pb.Manifest) -> Iterator[str]:
    for name in ("codec", "model", "ranges"):
        if not manifest.HasField(name):
            yield f"has no {name} section"
    if not manifest.files:
        yield "has no files section"


def _file_faults(manifest: pb.Manifest) -> Iterator[str]:
    names = [file.name for file in manifest.files]
    for name in names:
        if name in ("", ".", "..") or "/" in name or "\\" in name or "\0" in name:
            yield f"lists the file {name!r}, which is not a plain file name"
    if len(set(names)) < len(names):
        yield "lists a file twice"
    if bundle_hash(manifest.files) != manifest.bundle_hash:
        yield "has a bundle_hash that does not match the files it lists"


def _codec_faults(codec: pb.CodecSpec) -> Iterator[str]:
    for field in ("sample_rate", "hop_length", "n_codebooks", "codebook_size"):
        if getattr(codec, field) == 0:
            yield f"gives no codec.{field}"
    if codec.codebook_size > MAX_CODEBOOK_SIZE:
        yield f"gives codec.codebook_size {codec.codebook_size}, {MAX_CODEBOOK_SIZE} is the most"
    if len(codec.silence) != codec.n_codebooks:
        yield f"gives {len(codec.silence)} codes of codec.silence for {codec.n_codebooks} codebooks"
    if any(code >= codec.codebook_size for code in codec.silence):
        yield f"has a code of codec.silence beyond codec.codebook_size {codec.codebook_size}"
    for state in codec.decoder_state:
        if state.dtype not in STATE_DTYPES:
            allowed = ", ".join(STATE_DTYPES)
            yield f"gives the codec's state {state.name!r} the dtype {state.dtype!r}, not one of {allowed}"


def _model_faults(model: pb.ModelSpec, codec: pb.CodecSpec) -> Iterator[str]:
    for field in ("n_kv_heads", "head_dim", "n_decoder_layers", "max_frames"):
        if getattr(model, field) == 0:
            yield f"gives no model.{field}"
    for field in ("bos_id", "eos_id"):
        if not codec.codebook_size <= getattr(model, field) < model.vocabulary_size:
            yield (
                f"gives model.{field} {getattr(model, field)}, which must be at least codec.codebook_size "
                f"{codec.codebook_size} and below model.vocabulary_size {model.vocabulary_size}"
            )
    if model.max_positions < model.max_frames + codec.n_codebooks:
        yield f"gives model.max_positions {model.max_positions}, too few for max_frames {model.max_frames}"


def _range_faults(ranges: pb.RequestRanges) -> Iterator[str]:
    bounds = {
        "pitch": (0, ranges.pitch_min, ranges.pitch_max, 127),
        "velocity": (1, ranges.velocity_min, ranges.velocity_max, 127),
        "seconds": (0, ranges.seconds_min, ranges.seconds_max, float("inf")),
    }
    for name, (floor, low, high, ceiling) in bounds.items():
        if not floor <= low <= high <= ceiling:
            yield f"gives ranges.{name} {low:g} to {high:g}, which is no range"
