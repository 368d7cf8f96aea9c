"""Notes whose timbre moves while they sound: along a path that the request gives, and played live."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Queue
from typing import Any

import grpc
import numpy as np
import numpy.typing as npt
import pytest
from bundle_variants import changed_manifest, holding
from server_process import ServerProcess

import timbrel
from timbrel_bundle.bundle import Bundle
from timbrel_bundle.request_fields import MAX_PATH_POINTS
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb
from timbrel_protos.timbrel.v1 import synthesizer_pb2_grpc as pb_grpc

StartServer = Callable[..., ServerProcess]

HERE, THERE = (0.1, 0.2), (-0.5, 0.3)
AT_SECONDS = 0.8


@pytest.fixture
def client(server_address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[timbrel.Client]:
    """A client with a cache of its own."""
    monkeypatch.setenv("TIMBREL_CACHE", str(tmp_path / "cache"))
    with timbrel.Client(server_address) as opened:
        yield opened


@pytest.fixture(scope="module")
def patient_bundle(tiny_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny bundle, whose keys are held on: a note that is played does not end before what is done to it
    has come about, however long that takes."""
    return holding(tiny_bundle, tmp_path_factory.mktemp("holding") / "bundle", hold_frames=60)


@pytest.fixture(scope="module")
def rows(tiny_bundle: Path) -> int:
    """Rows of a header: the frames without sound."""
    return Bundle.open(tiny_bundle).manifest.codec.lead_frames


@pytest.fixture(scope="module")
def moving(tiny_bundle: Path) -> npt.NDArray[np.bool_]:
    """The codebooks that go on with codes of their own: the fundamental's."""
    codec = Bundle.open(tiny_bundle).manifest.codec
    return np.array(codec.hold) == codec.codebook_size


def test_a_note_takes_on_the_header_of_where_it_goes(
    client: timbrel.Client, rows: int, moving: npt.NDArray[np.bool_]
) -> None:
    path = [(0.0, HERE), (AT_SECONDS, HERE), (AT_SECONDS, THERE)]
    here, there, moved = (client.generate(way, 60, seconds=1.5, seed=3) for way in (HERE, THERE, path))
    assert moved.path == tuple(path) and moved.timbre == HERE
    jump = rows + round(AT_SECONDS * client.model().frame_rate)
    assert np.array_equal(moved.codes[:jump], here.codes[:jump])
    assert np.array_equal(moved.codes[:, moving], here.codes[:, moving])
    for frame in range(jump, jump + rows):
        assert np.array_equal(moved.codes[frame, ~moving], there.codes[frame % rows, ~moving])
    begin = round(AT_SECONDS * here.sample_rate)
    later = slice(begin + here.sample_rate // 4, begin + here.sample_rate // 2)
    assert np.allclose(moved.audio[: begin - 1000], here.audio[: begin - 1000], atol=1e-4)
    assert spectral_distance(moved.audio[later], there.audio[later]) < 0.3 * spectral_distance(
        here.audio[later], there.audio[later]
    )


def spectral_distance(one: npt.NDArray[np.float32], other: npt.NDArray[np.float32]) -> float:
    """The mean difference in dB of two sounds' spectra, in bands of 100 Hz up to 5 kHz."""

    def levels(sound: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
        power = np.abs(np.fft.rfft(sound * np.hanning(len(sound)))) ** 2
        return 10 * np.log10(power[: 50 * (len(power) // 240)].reshape(50, -1).mean(axis=1) + 1e-12)

    return float(np.abs(levels(one) - levels(other)).mean())


def test_a_way_is_gone_in_pieces_and_comes_again_with_its_seed(
    client: timbrel.Client, rows: int, moving: npt.NDArray[np.bool_]
) -> None:
    path = [(0.2, HERE), (1.0, THERE)]
    request = timbrel.NoteRequest(path, 60, seconds=1.5, seed=4)
    alone = client.generate(path, 60, seconds=1.5, seed=4)
    batched, again = client.generate_many([request, request])
    assert np.array_equal(alone.codes, batched.codes) and np.array_equal(alone.codes, again.codes)
    here, there = (client.generate(point, 60, seconds=1.5, seed=4) for point in (HERE, THERE))
    rate = client.model().frame_rate
    begin, end = (rows + round(seconds * rate) for seconds in (0.2, 1.0))
    assert np.array_equal(alone.codes[:begin], here.codes[:begin])
    changes = (alone.codes[begin:end, ~moving] != here.codes[begin:end, ~moving]).any(axis=1)
    assert changes.mean() > 0.5  # it is under way all the time
    assert np.array_equal(alone.codes[end:, ~moving], here.codes[end:, ~moving])
    said = {n % rows: alone.codes[n, ~moving] for n, changed in enumerate(changes, begin) if changed}
    assert all(np.array_equal(said[row], there.codes[row, ~moving]) for row in range(rows))


def test_a_key_that_is_down_moves_where_it_is_sent(
    patient_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start_server: StartServer
) -> None:
    monkeypatch.setenv("TIMBREL_CACHE", str(tmp_path / "cache"))
    with timbrel.Client(start_server(bundle=patient_bundle).address) as client:
        plain = client.generate(HERE, 60, seconds=50.0, seed=5).audio
        with client.play(lead_seconds=0.05) as player:
            note = player.note_on(HERE, 60, seed=5)
            heard = np.concatenate([next(note) for _ in range(3)])
            note.move(THERE)
            while len(heard) < first_difference(heard, plain) + client.model().sample_rate // 2:
                heard = np.append(heard, next(note))
            note.off()
            heard = np.concatenate([heard, *note])
        held, there = (
            client.generate(point, 60, seconds=note.held_seconds or 0.0, seed=5) for point in (HERE, THERE)
        )
        frame_rate = client.model().frame_rate
    left_out = len(held.audio) - len(heard)  # what was written ahead of a late reader when the key went up
    assert left_out >= 0 and left_out % round(held.sample_rate / frame_rate) == 0
    end = round((note.held_seconds or 0.0) * held.sample_rate)
    last = slice(end - held.sample_rate // 5, end)
    still = held.audio[last]
    moved = heard[last.start - left_out : last.stop - left_out]
    assert spectral_distance(moved, there.audio[last]) < 0.5 * spectral_distance(still, there.audio[last])


def first_difference(heard: npt.NDArray[np.float32], plain: npt.NDArray[np.float32]) -> int:
    """The first sample that is another; all are alike before the last where there is none."""
    differs = np.abs(heard - plain[: len(heard)]) > 1e-3
    return int(differs.argmax()) if differs.any() else len(heard)


def test_all_keys_move_together_and_a_drag_may_be_fast(client: timbrel.Client) -> None:
    client.prepare()
    with client.play(lead_seconds=0.05) as player:
        notes = [player.note_on(HERE, pitch, seed=1) for pitch in (50, 57)]
        for note in notes:
            next(note)
        for step in range(60):
            player.move((0.1 - 0.01 * step, 0.2))
        sounds = []
        for note in notes:
            note.off()
            sounds.append(sum(len(chunk) for chunk in note))
    assert all(sounds)


def test_a_way_of_a_day_costs_no_more_than_what_sounds_of_it(client: timbrel.Client) -> None:
    """Its steps are worked out as the note comes to them, and of points at one moment the last counts."""
    slow = client.generate([(0.0, HERE), (86_400.0, THERE)], 60, seconds=0.3, seed=1)
    still = client.generate(HERE, 60, seconds=0.3, seed=1)
    assert len(slow.codes) == len(still.codes)
    crowd = [(0.2, (0.01 * n, 0.0)) for n in range(MAX_PATH_POINTS - 1)] + [(0.2, THERE)]
    jump = client.generate([(0.0, HERE), (0.2, HERE), (0.2, THERE)], 60, seconds=0.6, seed=1)
    crowded = client.generate([(0.0, HERE), (0.2, HERE), *crowd[2:]], 60, seconds=0.6, seed=1)
    assert np.array_equal(crowded.codes, jump.codes)


@pytest.mark.parametrize(
    "path, fault",
    [
        ([(0.0, HERE), (1.0, (2.0, 0.0))], "lies 2 from the centre"),
        ([(1.0, HERE), (0.5, THERE)], "points are given in order"),
        ([(float("nan"), HERE)], "points are given in order"),
        ([(0.0, HERE), (1e300, THERE)], "not within 0 to 86400 s"),
        ([(0.01 * n, HERE) for n in range(MAX_PATH_POINTS + 1)], f"up to {MAX_PATH_POINTS} are allowed"),
        ([(0.0, "Nonesuch")], "Nonesuch"),
    ],
)
def test_a_path_that_cannot_be_is_refused(client: timbrel.Client, path: Any, fault: str) -> None:
    with pytest.raises(timbrel.InvalidRequestError, match=fault):
        client.generate(path, 60)


def test_a_move_that_cannot_be_is_refused(client: timbrel.Client) -> None:
    with client.play() as player:
        note = player.note_on(HERE, 60, seconds=0.2, seed=1)
        with pytest.raises(timbrel.InvalidRequestError, match="from the centre"):
            note.move((1.0, 1.0))
        assert len(list(note)) > 0


def test_one_note_that_cannot_move_does_not_keep_the_others(
    patient_bundle: Path, tmp_path: Path, start_server: StartServer
) -> None:
    still = changed_manifest(
        patient_bundle, tmp_path / "bundle", lambda manifest: manifest.codec.ClearField("moves")
    )
    server = start_server("--bundle", f"still={still}", bundle=patient_bundle)
    note = pb.GenerateRequest(timbre=pb.Timbre(x=HERE[0], y=HERE[1]), pitch=60, seed=1)
    there = pb.Move(timbre=pb.Timbre(x=THERE[0], y=THERE[1]), all=True)
    with grpc.insecure_channel(server.address) as channel:
        stub: Any = pb_grpc.SynthesizerStub(channel)
        asked: Queue[pb.PlayRequest | None] = Queue()
        for number, bundle in ((1, "still"), (2, "")):
            on = pb.NoteOn(note=note)
            on.note.bundle = bundle
            asked.put(pb.PlayRequest(id=number, note_on=on))
        asked.put(pb.PlayRequest(id=3, move=there))
        told: list[pb.PlayResponse] = []
        n_frames, is_closed = 0, False
        for each in stub.Play(iter(asked.get, None), timeout=60):
            told.append(each)
            # Keys go up with the stream: once the one has been refused, and the other has had time to move.
            is_refused = any(one.HasField("refusal") for one in told)
            n_frames += each.reply.codes.n_frames if is_refused and each.id == 2 else 0
            if n_frames > 20 and not is_closed:
                asked.put(None)
                is_closed = True
        codes = {n: b"".join(each.reply.codes.data for each in told if each.id == n) for n in (1, 2)}
        for number in (1, 2):
            [note.seconds] = (
                each.reply.held_seconds for each in told if each.id == number and each.reply.finish_reason
            )
            alone = b"".join(reply.codes.data for reply in stub.Generate(note))
            assert (codes[number] == alone) == (number == 1)
    (refusal,) = (each.refusal for each in told if each.HasField("refusal"))
    assert "keep their timbre" in refusal.message


def test_notes_of_a_bundle_that_cannot_keep_their_timbre(tiny_bundle: Path, tmp_path: Path) -> None:
    bundle = changed_manifest(
        tiny_bundle, tmp_path / "bundle", lambda manifest: manifest.codec.ClearField("moves")
    )
    server = ServerProcess(bundle)
    try:
        with timbrel.Client(server.address) as client:
            with pytest.raises(timbrel.InvalidRequestError, match="keep their timbre"):
                client.generate([(0.0, HERE), (1.0, THERE)], 60)
            with (
                client.play() as player,
                pytest.raises(timbrel.InvalidRequestError, match="keep their timbre"),
            ):
                player.move(THERE)
    finally:
        server.close()
