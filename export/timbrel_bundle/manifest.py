"""manifest.json says what a bundle is and which files it is made of: reading, checking and writing it."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from google.protobuf.message import Message

from timbrel_bundle.audio import MAX_SAMPLE_RATE, MAX_SAMPLES
from timbrel_bundle.errors import UNPRINTABLE, BundleError
from timbrel_bundle.files import parse_message, read_json_object, sha256_file, write_message
from timbrel_bundle.layout import CLIENT_FETCHABLE, FORMAT_VERSION
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb

MAX_CODEBOOK_SIZE = 2**16
"""Codes travel as uint16."""

LONGEST_FILE_NAME = 255
"""Bytes: what file systems take."""

_SHA256 = re.compile("[0-9a-f]{64}")

STATE_DTYPES = ("float32", "float64", "int64")

MOST: Mapping[str, Mapping[str, int]] = {
    "codec": {
        "sample_rate": MAX_SAMPLE_RATE,
        "hop_length": 2**16,
        "n_codebooks": 64,
        "codebook_size": MAX_CODEBOOK_SIZE,
        "delay_samples": 2**20,
        "lead_frames": 2**10,
    },
    "model": {
        "n_kv_heads": 256,
        "head_dim": 1024,
        "n_decoder_layers": 256,
        "max_frames": 2**17,
        "max_positions": 2**18,
        "hold_frames": 2**17,
        "codebook_delay": 64,
        "release_frames": 2**12,
    },
}
"""The most that a manifest may say, far above what any bundle needs: memory is taken by these numbers, and a
manifest may come from anywhere."""

LEAST_SAMPLE_RATE = 4000
"""Hz: resampled to what files have, a sound is not to become a thousand times as long."""

MOST_CACHE_BYTES = 2**31
"""What the keys and values of one note take, in fp32."""

MOST_STATE_NUMBERS = 2**22
"""Of all the codec's states together."""

MOST_STATE_AXES = 8

LONGEST_HOLD_SECONDS = 86_400.0

LONGEST_TEXT = 1000
"""Characters of a name, a licence and the like."""


def load_manifest(path: Path | str) -> pb.Manifest:
    """Reads and checks a manifest.json. Raises BundleError: it is missing, is not JSON, is of another format
    version, or contradicts itself."""
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


def held_frames(seconds: float, codec: pb.CodecSpec) -> int:
    """Frames with the key down of a note that is heard to be held for so long."""
    return max(1, round(seconds * codec.sample_rate / codec.hop_length)) + codec.lead_frames


def codebook_delay(model: pb.ModelSpec) -> int:
    """Frames by which each codebook is predicted behind the one before it."""
    return model.codebook_delay if model.HasField("codebook_delay") else 1


def release_frames(model: pb.ModelSpec) -> int:
    """Frames after the key goes up that the decoder's gate counts."""
    return model.release_frames if model.HasField("release_frames") else 1


def last_delay(manifest: pb.Manifest) -> int:
    """Frames by which the last codebook is predicted behind the first."""
    return (manifest.codec.n_codebooks - 1) * codebook_delay(manifest.model)


def heard_seconds(n_frames: int, codec: pb.CodecSpec) -> float:
    """Seconds that the first frames of a note are heard."""
    return max(0, n_frames - codec.lead_frames) * codec.hop_length / codec.sample_rate


def written_ranges(manifest: pb.Manifest) -> pb.RequestRanges:
    """The ranges of the notes that the model writes from beginning to end: what it was trained on."""
    ranges = pb.RequestRanges()
    ranges.CopyFrom(manifest.ranges)
    if manifest.model.hold_frames:
        written = heard_seconds(manifest.model.hold_frames, manifest.codec)
        ranges.seconds_max = min(ranges.seconds_max, written)
    return ranges


def longest_note(manifest: pb.Manifest) -> int:
    """Frames of the longest note that may be asked for, its release included."""
    model = manifest.model
    if not model.hold_frames:
        return model.max_frames
    longest = held_frames(manifest.ranges.seconds_max, manifest.codec)
    return model.max_frames + max(0, longest - model.hold_frames)


def bundle_hash(files: Iterable[pb.BundleFile]) -> str:
    """SHA-256, in hex, over the sorted "name sha256" lines: names a whole bundle."""
    lines = sorted(f"{file.name} {file.sha256}\n" for file in files)
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def manifest_faults(manifest: pb.Manifest) -> Iterator[str]:
    """Yields each contradiction in a manifest; nothing where it is sound."""
    yield from _missing_sections(manifest)
    yield from text_faults(manifest)
    yield from _size_faults(manifest)
    yield from _file_faults(manifest)
    yield from _codec_faults(manifest.codec)
    yield from _model_faults(manifest)
    yield from _range_faults(manifest.ranges)


def text_faults(message: Message, longest: int = LONGEST_TEXT) -> Iterator[str]:
    """Yields what is wrong with the texts of a message: too long to be shown, or not to be shown at all."""
    for field, value in message.ListFields():
        for each in (value,) if isinstance(value, str | Message) or not hasattr(value, "append") else value:
            if isinstance(each, Message):
                yield from text_faults(each, longest)
            elif isinstance(each, str) and len(each) > longest:
                yield f"has a text of {len(each)} characters in {field.name}, {longest} are the most"
            elif isinstance(each, str) and UNPRINTABLE.search(each):
                yield f"has characters that cannot be printed in {field.name} {each[:60]!r}"


def _size_faults(manifest: pb.Manifest) -> Iterator[str]:
    codec, model = manifest.codec, manifest.model
    for section, limits in MOST.items():
        for field, most in limits.items():
            if (value := getattr(getattr(manifest, section), field)) > most:
                yield f"gives {section}.{field} {value}, {most} is the most"
    if 0 < codec.sample_rate < LEAST_SAMPLE_RATE:
        yield f"gives codec.sample_rate {codec.sample_rate}, {LEAST_SAMPLE_RATE} is the least"
    if model.max_frames * codec.hop_length > MAX_SAMPLES:
        yield f"has notes of {model.max_frames * codec.hop_length} samples, {MAX_SAMPLES} are the most"
    yield from _hold_faults(manifest)
    if codec.lead_frames and codec.lead_frames >= model.max_frames:
        yield f"has notes of {model.max_frames} frames, the first {codec.lead_frames} of which hold no sound"
    n_cached = 2 * model.n_decoder_layers * model.n_kv_heads * model.head_dim * model.max_positions
    if 4 * n_cached > MOST_CACHE_BYTES:
        yield f"has notes whose cache takes {4 * n_cached} bytes, {MOST_CACHE_BYTES} are the most"
    if any(len(state.shape) > MOST_STATE_AXES for state in codec.decoder_state):
        yield f"gives codec.decoder_state an array of more than {MOST_STATE_AXES} axes"
    elif (n_numbers := sum(math.prod(state.shape) for state in codec.decoder_state)) > MOST_STATE_NUMBERS:
        yield f"gives codec.decoder_state {n_numbers} numbers, {MOST_STATE_NUMBERS} are the most"


def _hold_faults(manifest: pb.Manifest) -> Iterator[str]:
    codec, model, ranges = manifest.codec, manifest.model, manifest.ranges
    if codec.moves and not codec.lead_frames:
        yield "gives codec.moves without codec.lead_frames: there is nothing to say anew"
    if codec.moves and len(codec.code_bases) != codec.lead_frames * codec.n_codebooks:
        yield f"gives {len(codec.code_bases)} entries of codec.code_bases for {codec.lead_frames} lead frames"
    if 1 in codec.code_bases:
        yield "has an entry 1 in codec.code_bases, which is no base"
    if not model.hold_frames and not codec.moves:
        return
    if len(codec.hold) != codec.n_codebooks:
        yield f"gives {len(codec.hold)} entries of codec.hold for {codec.n_codebooks} codebooks"
    if any(code > codec.codebook_size for code in codec.hold):
        yield f"has an entry of codec.hold beyond codec.codebook_size {codec.codebook_size}"
    if not model.hold_frames:
        return
    if last_delay(manifest):
        yield f"gives model.hold_frames and model.codebook_delay {codebook_delay(model)}, only 0 goes with it"
    if not codec.lead_frames < model.hold_frames < model.max_frames:
        yield (
            f"gives model.hold_frames {model.hold_frames}, which must be above codec.lead_frames "
            f"{codec.lead_frames} and below model.max_frames {model.max_frames}"
        )
    if not (codec.sample_rate and codec.hop_length and 0 < ranges.seconds_max <= LONGEST_HOLD_SECONDS):
        return  # which is a fault of its own
    if (n_samples := longest_note(manifest) * codec.hop_length) > MAX_SAMPLES:
        yield f"has held notes of {n_samples} samples, {MAX_SAMPLES} are the most"


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
        elif len(name.encode()) > LONGEST_FILE_NAME:
            yield f"lists the file {name[:20]!r}..., {LONGEST_FILE_NAME} bytes are the most for a name"
    for file in manifest.files:
        if not _SHA256.fullmatch(file.sha256):
            yield f"gives {file.name!r} the SHA-256 {file.sha256[:70]!r}, which is none"
    if len(set(names)) < len(names):
        yield "lists a file twice"
    if bundle_hash(manifest.files) != manifest.bundle_hash:
        yield "has a bundle_hash that does not match the files it lists"


def _codec_faults(codec: pb.CodecSpec) -> Iterator[str]:
    for field in ("sample_rate", "hop_length", "n_codebooks", "codebook_size"):
        if getattr(codec, field) == 0:
            yield f"gives no codec.{field}"
    if len(codec.silence) != codec.n_codebooks:
        yield f"gives {len(codec.silence)} codes of codec.silence for {codec.n_codebooks} codebooks"
    if any(code >= codec.codebook_size for code in codec.silence):
        yield f"has a code of codec.silence beyond codec.codebook_size {codec.codebook_size}"
    states = [state.name for state in codec.decoder_state]
    if len(set(states)) < len(states):
        yield "lists a state of codec.decoder_state twice"
    for state in codec.decoder_state:
        if state.dtype not in STATE_DTYPES:
            allowed = ", ".join(STATE_DTYPES)
            yield f"gives the codec's state {state.name!r} the dtype {state.dtype!r}, not one of {allowed}"


def _model_faults(manifest: pb.Manifest) -> Iterator[str]:
    model, codec = manifest.model, manifest.codec
    for field in ("n_kv_heads", "head_dim", "n_decoder_layers", "max_frames"):
        if getattr(model, field) == 0:
            yield f"gives no model.{field}"
    size = codec.codebook_size
    for field, wanted in (("bos_id", size), ("eos_id", size + 1), ("vocabulary_size", size + 2)):
        if (stated := getattr(model, field)) != wanted:
            yield f"gives model.{field} {stated}, which must be {wanted} with codec.codebook_size {size}"
    if model.max_positions <= model.max_frames + last_delay(manifest):
        yield f"gives model.max_positions {model.max_positions}, too few for max_frames {model.max_frames}"


def _range_faults(ranges: pb.RequestRanges) -> Iterator[str]:
    bounds = {
        "pitch": (0, ranges.pitch_min, ranges.pitch_max, 127),
        "velocity": (1, ranges.velocity_min, ranges.velocity_max, 127),
        "seconds": (0, ranges.seconds_min, ranges.seconds_max, LONGEST_HOLD_SECONDS),
    }
    for name, (floor, low, high, ceiling) in bounds.items():
        if not floor <= low <= high <= ceiling:
            yield f"gives ranges.{name} {low:g} to {high:g}, which is no range"
