"""The explorer's HTTP side: the page's files, notes to keep, recordings to locate, and who may ask."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import io
import json
import shutil
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import hostile_server
import numpy as np
import pytest
import soundfile
from explorer import Answer, Explorer, exploring, require_explore
from in_process_server import run, serving, slow_steps, wait_until_idle
from waiting import wait_for_async

from timbrel.client import Client
from timbrel.explore.parameters import recording_request
from timbrel.explore.static import WebFolder
from timbrel.scala import parse_tuning
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb
from timbrel_server.app import App

Test = Callable[[App, Explorer], Awaitable[None]]

TOKEN = "sesame-7f3a91"
NOTE_QUERY = "x=0.1&y=0.2&pitch=69&seconds=0.5&seed=3"


@pytest.fixture(autouse=True)
def explore_extra() -> None:
    require_explore()


@pytest.fixture
def web(tmp_path: Path) -> Path:
    folder = tmp_path / "web"
    (folder / "deep").mkdir(parents=True)
    (folder / "index.html").write_text("<!doctype html><title>timbrel</title>" + "<p>words</p>" * 100)
    (folder / "deep" / "app.js").write_text("export const answer = 42;\n" * 50)
    (folder / "icon.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'/>")
    (folder / "notes.txt").write_text("not for the page")
    (tmp_path / "secret.js").write_text("secret")
    (folder / "deep" / "link.js").symlink_to(tmp_path / "secret.js")
    return folder


@contextlib.asynccontextmanager
async def explored(bundle: Path, **options: Any) -> AsyncIterator[tuple[App, Explorer]]:
    async with (
        serving(bundle, token=TOKEN, **options) as (app, _, _channel),
        exploring(app.address, token=TOKEN) as explorer,
    ):
        yield app, explorer


def explore(bundle: Path, test: Test, **options: Any) -> None:
    async def whole() -> None:
        async with explored(bundle, **options) as (app, explorer):
            await test(app, explorer)
            await wait_until_idle(app)

    run(whole)


def with_page(web: Path, test: Callable[[Explorer], Awaitable[None]]) -> None:
    """Runs a test of the page's files, for which no server is needed."""

    async def whole() -> None:
        async with exploring("127.0.0.1:9", web=web) as explorer:
            await test(explorer)

    run(whole)


def wav(audio: np.ndarray[Any, Any], rate: int, kind: str = "WAV") -> bytes:
    content = io.BytesIO()
    soundfile.write(content, audio, rate, format=kind)
    return content.getvalue()


def tone(seconds: float = 1.0, rate: int = 44_100) -> np.ndarray[Any, Any]:
    time = np.arange(round(seconds * rate)) / rate
    return (0.3 * np.sin(2 * np.pi * 440 * time) * np.exp(-2 * time)).astype(np.float32)


def test_what_is_served(tiny_bundle: Path) -> None:
    async def test(app: App, explorer: Explorer) -> None:
        model = (await explorer.ask("/api/model")).json
        assert model["name"] == "tiny" and len(model["bundle_hash"]) == 64
        assert (model["sample_rate"], model["frame_rate"]) == (48000, 37.5)
        assert (model["pitch"], model["velocity"], model["seconds"]) == ([36, 96], [1, 127], [0.1, 2.4])
        assert set(model["sampling"]) == {"temperature", "top_k", "top_p"}
        assert model["server"] == app.address and model["n_slots"] == 32
        points = (await explorer.ask("/api/map")).json["points"]
        violin = next(each for each in points if each["instrument"] == "Violin")
        programs = [each.pop("programs") for each in points]
        assert violin == {
            **{"instrument": "Violin", "family": "Strings", "x": 0.5, "y": 0.5},
            **{"pitch_min": 36, "pitch_max": 96},
        }
        assert {40, 41} <= set(programs[points.index(violin)])
        assert sorted(program for each in programs for program in each) == list(range(119))
        assert (await explorer.ask("/api/health")).json == {"bridge": "ok", "server": "serving"}

    explore(tiny_bundle, test)


def test_a_note_to_keep_is_the_clients_note(
    tiny_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIMBREL_CACHE", str(tmp_path))

    def by_client(address: str) -> np.ndarray[Any, Any]:
        with Client(address, token=TOKEN) as client:
            return client.generate((0.1, 0.2), 69, seconds=0.5, seed=3).audio

    async def test(app: App, explorer: Explorer) -> None:
        expected = await asyncio.to_thread(by_client, app.address)
        for ending in ("wav", "flac"):
            answer = await explorer.ask(f"/api/note.{ending}?{NOTE_QUERY}")
            assert answer.status == 200 and answer.headers["content-type"] == f"audio/{ending}"
            assert answer.headers["content-disposition"] == (
                f'attachment; filename="timbrel_x0.100_y0.200_p069_v100_0.5s_seed3.{ending}"'
            )
            facts = soundfile.info(io.BytesIO(answer.body))
            assert (facts.format, facts.subtype) == (ending.upper(), "PCM_24")
            samples, rate = soundfile.read(io.BytesIO(answer.body))
            assert rate == 48000
            np.testing.assert_allclose(samples, np.clip(expected, -1, 1), atol=1e-4)

    explore(tiny_bundle, test)


def test_a_note_to_keep_is_bent_where_it_is_tuned_so(tiny_bundle: Path) -> None:
    async def test(_: App, explorer: Explorer) -> None:
        plain, bent = [
            soundfile.read(io.BytesIO((await explorer.ask(f"/api/note.wav?{NOTE_QUERY}{more}")).body))[0]
            for more in ("", "&cents=50")
        ]
        answer = await explorer.ask(f"/api/note.wav?{NOTE_QUERY}&cents=50")
        assert "_p069_v100+50c_" in answer.headers["content-disposition"]
        assert 1200 * np.log2(peak_hertz(bent) / peak_hertz(plain)) == pytest.approx(50, abs=8)

    explore(tiny_bundle, test)


def peak_hertz(audio: np.ndarray[Any, Any]) -> float:
    """The strongest frequency of 48,000 a second."""
    spectrum = np.abs(np.fft.rfft(audio * np.hanning(len(audio)), 2**20))
    return float(spectrum.argmax() * 48_000 / 2**20)


def test_a_scale_is_read_and_a_bad_one_refused_in_a_line(tiny_bundle: Path) -> None:
    scale = "!\nfifths\n 1\n!\n 3/2\n"
    refusals = {
        "[": "the body is no JSON",
        "{}": "the scale is no Scala scale",
        json.dumps({"scale": scale, "file": "/etc/passwd"}): "file: is no field here",
        json.dumps({"scale": 7}): "scale: 7 is no text",
        json.dumps({"scale": scale, "map": "x", "map_name": "a.kbm"}): "a.kbm, line 1: 'x' is no number",
    }

    async def test(_: App, explorer: Explorer) -> None:
        cents = (await explorer.ask("/api/tuning", "POST", json.dumps({"scale": scale}))).json["cents"]
        assert len(cents) == 128 and cents[61] == pytest.approx(601.955)
        for body, reason in refusals.items():
            status, code, message = (await explorer.ask("/api/tuning", "POST", body)).error
            assert (status, code) == (400, "invalid_request")
            assert reason in message and "\n" not in message, message
        large = json.dumps({"scale": scale + "!" * 2**19})
        too_large = (413, "invalid_request", "the scale is too large; 512 KiB at most are taken")
        assert (await explorer.ask("/api/tuning", "POST", large)).error == too_large

    explore(tiny_bundle, test)


def test_a_large_scale_keeps_no_note_waiting(tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is read beside the event loop that notes go through."""
    readers: list[threading.Thread] = []

    def overheard(*given: Any) -> list[float | None]:
        readers.append(threading.current_thread())
        return parse_tuning(*given)

    monkeypatch.setattr("timbrel.explore.app.parse_tuning", overheard)

    async def test(_: App, explorer: Explorer) -> None:
        scale = json.dumps({"scale": "!\nfifths\n 1\n!\n 3/2\n"})
        assert (await explorer.ask("/api/tuning", "POST", scale)).status == 200
        assert len(readers) == 1 and readers[0] is not threading.current_thread()

    explore(tiny_bundle, test)


def hold_up_reading(monkeypatch: pytest.MonkeyPatch) -> tuple[list[None], threading.Event]:
    """Has recordings wait while they are read: returns an entry for each, and what lets them go on."""
    reading: list[None] = []
    go_on = threading.Event()

    def slow(*given: Any) -> pb.LocateRequest:
        reading.append(None)
        go_on.wait()
        return recording_request(*given)

    monkeypatch.setattr("timbrel.explore.app.recording_request", slow)
    return reading, go_on


def test_recordings_that_are_given_up_are_counted_until_they_are_read(
    tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("timbrel.explore.app.MAX_RECORDINGS", 1)
    reading, go_on = hold_up_reading(monkeypatch)

    async def test(_: App, explorer: Explorer) -> None:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", explorer.port)
            head = f"POST /api/locate HTTP/1.1\r\nHost: {explorer.host}\r\nContent-Length: 4\r\n\r\n"
            writer.write(head.encode() + b"RIFF")
            await wait_for_async(lambda: reading, "the first to be read")
            writer.close()
            second = asyncio.create_task(explorer.ask("/api/locate", "POST", wav(tone(), 44_100)))
            for _ in range(50):  # the second is there, and waits
                await explorer.ask("/api/health")
            assert len(reading) == 1
        finally:
            go_on.set()
        assert (await second).status == 200

    explore(tiny_bundle, test)


def test_recordings_that_wait_are_no_more_than_may_be_held(
    tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("timbrel.explore.app.MAX_RECORDINGS", 1)
    monkeypatch.setattr("timbrel.explore.app.MAX_WAITING_RECORDINGS", 2)
    _, go_on = hold_up_reading(monkeypatch)

    async def test(_: App, explorer: Explorer) -> None:
        content = wav(tone(), 44_100)
        try:
            asked = [
                asyncio.create_task(explorer.ask("/api/locate", "POST", content)) for _ in range(1 + 2 + 1)
            ]
            await wait_for_async(lambda: any(each.done() for each in asked), "one to be refused")
            refused = next(each for each in asked if each.done()).result()
            assert refused.error[:2] == (503, "overloaded")
            assert "3 recordings are being located or wait already" in refused.error[2]
        finally:
            go_on.set()
        statuses = sorted([(await each).status for each in asked])
        assert statuses == [200, 200, 200, 503]
        assert (await explorer.ask("/api/locate", "POST", content)).status == 200

    explore(tiny_bundle, test)


def test_a_note_that_cannot_be_is_refused_in_one_line(tiny_bundle: Path) -> None:
    refusals = {
        "": "timbre: (None, None) is not a point",
        "x=0&y=0": "pitch: is missing",
        "x=0&y=0&pitch=5": "pitch: 5 is out of range; a MIDI note number of 36 to 96 is allowed",
        "x=a&y=0&pitch=60": "x: 'a' is no number",
        "x=nan&y=0&pitch=60": "timbre: (nan, 0) is not a point",
        "x=0&y=0&pitch=60.5": "pitch: '60.5' is no whole number",
        "x=0&y=0&pitch=60&loud=1": "loud: is no field here",
        "x=0&y=0&pitch=" + "9" * 5000: "pitch",
    }

    async def test(app: App, explorer: Explorer) -> None:
        for query, reason in refusals.items():
            status, code, message = (await explorer.ask(f"/api/note.wav?{query}")).error
            assert (status, code) == (400, "invalid_request"), query
            assert reason in message and "\n" not in message

    explore(tiny_bundle, test)


def test_a_download_that_is_given_up_frees_its_slot(tiny_bundle: Path) -> None:
    async def test(app: App, explorer: Explorer) -> None:
        engine = app.engine
        assert engine is not None
        with slow_steps():
            async with explorer.page() as page:
                await page.on(1, lead=0.05)
                await page.until(lambda: page.sound[1])
                _, writer = await asyncio.open_connection("127.0.0.1", explorer.port)
                asked = f"GET /api/note.wav?{NOTE_QUERY} HTTP/1.1\r\nHost: {explorer.host}\r\n\r\n"
                writer.write(asked.encode())
                await wait_for_async(lambda: engine.n_waiting, "the note to wait")
                writer.close()
                await wait_for_async(lambda: not engine.n_waiting, "the note to be gone")
                assert engine.n_occupied == 1

    explore(tiny_bundle, test, n_slots=1)


def test_a_note_without_end_is_given_up(tiny_bundle: Path) -> None:
    async def whole() -> None:
        with hostile_server.serving(tiny_bundle) as server:
            beginning, again = server.note()[0], pb.GenerateResponse(audio=bytes(2**18))
            replies = [beginning.SerializeToString(), *[again.SerializeToString()] * 200]
            server.answers["Generate"] = lambda _: replies
            async with exploring(server.address) as explorer:
                message = "the server sent more of a note than there can be"
                answer = await explorer.ask(f"/api/note.wav?{NOTE_QUERY}")
                assert answer.error == (502, "internal", message)
                async with explorer.page() as page:
                    await page.on(1, live=False)
                    assert (await page.told("error", id=1))["message"] == message

    run(whole)


def test_a_download_takes_no_body(tiny_bundle: Path) -> None:
    async def test(app: App, explorer: Explorer) -> None:
        status, code, message = (await explorer.ask(f"/api/note.wav?{NOTE_QUERY}", "GET", bytes(2**20))).error
        assert (status, code) == (413, "invalid_request")
        assert message == "the request's body is too large; 1 KiB at most are taken"

    explore(tiny_bundle, test)


def test_a_busy_server_is_told_of_with_when_to_come_again(tiny_bundle: Path) -> None:
    async def test(app: App, explorer: Explorer) -> None:
        with slow_steps():
            async with explorer.page() as page:
                for note_id in (1, 2):
                    await page.on(note_id, lead=0.05)
                    await wait_for_async(
                        lambda n=note_id: app.engine.n_occupied + app.engine.n_waiting == n,  # type: ignore[misc, union-attr]
                        "the note to be taken on",
                    )
                answer = await explorer.ask(f"/api/note.wav?{NOTE_QUERY}")
            assert answer.error[:2] == (503, "overloaded")
            assert int(answer.headers["retry-after"]) >= 1

    explore(tiny_bundle, test, n_slots=1, queue_capacity=1)


@pytest.mark.parametrize("kind", ["WAV", "FLAC", "OGG", "MP3"])
def test_a_recording_is_found_where_a_client_finds_it(tiny_bundle: Path, kind: str) -> None:
    content = wav(np.column_stack([tone(), tone()]), 44_100, kind)
    samples, rate = soundfile.read(io.BytesIO(content), dtype="float32", always_2d=True)

    def by_client(address: str) -> Any:
        with Client(address, token=TOKEN) as client:
            return client.locate(samples, rate)

    async def test(app: App, explorer: Explorer) -> None:
        answer = await explorer.ask("/api/locate", "POST", content)
        found = answer.json
        expected = await asyncio.to_thread(by_client, app.address)
        assert answer.status == 200
        assert (found["x"], found["y"]) == pytest.approx(expected.timbre, abs=1e-6)
        assert [each["instrument"] for each in found["nearest"]][:5] == [
            each.name for each in expected.nearest
        ]
        assert set(found["nearest"][0]) == {"instrument", "family", "x", "y", "distance", "share"}
        assert found["near"] is expected.near

    explore(tiny_bundle, test)


def test_a_note_that_was_rendered_is_located_by_its_file(tiny_bundle: Path) -> None:
    async def test(app: App, explorer: Explorer) -> None:
        note = (await explorer.ask(f"/api/note.flac?{NOTE_QUERY}")).body
        found = (await explorer.ask("/api/locate", "POST", note)).json
        assert np.hypot(found["x"], found["y"]) <= 1 + 1e-6 and "pitch" not in found

    explore(tiny_bundle, test)


def test_what_is_no_recording_is_refused_in_one_line(tiny_bundle: Path) -> None:
    refusals = {
        b"": "the file is empty",
        b"no sound at all" * 100: "this is no audio file that can be read",
        wav(tone(), 44_100)[:-2000]: "the file is cut short: the last 2000 bytes",
        wav(np.zeros(44_100), 44_100): "the audio is silent",
        wav(tone(0.01), 44_100): "s of sound; 0.05 s at least are needed",
        wav(tone(), 4_000): "4000 is out of range",
    }

    async def test(app: App, explorer: Explorer) -> None:
        for content, reason in refusals.items():
            status, code, message = (await explorer.ask("/api/locate", "POST", content)).error
            assert (status, code) == (400, "invalid_request"), reason
            assert reason in message and "\n" not in message

    explore(tiny_bundle, test)


def test_a_recording_that_is_too_large_is_not_held(
    tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("timbrel.explore.app.MAX_RECORDING_BYTES", 2**20)

    async def test(app: App, explorer: Explorer) -> None:
        status, code, message = (await explorer.ask("/api/locate", "POST", bytes(2**20 + 1))).error
        assert (status, code) == (413, "invalid_request")
        assert message == "the recording is too large; 1 MiB at most are taken"

    explore(tiny_bundle, test)


def test_a_recording_that_does_not_arrive_is_not_waited_for(
    tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("timbrel.explore.app.UPLOAD_SECONDS", 0.1)

    async def test(app: App, explorer: Explorer) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", explorer.port)
        head = f"POST /api/locate HTTP/1.1\r\nHost: {explorer.host}\r\nContent-Length: 1000\r\n\r\n"
        writer.write(head.encode() + b"RIFF")
        answer = await reader.readuntil(b"}}")
        assert answer.startswith(b"HTTP/1.1 504 ") and b"did not arrive within 0.1 seconds" in answer
        writer.close()

    explore(tiny_bundle, test)


def test_stalled_uploads_keep_no_other_up(tiny_bundle: Path) -> None:
    async def test(app: App, explorer: Explorer) -> None:
        head = f"POST /api/locate HTTP/1.1\r\nHost: {explorer.host}\r\nContent-Length: 100000\r\n\r\n"
        stalled = [await asyncio.open_connection("127.0.0.1", explorer.port) for _ in range(20)]
        for _, writer in stalled:
            writer.write(head.encode() + b"RIFF")
            await writer.drain()
        answers = [reader.readuntil(b"}}") for reader, _ in stalled[:8]]
        assert all(answer.startswith(b"HTTP/1.1 504 ") for answer in await asyncio.gather(*answers))
        status, _, message = (await explorer.ask("/api/locate", "POST", b"no recording")).error
        assert status == 400 and "no audio file" in message
        for _, writer in stalled:
            writer.close()

    explore(tiny_bundle, test)


def test_requests_that_never_end_make_room_and_are_not_waited_for(
    web: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("timbrel.explore.run.MAX_CONNECTIONS", 16)
    monkeypatch.setattr("timbrel.explore.run.REQUEST_SECONDS", 2.0)

    async def test(explorer: Explorer) -> None:
        peers = [await asyncio.open_connection("127.0.0.1", explorer.port) for _ in range(60)]
        for _, writer in peers:
            writer.write(b"GET / HTTP/1.1\r\nHost: ")
        assert (await explorer.ask("/")).status == 200
        for reader, _ in peers:  # the first made room, the last had their time
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
        for _, writer in peers:
            writer.close()

    with_page(web, test)


def test_hours_of_silence_in_a_small_file_are_not_unpacked(tiny_bundle: Path) -> None:
    audio = np.concatenate([tone(rate=8000), np.zeros(8000 * 3600, np.float32)])
    content = wav(audio, 8000, "FLAC")
    assert len(content) < 2**20

    async def test(app: App, explorer: Explorer) -> None:
        from timbrel.explore.parameters import MAX_RECORDING_SECONDS, decode_recording

        assert len(decode_recording(content)[0]) == MAX_RECORDING_SECONDS * 8000
        assert (await explorer.ask("/api/locate", "POST", content)).status == 200

    explore(tiny_bundle, test)


def test_the_page_and_its_assets(web: Path) -> None:
    async def test(explorer: Explorer) -> None:
        page = await explorer.ask("/")
        assert page.status == 200 and page.headers["content-type"] == "text/html; charset=utf-8"
        assert page.body == (web / "index.html").read_bytes()
        script = await explorer.ask("/static/deep/app.js", accept_encoding="br, gzip;q=0.8")
        assert script.headers["content-type"] == "text/javascript; charset=utf-8"
        assert script.headers["content-encoding"] == "gzip"
        assert gzip.decompress(script.body) == (web / "deep" / "app.js").read_bytes()
        assert (
            "content-encoding"
            not in (await explorer.ask("/static/deep/app.js", accept_encoding="gzip;q=0")).headers
        )
        assert (await explorer.ask("/favicon.ico")).headers["content-type"] == "image/svg+xml"
        for name in ("notes.txt", "../secret.js", "..%2fsecret.js", "deep/link.js", "", "%00", "deep"):
            answer = await explorer.ask(f"/static/{name}")
            assert answer.error[:2] == (404, "not_found"), name

    with_page(web, test)


def test_a_name_that_no_file_can_have_is_not_found(web: Path) -> None:
    async def test(explorer: Explorer) -> None:
        for name in ("a" * 300 + ".js", "a/" * 3000 + "b.js", "a%00.js", "%ff.js"):
            assert (await explorer.ask(f"/static/{name}")).error[:2] == (404, "not_found"), name[:9]

    with_page(web, test)


def test_a_name_beyond_the_page_s_folder_is_not_even_looked_at(
    web: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any site may have a browser ask for one, and Windows would log in at the machine that it names."""
    looked_at: list[Path] = []
    resolve = Path.resolve

    def resolved(path: Path, strict: bool = False) -> Path:
        looked_at.append(path)
        return resolve(path, strict)

    async def test(explorer: Explorer) -> None:
        monkeypatch.setattr(Path, "resolve", resolved)
        for name in ("//elsewhere/share/a.js", r"\\elsewhere\share\a.js", "C:/a.js", "C:a.js", "../a.js"):
            assert (await explorer.ask(f"/static/{name}")).status == 404, name
        assert looked_at == []
        assert (await explorer.ask("/static/deep/app.js")).status == 200 and looked_at

    with_page(web, test)


def test_a_method_that_is_not_taken_is_answered_with_those_that_are(web: Path) -> None:
    async def test(explorer: Explorer) -> None:
        answer = await explorer.ask("/api/locate", "PUT")
        assert answer.error[:2] == (405, "invalid_request")
        assert answer.headers["allow"] == "POST"

    with_page(web, test)


def test_what_has_not_changed_is_not_sent_again(web: Path) -> None:
    async def test(explorer: Explorer) -> None:
        first = await explorer.ask("/")
        etag = first.headers["etag"]
        assert first.headers["cache-control"] == "no-cache"
        again = await explorer.ask("/", if_none_match=f'"other", {etag}')
        assert (again.status, again.body) == (304, b"")
        (web / "index.html").write_text("<!doctype html><title>new</title>")
        changed = await explorer.ask("/", if_none_match=etag)
        assert changed.status == 200 and b"new" in changed.body and changed.headers["etag"] != etag

    with_page(web, test)


def test_a_page_is_known_by_all_of_its_files(web: Path) -> None:
    page = WebFolder(web)
    before = page.identity()
    moved = shutil.copytree(web, web.with_name("elsewhere"), symlinks=True)
    (moved / "deep" / ".app.js").write_text("left by an editor, and not served")
    assert page.identity() == before == WebFolder(moved).identity()
    (web / "deep" / "app.js").write_text("another")
    assert page.identity() not in ("", before)


def test_a_page_that_is_not_there_is_said_so(tmp_path: Path) -> None:
    async def test(explorer: Explorer) -> None:
        answer = await explorer.ask("/")
        assert b"index.html is missing" in answer.body and answer.body.count(b"\n") == 0

    with_page(tmp_path, test)


def test_every_answer_has_the_security_headers(web: Path) -> None:
    async def test(explorer: Explorer) -> None:
        for path in ("/", "/static/deep/app.js", "/nothing", "/api/health", "/api/locate"):
            headers = (await explorer.ask(path)).headers
            policy = headers["content-security-policy"]
            assert "default-src 'self'" in policy and "frame-ancestors 'none'" in policy
            assert "unsafe" not in policy and "http" not in policy
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["referrer-policy"] == "no-referrer"
            assert "access-control-allow-origin" not in headers and "server" not in headers

    with_page(web, test)


def test_who_may_ask(web: Path) -> None:
    cases: list[tuple[dict[str, str], bool]] = [
        ({}, True),
        ({"Host": "localhost:8377"}, True),
        ({"Host": "LOCALHOST"}, True),
        ({"Host": "[::1]:8377"}, True),
        ({"Host": "127.0.0.1"}, True),
        ({"Host": "evil.example"}, False),
        ({"Host": "evil.example:8377"}, False),
        ({"Host": "localhost.evil.example"}, False),
        ({"Host": "127.0.0.1.evil.example"}, False),
        ({"Host": "10.0.0.1"}, False),
        ({"Host": ""}, False),
        ({"Host": "localhost", "Origin": "http://localhost"}, True),
        ({"Host": "localhost", "Origin": "http://evil.example"}, False),
        ({"Host": "localhost:1", "Origin": "http://localhost:2"}, False),
        ({"Host": "localhost", "Origin": "null"}, False),
        ({"Host": "localhost", "Origin": "http://[::1"}, False),
        ({"Host": "localhost", "Origin": "http://[localhost]"}, False),
        ({"Sec-Fetch-Site": "same-origin"}, True),
        ({"Sec-Fetch-Site": "none"}, True),
        ({"Sec-Fetch-Site": "cross-site"}, False),
        ({"Sec-Fetch-Site": "same-site"}, False),
    ]

    async def test(explorer: Explorer) -> None:
        for headers, allowed in cases:
            answer = await explorer.ask("/api/health", **headers)
            assert answer.status == (200 if allowed else 403), headers
            if not allowed:
                assert answer.error[1] == "invalid_request" and "server" not in answer.json

    with_page(web, test)


def test_a_proxy_is_called_by_a_name_that_was_allowed(web: Path) -> None:
    async def test() -> None:
        async with exploring("127.0.0.1:9", web=web, allowed_hosts=("Music.example",)) as explorer:
            for host, origin, status in (
                ("music.example", "https://music.example", 200),
                ("music.example:8443", "https://music.example:8443", 200),
                ("127.0.0.1", "http://127.0.0.1", 200),
                ("music.example", "https://evil.example", 403),
                ("evil.music.example", "https://evil.music.example", 403),
            ):
                answer = await explorer.ask("/api/health", Host=host, Origin=origin)
                assert answer.status == status, (host, origin)

    run(test)


def test_a_link_from_another_site_opens_the_page(web: Path) -> None:
    async def test(explorer: Explorer) -> None:
        assert (await explorer.ask("/", Sec_Fetch_Site="cross-site")).status == 200

    with_page(web, test)


def test_no_answer_holds_the_token(tiny_bundle: Path) -> None:
    """Neither where all is well, nor where it is not taken."""
    paths = ("/", "/api/health", "/api/model", "/api/map", f"/api/note.wav?{NOTE_QUERY}", "/api/note.wav")

    async def answers(explorer: Explorer) -> list[Answer]:
        found = [await explorer.ask(path) for path in paths]
        found.append(await explorer.ask("/api/locate", "POST", wav(tone(), 44_100)))
        order = b'{"x": 0, "y": 0, "pitches": "5"}'
        return [*found, await explorer.ask("/api/instruments", "POST", order)]

    async def test() -> None:
        async with serving(tiny_bundle, token=TOKEN) as (app, _, _channel):
            async with exploring(app.address, token=TOKEN) as explorer, explorer.page() as page:
                well = await answers(explorer)
                await page.on(1, live=False, seconds=0.2)
                await page.told("end")
                assert TOKEN not in str(page.said)
            async with exploring(app.address, token=f"wrong-{TOKEN}") as explorer, explorer.page() as page:
                ill = await answers(explorer)
                await page.on(1, live=False)
                await page.on(2)
                for note_id in (1, 2):
                    assert (await page.told("error", id=note_id))["code"] == "unavailable"
                assert TOKEN not in str(page.said)
        assert [answer.status for answer in well] == [200] * 5 + [400, 200, 400]
        assert [answer.status for answer in ill[2:]] == [503] * 6
        assert "set TIMBREL_TOKEN" in ill[2].error[2]
        for answer in (*well, *ill):
            assert TOKEN.encode() not in answer.body and TOKEN not in str(answer.headers)

    run(test)


def test_what_is_no_http_does_no_harm(web: Path) -> None:
    async def test(explorer: Explorer) -> None:
        def shout() -> None:
            for noise in (b"\x16\x03\x01" * 50, b"GET / HTTP/9\r\n\r\n", b"\r\n" * 1000):
                with socket.create_connection(("127.0.0.1", explorer.port), 10) as raw:
                    raw.sendall(noise)

        await asyncio.to_thread(shout)
        assert (await explorer.ask("/")).status == 200

    with_page(web, test)
