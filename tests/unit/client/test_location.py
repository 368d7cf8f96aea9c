"""The request that locates a recording, and what is made of the answer."""

from __future__ import annotations

from math import nan
from typing import Any

import numpy as np
import pytest

from timbrel.core.location import locate_request, location_from_pb
from timbrel.errors import BundleMismatchError, InvalidRequestError, ServerError
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb

RATE = 48_000
MANIFEST = pb.Manifest(
    bundle_hash="h",
    codec=pb.CodecSpec(sample_rate=RATE, hop_length=960),
    model=pb.ModelSpec(max_frames=300),
)
TONE = np.sin(2 * np.pi * 440 * np.arange(RATE) / RATE).astype(np.float32)


def test_only_what_is_listened_to_is_sent() -> None:
    long_stereo = np.pad(np.stack([np.tile(TONE, 20)] * 2, axis=1), ((2 * RATE, 0), (0, 0)))
    request = locate_request(long_stereo, 96_000, MANIFEST)
    assert request.sample_rate == RATE
    assert len(request.audio) == 4 * 6 * RATE  # 6 s of the bundle's longest note, in one channel
    assert request.bundle_hash == "h"


@pytest.mark.parametrize("rate", [96_000.0, np.float64(96_000), np.int32(96_000)])
def test_a_whole_rate_is_one_whatever_its_type(rate: Any) -> None:
    """Some libraries that read files give it as a float."""
    assert locate_request(TONE, rate, MANIFEST) == locate_request(TONE, 96_000, MANIFEST)


@pytest.mark.parametrize(
    ("audio", "sample_rate", "field"),
    [
        (TONE, 0, "sample_rate"),
        (TONE, 7999, "sample_rate"),
        (TONE, 10**6, "sample_rate"),
        (TONE, 44_100.5, "sample_rate"),
        (TONE, None, "sample_rate"),
        (0 * TONE, RATE, "audio"),
        (TONE[:100], RATE, "audio"),
        (TONE[:0], RATE, "audio"),
        (TONE * nan, RATE, "audio"),
        ("oboe.wav", RATE, "audio"),
        (None, RATE, "audio"),
    ],
)
def test_a_field_that_is_wrong_is_named(audio: Any, sample_rate: Any, field: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        locate_request(audio, sample_rate, MANIFEST)
    assert [each.field for each in caught.value.fields] == [field]
    assert "\n" not in str(caught.value)


def response(x: float = 0.1, y: float = 0.6) -> pb.LocateResponse:
    points = [pb.TimbrePoint(instrument=name, family="Winds", x=0.5, y=0.6) for name in ("Oboe", "Flute")]
    neighbours = [pb.Neighbour(point=point, distance=0.4) for point in points]
    return pb.LocateResponse(timbre=pb.Timbre(x=x, y=y), neighbours=neighbours, bundle_hash="h")


def test_an_answer_is_read_in_short_numbers() -> None:
    location = location_from_pb(response(), "h", 1)
    assert location.timbre == (0.1, 0.6)
    (nearest,) = location.nearest
    assert (nearest.name, nearest.family, nearest.timbre) == ("Oboe", "Winds", (0.5, 0.6))
    assert nearest.distance == pytest.approx(0.4)
    assert (nearest.share, location.near) == (None, None)  # of a bundle that cannot tell
    told = response()
    told.neighbours[0].share, told.near = 0.75, False
    location = location_from_pb(told, "h", 1)
    assert (location.nearest[0].share, location.near) == (0.75, False)


def test_another_bundle_s_answer_is_a_mismatch() -> None:
    with pytest.raises(BundleMismatchError):
        location_from_pb(response(), "other", 5)


@pytest.mark.parametrize("answer", [pb.LocateResponse(bundle_hash="h"), response(x=1.0), response(x=nan)])
def test_an_answer_without_a_point_is_the_servers_fault(answer: pb.LocateResponse) -> None:
    with pytest.raises(ServerError):
        location_from_pb(answer, "h", 5)
