"""The parsers of bytes from elsewhere, each with something valid to be spoilt and the errors allowed.

Whatever a parser is given, it returns, or refuses in one line that can be shown.
"""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
from google.protobuf.message import DecodeError
from hostile_messages import METHODS
from hypothesis import strategies as st
from safetensors.numpy import save

from timbrel.cli.info import as_text
from timbrel.core.faults import error_from_status
from timbrel.core.location import location_from_pb
from timbrel.core.model import check_model, check_timbre_map, model_from_pb
from timbrel.core.reply import NoteAssembler
from timbrel.core.timbre import instrument_from_pb
from timbrel.errors import TimbrelError
from timbrel.library import SamplingSettings
from timbrel.library.finish.instrument_files import Region
from timbrel.library.finish.manifest import ManifestRow, read_rows
from timbrel.library.finish.sample_files import read_chunks, read_sampler_chunk, wav_bytes
from timbrel.library.plan.folder import LibraryFolder
from timbrel.library.render.measure import MEASURE_VERSION, MeasurementLog
from timbrel.library.render.store import NoteStore, RawNote
from timbrel.library.verify.file_checks import check_dspreset, check_sfz
from timbrel.performance import read_score
from timbrel.scala import read_tuning
from timbrel.timbre_map.text import draw_text
from timbrel_bundle.audio import read_channels
from timbrel_bundle.errors import UNPRINTABLE, AudioError, BundleError
from timbrel_bundle.graph_header import ExternalWeight, parse_graph_header
from timbrel_bundle.manifest import load_manifest
from timbrel_bundle.timbre_encoder import prepare_recording
from timbrel_bundle.timbre_map import load_timbre_map
from timbrel_bundle.weights import load_weights
from timbrel_protos.inference import grpc_service_pb2 as oip
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb
from timbrel_server.errors import InvalidRequestError
from timbrel_server.open_inference.tensors import WantedOutputs, read_notes
from timbrel_server.rpc.handlers import parse as parse_body
from timbrel_server.synthesizer.convert import (
    live_request_from_pb,
    note_request_from_pb,
    recording_from_pb,
)

TINY_BUNDLE = Path(__file__).parent / "data" / "tiny_bundle"
MANIFEST = load_manifest(TINY_BUNDLE / "manifest.json")
MAP = load_timbre_map(TINY_BUNDLE / "timbre_map.json")
LONGEST_MESSAGE = 20_000
"""Characters of a refusal: one that names many fields of a request takes some."""


@dataclass(frozen=True)
class Target:
    """One parser."""

    valid: Callable[[Path], Sequence[bytes]]
    """What it reads without complaint, made with the help of an empty folder."""

    parse: Callable[[bytes, Path], object]
    """Reads bytes, in a folder that is its own."""

    refusals: tuple[type[Exception], ...]
    """What it may raise."""

    def try_(self, data: bytes, folder: Path) -> bool:
        """Whether the bytes were taken; fails where they were neither taken nor properly refused."""
        try:
            self.parse(data, folder)
        except self.refusals as error:
            message = str(error)
            assert not UNPRINTABLE.search(message), message
            assert len(message) < LONGEST_MESSAGE, message[:100]
            return False
        return True


def _file(name: str, read: Callable[[Path], object]) -> Callable[[bytes, Path], object]:
    """A parser of files, as one of bytes."""

    def parse(data: bytes, folder: Path) -> object:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return read(path)

    return parse


_METHODS = [each for each in METHODS if each.path.startswith("/timbrel.v1")]


def _read_request(data: bytes, _: Path) -> object:
    """The first byte says whose request it is."""
    if not data:
        return None
    message: Any = parse_body(type(_METHODS[data[0] % len(_METHODS)].valid), data[1:])
    match message:
        case pb.GenerateRequest():
            return note_request_from_pb(message, MANIFEST)
        case pb.GenerateBatchRequest():
            return note_request_from_pb(message.note, MANIFEST)
        case pb.PlayRequest():
            return live_request_from_pb(message.note_on, MANIFEST)
        case pb.LocateRequest():
            return prepare_recording(recording_from_pb(message), message.sample_rate, MANIFEST.codec, 4.0)


def _requests(_: Path) -> list[bytes]:
    return [bytes([place]) + each.valid.SerializeToString() for place, each in enumerate(_METHODS)]


def _read_tensors(data: bytes, _: Path) -> object:
    message = parse_body(oip.ModelInferRequest, data)
    return WantedOutputs.by(message), read_notes(message, MANIFEST, 8)


def _tensors(_: Path) -> list[bytes]:
    [infer] = [each.valid for each in METHODS if each.path.endswith("/ModelInfer")]
    other = oip.ModelInferRequest()
    other.CopyFrom(infer)
    del other.raw_input_contents[:]
    for tensor in other.inputs:
        values: dict[str, Any] = {
            "FP32": {"fp32_contents": [0.2] * tensor.shape[1]},
            "INT32": {"int_contents": [60]},
            "UINT64": {"uint64_contents": [1]},
        }
        tensor.contents.MergeFrom(oip.InferTensorContents(**values[tensor.datatype]))
    return [infer.SerializeToString(), other.SerializeToString()]


REPLIES = (
    pb.GetModelResponse,
    pb.TimbreMap,
    pb.LocateResponse,
    pb.GenerateResponse,
    pb.GenerateBatchResponse,
)


def _read_reply(data: bytes, _: Path) -> object:
    """The first byte says whose reply it is."""
    if not data:
        return None
    reply: Any = REPLIES[data[0] % len(REPLIES)].FromString(data[1:])
    match reply:
        case pb.GetModelResponse():
            check_model(reply)
            return as_text(model_from_pb(reply), [])
        case pb.TimbreMap():
            check_timbre_map(reply)
            points = [instrument_from_pb(point) for point in reply.points]
            return draw_text(points, 60, colour=True, unicode=True)
        case pb.LocateResponse():
            return location_from_pb(reply, MANIFEST.bundle_hash, 5)
        case pb.GenerateResponse():
            assembler = NoteAssembler(MANIFEST)
            assembler.feed(reply)
            return assembler.finish()
        case pb.GenerateBatchResponse():
            raise error_from_status(reply.status.code, reply.status.message, reply.status.SerializeToString())


def _replies(_: Path) -> list[bytes]:
    codes = np.tile(np.array(MANIFEST.codec.silence, dtype="<u2"), (3, 1))
    bundle_hash = MANIFEST.bundle_hash
    messages: list[Any] = [
        pb.GetModelResponse(manifest=MANIFEST, engine=pb.EngineInfo(provider="CPU", n_slots=4)),
        MAP,
        pb.LocateResponse(
            timbre=pb.Timbre(x=0.1),
            bundle_hash=bundle_hash,
            neighbours=[pb.Neighbour(point=MAP.points[0], distance=0.5)],
        ),
        pb.GenerateResponse(
            header=pb.GenerateHeader(seed=1, bundle_hash=bundle_hash),
            codes=pb.Codes(data=codes.tobytes(), n_frames=3, n_codebooks=codes.shape[1]),
            finish_reason=pb.FINISH_REASON_EOS,
        ),
    ]
    return [bytes([place]) + each.SerializeToString() for place, each in enumerate(messages)]


TONE = np.sin(np.arange(4000) / 10).astype(np.float32)


def _read_sound(path: Path) -> object:
    samples, sample_rate = read_channels(path)
    return prepare_recording(samples, sample_rate, MANIFEST.codec, 4.0)


def _read_wav(path: Path) -> object:
    if (sampler := read_chunks(path).get("smpl")) is not None:
        read_sampler_chunk(sampler)
    return _read_sound(path)


def _wavs(_: Path) -> list[bytes]:
    plain = io.BytesIO()
    soundfile.write(plain, np.stack([TONE, TONE], axis=1), 22_050, format="WAV", subtype="FLOAT")
    return [wav_bytes(TONE, 48_000, Region("a.wav", 60, loop=(100, 1900)), {"INAM": "a"}), plain.getvalue()]


def _flacs(_: Path) -> list[bytes]:
    content = io.BytesIO()
    soundfile.write(content, TONE, 48_000, format="FLAC")
    return [content.getvalue()]


def _midis(folder: Path) -> list[bytes]:
    import mido

    file = mido.MidiFile(type=1)
    track = file.add_track("a")
    track.append(mido.MetaMessage("set_tempo", tempo=400_000))
    for kind in ("note_on", "note_off"):
        track.append(mido.Message("control_change", control=64, value=100, time=5))
        track.append(mido.Message(kind, note=60, velocity=90, time=240))
    file.save(folder / "piece.mid")
    return [(folder / "piece.mid").read_bytes()]


WEIGHT = ExternalWeight("head.weight", (2, 4), "float32", "codec.safetensors")


def _graphs(_: Path) -> list[bytes]:
    return [(TINY_BUNDLE / name).read_bytes() for name in ("condition_encoder.onnx", "codec_decoder.onnx")]


_ROW_VALUES = {
    "SamplingSettings": SamplingSettings(0.5, 1, 0.5),
    "int": 1,
    "float": 0.5,
    "str": "abc",
    "bool": True,
    "int | None": None,
    "float | None": None,
}


def _rows(_: Path) -> list[bytes]:
    values = {each.name: _ROW_VALUES[str(each.type)] for each in fields(ManifestRow)}
    row = ManifestRow(**{**values, "sample_rate": 48_000})  # type: ignore[arg-type]
    return [(row.to_json() + "\n").encode() * 2]


def _read_log(path: Path) -> object:
    found = MeasurementLog(path, "yin").get("abc")
    return None if found is None else [f"{each:.1f}" for each in found.heard if each is not None]


def _logs(_: Path) -> list[bytes]:
    measured = {"pitch": 60.0, "other_pitch": None, "trackers": "yin", "loudness": -20.0}
    measured |= {"true_peak": -3.0, "decay": 1.0, "release_seconds": 0.5, "release_shape_db": 1.5}
    measured |= {"rise_db": 0.5, "lasts": True}
    line = {"key": "abc", "version": MEASURE_VERSION, "trackers": "yin", "measurement": measured}
    return [json.dumps(line).encode() + b"\n"]


def _notes(folder: Path) -> list[bytes]:
    store = NoteStore(folder)
    store.save("abc", RawNote(np.zeros((5, 3), dtype=np.uint16), False))
    return [store.path("abc").read_bytes()]


SCALE = b"! just.scl\nJust\n 3\n 5/4\n 701.955\n 2/1\n"
KEYBOARD = b"! white.kbm\n3\n0\n127\n60\n69\n440.0\n3\n0\nx\n2\n"


def _read_keyboard_map(path: Path) -> object:
    scale = path.with_name("a.scl")
    scale.write_bytes(SCALE)
    return read_tuning(scale, path)


SFZ = b"<global>\namp_veltrack=90\n<region>\nsample=a.wav\npitch_keycenter=60\nlokey=0\nhikey=127\nlovel=0\n"
PRESET = (
    b'<DecentSampler><groups><group><sample path="a.wav" rootNote="60"/></group></groups></DecentSampler>'
)


def _checked(faults: Callable[[Path], Any]) -> Callable[[Path], object]:
    """A check of instrument files, whose findings are its refusals."""

    def check(path: Path) -> object:
        found, _ = faults(path)
        for fault in found:
            raise ValueError(fault.description)
        return None

    return check


TARGETS: dict[str, Target] = {
    "request": Target(_requests, _read_request, (InvalidRequestError, AudioError)),
    "tensors": Target(_tensors, _read_tensors, (InvalidRequestError,)),
    "reply": Target(_replies, _read_reply, (TimbrelError, DecodeError)),
    "wav": Target(_wavs, _file("a.wav", _read_wav), (ValueError,)),
    "flac": Target(_flacs, _file("a.flac", _read_sound), (AudioError,)),
    "midi": Target(_midis, _file("piece.mid", read_score), (TimbrelError,)),
    "scale": Target(lambda _: [SCALE], _file("a.scl", read_tuning), (TimbrelError,)),
    "keyboard_map": Target(lambda _: [KEYBOARD], _file("a.kbm", _read_keyboard_map), (TimbrelError,)),
    "manifest": Target(
        lambda _: [(TINY_BUNDLE / "manifest.json").read_bytes()],
        _file("manifest.json", load_manifest),
        (BundleError,),
    ),
    "timbre_map": Target(
        lambda _: [(TINY_BUNDLE / "timbre_map.json").read_bytes()],
        _file("timbre_map.json", load_timbre_map),
        (BundleError,),
    ),
    "safetensors": Target(
        lambda _: [save({"head.weight": np.zeros((2, 4), dtype=np.float16)})],
        _file("codec.safetensors", lambda path: load_weights(path, [WEIGHT])),
        (BundleError,),
    ),
    "onnx": Target(_graphs, lambda data, _: parse_graph_header(data), (ValueError,)),
    "library_manifest": Target(
        _rows, _file("manifest.jsonl", lambda path: list(read_rows(path))), (ValueError,)
    ),
    "library_job": Target(
        lambda _: [b'{"key": "a", "job": {"voices": [], "seed": 1}}'],
        _file(".timbrel/job.json", lambda path: LibraryFolder(path.parent.parent).read_job()),
        (TimbrelError,),
    ),
    "library_log": Target(_logs, _file("measured.log", _read_log), ()),
    "library_note": Target(
        _notes, _file("ab/abc.npz", lambda path: NoteStore(path.parent.parent).load("abc")), ()
    ),
    "sfz": Target(
        lambda _: [SFZ],
        _file("a.sfz", _checked(lambda path: check_sfz(path.parent, path, {}))),
        (ValueError,),
    ),
    "dspreset": Target(
        lambda _: [PRESET],
        _file("a.dspreset", _checked(lambda path: check_dspreset(path.parent, path))),
        (ValueError,),
    ),
}
"""By name."""

SPICE = (
    *(
        b"[" * 3000,
        b'{"a":' * 3000,
        b"(" * 300,
        b"1" * 400,
        b"1e999",
        b"-1",
        b"NaN",
        b"null",
        b'"',
        b"\\ud800",
    ),
    *(
        b"\x1b[2J",
        b"\xc2\x9b",
        b"\xe2\x80\xae",
        b"../",
        b"/etc/passwd",
        b"\0",
        b"%s",
        b"=",
        b"\n",
        b"<!ENTITY",
    ),
    *(
        b"\xff\xff\xff\xff",
        b"\x7f\xff\xff\xff",
        b"\x80\0\0\0",
        b"\0\0\0\x80",
        b"\xff" * 9 + b"\x01",
        b"\0" * 8,
    ),
)
"""What parsers have stumbled over elsewhere."""


@st.composite
def spoilt(draw: Callable[..., Any], valid: Sequence[bytes]) -> bytes:
    """Valid bytes, some of which are replaced, cut out or doubled; or bytes of any kind."""
    data = bytearray(draw(st.sampled_from([*valid, b""])))
    for _ in range(draw(st.integers(1, 6))):
        start = draw(st.integers(0, len(data)))
        end = min(len(data), start + draw(st.one_of(st.integers(0, 8), st.integers(0, len(data)))))
        put = draw(
            st.one_of(st.binary(max_size=8), st.sampled_from(SPICE), st.just(bytes(data[start:end]) * 2))
        )
        data[start:end] = put
    return bytes(data)


def clean(folder: Path) -> Path:
    """The folder, empty."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder
