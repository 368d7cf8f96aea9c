"""The explorer's small parts that need no server."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import signal
import socket
import zipfile
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from starlette.requests import Request

from timbrel.errors import DeadlineExceededError, InvalidRequestError
from timbrel.explore import instrument_worker
from timbrel.explore.app import file_name
from timbrel.explore.http_common import Uploads
from timbrel.explore.instrument_worker import BuildTask, InstrumentRequest, write_zip
from timbrel.explore.options import INDEX, ExploreOptions, find_web_folder, listen
from timbrel.explore.run import _announce, _end_signals, _make_loop, accepted, has_display
from timbrel.settings import ClientSettings, Security
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb


@pytest.mark.parametrize(
    ("environment", "platform", "seen"),
    [
        ({}, "linux", False),
        ({"DISPLAY": ""}, "linux", False),
        ({"DISPLAY": ":0"}, "linux", True),
        ({"WAYLAND_DISPLAY": "wayland-0"}, "linux", True),
        ({}, "darwin", True),
    ],
)
def test_a_browser_opens_only_where_it_is_seen(
    environment: dict[str, str], platform: str, seen: bool
) -> None:
    assert has_display(environment, platform) is seen


@pytest.mark.parametrize(
    ("host", "kept"),
    [
        *(("0", "0.0.0.0"), ("127.1", "127.0.0.1"), ("0x7f.1", "127.0.0.1"), ("10.0.0.7", "10.0.0.7")),
        *(("0:0:0:0:0:0:0:0", "::"), ("FD00:0::1", "fd00::1"), ("localhost", "localhost"), ("a.b", "a.b")),
    ],
)
def test_a_host_is_written_as_browsers_do(host: str, kept: str) -> None:
    assert ExploreOptions(host=host).host == kept


@pytest.mark.parametrize(
    ("host", "page"),
    [
        *(("0.0.0.0", "http://127.0.0.1:1/"), ("::", "http://[::1]:1/"), ("::1", "http://[::1]:1/")),
        *(("localhost", "http://localhost:1/"), ("192.0.2.1", "http://192.0.2.1:1/")),
    ],
)
def test_the_address_that_is_told_is_one_that_is_listened_on(
    host: str, page: str, capsys: pytest.CaptureFixture[str]
) -> None:
    _announce(ExploreOptions(host=host, open_browser=False), 1)
    assert capsys.readouterr().out == f"explorer: {page}\n"


def test_a_connection_that_is_reset_as_it_is_accepted_is_not_the_last() -> None:
    """asyncio's servers on Windows close their socket then."""
    answers: list[str | OSError] = [OSError(22, "The specified network name is no longer available")] * 2

    async def accept(listener: socket.socket) -> str:
        answer = answers.pop() if answers else "a connection"
        if isinstance(answer, OSError):
            raise answer
        return answer

    with socket.socket() as listener:
        assert asyncio.run(accepted(accept, listener)) == "a connection"
    answers.append(OSError(995, "The I/O operation has been aborted"))
    with pytest.raises(OSError, match="aborted"):
        asyncio.run(accepted(accept, listener))


@pytest.mark.parametrize(
    ("callback", "error", "is_told"),
    [
        ("_ProactorBasePipeTransport._call_connection_lost(None)", ConnectionResetError(), False),
        ("_ProactorBasePipeTransport._call_connection_lost(None)", AssertionError(), True),
        ("Session.run()", ConnectionResetError(), True),
    ],
)
def test_a_browser_that_resets_its_connection_is_no_news(
    callback: str, error: Exception, is_told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with contextlib.closing(_make_loop()) as loop:
        loop.call_exception_handler(
            {"message": "failed", "handle": f"<Handle {callback}>", "exception": error}
        )
    assert bool(caplog.records) is is_told


def test_ctrl_break_of_windows_ends_it_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signal, "SIGBREAK", signal.SIGINT, raising=False)
    assert signal.SIGINT in _end_signals()


def test_a_file_is_named_by_what_makes_its_sound() -> None:
    asked = pb.GenerateRequest(
        timbre=pb.Timbre(x=-0.0001, y=-0.4), pitch=60, velocity=100, seconds=2, seed=2**40
    )
    assert file_name(asked, "wav") == "timbrel_x0.000_y-0.400_p060_v100_2s_seed1099511627776.wav"
    asked.sampling.temperature = 0.85
    assert "_2s_t0.85_seed" in file_name(asked, "wav")


def test_equal_folders_make_equal_zips_without_the_working_files(tmp_path: Path) -> None:
    zips = []
    for name in ("one", "other"):
        folder = tmp_path / name
        (folder / "samples").mkdir(parents=True)
        (folder / ".timbrel").mkdir()
        (folder / ".timbrel" / "job.json").write_text(name)
        (folder / "samples" / "a.wav").write_bytes(bytes(10_000))
        (folder / "samples" / "b.flac").write_bytes(b"packed")
        write_zip(folder, tmp_path / f"{name}.zip", "Organ")
        zips.append((tmp_path / f"{name}.zip").read_bytes())
    assert zips[0] == zips[1]
    with zipfile.ZipFile(tmp_path / "one.zip") as archive:
        assert archive.namelist() == ["Organ/samples/a.wav", "Organ/samples/b.flac"]
        assert archive.read("Organ/samples/a.wav") == bytes(10_000)
    assert not list(tmp_path.glob("*.part"))


def test_a_token_is_not_shown(tmp_path: Path) -> None:
    request = InstrumentRequest(0.0, 0.0, None, (60,), (100,), 1.0, 1, 0.7, "wav", 1, True, False)
    settings = ClientSettings.resolve("studio:50051", "sesame", 1.0, None, Security(), {})
    task = BuildTask("studio:50051", "sesame", Security(), request, tmp_path, tmp_path / "instrument.zip")
    for holder in (settings, task):
        assert holder.token == "sesame" and "sesame" not in repr(holder)


@pytest.mark.parametrize(
    ("port", "advice"), [(443, "1024 and above may"), (8377, "choose another by --port")]
)
def test_a_port_that_may_not_be_taken_comes_with_advice(
    monkeypatch: pytest.MonkeyPatch, port: int, advice: str
) -> None:
    """Windows keeps some for itself, high ones among them."""

    def refuse(listener: socket.socket, address: object) -> None:
        raise PermissionError(13, "an attempt was made to access a socket in a way forbidden")

    monkeypatch.setattr(socket.socket, "bind", refuse)
    with pytest.raises(InvalidRequestError, match=f"{port} may not be taken by this user; {advice}"):
        listen("127.0.0.1", port)


class _Recording(Request):
    """A request whose body comes after so many seconds."""

    def __init__(self, seconds: float) -> None:
        super().__init__({"type": "http"})
        self._seconds = seconds

    async def stream(self) -> AsyncGenerator[bytes, None]:
        await asyncio.sleep(self._seconds)
        yield b"sound"


def test_an_upload_whose_time_is_just_over_makes_room_for_another() -> None:
    async def test() -> list[bytes | BaseException]:
        uploads = Uploads(1)
        stalled = asyncio.create_task(uploads.read(_Recording(60.0), 10, "it", 0.0))
        await asyncio.sleep(0)  # the time that it had has gone by, and it is still to hear of that
        return await asyncio.gather(
            uploads.read(_Recording(0.0), 10, "it", 5.0), stalled, return_exceptions=True
        )

    heard, given_up = asyncio.run(test())
    assert heard == b"sound" and isinstance(given_up, DeadlineExceededError)


def test_the_page_is_found() -> None:
    assert (find_web_folder() / INDEX).is_file()


def test_where_no_process_can_be_nice_instruments_are_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As on Windows."""
    request = InstrumentRequest(0.0, 0.0, None, (60,), (100,), 1.0, 1, 0.7, "wav", 1, True, False)
    task = BuildTask("studio:50051", None, Security(), request, tmp_path, tmp_path / "instrument.zip")
    monkeypatch.delattr(os, "nice", raising=False)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(task.to_line())))
    monkeypatch.setattr(instrument_worker, "_end_with_input", lambda: None)
    monkeypatch.setattr(instrument_worker, "build", lambda task: task.target.stem)
    assert instrument_worker.main() == 0
    assert json.loads(capsys.readouterr().out) == {"slug": "instrument"}
