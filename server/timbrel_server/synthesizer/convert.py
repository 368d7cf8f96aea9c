"""Conversion between the messages on the wire and the engine's values, with every field checked."""

from __future__ import annotations

import itertools
import math
import secrets
import struct
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from timbrel_bundle import request_fields
from timbrel_bundle.codec import Audio
from timbrel_bundle.manifest import heard_seconds, held_frames, last_delay
from timbrel_bundle.timbre_encoder import Heard
from timbrel_bundle.timbre_map import by_distance
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb
from timbrel_server.engine.request import FOREVER, Finish, Frame, NoteRequest
from timbrel_server.errors import InvalidRequestError
from timbrel_server.served_bundles.served_bundle import frame_rate
from timbrel_server.synthesizer.audio_packing import FILE_FORMATS

DEFAULT_LEAD_SECONDS = 0.15
SHORTEST_LEAD_SECONDS = 0.02
LONGEST_LEAD_SECONDS = 60.0

MAX_AUDIO_BYTES = 3 << 20
"""The largest recording: twice what the longest note takes at 48 kHz. gRPC refuses messages above 4 MiB."""

SAMPLE = np.dtype("<f4")
"""The type of a recording's samples on the wire."""

_AUDIO_FORMATS = frozenset(pb.AudioFormat.values())

FINISH_REASONS = {Finish.EOS: pb.FINISH_REASON_EOS, Finish.CAP: pb.FINISH_REASON_CAP}


def note_request_from_pb(
    message: pb.GenerateRequest,
    manifest: pb.Manifest,
    default_seconds: float | None = None,
    further: Sequence[request_fields.Violation] = (),
) -> NoteRequest:
    """Checks a request against the bundle's ranges and fills in what it leaves open.

    Args:
        default_seconds: how long the key is held, within the bundle's range, where the request is silent;
            by default as the table of request fields says.
        further: what was found wrong with it already, to be told with the rest.

    Raises:
        InvalidRequestError: naming every field that is missing or out of range.
    """
    ranges = manifest.ranges
    velocity = message.velocity if message.HasField("velocity") else _default("velocity")
    default_seconds = _default("seconds") if default_seconds is None else default_seconds
    seconds = message.seconds if message.HasField("seconds") else _within(default_seconds, ranges)
    sampling = request_fields.SamplingSettings.from_pb(message.sampling)
    cents = tuple((point.seconds, point.cents) for point in message.cents) or 0.0
    path = tuple(
        (point.seconds, _point(point.timbre) if point.HasField("timbre") else None) for point in message.path
    )
    violations = request_fields.check_request(
        ranges,
        timbre=_point(message.timbre) if message.HasField("timbre") else None,
        pitch=message.pitch if message.HasField("pitch") else None,
        velocity=velocity,
        seconds=seconds,
        sampling=sampling,
        cents=cents,
        path=path,
        bends=manifest.codec.bends,
        moves=manifest.codec.moves,
    )
    if message.cents and message.audio == pb.AUDIO_FORMAT_UNSPECIFIED:
        violations.append(("cents", "codes are bent where they are decoded: leave it out, or ask for audio"))
    if message.audio not in _AUDIO_FORMATS:
        violations.append(("audio", f"{message.audio} is no format; 0 to {max(_AUDIO_FORMATS)} are"))
    if violations := [*violations, *further]:
        raise InvalidRequestError(violations)
    held = held_frames(seconds, manifest.codec)
    written = min(held, manifest.model.hold_frames or held)
    return NoteRequest(
        timbre=_point(message.timbre),
        pitch=message.pitch,
        velocity=velocity,
        held_frames=written,
        lead_frames=manifest.codec.lead_frames,
        held_on_frames=held - written,
        seed=message.seed if message.HasField("seed") else secrets.randbits(request_fields.SEED_BITS),
        cents=cents,
        path=tuple((point.seconds, _point(point.timbre)) for point in message.path),
        sampling=sampling.filled(request_fields.DEFAULT_SAMPLING),
    )


def live_request_from_pb(
    message: pb.NoteOn, manifest: pb.Manifest, max_seconds: float | None = None
) -> NoteRequest:
    """Does the same for a note whose key goes up while it sounds, or after the longest hold.

    Args:
        max_seconds: how long any key may be held; None where the server does not bound it.

    Raises:
        InvalidRequestError: naming every field that is missing or out of range.
    """
    lead = message.lead_seconds if message.HasField("lead_seconds") else DEFAULT_LEAD_SECONDS
    faults = []
    if not SHORTEST_LEAD_SECONDS <= lead <= LONGEST_LEAD_SECONDS:
        allowed = f"{SHORTEST_LEAD_SECONDS:g} to {LONGEST_LEAD_SECONDS:g} seconds are"
        faults.append(("lead_seconds", f"{lead:g} is not allowed; {allowed}"))
    request = note_request_from_pb(message.note, manifest, default_seconds=math.inf, further=faults)
    if not message.note.HasField("seconds") and request.held_on_frames:
        longest = held_frames(max_seconds, manifest.codec) - request.held_frames if max_seconds else FOREVER
        # A file is made in one piece, once the note has ended.
        in_one_piece = message.note.audio in FILE_FORMATS
        request = replace(request, held_on_frames=0 if in_one_piece else longest)
    rate, codec = frame_rate(manifest), manifest.codec
    shortest = math.ceil(manifest.ranges.seconds_min * rate) + codec.lead_frames
    return replace(
        request,
        least_held_frames=min(request.held_frames, shortest),
        # A frame is complete as many steps after its first code as there are further codebooks.
        frames_ahead=math.ceil(lead * rate) + last_delay(manifest) + codec.lead_frames,
    )


def bend_from_pb(message: pb.Bend) -> float:
    """Returns the cents of a bend.

    Raises:
        InvalidRequestError: they are out of range.
    """
    if fault := request_fields.FIELD["cents"].fault(message.cents, pb.RequestRanges()):
        raise InvalidRequestError([("bend.cents", fault)])
    return message.cents


def move_from_pb(message: pb.Move) -> tuple[float, float]:
    """Returns the point that a note moves to.

    Raises:
        InvalidRequestError: there is none, or it lies outside the disc.
    """
    timbre = _point(message.timbre)
    if fault := request_fields.timbre_fault(timbre if message.HasField("timbre") else None):
        raise InvalidRequestError([("move.timbre", fault)])
    return timbre


def recording_from_pb(message: pb.LocateRequest) -> Audio:
    """Returns a request's recording, with all checked but what its sound holds.

    Raises:
        InvalidRequestError: naming every field that is missing or out of range.
    """
    pitch = message.pitch if message.HasField("pitch") else None
    violations = [*_audio_faults(message.audio), *request_fields.check_recording(message.sample_rate, pitch)]
    if violations:
        raise InvalidRequestError(violations)
    return np.frombuffer(message.audio, SAMPLE).astype(np.float32, copy=False)


def location_to_pb(heard: Heard, timbre_map: pb.TimbreMap) -> pb.LocateResponse:
    """Writes a point and the named points around it, those with the largest shares first."""
    x, y = heard.timbre
    neighbours = [
        pb.Neighbour(point=point, distance=distance) for distance, point in by_distance(timbre_map, x, y)
    ]
    reply = pb.LocateResponse(timbre=pb.Timbre(x=x, y=y))
    if heard.near is not None:
        reply.near = heard.near
    if heard.shares is not None:
        names = (point.instrument for point in timbre_map.points)
        shares = dict(zip(names, heard.shares.tolist(), strict=True))
        for neighbour in neighbours:
            neighbour.share = shares[neighbour.point.instrument]
        neighbours.sort(key=lambda neighbour: -neighbour.share)
    reply.neighbours.extend(neighbours)
    return reply


def codes_to_pb(frames: Sequence[Frame], n_codebooks: int) -> pb.Codes:
    """Writes frames of `n_codebooks` codes each."""
    n_codes = len(frames) * n_codebooks
    data = struct.pack(f"<{n_codes}H", *itertools.chain.from_iterable(frames))
    return pb.Codes(data=data, n_frames=len(frames), n_codebooks=n_codebooks)


def held_seconds(n_frames: int, manifest: pb.Manifest) -> float:
    """Returns the seconds to ask for, so that a key is held for so many frames; or how long it was held where
    that is more than may be asked for."""
    seconds = heard_seconds(n_frames, manifest.codec)
    if n_frames > held_frames(manifest.ranges.seconds_max, manifest.codec):
        return seconds
    return _within(seconds, manifest.ranges)


def _audio_faults(audio: bytes) -> Iterator[request_fields.Violation]:
    if not audio:
        yield "audio", "is missing; little-endian float32 samples are needed"
    elif len(audio) > MAX_AUDIO_BYTES:
        yield "audio", f"{len(audio)} bytes are too many; up to {MAX_AUDIO_BYTES} are allowed"
    elif len(audio) % SAMPLE.itemsize:
        yield "audio", f"{len(audio)} bytes are no float32 samples; a multiple of {SAMPLE.itemsize} is needed"


def _within(seconds: float, ranges: pb.RequestRanges) -> float:
    return min(max(seconds, ranges.seconds_min), ranges.seconds_max)


def _point(timbre: pb.Timbre) -> tuple[float, float]:
    return timbre.x, timbre.y


def _default(name: str) -> Any:
    return request_fields.FIELD[name].default
