"""Locating recordings: a real client, a real server, real files."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import numpy.typing as npt
import pytest
import soundfile
import soxr
from data.make_tiny_bundle import sample_note
from google.rpc import error_details_pb2
from grpc_status import rpc_status

import timbrel
from timbrel.cli import main
from timbrel_bundle.bundle import Bundle
from timbrel_bundle.codec import CodecDecoder
from timbrel_bundle.layout import TIMBRE_REFERENCES
from timbrel_bundle.manifest import bundle_hash
from timbrel_bundle.timbre_encoder import TimbreEncoder
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb
from timbrel_protos.timbrel.v1 import synthesizer_pb2_grpc as pb_grpc

RATE = 48_000
PATIENCE_SECONDS = 60.0
SEEDS = (3, 9)
"""Of notes whose first and second instrument have shares far apart."""
NEAR = 0.02
"""On the map, where the two notes lie 0.2 apart."""


@pytest.fixture(scope="module")
def notes(tiny_bundle: Path) -> tuple[npt.NDArray[np.float32], ...]:
    """Two notes of opposite timbres."""
    decoder = CodecDecoder(Bundle.open(tiny_bundle), n_threads=1)
    return tuple(decoder.decode(sample_note(np.random.default_rng(seed), 34).codes) for seed in SEEDS)


@pytest.fixture(scope="module")
def client(server_address: str) -> Iterator[timbrel.Client]:
    with timbrel.Client(server_address) as opened:
        yield opened


@pytest.fixture(scope="module")
def stub(server_address: str) -> Iterator[Any]:
    with grpc.insecure_channel(server_address) as channel:
        yield pb_grpc.SynthesizerStub(channel)


def recording_of(note: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """The note as someone might have recorded it: stereo, 44.1 kHz, quieter, after half a second: [S, 2]."""
    left = soxr.resample(0.02 * note, RATE, 44_100)
    return np.pad(np.stack([left, 0.5 * left], axis=1), ((22_050, 11_025), (0, 0)))


class TestClient:
    def test_a_recording_lies_where_the_encoder_puts_it(
        self, client: timbrel.Client, notes: Any, tiny_bundle: Path
    ) -> None:
        encoder = TimbreEncoder(Bundle.open(tiny_bundle), n_threads=1)
        for note in notes:
            located = client.locate(note, RATE)
            assert math.dist(located.timbre, encoder.locate(note, RATE)) < 1e-4
        assert math.dist(*(client.locate(note, RATE).timbre for note in notes)) > 10 * NEAR

    def test_the_nearest_instruments_are_named(self, client: timbrel.Client, notes: Any) -> None:
        located = client.locate(notes[0], RATE)
        by_name = {instrument.name: instrument for instrument in client.timbre_map()}
        assert {each.name for each in located.nearest} == set(by_name)
        shares = [each.share for each in located.nearest]
        assert shares == sorted(shares, reverse=True) and sum(shares) == pytest.approx(1.0, abs=1e-5)
        assert located.near is True
        for each in located.nearest:
            assert (each.family, each.timbre) == (by_name[each.name].family, by_name[each.name].timbre)
            assert each.distance == pytest.approx(math.dist(each.timbre, located.timbre), abs=1e-6)
        assert client.locate(notes[0], RATE, n_nearest=2).nearest == located.nearest[:2]

    def test_nothing_is_near_what_is_no_note(self, client: timbrel.Client) -> None:
        located = client.locate(np.random.default_rng(0).standard_normal(RATE), RATE)
        assert located.near is False

    def test_a_bundle_without_references_says_nothing_of_shares(
        self, tiny_bundle: Path, tmp_path: Path, notes: Any
    ) -> None:
        bundle = tmp_path / "older"
        shutil.copytree(tiny_bundle, bundle)
        content = json.loads((bundle / "manifest.json").read_text())
        content["files"] = [each for each in content["files"] if each["name"] != TIMBRE_REFERENCES]
        content["bundle_hash"] = bundle_hash(
            [pb.BundleFile(name=each["name"], sha256=each["sha256"]) for each in content["files"]]
        )
        (bundle / "manifest.json").write_text(json.dumps(content))
        heard = TimbreEncoder(Bundle.open(bundle), n_threads=1).hear(notes[0], RATE)
        assert heard.shares is heard.near is None and heard.timbre == heard.heard_at

    def test_how_it_was_recorded_hardly_matters(self, client: timbrel.Client, notes: Any) -> None:
        for note in notes:
            located = client.locate(recording_of(note), 44_100)
            assert math.dist(located.timbre, client.locate(note, RATE).timbre) < NEAR

    def test_what_was_located_can_be_played(self, client: timbrel.Client, notes: Any) -> None:
        note = client.generate(client.locate(notes[0], RATE).timbre, seconds=0.2, seed=1)
        assert len(note.codes) > 0
        assert math.hypot(*client.locate(note.audio, note.sample_rate).timbre) <= 1.0 + 1e-6

    def test_many_at_once_are_each_as_alone(self, client: timbrel.Client, notes: Any) -> None:
        alone = [client.locate(note, RATE).timbre for note in notes]
        with ThreadPoolExecutor(24) as pool:  # more than the server lets wait: some are told to come back
            together = list(pool.map(lambda i: client.locate(notes[i % 2], RATE).timbre, range(24)))
        assert together == [alone[i % 2] for i in range(24)]

    def test_notes_go_on_while_recordings_are_located(self, client: timbrel.Client, notes: Any) -> None:
        alone = client.generate("Violin", seconds=0.5, seed=1).codes
        with ThreadPoolExecutor(4) as pool:
            located = [pool.submit(client.locate, note, RATE) for note in notes * 2]
            np.testing.assert_array_equal(client.generate("Violin", seconds=0.5, seed=1).codes, alone)
            assert all(future.result().nearest for future in located)


class TestWire:
    def failure(self, stub: Any, **fields: Any) -> Any:
        with pytest.raises(grpc.RpcError) as caught:
            stub.Locate(pb.LocateRequest(**fields), timeout=PATIENCE_SECONDS)
        return caught.value

    def test_any_caller_may_send_any_rate(self, stub: Any, notes: Any, client: timbrel.Client) -> None:
        sound = soxr.resample(notes[0], RATE, 44_100)
        asked = pb.LocateRequest(audio=sound.astype("<f4").tobytes(), sample_rate=44_100)
        reply = stub.Locate(asked, timeout=PATIENCE_SECONDS)
        assert math.dist((reply.timbre.x, reply.timbre.y), client.locate(notes[0], RATE).timbre) < NEAR
        assert reply.bundle_hash == client.model().bundle_hash
        assert len(reply.neighbours) == len(client.instruments())

    def test_the_largest_recording_is_taken_and_cut(self, stub: Any, notes: Any) -> None:
        sound = np.tile(notes[0], 100)[: (3 << 20) // 4]
        asked = pb.LocateRequest(audio=sound.astype("<f4").tobytes(), sample_rate=RATE)
        assert stub.Locate(asked, timeout=PATIENCE_SECONDS).neighbours

    @pytest.mark.parametrize(
        ("changes", "fields", "word"),
        [
            ({"audio": b""}, ["audio"], "missing"),
            ({"audio": b"abc"}, ["audio"], "multiple of 4"),
            ({"audio": bytes((3 << 20) + 4)}, ["audio"], "too many"),
            ({"audio": bytes(4 * RATE)}, ["audio"], "silent"),
            ({"audio": np.resize(np.array([0.5, -0.5], "<f4"), 100).tobytes()}, ["audio"], "0.05 s"),
            ({"audio": np.full(RATE, np.nan, "<f4").tobytes()}, ["audio"], "NaN"),
            ({"sample_rate": 0}, ["sample_rate"], "8000"),
            ({"sample_rate": 2**32 - 1}, ["sample_rate"], "768000"),
            ({"pitch": 0.0}, ["pitch"], "127"),
            ({"pitch": float("nan"), "sample_rate": 1}, ["sample_rate", "pitch"], "nan"),
        ],
    )
    def test_bad_fields_are_named(
        self, stub: Any, changes: dict[str, Any], fields: list[str], word: str
    ) -> None:
        good = {"audio": np.full(RATE, 0.5, "<f4").tobytes(), "sample_rate": RATE}
        error = self.failure(stub, **{**good, **changes})
        assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert word in error.details() and "\n" not in error.details()
        detail = error_details_pb2.BadRequest()
        assert rpc_status.from_call(error).details[0].Unpack(detail)
        assert [violation.field for violation in detail.field_violations] == fields

    def test_another_bundle_than_expected_is_a_failed_precondition(self, stub: Any) -> None:
        error = self.failure(stub, bundle_hash="00" * 32)
        assert error.code() is grpc.StatusCode.FAILED_PRECONDITION


class TestCommand:
    @pytest.fixture(autouse=True)
    def environment(self, server_address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("TIMBREL_TOKEN", "TIMBREL_BUNDLE", "TIMBREL_TRACEBACK"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("TIMBREL_SERVER", server_address)
        monkeypatch.chdir(tmp_path)

    @pytest.fixture
    def run(self, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
        """Runs `timbrel locate` with these arguments: exit status, standard output, standard error."""

        def call(*arguments: str) -> tuple[int, str, str]:
            try:
                status = main(["locate", *arguments])
            except SystemExit as end:
                status = int(end.code or 0)
            captured = capsys.readouterr()
            return status, captured.out, captured.err

        return call

    def test_prints_the_point_and_the_nearest(self, run: Any, notes: Any, client: timbrel.Client) -> None:
        soundfile.write("note.wav", recording_of(notes[0]), 44_100, subtype="FLOAT")
        status, out, error = run("note.wav", "--nearest", "2")
        assert (status, error) == (0, "")
        located = client.locate(recording_of(notes[0]), 44_100)
        lines = out.splitlines()
        assert lines[0] == "note.wav: ({:+.3f}, {:+.3f})".format(*located.timbre)
        assert [line.split("  ")[1] for line in lines[1:]] == [each.name for each in located.nearest[:2]]

    def test_prints_json(self, run: Any, notes: Any) -> None:
        soundfile.write("note.flac", 0.02 * notes[0], RATE, subtype="PCM_24")
        status, out, _ = run("note.flac", "--json")
        assert status == 0
        found = json.loads(out)
        assert len(found["timbre"]) == 2
        assert {"name", "family", "timbre", "distance", "share"} == found["nearest"][0].keys()
        assert found["near"] is True

    def test_says_plainly_that_nothing_is_near(self, run: Any) -> None:
        soundfile.write("noise.wav", 0.1 * np.random.default_rng(0).standard_normal(RATE), RATE)
        assert run("noise.wav")[:2] == (0, "noise.wav: nothing on this map is near\n")
        assert json.loads(run("noise.wav", "--json")[1])["near"] is False

    def test_names_of_files_do_not_act_on_the_terminal(self, run: Any, notes: Any) -> None:
        name = "a\x1b]0;b\a.wav"
        soundfile.write(name, np.concatenate([notes[0][:RATE], np.zeros(RATE, np.float32)]), RATE)
        _, out, error = run(name, "--hop", "1")
        assert out.startswith("a?]0;b?.wav at 0.00 s: ") and error.startswith("a?]0;b?.wav at 1.00 s: ")

    def test_of_many_files_those_that_can_be_read_are_located(self, run: Any, notes: Any) -> None:
        for name in ("one.wav", "two.wav"):
            soundfile.write(name, notes[0], RATE, subtype="FLOAT")
        Path("text.wav").write_text("no sound")
        status, out, error = run("one.wav", "text.wav", "two.wav", "--nearest", "0")
        assert status == 2 and [line.partition(":")[0] for line in out.splitlines()] == ["one.wav", "two.wav"]
        assert error.startswith("timbrel: text.wav: ") and error.count("\n") == 1

    def test_a_pattern_that_the_shell_has_left_is_of_many_files(self, run: Any, notes: Any) -> None:
        """As Windows's shells leave it."""
        for name in ("two.wav", "one.wav", "three.flac"):
            soundfile.write(name, notes[0], RATE)
        status, out, _ = run("*.wav", "--nearest", "0")
        assert status == 0 and [line.partition(":")[0] for line in out.splitlines()] == ["one.wav", "two.wav"]
        status, _, error = run("*.mp3")
        assert status == 2 and error.startswith("timbrel: *.mp3: ")

    def test_a_long_recording_is_located_piece_by_piece(self, run: Any, notes: Any) -> None:
        rest = np.zeros(RATE, np.float32)
        soundfile.write("long.wav", np.concatenate([notes[0][:RATE], rest, notes[0][:RATE]]), RATE)
        seconds = len(notes[0][:RATE]) / RATE
        status, out, error = run("long.wav", "--hop", f"{seconds:g}", "--json")
        starts = [each["start_seconds"] for each in json.loads(out)["locations"]]
        assert status == 0 and starts[0] == 0.0 and len(starts) >= 2
        assert error.startswith("long.wav at ") and "silent" in error

    def test_a_file_none_of_whose_pieces_holds_a_note_is_status_2(self, run: Any) -> None:
        soundfile.write("rest.wav", np.zeros(3 * RATE), RATE)
        status, out, error = run("rest.wav", "--hop", "1")
        assert (status, out) == (2, "") and error.count("is silent") == 3

    def test_channels_that_cancel_do_not_silence_a_file(self, run: Any, notes: Any) -> None:
        soundfile.write("wide.wav", np.stack([notes[0], -notes[0]], axis=1), RATE, subtype="FLOAT")
        assert run("wide.wav")[0] == 0

    @pytest.mark.parametrize(
        ("content", "arguments", "word"),
        [
            (None, [], "no such file"),
            (b"", [], "empty"),
            (b"this is no sound", [], "FLAC, Ogg and MP3 files are"),
            (np.zeros(RATE), [], "silent"),
            (np.zeros(0), [], "holds no sound"),
            (np.resize([0.5, -0.5], 100), [], "0.05 s"),
            (np.full(RATE, np.nan), [], "NaN"),
            (np.full(RATE, 0.5), ["--nearest", "-1"], "nearest"),
            (np.full(RATE, 0.5), ["--nearest", "-1", "--hop", "0.1"], "nearest"),
            (np.full(RATE, 0.5), ["--hop", "1e308"], "hop: must be 0.05 to 3600 seconds"),
            (np.full(RATE, 0.5), ["--hop", "inf"], "hop: must be 0.05 to 3600 seconds"),
            (np.full(RATE, 0.5), ["--hop", "0.01"], "hop: must be 0.05 to 3600 seconds"),
        ],
    )
    def test_bad_input_is_one_line_and_status_2(
        self, run: Any, content: Any, arguments: list[str], word: str
    ) -> None:
        if isinstance(content, bytes):
            Path("note.wav").write_bytes(content)
        elif content is not None:
            soundfile.write("note.wav", content, RATE, subtype="FLOAT")
        status, out, error = run("note.wav", *arguments)
        assert (status, out) == (2, "")
        assert error.startswith("timbrel: ") and error.count("\n") == 1
        assert word in error

    @pytest.mark.parametrize("arguments", [[], ["--hop", "0.2"]])
    def test_a_sample_rate_out_of_range_is_refused(self, run: Any, arguments: list[str]) -> None:
        """Once, and not for each piece."""
        soundfile.write("slow.wav", np.full(4000, 0.5), 4000)
        status, _, error = run("slow.wav", *arguments)
        assert status == 2
        assert "sample_rate: 4000" in error and error.count("\n") == 1
