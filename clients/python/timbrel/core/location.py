"""Where a recording lies on the timbre map: the request for it, and the answer."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from timbrel.core.model import check_timbre_map
from timbrel.core.request import whole
from timbrel.core.timbre import point_of
from timbrel.errors import BundleMismatchError, FieldViolation, InvalidRequestError, ServerError, refusal
from timbrel_bundle.errors import AudioError, printable
from timbrel_bundle.request_fields import check_recording
from timbrel_bundle.timbre_encoder import longest_seconds, prepare_recording
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb


@dataclass(frozen=True)
class Neighbour:
    """An instrument of the timbre map, and how far it lies from a point.

    >>> note = client.generate("Violin", seconds=1.0, seed=1)
    >>> neighbour = client.locate(note.audio, note.sample_rate).nearest[0]
    >>> 0.0 <= neighbour.distance <= 2.0
    True

    Attributes:
        name: for example "Violin".
        family: for example "Strings".
        timbre: its own point (x, y).
        distance: on the map, whose disc has the radius 1.
        share: how likely the recording is one of this instrument, supposing that it is one of the map's, 0
            to 1: of notes of the sources that the bundle learnt from, some 70 % of those with a share of 0.7
            are; of other recordings fewer are. None where the bundle cannot tell.
    """

    name: str
    family: str
    timbre: tuple[float, float]
    distance: float
    share: float | None = None


@dataclass(frozen=True)
class Location:
    """A point of the timbre map, and the instruments around it.

    >>> note = client.generate("Violin", seconds=1.0, seed=1)
    >>> location = client.locate(note.audio, note.sample_rate)
    >>> client.generate(location.timbre, pitch=48, seconds=0.3).pitch
    48

    Attributes:
        timbre: the point (x, y): what `Client.generate` takes for a timbre.
        nearest: the one with the largest share first; where there are no shares, the nearest.
        near: whether the recording is like anything on this map. False for what is no note of any
            instrument, such as speech, drums, noise or a song: the rest then means nothing. None where the
            bundle cannot tell.
    """

    timbre: tuple[float, float]
    nearest: tuple[Neighbour, ...]
    near: bool | None = None


def location_from_pb(response: pb.LocateResponse, expected_hash: str, n_nearest: int) -> Location:
    """Raises BundleMismatchError: the point is of another bundle's map; ServerError: there is no point of the
    disc in it, or the instruments around are none."""
    if response.bundle_hash != expected_hash:
        found = printable(response.bundle_hash[:64])
        raise BundleMismatchError(f"bundle {found} located the recording, {expected_hash} was expected")
    x, y = point_of(response.timbre)
    if not response.HasField("timbre") or not math.hypot(x, y) <= 1.0 + 1e-6:
        raise ServerError(f"the server located the recording at ({x}, {y}), which is no point of the map")
    nearest = response.neighbours[:n_nearest]
    check_timbre_map(pb.TimbreMap(points=[each.point for each in nearest]))
    if not all(math.isfinite(each.distance) for each in nearest):
        raise ServerError("the server gave a distance on the map that is no number")
    if not all(0.0 <= each.share <= 1.0 + 1e-6 for each in nearest):
        raise ServerError("the server gave an instrument a share that is not within 0 to 1")
    neighbours = []
    for each in nearest:
        point, share = each.point, each.share if each.HasField("share") else None
        neighbours.append(Neighbour(point.instrument, point.family, point_of(point), each.distance, share))
    near = response.near if response.HasField("near") else None
    return Location((x, y), tuple(neighbours), near)


def locate_request(audio: npt.NDArray[Any], sample_rate: int, manifest: pb.Manifest) -> pb.LocateRequest:
    """The request on the wire, which holds the server to this bundle.

    Only what the server would listen to is sent: one channel at the bundle's sample rate, without the silence
    before and after, and no more than the bundle's longest note. Raises InvalidRequestError: the sample rate
    is out of range, or the audio is silent, too short, not finite or of another shape than [samples] or
    [samples, channels].
    """
    sample_rate = whole(sample_rate)
    if violations := check_recording(sample_rate, None):
        raise InvalidRequestError.of([FieldViolation(*violation) for violation in violations])
    try:
        sound = prepare_recording(audio, sample_rate, manifest.codec, longest_seconds(manifest))
    except AudioError as error:
        raise refusal("audio", str(error)) from None
    return pb.LocateRequest(
        audio=sound.astype("<f4").tobytes(),
        sample_rate=manifest.codec.sample_rate,
        bundle_hash=manifest.bundle_hash,
    )
