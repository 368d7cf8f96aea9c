"""Playable instruments from the explorer: ordered, watched, fetched as a zip, verified, and given up."""

from __future__ import annotations

import asyncio
import io
import json
import os
import sys
import zipfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from explorer import Explorer, exploring, require_explore
from in_process_server import serving, wait_until_idle
from waiting import wait_for_async

from timbrel.explore import instruments
from timbrel.explore.instrument_worker import InstrumentRequest
from timbrel.library import verify_library
from timbrel.settings import ClientSettings
from timbrel_server.app import App

TOKEN = "sesame-7f3a91"

PATIENCE_SECONDS = 240.0
"""What builds stands back: on a busy machine it takes its time."""

SMALL = {"x": 0.5, "y": 0.5, "pitches": "69-96:9", "velocities": [120], "seconds": 1.2, "seed": 1}
"""Where the tiny bundle, which was never trained, happens to be in tune."""


@pytest.fixture(autouse=True)
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    require_explore()
    monkeypatch.setenv("TIMBREL_CACHE", str(tmp_path / "cache"))
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))


def explore(bundle: Path, test: Callable[[App, Explorer], Awaitable[None]], **options: Any) -> None:
    async def whole() -> None:
        async with serving(bundle, token=TOKEN, **options) as (app, _, _channel):
            async with exploring(app.address, token=TOKEN) as explorer:
                await test(app, explorer)
            await wait_until_idle(app)

    asyncio.run(asyncio.wait_for(whole(), PATIENCE_SECONDS))


async def order(explorer: Explorer, **fields: Any) -> Any:
    return (await explorer.ask("/api/instruments", "POST", json.dumps({**SMALL, **fields}))).json


async def state(explorer: Explorer, job: str) -> Any:
    return (await explorer.ask(f"/api/instruments/{job}")).json


async def until(explorer: Explorer, job: str, *states: str) -> list[Any]:
    """All that was told of the job up to one of these states."""
    told = [await state(explorer, job)]
    while told[-1]["state"] not in states:  # the answers themselves are what is returned
        assert told[-1]["state"] not in ("failed", "cancelled"), told[-1]
        await asyncio.sleep(0.02)
        told.append(await state(explorer, job))
    return told


def workers() -> list[int]:
    """Processes that build instruments for this one."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes()
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError):
            continue
        if b"instrument_worker" in command and parent == os.getpid():
            found.append(int(folder.name))
    return found


def test_an_instrument_is_built_while_notes_sound_and_passes_its_check(
    tiny_bundle: Path, tmp_path: Path
) -> None:
    async def test(app: App, explorer: Explorer) -> None:
        asked = await order(explorer, name="My\n 'Violin' <1>")
        assert asked["n_notes"] == 4
        early = await explorer.ask(f"/api/instruments/{asked['id']}.zip")
        assert early.error[:2] == (404, "not_found")
        async with explorer.page() as page:
            await page.on(1, live=False, seconds=0.3)
            await page.told("end", id=1)
        told = await until(explorer, asked["id"], "done")
        assert told[-1] == {"id": asked["id"], "state": "done", "n_done": 4, "n_notes": 4}
        counts = [each["n_done"] for each in told]
        assert counts == sorted(counts)
        answer = await explorer.ask(f"/api/instruments/{asked['id']}.zip")
        assert answer.headers["content-type"] == "application/zip"
        assert answer.headers["content-disposition"] == 'attachment; filename="My-Violin-1.zip"'
        assert TOKEN.encode() not in answer.body
        with zipfile.ZipFile(io.BytesIO(answer.body)) as archive:
            assert archive.testzip() is None
            archive.extractall(tmp_path)
            names = archive.namelist()
        top = {"LICENSE", "README.md", "manifest.jsonl", "My-Violin-1.sfz", "My-Violin-1.dspreset"}
        assert top <= {name.partition("/")[2] for name in names}
        assert all(name.startswith("My-Violin-1/") and "/." not in name for name in names)
        assert sum(name.endswith(".wav") for name in names) == 4
        report = await asyncio.to_thread(verify_library, tmp_path / "My-Violin-1")
        assert report.passed, report.to_text()
        (packed,) = (tmp_path / "temporary").rglob("*.zip")
        packed.unlink()  # as systems do with what has lain idle in /tmp for days
        for path in (asked["id"], f"{asked['id']}.zip"):
            assert (await explorer.ask(f"/api/instruments/{path}")).error[:2] == (404, "not_found")

    explore(tiny_bundle, test)
    assert not list((tmp_path / "temporary").glob("timbrel-explore-*"))


def test_keys_are_held_until_what_dies_away_has(served: str) -> None:
    """Of a piano, whose notes take more than the three seconds for which what lasts is held."""

    async def test(explorer: Explorer) -> None:
        known = (await explorer.ask("/api/map")).json["points"]
        piano = next(each for each in known if each["instrument"] == "Acoustic Grand Piano")
        wanted = {"x": piano["x"], "y": piano["y"], "pitches": "60", "velocities": [100]}
        asked = (await explorer.ask("/api/instruments", "POST", json.dumps(wanted))).json
        told = await until(explorer, asked["id"], "done")
        assert max(each["n_done"] for each in told) == asked["n_notes"] == 1
        answer = await explorer.ask(f"/api/instruments/{asked['id']}.zip")
        with zipfile.ZipFile(io.BytesIO(answer.body)) as archive:
            [name] = [each for each in archive.namelist() if each.endswith("manifest.jsonl")]
            [row] = [json.loads(line) for line in archive.read(name).splitlines()]
        assert 3.0 < row["held_seconds"] <= 10.0

    async def whole() -> None:
        async with exploring(served) as explorer:
            await test(explorer)

    asyncio.run(asyncio.wait_for(whole(), PATIENCE_SECONDS))


def test_one_is_built_at_a_time_and_each_can_be_cancelled(
    tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("timbrel.explore.instruments.MAX_UNFINISHED", 2)

    async def test(app: App, explorer: Explorer) -> None:
        async with explorer.page() as page:
            # The one slot is taken: what is ordered gets nowhere.
            await page.on(1, lead=0.02)
            await page.until(lambda: page.sound[1])
            first, second = [(await order(explorer, format="flac"))["id"] for _ in range(2)]
            third = await explorer.ask("/api/instruments", "POST", json.dumps(SMALL))
            assert third.error[:2] == (503, "overloaded")
            await wait_for_async(workers, "the process that builds")
            assert (await state(explorer, first))["state"] == "rendering"
            assert (await state(explorer, second))["state"] == "waiting"
            for job in (second, first):
                gone = await explorer.ask(f"/api/instruments/{job}", "DELETE")
                assert gone.json["state"] == "cancelled"
            assert not workers()
        fourth = (await order(explorer, pitches="69", velocities=[100]))["id"]
        await until(explorer, fourth, "done")
        assert (await state(explorer, second))["state"] == "cancelled"
        await explorer.ask(f"/api/instruments/{fourth}", "DELETE")
        answer = await explorer.ask(f"/api/instruments/{fourth}.zip")
        assert answer.error[:2] == (404, "not_found")
        assert not list((tmp_path / "temporary").rglob("*.zip"))

    explore(tiny_bundle, test, n_slots=1)


def test_what_is_being_built_ends_with_the_explorer(tiny_bundle: Path, tmp_path: Path) -> None:
    async def test(app: App, explorer: Explorer) -> None:
        await order(explorer, pitches="36-96", seconds=2.4)
        (worker,) = await wait_for_async(workers, "the process that builds")
        # The terminal's Ctrl-C is not its own; but Linux weighs niceness within a session only.
        assert os.getpgid(worker) == worker and os.getsid(worker) == os.getsid(0)

    explore(tiny_bundle, test)
    assert not workers()
    assert not list((tmp_path / "temporary").iterdir())


def test_a_job_that_is_cancelled_while_its_process_starts_leaves_none(tmp_path: Path) -> None:
    async def test() -> None:
        wanted = InstrumentRequest(0.0, 0.0, None, (60,), (100,), 1.0, 1, 0.7, "wav", 1, True, False)
        job = instruments.InstrumentJob("1", wanted, tmp_path / "job")
        running = asyncio.create_task(job.run(ClientSettings.resolve("127.0.0.1:9", "", 1.0, None, None, {})))
        await asyncio.sleep(0)
        assert (tmp_path / "job").exists()
        try:
            await job.cancel()
            assert not workers() and not (tmp_path / "job").exists()
        finally:
            await running

    asyncio.run(test())


def test_what_cannot_be_built_is_refused_in_one_line(tiny_bundle: Path) -> None:
    refusals: dict[str, str] = {
        "nonsense": "the body is no JSON that can be read",
        "[]": "the body is no JSON object",
        "{}": "x: is missing",
        '{"x": 2, "y": 0}': "timbre: (2, 0) lies outside of the unit disc",
        '{"x": NaN, "y": 0}': "x: NaN is no number",
        '{"x": 0, "y": 0, "pitches": "high"}': "pitches: 'high' is not understood",
        '{"x": 0, "y": 0, "pitches": "1-4"}': "is out of range; the bundle plays 36 to 96",
        '{"x": 0, "y": 0, "pitches": 60}': "pitches: 60 is no text",
        '{"x": 0, "y": 0, "velocities": [0]}': "is out of range; the bundle plays 1 to 127",
        '{"x": 0, "y": 0, "velocities": "loud"}': 'velocities: "loud" is no list of MIDI velocities',
        '{"x": 0, "y": 0, "velocities": []}': "velocities: none is given",
        '{"x": 0, "y": 0, "seconds": 99}': "seconds: 99 is out of range",
        '{"x": 0, "y": 0, "seed": -1}': "seed: -1 is no whole number",
        '{"x": 0, "y": 0, "temperature": 2.1}': "temperature: 2.1 is not allowed; 0 to 2 is",
        '{"x": 0, "y": 0, "format": "mp3"}': "format: must be wav or flac",
        '{"x": 0, "y": 0, "round_robins": 0}': "round_robins: 0 is out of range",
        '{"x": 0, "y": 0, "sf2": 1}': "sf2: 1 is neither true nor false",
        '{"x": 0, "y": 0, "file": "/etc/passwd"}': "file: is no field here",
        '{"x": 0, "y": 0, "\\ud800": 1}': "\ud800: is no field here",
        '{"x": 0, "y": 0, "pitches": "36-96", "velocities": [1,2,3,4,5]}': "305 notes are too many",
        json.dumps({"x": 0, "y": 0, "name": "n" * 2**16}): "the order is too large; 64 KiB at most",
    }

    async def test(app: App, explorer: Explorer) -> None:
        for body, reason in refusals.items():
            status, code, message = (await explorer.ask("/api/instruments", "POST", body)).error
            assert status in (400, 413) and code == "invalid_request", reason
            assert reason in message and "\n" not in message, message
        for method, path in (("GET", "nope"), ("DELETE", "nope"), ("GET", "nope.zip"), ("GET", "..%2f..")):
            answer = await explorer.ask(f"/api/instruments/{path}", method)
            assert answer.error[:2] == (404, "not_found")

    explore(tiny_bundle, test)


def test_modules_of_the_current_folder_are_none_of_the_worker_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "numpy.py").write_text("raise SystemExit('a stranger')")
    monkeypatch.chdir(tmp_path)

    async def test() -> None:
        worker = await instruments._start_worker()
        _, complaints = await worker.communicate(b"no task\n")
        assert b"JSONDecodeError" in complaints and b"a stranger" not in complaints

    asyncio.run(test())


def test_a_build_that_fails_says_why(tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(app: App, explorer: Explorer) -> None:
        monkeypatch.setenv("TIMBREL_CACHE", "/dev/null/no-folder")
        job = (await order(explorer))["id"]
        while (told := await state(explorer, job))["state"] not in ("failed", "done"):
            await asyncio.sleep(0.02)
        assert told["state"] == "failed" and "/dev/null" in told["error"]
        assert TOKEN not in told["error"]

    explore(tiny_bundle, test)


def test_what_fails_while_it_is_packed_leaves_nothing_on_the_disk(
    tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    script = (
        "import json, pathlib, sys; target = pathlib.Path(json.loads(sys.stdin.readline())['target']);"
        "target.with_suffix('.part').write_bytes(bytes(99)); print(json.dumps({'error': 'No space left'}))"
    )

    async def start_one_that_runs_full() -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", script),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )

    async def test(app: App, explorer: Explorer) -> None:
        [folder] = (tmp_path / "temporary").glob("timbrel-explore-*")
        monkeypatch.setattr(instruments, "_start_worker", start_one_that_runs_full)
        for _ in range(2):
            job = (await order(explorer))["id"]
            while (await state(explorer, job))["state"] != "failed":
                await asyncio.sleep(0.02)
            await wait_for_async(lambda: list(folder.iterdir()) == [], "an empty folder")
            folder.rmdir()  # as systems do that tidy their /tmp; another is built all the same

    explore(tiny_bundle, test)


def test_a_worker_that_talks_nonsense_fails_its_own_job_alone(
    tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = instruments._start_worker

    async def start_babbler() -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", "print('a warning of some library')"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )

    async def test(app: App, explorer: Explorer) -> None:
        for worker, ends in ((start_babbler, "failed"), (start, "rendering")):
            monkeypatch.setattr(instruments, "_start_worker", worker)
            job = (await order(explorer))["id"]
            async with asyncio.timeout(120):
                while (told := await state(explorer, job))["state"] != ends:
                    await asyncio.sleep(0.02)
            assert told.get("error", "") == ("building it was cut short" if ends == "failed" else "")

    explore(tiny_bundle, test)
