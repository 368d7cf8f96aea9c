"""A server's description of itself and of the bundle that it serves."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass

from timbrel.errors import BundleMismatchError, ServerError
from timbrel_bundle.layout import CODEC_DECODER, CODEC_WEIGHTS, FORMAT_VERSION
from timbrel_bundle.manifest import heard_seconds, longest_note, manifest_faults, text_faults
from timbrel_bundle.request_fields import SAMPLING_FIELDS
from timbrel_bundle.timbre_map import timbre_map_faults
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb


@dataclass(frozen=True)
class SamplingDefaults:
    """The settings that the server draws with where a request says nothing.

    >>> 0.0 <= client.model().default_sampling.temperature <= 2.0
    True

    Attributes:
        temperature: 0..2; 0 always takes the most likely code.
        top_k: only the k most likely codes are drawn from, 1..256.
        top_p: only the most likely codes that make up this probability are drawn from, above 0 and up to 1.
    """

    temperature: float
    top_k: int
    top_p: float


@dataclass(frozen=True)
class DataSource:
    """A collection of notes that the bundle was trained on.

    >>> [source.licence for source in client.model().sources]
    [...]

    Attributes:
        name: for example "FluidR3_GM".
        licence: for example "MIT".
        n_instruments: instruments taken from it.
        n_notes: notes taken from it.
    """

    name: str
    licence: str
    n_instruments: int
    n_notes: int


@dataclass(frozen=True)
class Model:
    """A bundle, and the engine that runs it.

    >>> model = client.model()
    >>> model.pitch_range[0] <= 60 <= model.pitch_range[1]  # MIDI note numbers
    True
    >>> model.seconds_range[1] <= model.max_seconds  # seconds
    True

    Attributes:
        name: the bundle's name.
        bundle_hash: SHA-256 over the bundle's files, in hex: names exactly this bundle.
        codec: the codec's id, such as "timbrel-notes-2".
        codec_hash: SHA-256 over the hashes of the codec's files, in hex: names exactly this codec.
        sample_rate: audio samples per second.
        frame_rate: frames per second.
        n_codebooks: codes per frame.
        codebook_size: codes are 0..codebook_size-1.
        bends: whether the codec bends notes: whether `cents` other than 0 are taken.
        moves: whether a note's timbre may move while it sounds.
        n_parameters: trained parameters of the note model.
        pitch_range: MIDI note numbers, inclusive.
        velocity_range: MIDI velocities, inclusive.
        seconds_range: how long a key may be held, in seconds.
        holds_on: whether `Client.play` holds a key for as long as it is down, unless the server sets a bound
            of its own (`--max-seconds`), which then ends `seconds_range`.
        max_seconds: the longest note, release included: where it is cut.
        sources: the collections that it was trained on.
        provider: the execution provider that the engine really runs on.
        precision: of the decoder's weights and arithmetic, for example "fp32".
        n_slots: notes that can be written at once.
        max_live_notes: notes that may live at once on one connection of `Client.play`.
        decoder_graph: file name of the decode graph in use.
        server_version: version of the timbrel distribution that serves.
        default_sampling: drawn with where a request says nothing.
    """

    name: str
    bundle_hash: str
    codec: str
    codec_hash: str
    sample_rate: int
    frame_rate: float
    n_codebooks: int
    codebook_size: int
    bends: bool
    moves: bool
    n_parameters: int
    pitch_range: tuple[int, int]
    velocity_range: tuple[int, int]
    seconds_range: tuple[float, float]
    holds_on: bool
    max_seconds: float
    sources: tuple[DataSource, ...]
    provider: str
    precision: str
    n_slots: int
    max_live_notes: int
    decoder_graph: str
    server_version: str
    default_sampling: SamplingDefaults


def check_model(response: pb.GetModelResponse) -> None:
    """Raises BundleMismatchError: the bundle is of another format version than this client reads;
    ServerError: the manifest contradicts itself (its hash not being that of its files is such a case), or
    says what cannot be."""
    if (version := response.manifest.format_version) != FORMAT_VERSION:
        raise BundleMismatchError(
            f"the server's bundle has format_version {version}, this timbrel reads {FORMAT_VERSION}"
        )
    for fault in manifest_faults(response.manifest):
        raise ServerError(f"the server's manifest {fault}")
    for fault in text_faults(response.engine):
        raise ServerError(f"the server's description of its engine {fault}")
    for each in SAMPLING_FIELDS:
        if not math.isfinite(value := getattr(response.engine.default_sampling, each.name)):
            raise ServerError(f"the server says that its default {each.name} is {value}")


def check_timbre_map(timbre_map: pb.TimbreMap) -> None:
    """Raises ServerError where it is none."""
    for fault in timbre_map_faults(timbre_map):
        raise ServerError(f"the server's timbre map {fault}")


def model_from_pb(response: pb.GetModelResponse) -> Model:
    manifest, engine = response.manifest, response.engine
    codec, ranges, sampling = manifest.codec, manifest.ranges, engine.default_sampling
    frame_rate = codec.sample_rate / codec.hop_length
    return Model(
        name=manifest.name,
        bundle_hash=manifest.bundle_hash,
        codec=codec.id,
        codec_hash=_codec_hash(manifest),
        sample_rate=codec.sample_rate,
        frame_rate=frame_rate,
        n_codebooks=codec.n_codebooks,
        codebook_size=codec.codebook_size,
        bends=codec.bends,
        moves=codec.moves,
        n_parameters=manifest.model.n_parameters,
        pitch_range=(ranges.pitch_min, ranges.pitch_max),
        velocity_range=(ranges.velocity_min, ranges.velocity_max),
        seconds_range=(ranges.seconds_min, ranges.seconds_max),
        holds_on=manifest.model.hold_frames > 0,
        max_seconds=heard_seconds(longest_note(manifest), codec),
        sources=tuple(
            DataSource(source.name, source.licence, source.n_instruments, source.n_notes)
            for source in manifest.training.sources
        ),
        provider=engine.provider,
        precision=engine.precision,
        n_slots=engine.n_slots,
        max_live_notes=engine.max_live_notes,
        decoder_graph=engine.decoder_graph,
        server_version=engine.server_version,
        default_sampling=SamplingDefaults(
            **{each.name: getattr(sampling, each.name) for each in SAMPLING_FIELDS}
        ),
    )


def _codec_hash(manifest: pb.Manifest) -> str:
    names = (CODEC_DECODER, CODEC_WEIGHTS)
    described = [f"{file.name} {file.sha256}" for file in manifest.files if file.name in names]
    return hashlib.sha256("\n".join(sorted(described)).encode()).hexdigest()
