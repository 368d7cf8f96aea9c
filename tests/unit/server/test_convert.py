"""Between messages and values."""

from __future__ import annotations

import io
import math

import numpy as np
import pytest
import soundfile

from timbrel_bundle.request_fields import (
    DEFAULT_SAMPLING,
    MAX_CENTS_POINTS,
    MAX_PATH_POINTS,
    SamplingSettings,
)
from timbrel_bundle.timbre_encoder import Heard
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb
from timbrel_server.errors import InvalidRequestError
from timbrel_server.rpc.handlers import parse
from timbrel_server.synthesizer.audio_packing import AudioPacker
from timbrel_server.synthesizer.convert import (
    MAX_AUDIO_BYTES,
    codes_to_pb,
    held_seconds,
    live_request_from_pb,
    location_to_pb,
    note_request_from_pb,
    recording_from_pb,
)

MANIFEST = pb.Manifest(
    codec=pb.CodecSpec(sample_rate=16_000, hop_length=320, n_codebooks=4),
    ranges=pb.RequestRanges(
        pitch_min=36, pitch_max=96, velocity_min=1, velocity_max=127, seconds_min=0.1, seconds_max=4.0
    ),
)


def message(**changes: object) -> pb.GenerateRequest:
    fields: dict[str, object] = {"timbre": pb.Timbre(x=0.2, y=-0.4), "pitch": 60, **changes}
    return pb.GenerateRequest(**{name: value for name, value in fields.items() if value is not None})  # type: ignore[arg-type]


def faulty_fields(request: pb.GenerateRequest) -> list[str]:
    with pytest.raises(InvalidRequestError) as caught:
        note_request_from_pb(request, MANIFEST)
    return [field for field, _ in caught.value.violations]


def test_what_is_left_open_takes_the_defaults() -> None:
    request = note_request_from_pb(message(), MANIFEST)
    assert request.timbre == pytest.approx((0.2, -0.4))
    assert (request.pitch, request.velocity, request.held_frames) == (60, 100, 100)
    assert request.sampling == DEFAULT_SAMPLING


def test_a_live_note_is_held_for_the_longest_unless_it_says_less() -> None:
    open_ended = live_request_from_pb(pb.NoteOn(note=message()), MANIFEST)
    assert (open_ended.held_frames, open_ended.least_held_frames) == (200, 5)
    assert live_request_from_pb(pb.NoteOn(note=message(seconds=1.0)), MANIFEST).held_frames == 50


@pytest.mark.parametrize(("lead_seconds", "frames_ahead"), [(None, 8 + 3), (0.02, 1 + 3), (0.5, 25 + 3)])
def test_a_live_note_has_its_lead_in_complete_frames(lead_seconds: float | None, frames_ahead: int) -> None:
    note_on = pb.NoteOn(note=message(), lead_seconds=lead_seconds)
    assert live_request_from_pb(note_on, MANIFEST).frames_ahead == frames_ahead


@pytest.mark.parametrize("lead_seconds", [0.0, -1.0, 61.0, math.nan, math.inf])
def test_a_lead_out_of_range_is_refused(lead_seconds: float) -> None:
    with pytest.raises(InvalidRequestError, match="lead_seconds"):
        live_request_from_pb(pb.NoteOn(note=message(), lead_seconds=lead_seconds), MANIFEST)


def test_a_lead_out_of_range_is_told_with_all_else_that_is_wrong() -> None:
    with pytest.raises(InvalidRequestError) as caught:
        live_request_from_pb(pb.NoteOn(note=message(pitch=200, audio=9), lead_seconds=99.0), MANIFEST)
    assert [field for field, _ in caught.value.violations] == ["pitch", "audio", "lead_seconds"]


@pytest.mark.parametrize("seconds", [0.1, 0.104, 0.1199, 1.0, 2.409, 2.41])
def test_the_seconds_told_ask_for_the_same_hold(seconds: float) -> None:
    """Also where the bundle's bounds are no whole number of frames."""
    manifest = pb.Manifest()
    manifest.CopyFrom(MANIFEST)
    manifest.codec.hop_length = 430
    manifest.ranges.seconds_max = 2.41
    held = note_request_from_pb(message(seconds=seconds), manifest).held_frames
    told = held_seconds(held, manifest)
    assert note_request_from_pb(message(seconds=told), manifest).held_frames == held


def test_frames_that_hold_no_sound_are_held_on_top_of_the_seconds() -> None:
    """What the caller asks for and is told is what is heard."""
    manifest = pb.Manifest()
    manifest.CopyFrom(MANIFEST)
    manifest.codec.lead_frames = 4
    request = note_request_from_pb(message(seconds=1.0), manifest)
    assert request.held_frames == 50 + 4
    assert held_seconds(request.held_frames, manifest) == 1.0
    live = live_request_from_pb(pb.NoteOn(note=message(), lead_seconds=0.5), manifest)
    assert (live.held_frames, live.least_held_frames) == (200 + 4, 5 + 4)
    assert live.frames_ahead == 25 + 3 + 4


def test_a_bend_is_for_codecs_that_bend_and_for_audio() -> None:
    bent = message(cents=[pb.CentsPoint(seconds=0.5, cents=100.0)], audio=pb.AUDIO_FORMAT_WAV)
    assert faulty_fields(bent) == ["cents"]
    manifest = pb.Manifest()
    manifest.CopyFrom(MANIFEST)
    manifest.codec.bends = True
    assert note_request_from_pb(bent, manifest).cents == ((0.5, 100.0),)


def test_the_longest_bend_and_path_are_taken() -> None:
    manifest = pb.Manifest()
    manifest.CopyFrom(MANIFEST)
    manifest.codec.bends = manifest.codec.moves = True
    asked = message(
        cents=[pb.CentsPoint(seconds=0.001 * n + 0.1, cents=0.1 * n + 1) for n in range(MAX_CENTS_POINTS)],
        path=[
            pb.TimbreAt(seconds=0.1 * n + 0.1, timbre=pb.Timbre(x=0.5, y=0.01 * n))
            for n in range(MAX_PATH_POINTS)
        ],
        audio=pb.AUDIO_FORMAT_WAV,
        bundle="b" * 80,
        bundle_hash="0" * 64,
    )
    read = note_request_from_pb(parse(pb.GenerateRequest, asked.SerializeToString()), manifest)
    assert (len(read.cents), len(read.path)) == (MAX_CENTS_POINTS, MAX_PATH_POINTS)  # type: ignore[arg-type]


def test_a_path_wants_a_codec_whose_notes_move_and_a_point_at_every_time() -> None:
    there = pb.Timbre(x=0.5, y=0.25)
    moving = message(path=[pb.TimbreAt(seconds=0.5, timbre=there)])
    assert faulty_fields(moving) == ["path"]
    manifest = pb.Manifest()
    manifest.CopyFrom(MANIFEST)
    manifest.codec.moves = True
    assert note_request_from_pb(moving, manifest).path == ((0.5, (0.5, 0.25)),)
    with pytest.raises(InvalidRequestError, match=r"path: has no timbre at 0\.5 s"):
        note_request_from_pb(message(path=[pb.TimbreAt(seconds=0.5)]), manifest)


def test_an_unknown_format_of_audio_is_refused() -> None:
    assert faulty_fields(message(audio=77)) == ["audio"]


def test_zero_is_a_value_and_not_left_open() -> None:
    request = note_request_from_pb(message(seed=0, sampling=pb.Sampling(temperature=0.0)), MANIFEST)
    assert request.seed == 0
    assert request.sampling.temperature == 0
    assert request.sampling.top_k == DEFAULT_SAMPLING.top_k


def test_sampling_is_taken_over() -> None:
    sampling = pb.Sampling(temperature=1.5, top_k=7, top_p=0.5)
    assert note_request_from_pb(message(sampling=sampling), MANIFEST).sampling == SamplingSettings(
        1.5, 7, 0.5
    )


def test_seeds_are_drawn_where_none_is_given() -> None:
    assert len({note_request_from_pb(message(), MANIFEST).seed for _ in range(10)}) > 1


def test_the_largest_seed_is_kept() -> None:
    assert note_request_from_pb(message(seed=2**64 - 1), MANIFEST).seed == 2**64 - 1


@pytest.mark.parametrize(("seconds", "frames"), [(0.1, 5), (2.0, 100), (0.11, 6), (4.0, 200)])
def test_seconds_become_frames(seconds: float, frames: int) -> None:
    assert note_request_from_pb(message(seconds=seconds), MANIFEST).held_frames == frames


def test_the_default_length_keeps_to_what_the_bundle_knows() -> None:
    short = pb.Manifest()
    short.CopyFrom(MANIFEST)
    short.ranges.seconds_max = 1.0
    assert note_request_from_pb(message(), short).held_frames == 50


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"timbre": None}, "timbre"),
        ({"timbre": pb.Timbre(x=0.9, y=0.9)}, "timbre"),
        ({"timbre": pb.Timbre(x=math.nan, y=0.0)}, "timbre"),
        ({"pitch": None}, "pitch"),
        ({"pitch": 0}, "pitch"),
        ({"pitch": 97}, "pitch"),
        ({"velocity": 0}, "velocity"),
        ({"velocity": 128}, "velocity"),
        ({"seconds": -1.0}, "seconds"),
        ({"seconds": math.nan}, "seconds"),
        ({"seconds": math.inf}, "seconds"),
        ({"seconds": 1e300}, "seconds"),
        ({"sampling": pb.Sampling(temperature=-1)}, "sampling.temperature"),
        ({"sampling": pb.Sampling(top_k=0)}, "sampling.top_k"),
        ({"sampling": pb.Sampling(top_k=257)}, "sampling.top_k"),
        ({"sampling": pb.Sampling(top_p=0)}, "sampling.top_p"),
    ],
)
def test_what_is_out_of_range_is_named(changes: dict[str, object], field: str) -> None:
    assert faulty_fields(message(**changes)) == [field]


def test_every_fault_is_named_at_once() -> None:
    assert faulty_fields(pb.GenerateRequest(velocity=200)) == ["timbre", "pitch", "velocity"]


def test_codes_travel_as_little_endian_uint16() -> None:
    codes = codes_to_pb([(1, 258), (65_535, 0)], n_codebooks=2)
    assert (codes.n_frames, codes.n_codebooks) == (2, 2)
    assert codes.data == bytes([1, 0, 2, 1, 255, 255, 0, 0])
    assert np.frombuffer(codes.data, "<u2").reshape(2, 2).tolist() == [[1, 258], [65_535, 0]]


@pytest.mark.parametrize("kind", [pb.AUDIO_FORMAT_WAV, pb.AUDIO_FORMAT_FLAC])
def test_samples_of_files_are_rounded_to_24_bits_and_clipped(kind: pb.AudioFormat) -> None:
    audio = np.array([0.3, -0.3, -1e-8, 1.5, -1.5], np.float32)
    file = AudioPacker(kind, 48_000).add(audio, last=True)
    read = soundfile.read(io.BytesIO(file), dtype="int32")[0] >> 8
    assert read.tolist() == [2516582, -2516582, 0, 2**23 - 1, -(2**23)]


@pytest.mark.parametrize("kind", [pb.AUDIO_FORMAT_WAV, pb.AUDIO_FORMAT_FLAC])
def test_a_note_without_sound_is_a_file_that_can_be_read(kind: pb.AudioFormat) -> None:
    file = AudioPacker(kind, 48_000).add(np.zeros(0, np.float32), last=True)
    audio, rate = soundfile.read(io.BytesIO(file))
    assert len(audio) <= 1 and not audio.any() and rate == 48_000


def test_bytes_that_are_no_message_are_an_invalid_request() -> None:
    with pytest.raises(InvalidRequestError, match="GenerateRequest"):
        parse(pb.GenerateRequest, b"\xff\xff\xff")


SAMPLES = np.array([0.5, -0.25, 1e-3], dtype="<f4")


def test_a_recording_travels_as_little_endian_float32() -> None:
    audio = recording_from_pb(pb.LocateRequest(audio=SAMPLES.tobytes(), sample_rate=44_100, pitch=60.5))
    np.testing.assert_array_equal(audio, SAMPLES)
    assert audio.dtype == np.float32


def test_a_hint_of_the_pitch_changes_nothing() -> None:
    """Bundles of today hear recordings without it; what is no pitch is refused all the same."""
    said = pb.LocateRequest(audio=SAMPLES.tobytes(), sample_rate=44_100, pitch=60.5)
    unsaid = pb.LocateRequest(audio=SAMPLES.tobytes(), sample_rate=44_100)
    np.testing.assert_array_equal(recording_from_pb(said), recording_from_pb(unsaid))


@pytest.mark.parametrize(
    ("changes", "fields"),
    [
        ({"audio": b""}, ["audio"]),
        ({"audio": b"12345"}, ["audio"]),
        ({"audio": bytes(MAX_AUDIO_BYTES + 4)}, ["audio"]),
        ({"sample_rate": 0}, ["sample_rate"]),
        ({"sample_rate": 7999}, ["sample_rate"]),
        ({"sample_rate": 768_001}, ["sample_rate"]),
        ({"pitch": 0.0}, ["pitch"]),
        ({"pitch": 127.5}, ["pitch"]),
        ({"pitch": math.nan}, ["pitch"]),
        ({"audio": b"", "sample_rate": 1, "pitch": -1.0}, ["audio", "sample_rate", "pitch"]),
    ],
)
def test_what_is_wrong_with_a_recording_is_named(changes: dict[str, object], fields: list[str]) -> None:
    wanted: dict[str, object] = {"audio": SAMPLES.tobytes(), "sample_rate": 44_100, **changes}
    with pytest.raises(InvalidRequestError) as caught:
        recording_from_pb(pb.LocateRequest(**wanted))  # type: ignore[arg-type]
    assert [field for field, _ in caught.value.violations] == fields


def test_the_largest_recording_is_taken() -> None:
    message = pb.LocateRequest(audio=bytes(MAX_AUDIO_BYTES), sample_rate=48_000)
    assert len(recording_from_pb(message)) == MAX_AUDIO_BYTES // 4


def test_neighbours_come_nearest_first() -> None:
    points = [
        pb.TimbrePoint(instrument=name, x=x, y=y)
        for name, x, y in (("A", 0.0, 0.0), ("B", 0.3, 0.4), ("C", 1, 0))
    ]
    reply = location_to_pb(Heard((0.3, 0.3), (0.3, 0.3)), pb.TimbreMap(points=points))
    assert [each.point.instrument for each in reply.neighbours] == ["B", "A", "C"]
    assert [each.distance for each in reply.neighbours] == pytest.approx([0.1, 0.18**0.5, 0.58**0.5])
    assert (reply.timbre.x, reply.timbre.y) == pytest.approx((0.3, 0.3))
    assert not reply.HasField("near") and not reply.neighbours[0].HasField("share")


def test_neighbours_come_by_their_shares_where_these_are_known() -> None:
    points = [pb.TimbrePoint(instrument=name, x=x) for name, x in (("A", 0.0), ("B", 0.3), ("C", 1.0))]
    heard = Heard((0.3, 0.0), (0.3, 0.0), np.ones(1, np.float32), np.array([0.5, 0.2, 0.3]), False)
    reply = location_to_pb(heard, pb.TimbreMap(points=points))
    assert [each.point.instrument for each in reply.neighbours] == ["A", "C", "B"]
    assert [each.share for each in reply.neighbours] == pytest.approx([0.5, 0.3, 0.2])
    assert reply.HasField("near") and not reply.near
