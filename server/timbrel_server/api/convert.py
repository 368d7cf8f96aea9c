"""Between the wire's messages and the engine's values."""

from __future__ import annotations

import itertools
import math
import secrets
import struct
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np
from google.protobuf.message import DecodeError, Message

from timbrel_bundle.request_fields import Violation, check_recording, check_request
from timbrel_bundle.timbre_map import by_distance
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb
from timbrel_server.engine.progress import TokenLayout
from timbrel_server.engine.request import DEFAULT_SAMPLING, LocateRequest, NoteRequest, SamplingSettings
from timbrel_server.engine.ticket import Finish, Frame
from timbrel_server.errors import InvalidRequestError

DEFAULT_VELOCITY = 100
DEFAULT_SECONDS = 2.0

DEFAULT_LEAD_SECONDS = 0.15
SHORTEST_LEAD_SECONDS = 0.02
LONGEST_LEAD_SECONDS = 60.0

SEED_BITS = 32
"""Of a seed drawn here: few enough digits to be typed again."""

MAX_AUDIO_BYTES = 3 << 20
"""Of a recording: twice what the longest note takes at 48 kHz. gRPC refuses messages above 4 MiB."""

SAMPLE = np.dtype("<f4")
"""How a recording's samples travel."""

_M = TypeVar("_M", bound=Message)

_AUDIO_FORMATS = frozenset(pb.AudioFormat.values())

_FINISH = {Finish.EOS: pb.FINISH_REASON_EOS, Finish.CAP: pb.FINISH_REASON_CAP}


def parse(kind: type[_M], body: bytes) -> _M:
    """Decodes a message's body. Raises InvalidRequestError."""
    message = kind()
    try:
        message.ParseFromString(body)
    except DecodeError:
        name = message.DESCRIPTOR.full_name
        raise InvalidRequestError([("request", f"these {len(body)} bytes are no {name}")]) from None
    return message


def note_request_from_pb(
    message: pb.GenerateRequest, manifest: pb.Manifest, default_seconds: float = DEFAULT_SECONDS
) -> NoteRequest:
    """Checks a request against the bundle's ranges and fills in what it leaves open.

    Args:
        default_seconds: how long the key is held, within the bundle's range, where the request is silent.

    Raises:
        InvalidRequestError: naming every field that is missing or out of range.
    """
    ranges = manifest.ranges
    velocity = message.velocity if message.HasField("velocity") else DEFAULT_VELOCITY
    seconds = message.seconds if message.HasField("seconds") else _within(default_seconds, ranges)
    timbre = (message.timbre.x, message.timbre.y)
    violations = check_request(
        ranges,
        timbre=timbre if message.HasField("timbre") else None,
        pitch=message.pitch if message.HasField("pitch") else None,
        velocity=velocity,
        seconds=seconds,
        sampling=message.sampling,
    )
    if message.audio not in _AUDIO_FORMATS:
        violations.append(("audio", f"{message.audio} is no format; 0 to {max(_AUDIO_FORMATS)} are"))
    if violations:
        raise InvalidRequestError(violations)
    return NoteRequest(
        timbre=timbre,
        pitch=message.pitch,
        velocity=velocity,
        held_frames=max(1, round(seconds * frame_rate(manifest))),
        seed=message.seed if message.HasField("seed") else secrets.randbits(SEED_BITS),
        sampling=_sampling_from_pb(message.sampling),
    )


def live_request_from_pb(message: pb.NoteOn, manifest: pb.Manifest) -> NoteRequest:
    """The same for a note whose key goes up while it sounds, or after the bundle's longest hold.

    Raises:
        InvalidRequestError: naming every field that is missing or out of range.
    """
    lead = message.lead_seconds if message.HasField("lead_seconds") else DEFAULT_LEAD_SECONDS
    if not SHORTEST_LEAD_SECONDS <= lead <= LONGEST_LEAD_SECONDS:
        allowed = f"{SHORTEST_LEAD_SECONDS:g} to {LONGEST_LEAD_SECONDS:g} seconds are"
        raise InvalidRequestError([("lead_seconds", f"{lead:g} is not allowed; {allowed}")])
    request = note_request_from_pb(message.note, manifest, default_seconds=math.inf)
    rate = frame_rate(manifest)
    return replace(
        request,
        least_held_frames=min(request.held_frames, math.ceil(manifest.ranges.seconds_min * rate)),
        # A frame is complete as many steps after its first code as there are further codebooks.
        lead_frames=math.ceil(lead * rate) + manifest.codec.n_codebooks - 1,
    )


def locate_request_from_pb(message: pb.LocateRequest) -> LocateRequest:
    """Checks all of a request but what its sound holds.

    Raises:
        InvalidRequestError: naming every field that is missing or out of range.
    """
    pitch = message.pitch if message.HasField("pitch") else None
    violations = [*_audio_faults(message.audio), *check_recording(message.sample_rate, pitch)]
    if violations:
        raise InvalidRequestError(violations)
    audio = np.frombuffer(message.audio, SAMPLE).astype(np.float32, copy=False)
    return LocateRequest(audio, message.sample_rate, pitch)


def location_to_pb(timbre: tuple[float, float], timbre_map: pb.TimbreMap) -> pb.LocateResponse:
    """A point and the named points around it."""
    x, y = timbre
    neighbours = [
        pb.Neighbour(point=point, distance=distance) for distance, point in by_distance(timbre_map, x, y)
    ]
    return pb.LocateResponse(timbre=pb.Timbre(x=x, y=y), neighbours=neighbours)


def sampling_to_pb(sampling: SamplingSettings) -> pb.Sampling:
    return pb.Sampling(temperature=sampling.temperature, top_k=sampling.top_k, top_p=sampling.top_p)


def codes_to_pb(frames: Sequence[Frame], n_codebooks: int) -> pb.Codes:
    """Frames of `n_codebooks` codes each."""
    n_codes = len(frames) * n_codebooks
    data = struct.pack(f"<{n_codes}H", *itertools.chain.from_iterable(frames))
    return pb.Codes(data=data, n_frames=len(frames), n_codebooks=n_codebooks)


def finish_to_pb(finish: Finish) -> pb.FinishReason:
    return _FINISH[finish]


def held_seconds(held_frames: int, manifest: pb.Manifest) -> float:
    """The seconds to ask for, so that a key is held for so many frames."""
    return _within(held_frames / frame_rate(manifest), manifest.ranges)


def frame_rate(manifest: pb.Manifest) -> float:
    """Frames per second."""
    return manifest.codec.sample_rate / manifest.codec.hop_length


def token_layout(manifest: pb.Manifest) -> TokenLayout:
    """What the decoder's tokens mean, of this bundle."""
    return TokenLayout(
        n_codebooks=manifest.codec.n_codebooks,
        bos_id=manifest.model.bos_id,
        eos_id=manifest.model.eos_id,
        max_frames=manifest.model.max_frames,
        codes_per_semitone=manifest.model.codes_per_semitone,
        code_offset=manifest.model.code_offset,
    )


def _audio_faults(audio: bytes) -> Iterator[Violation]:
    if not audio:
        yield "audio", "is missing; little-endian float32 samples are needed"
    elif len(audio) > MAX_AUDIO_BYTES:
        yield "audio", f"{len(audio)} bytes are too many; up to {MAX_AUDIO_BYTES} are allowed"
    elif len(audio) % SAMPLE.itemsize:
        yield "audio", f"{len(audio)} bytes are no float32 samples; a multiple of {SAMPLE.itemsize} is needed"


def _within(seconds: float, ranges: pb.RequestRanges) -> float:
    return min(max(seconds, ranges.seconds_min), ranges.seconds_max)


def _sampling_from_pb(message: pb.Sampling) -> SamplingSettings:
    return SamplingSettings(
        temperature=message.temperature if message.HasField("temperature") else DEFAULT_SAMPLING.temperature,
        top_k=message.top_k if message.HasField("top_k") else DEFAULT_SAMPLING.top_k,
        top_p=message.top_p if message.HasField("top_p") else DEFAULT_SAMPLING.top_p,
    )
