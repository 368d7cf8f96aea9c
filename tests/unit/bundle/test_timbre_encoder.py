"""Recordings are brought to one form or refused in one line, and located on real graphs."""

from __future__ import annotations

import math
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
import soxr
from data.make_tiny_bundle import sample_note

from timbrel_bundle.bundle import Bundle
from timbrel_bundle.codec import CodecDecoder
from timbrel_bundle.errors import AudioError, BundleError
from timbrel_bundle.layout import TIMBRE_ENCODER
from timbrel_bundle.timbre_encoder import (
    PEAK,
    TimbreEncoder,
    fold,
    longest_seconds,
    parts,
    prepare_recording,
    transpositions,
)
from timbrel_bundle.yin import wanders
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb

RATE = 48_000
MAX_SECONDS = 2.0
SPEC = pb.CodecSpec(sample_rate=RATE)
SEEDS = (3, 8, 9)
"""Of notes whose first and second instrument have shares far apart."""
NEAR = 0.02
"""On the map, where the three notes lie ten times as far apart, at least."""


@pytest.fixture(scope="module")
def bundle(tiny_bundle: Path) -> Bundle:
    return Bundle.open(tiny_bundle)


@pytest.fixture(scope="module")
def encoder(bundle: Bundle) -> TimbreEncoder:
    return TimbreEncoder(bundle, n_threads=1)


@pytest.fixture(scope="module")
def notes(bundle: Bundle) -> list[npt.NDArray[np.float32]]:
    """Three notes."""
    decoder = CodecDecoder(bundle, n_threads=1)
    return [decoder.decode(sample_note(np.random.default_rng(seed), 34).codes) for seed in SEEDS]


def distance(one: tuple[float, float], other: tuple[float, float]) -> float:
    return math.dist(one, other)


def test_points_lie_in_the_disc_and_apart(
    encoder: TimbreEncoder, notes: list[npt.NDArray[np.float32]]
) -> None:
    points = [encoder.locate(note, RATE) for note in notes]
    assert all(math.hypot(*point) <= 1.0 + 1e-6 for point in points)
    assert min(distance(points[i], points[j]) for i, j in ((0, 1), (0, 2), (1, 2))) > 10 * NEAR


@pytest.mark.parametrize("decibels", [-12, -6, 6, 12])
def test_the_level_does_not_move_the_point(
    encoder: TimbreEncoder, notes: list[npt.NDArray[np.float32]], decibels: float
) -> None:
    gain = np.float32(10 ** (decibels / 20))
    for note in notes:
        assert distance(encoder.locate(gain * note, RATE), encoder.locate(note, RATE)) < 1e-3


def test_stereo_another_rate_and_silence_hardly_move_the_point(
    encoder: TimbreEncoder, notes: list[npt.NDArray[np.float32]]
) -> None:
    for note in notes:
        stereo = np.stack([0.5 * note, note], axis=1)
        recording = np.pad(soxr.resample(stereo, RATE, 44_100), ((22_050, 11_025), (0, 0)))
        assert distance(encoder.locate(recording, 44_100), encoder.locate(note, RATE)) < NEAR


def test_a_graph_that_takes_something_else_is_refused(
    tiny_bundle: Path, rename_input: Callable[[Path, str, str], None], tmp_path: Path
) -> None:
    shutil.copytree(tiny_bundle, tmp_path / "bundle")
    rename_input(tmp_path / "bundle" / TIMBRE_ENCODER, "n_samples", "n_frames")
    with pytest.raises(BundleError, match="n_samples"):
        TimbreEncoder(Bundle.open(tmp_path / "bundle", verify=False), n_threads=1)


@pytest.mark.parametrize(
    ("point", "fault"),
    [
        ([0.1, 0.2, 0.3], r"gives 'timbre' the shape \[3, 3\], not \[3, 2\]"),
        ([np.nan, 0.0], "gives 'timbre' numbers that are not finite"),
        ([0.9, -0.9], r"gives \(0.9, -0.9\), which is no point of the disc"),
        ([], "onnxruntime cannot run it"),
    ],
)
def test_a_graph_that_gives_no_points_is_told_in_one_line(
    tiny_bundle: Path, tmp_path: Path, point: list[float], fault: str
) -> None:
    shutil.copytree(tiny_bundle, tmp_path / "bundle")
    bundle = Bundle.open(tmp_path / "bundle", verify=False)
    assert bundle.timbre_references is not None
    width = len(bundle.timbre_references.references[0].embedding)
    path = tmp_path / "bundle" / TIMBRE_ENCODER
    path.write_bytes(graph_that_gives(point, [1.0] * width))
    with pytest.raises(BundleError, match=fault) as error:
        TimbreEncoder(bundle, n_threads=1).locate(note(), RATE)
    assert str(error.value).startswith(f"{path}: ") and "\n" not in str(error.value)


def graph_that_gives(point: list[float], embedding: list[float]) -> bytes:
    """A timbre encoder's graph that hears the same in each sound; it fails where the point is []."""
    helper, tensor = onnx.helper, onnx.TensorProto
    nodes = [helper.make_node("Shape", ["n_samples"], ["n"])]
    values = {"timbre": point, "embedding": embedding}
    constants = []
    for name, numbers in values.items():
        constants += [
            helper.make_tensor(f"{name}_one", tensor.FLOAT, [1, len(numbers)], numbers),
            helper.make_tensor(f"{name}_n", tensor.INT64, [1], [len(numbers) or 7]),
        ]
        nodes.append(helper.make_node("Concat", ["n", f"{name}_n"], [f"{name}_shape"], axis=0))
        nodes.append(helper.make_node("Expand", [f"{name}_one", f"{name}_shape"], [name]))
    inputs = [
        helper.make_tensor_value_info("audio", tensor.FLOAT, ["batch", "samples"]),
        helper.make_tensor_value_info("n_samples", tensor.INT64, ["batch"]),
    ]
    widths = {"timbre": None, "embedding": len(embedding)}
    outputs = [helper.make_tensor_value_info(name, tensor.FLOAT, ["batch", widths[name]]) for name in values]
    graph = helper.make_graph(nodes, "encoder", inputs, outputs, constants)
    opset = [helper.make_opsetid("", 17)]
    data: bytes = helper.make_model(graph, opset_imports=opset, ir_version=9).SerializeToString()
    return data


def test_what_is_no_note_is_refused(encoder: TimbreEncoder, notes: list[npt.NDArray[np.float32]]) -> None:
    with pytest.raises(AudioError, match="silent"):
        encoder.locate(np.zeros(RATE, np.float32), RATE)
    with pytest.raises(AudioError, match="sample rate of 0 Hz"):
        encoder.locate(notes[0], 0)


def note(seconds: float = 1.0, rate: int = RATE) -> npt.NDArray[np.float32]:
    """A decaying tone that starts at once."""
    t = np.arange(int(seconds * rate)) / rate
    return (0.5 * np.sin(2 * np.pi * 440 * t + 1.0) * np.exp(-2 * t)).astype(np.float32)


def prepare(audio: npt.NDArray[Any], rate: int = RATE) -> npt.NDArray[np.float32]:
    return prepare_recording(audio, rate, SPEC, MAX_SECONDS)


def test_a_bare_note_is_only_scaled() -> None:
    prepared = prepare(note())
    assert prepared.dtype == np.float32
    np.testing.assert_allclose(prepared, note() * PEAK / np.abs(note()).max(), rtol=1e-5)


@pytest.mark.parametrize("gain", [1e-3, 0.25, 4.0, 1e30])
def test_level_does_not_count(gain: float) -> None:
    np.testing.assert_allclose(prepare(note() * np.float32(gain)), prepare(note()), rtol=1e-4)


def test_integer_samples_are_samples() -> None:
    np.testing.assert_allclose(prepare((note() * 32767).astype(np.int16)), prepare(note()), atol=1e-5)


@pytest.mark.parametrize("offset", [0.2, -0.05])
def test_an_offset_is_no_sound(offset: float) -> None:
    recording = np.pad(note(), (RATE // 2, RATE // 2))
    np.testing.assert_allclose(prepare(recording + np.float32(offset)), prepare(recording), atol=1e-4)
    with pytest.raises(AudioError, match="silent"):
        prepare(np.full(RATE, offset, np.float32))


def test_silence_around_is_cut_off_but_for_a_few_milliseconds() -> None:
    room = np.random.default_rng(0).normal(0, 1e-4, 2 * RATE).astype(np.float32)
    room[RATE // 2 : RATE // 2 + RATE] += note()
    prepared = prepare(room)
    lead = round(0.005 * RATE)
    assert 0 <= len(prepared) - len(note()) - lead <= round(0.01 * RATE)
    np.testing.assert_allclose(prepared[lead:][: len(note())], prepare(note()), atol=2e-4)


@pytest.mark.parametrize("level_db", [-55.0, -45.0, -38.0])
@pytest.mark.parametrize("decay", [0.0, 3.0])
def test_the_noise_of_a_room_before_and_after_is_cut_off(level_db: float, decay: float) -> None:
    """Its peaks lie 12 dB above its level: they are louder than what counts as silence."""
    time = np.arange(RATE) / RATE
    room = np.random.default_rng(0).normal(0, 10 ** (level_db / 20), 3 * RATE).astype(np.float32)
    room[RATE // 2 : RATE // 2 + RATE] += np.sin(2 * np.pi * 220 * time) * np.exp(-decay * time)
    prepared = prepare(room)
    assert 0.8 * RATE < len(prepared) < 1.05 * RATE
    begun = np.flatnonzero(abs(prepared) > PEAK / 2)[0]
    assert begun <= 0.015 * RATE


@pytest.mark.parametrize("seconds", [0.05, 0.3, 1.0])
def test_a_soft_attack_or_end_is_no_room(seconds: float) -> None:
    time = np.arange(2 * RATE) / RATE
    rise = np.minimum(1, time / seconds)
    for shape in (rise, rise**2, rise[::-1], np.exp(-4 * time)):
        sound = (np.sin(2 * np.pi * 220 * time) * shape).astype(np.float32)
        loud = np.flatnonzero(abs(sound) > 0.01)
        assert len(prepare(sound)) >= loud[-1] - loud[0]


def test_what_is_prepared_stays_as_it_is() -> None:
    once = prepare(np.pad(note(3.0, 44_100), (20_000, 9_000)), 44_100)
    np.testing.assert_allclose(prepare(once), once, rtol=1e-6)


def test_what_is_prepared_in_a_room_stays_as_it_is() -> None:
    """Clients prepare what a server prepares again: hiss beyond the codec's rate hides no end of a note, nor
    does silence an offset."""
    hiss = 0.016 * np.random.default_rng(0).standard_normal(2 * 96_000).astype(np.float32)
    rooms = ((np.pad(note(1.0, 96_000), 48_000) + hiss, 96_000), (np.pad(note(1.0) + 0.05, RATE), RATE))
    for recording, rate in rooms:
        once = prepare(recording, rate)
        assert len(once) < 1.1 * RATE
        np.testing.assert_allclose(prepare(once), once, atol=1e-6)


@pytest.mark.parametrize("rate", [8000, 44_100, 96_000])
def test_long_recordings_are_cut_and_resampled(rate: int) -> None:
    t = np.arange(5 * rate) / rate
    prepared = prepare(np.sin(2 * np.pi * 440 * t).astype(np.float32), rate)
    assert len(prepared) == MAX_SECONDS * RATE
    assert np.abs(np.fft.rfft(prepared)).argmax() == 440 * MAX_SECONDS


def test_stereo_is_folded_to_its_mean() -> None:
    np.testing.assert_allclose(fold(np.stack([note(), 0.5 * note()], axis=1)), 0.75 * note(), rtol=1e-6)


def test_channels_that_cancel_leave_the_louder_one() -> None:
    np.testing.assert_array_equal(fold(np.stack([-0.9 * note(), note()], axis=1)), note())


@pytest.mark.parametrize(
    ("audio", "message"),
    [
        (np.zeros(0, np.float32), "the audio is empty"),
        (np.zeros((0, 2), np.float32), "the audio is empty"),
        (np.zeros(RATE, np.float32), "the audio is silent"),
        (note() * np.float32(1e-4), "the audio is silent"),
        (note()[:1500], r"0\.031 s of sound; 0\.05 s at least"),
        (np.pad(note()[:900], (0, RATE)), r"0\.029 s of sound; 0\.05 s at least"),
        (np.append(note(), np.float32(np.nan)), "not numbers"),
        (np.append(note(), np.float32(np.inf)), "not numbers"),
        (note().astype(np.float64) * 1e300, "not numbers"),
        (np.zeros((2, RATE), np.float32), r"shape \[2, 48000\].*\[samples, channels\]"),
        (np.zeros((RATE, 0), np.float32), r"shape \[48000, 0\]"),
        (np.zeros((2, 2, 2), np.float32), r"shape \[2, 2, 2\]"),
        (np.float32(0.5), r"shape \[\]"),
        (note().astype(complex), "audio of type complex"),
        (np.array(["a", "b"]), "audio of type <U1"),
    ],
)
def test_what_holds_no_note_is_refused_in_one_line(audio: Any, message: str) -> None:
    with warnings.catch_warnings(), pytest.raises(AudioError, match=message) as caught:
        warnings.simplefilter("error")
        prepare(audio)
    assert "\n" not in str(caught.value)


def gliding(semitones: npt.NDArray[np.floating]) -> npt.NDArray[np.float32]:
    """A sound of harmonics whose pitch follows a curve [samples], in semitones above 220 Hz."""
    turns = np.cumsum(220.0 * 2.0 ** (semitones / 12)) / RATE
    return sum(0.3 / n * np.sin(2 * np.pi * n * turns) for n in range(1, 8)).astype(np.float32)


@pytest.mark.parametrize(
    ("curve", "expected"),
    [
        (lambda time: 0.0 * time, False),
        (lambda time: 0.5 * np.sin(12 * np.pi * time), False),  # vibrato
        (lambda time: np.clip(20.0 * (time - 0.5), 0.0, 2.0), False),  # a bend
        (lambda time: 12.0 * (time > 1.0), False),  # another octave is found
        (lambda time: 3.0 * np.sin(4 * np.pi * time), True),
        (lambda time: np.interp(time, np.arange(11) / 5, [0, 4, -3, 2, 5, -4, 0, 4, -2, 3, 0]), True),
    ],
)
def test_the_pitch_of_speech_wanders_and_that_of_a_note_does_not(
    curve: Callable[[npt.NDArray[np.floating]], npt.NDArray[np.floating]], expected: bool
) -> None:
    time = np.arange(2 * RATE) / RATE
    for noise in (0.0, 0.02):
        sound = gliding(curve(time)) + noise * np.random.default_rng(0).standard_normal(len(time))
        assert wanders(sound.astype(np.float32), RATE) is expected
    assert wanders(np.zeros(RATE, np.float32), RATE) is False


def test_what_wanders_is_like_nothing_on_the_map(bundle: Bundle) -> None:
    """A glide of a sound that is near while it is steady."""
    time = np.arange(RATE) / RATE
    encoder = TimbreEncoder(bundle, n_threads=1)
    sounds = [gliding(depth * np.sin(4 * np.pi * time)) for depth in (0.0, 4.0)]
    heard = [encoder.hear(sound, RATE) for sound in sounds]
    assert [each.near for each in heard] == [True, False] and heard[1].shares is not None


def test_transpositions_are_a_semitone_lower_and_higher() -> None:
    sound = np.sin(2 * np.pi * 440.0 * np.arange(RATE) / RATE).astype(np.float32)
    for each, semitones in zip(transpositions(sound, RATE), (-1, 1), strict=True):
        ratio = 2.0 ** (semitones / 12.0)
        assert len(each) == pytest.approx(RATE / ratio, rel=1e-4)
        loudest = np.abs(np.fft.rfft(each, 4 * RATE)).argmax() / 4
        assert loudest == pytest.approx(440.0 * ratio, abs=0.5)


def test_parts_are_the_first_and_the_last_of_what_stops_and_begins_again() -> None:
    sound = np.sin(2 * np.pi * 440.0 * np.arange(RATE) / RATE).astype(np.float32)
    pause, breath = np.zeros(RATE // 4, np.float32), np.zeros(RATE // 40, np.float32)
    phrase = np.concatenate([sound[: RATE // 2], pause, sound[: RATE // 3], pause, 0.5 * sound])
    assert [len(each) / RATE for each in parts(phrase, RATE)] == pytest.approx([0.5, 1.0], abs=0.03)
    for one in (sound, sound[:100], np.concatenate([sound, breath, sound]), np.append(sound, pause)):
        assert parts(one, RATE) == []
    for no_part in (0.05 * sound, sound[: RATE // 10]):  # hardly heard, or a click
        assert parts(np.concatenate([sound, pause, no_part]), RATE) == []


def test_instruments_are_told_by_the_mean_of_a_recording_its_transpositions_and_its_parts(
    bundle: Bundle, encoder: TimbreEncoder, notes: list[npt.NDArray[np.float32]]
) -> None:
    graph = bundle.session(TIMBRE_ENCODER, inputs=["audio", "n_samples"], outputs=["timbre", "embedding"])
    twice = np.concatenate([notes[0], np.zeros(RATE // 5, np.float32), notes[1]])
    for note in (*notes, twice):
        sound = prepare_recording(note, RATE, bundle.manifest.codec, longest_seconds(bundle.manifest))
        found = []
        assert bool(parts(sound, RATE)) == (note is twice)
        for each in (sound, *transpositions(sound, RATE), *parts(sound, RATE)):
            found.append(graph.run(None, {"audio": each[None], "n_samples": np.array([len(each)])}))
        mean = np.mean([embedding[0] for _, embedding in found], axis=0)
        heard = encoder.hear(note, RATE)
        np.testing.assert_allclose(np.asarray(heard.embedding), mean / np.linalg.norm(mean), atol=1e-4)
        assert distance(heard.heard_at, found[0][0][0]) < 1e-4  # the point is the note's own
        assert np.abs(mean / np.linalg.norm(mean) - found[0][1][0]).max() > 1e-3


def test_references_of_another_width_are_told(tiny_bundle: Path) -> None:
    bundle = Bundle.open(tiny_bundle)
    assert bundle.timbre_references is not None
    for each in bundle.timbre_references.references:
        del each.embedding[-1]
    with pytest.raises(BundleError, match=r"references of \d+ numbers, the encoder's embeddings have"):
        TimbreEncoder(bundle, n_threads=1)
