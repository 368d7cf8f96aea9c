from __future__ import annotations

from dataclasses import replace
from math import inf, nan
from typing import Any

import numpy as np
import pytest

import timbrel
from timbrel.core.request import NoteRequest, check_bend, placed, request_to_pb
from timbrel.errors import InvalidRequestError
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb

MANIFEST = pb.Manifest(
    bundle_hash="h",
    codec=pb.CodecSpec(bends=True, moves=True),
    ranges=pb.RequestRanges(
        pitch_min=36, pitch_max=96, velocity_min=1, velocity_max=127, seconds_min=0.05, seconds_max=4.0
    ),
)
GOOD = NoteRequest((0.5, -0.5), 60, 100, 2.0)


def test_a_good_request_travels_as_it_is() -> None:
    request = request_to_pb(replace(GOOD, seed=0, temperature=0.5, top_k=9, top_p=0.75), MANIFEST)
    assert (request.timbre.x, request.timbre.y) == (0.5, -0.5)
    assert (request.pitch, request.velocity, request.seconds) == (60, 100, 2.0)
    assert request.HasField("seed") and request.seed == 0
    assert (request.sampling.temperature, request.sampling.top_k, request.sampling.top_p) == (0.5, 9, 0.75)
    assert request.bundle_hash == "h"


def test_what_is_not_said_is_left_to_the_server() -> None:
    request = request_to_pb(GOOD, MANIFEST)
    assert not request.HasField("seed")
    assert not any(request.sampling.HasField(name) for name in ("temperature", "top_k", "top_p"))


def test_takes_numpys_numbers() -> None:
    wanted = NoteRequest(
        (np.float32(0.5), np.float32(0.25)),  # type: ignore[arg-type]
        np.int64(60),  # type: ignore[arg-type]
        np.uint8(100),  # type: ignore[arg-type]
        np.float32(2.0),  # type: ignore[arg-type]
        np.int64(3),  # type: ignore[arg-type]
    )
    request = request_to_pb(wanted, MANIFEST)
    assert (request.pitch, request.velocity, request.seed) == (60, 100, 3)


def test_takes_whole_numbers_as_json_and_tables_give_them() -> None:
    floats: dict[str, Any] = {"pitch": 60.0, "velocity": 100.0, "seed": 3.0, "top_k": np.float32(9.0)}
    request = request_to_pb(replace(GOOD, **floats), MANIFEST)
    assert (request.pitch, request.velocity, request.seed, request.sampling.top_k) == (60, 100, 3, 9)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("timbre", (0.9, 0.9)),
        ("timbre", (nan, 0.0)),
        ("timbre", (inf, 0.0)),
        ("timbre", (1e300, 0.0)),
        ("timbre", (0.1, 0.2, 0.3)),
        ("timbre", (0.1, "x")),
        ("timbre", None),
        ("timbre", np.array(0.5)),
        ("timbre", {0: "Violin", 0.5: "Flute"}),
        ("timbre", {0.1, 0.2}),
        ("path", [(0.0, (0.1, 0.2)), (1.5,)]),
        ("path", [(0.0, (0.1, 0.2)), (1.5, (0.2, 0.1), 3)]),
        ("cents", np.array(50.0)),
        ("cents", [np.array(50.0)]),
        ("pitch", 35),
        ("pitch", -1),
        ("pitch", 2**40),
        ("pitch", 60.5),
        ("pitch", "60"),
        ("pitch", True),
        ("velocity", 0),
        ("velocity", 128),
        ("velocity", None),
        ("seconds", nan),
        ("seconds", inf),
        ("seconds", -1.0),
        ("seconds", 1e9),
        ("seconds", "long"),
        ("seed", -1),
        ("seed", 2**64),
        ("seed", 1.5),
        ("temperature", nan),
        ("temperature", -0.1),
        ("temperature", "hot"),
        ("top_k", 0),
        ("top_k", -3),
        ("top_k", 2**40),
        ("top_k", 2.5),
        ("top_p", 0.0),
        ("top_p", 1.5),
        ("top_p", nan),
    ],
)
def test_each_bad_field_is_named(field: str, value: Any) -> None:
    changed = {"timbre" if field == "path" else field: value}
    with pytest.raises(InvalidRequestError) as caught:
        request_to_pb(replace(GOOD, **changed), MANIFEST)
    (violation,) = caught.value.fields
    assert field in violation.field
    assert "\n" not in str(caught.value)


def test_a_pitch_between_two_keys_is_told_of_cents() -> None:
    with pytest.raises(
        InvalidRequestError, match=r"^pitch: 60\.5 .* is needed, and cents for what lies between$"
    ):
        request_to_pb(replace(GOOD, pitch=60.5), MANIFEST)  # type: ignore[arg-type]
    with pytest.raises(InvalidRequestError, match=r"is needed$"):
        request_to_pb(replace(GOOD, velocity=60.5), MANIFEST)  # type: ignore[arg-type]


def test_several_bad_fields_are_all_named() -> None:
    with pytest.raises(InvalidRequestError) as caught:
        request_to_pb(replace(GOOD, pitch=1, velocity=200, seconds=-1.0), MANIFEST)
    assert {violation.field for violation in caught.value.fields} == {"pitch", "velocity", "seconds"}


def test_a_seed_is_drawn_once_and_a_given_one_is_kept() -> None:
    drawn = GOOD.seeded()
    assert drawn.seed is not None and 0 <= drawn.seed < 2**32
    assert drawn.seeded() is drawn
    assert GOOD.seeded().seed != drawn.seed
    assert replace(GOOD, seed=0).seeded().seed == 0


def test_a_bend_that_can_be_read_once_is_read_once() -> None:
    bent = NoteRequest((0.5, -0.5), cents=zip([0.0, 0.3], [-200.0, 0.0], strict=True))  # type: ignore[arg-type]
    request_to_pb(bent, MANIFEST)
    assert bent.cents == ((0.0, -200.0), (0.3, 0.0))
    points = iter([(0.0, -200.0), (0.3, 0.0)])
    assert check_bend(points, MANIFEST.codec) == bent.cents  # type: ignore[arg-type]


def test_a_placed_point_can_be_read_again_too() -> None:
    assert placed(NoteRequest(iter((0.5, -0.5))), pb.TimbreMap()).timbre == (0.5, -0.5)  # type: ignore[arg-type]


def test_a_bend_is_what_it_was_when_it_was_asked_for() -> None:
    """A note is decoded when its sound is first asked for; the caller's list may be another by then."""
    curve = np.array([[0.0, 0.0], [1.0, 100.0]])
    points = curve.tolist()
    for given in (curve, points):
        request = NoteRequest((0.1, 0.2), cents=given)
        given[1][1] = 400.0
        assert placed(request, pb.TimbreMap()).cents == ((0.0, 0.0), (1.0, 100.0))
        assert "np." not in repr(request)


def test_so_is_a_point_that_walks_on() -> None:
    point = np.zeros(2)
    requests = [NoteRequest(point), NoteRequest([(0, point), (1, "Flute")])]  # type: ignore[arg-type]
    point += 0.5
    assert [request.timbre for request in requests] == [(0.0, 0.0), ((0, (0.0, 0.0)), (1, "Flute"))]


def test_so_is_a_path_and_the_request_can_be_looked_up_by_it() -> None:
    way: list[Any] = [(0, "Violin"), [1.5, [0.1, 0.2]]]
    request = NoteRequest(way)
    way[1][1][0] = 0.9
    assert request.path == ((0, "Violin"), (1.5, (0.1, 0.2)))
    assert {request: "note"}[NoteRequest(((0, "Violin"), (1.5, (0.1, 0.2))))] == "note"


def test_a_path_that_can_be_read_once_is_read_once() -> None:
    way: Any = zip([0, 1.5], [(0.1, 0.2), (0.2, 0.1)], strict=True)
    request = NoteRequest(way)
    assert len(request_to_pb(request, MANIFEST).path) == 2
    assert request.path == ((0, (0.1, 0.2)), (1.5, (0.2, 0.1)))


def test_points_of_the_map_are_no_path_in_time() -> None:
    with pytest.raises(InvalidRequestError, match=r"\(seconds, timbre\), as in \(1.5, 'Flute'\)"):
        placed(NoteRequest(timbrel.morph((0.0, 0.0), (0.5, 0.0), 3)), pb.TimbreMap())
