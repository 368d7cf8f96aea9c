"""The explorer's WebSocket: notes that a page asks for, on real sockets and a real server."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import hashlib
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bundle_variants import changed_manifest, holding
from cut_proxy import CutProxy
from explorer import Explorer, Page, exploring, open_page, require_explore
from in_process_server import run, serving, slow_steps, wait_until_idle
from server_process import ServerProcess
from waiting import wait_for_async

from timbrel.aio.transport import Transport
from timbrel.client import Client
from timbrel.explore.messages import SendBuffer
from timbrel.explore.session import PageNote
from timbrel_bundle.manifest import bundle_hash, load_manifest
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb
from timbrel_server.app import App
from timbrel_server.decoder.runner import Runner

Test = Callable[[App, Explorer], Awaitable[None]]


@pytest.fixture(autouse=True)
def explore_extra() -> None:
    require_explore()


@contextlib.asynccontextmanager
async def explored(bundle: Path, **options: Any) -> AsyncIterator[tuple[App, Explorer]]:
    async with serving(bundle, **options) as (app, _, _channel), exploring(app.address) as explorer:
        yield app, explorer


def explore(bundle: Path, test: Test, **options: Any) -> None:
    """Runs a test with a server and a bridge to it; nothing may be left in the server's slots."""

    async def whole() -> None:
        async with explored(bundle, **options) as (app, explorer):
            await test(app, explorer)
            await wait_until_idle(app)

    run(whole)


def playing(bundle: Path, test: Callable[[App, Page], Awaitable[None]], **options: Any) -> None:
    """Likewise, with one page open."""

    async def with_page(app: App, explorer: Explorer) -> None:
        async with explorer.page() as page:
            await page.told("hello", sample_rate=48000)
            await test(app, page)

    explore(bundle, with_page, **options)


def test_a_note_is_what_the_server_sent_bit_by_bit_and_what_a_client_decodes(
    tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TIMBREL_CACHE", str(tmp_path))
    sent: list[bytes] = []
    generate = Transport.generate

    async def overheard(self: Transport, *arguments: Any) -> AsyncIterator[pb.GenerateResponse]:
        async for reply in generate(self, *arguments):
            sent.append(reply.audio)
            yield reply

    monkeypatch.setattr(Transport, "generate", overheard)

    def by_client(address: str) -> np.ndarray[Any, Any]:
        with Client(address) as client:
            return client.generate((0.1, 0.2), 60, seconds=0.72, seed=7).audio

    async def test(app: App, explorer: Explorer) -> None:
        async with explorer.page() as page:
            await page.on(5, seconds=0.72, live=False)
            end = await page.told("end", id=5)
            assert end["held_seconds"] == 0.72
            assert page.has("start", id=5, seed=7, sample_rate=48000)
            assert page.sound[5] == b"".join(sent) != b""
            expected = await asyncio.to_thread(by_client, app.address)
            np.testing.assert_allclose(np.frombuffer(page.sound[5], "<f4"), expected, atol=1e-4)

    explore(tiny_bundle, test)


def test_a_key_is_held_for_as_long_as_the_page_holds_it(tiny_bundle: Path, tmp_path: Path) -> None:
    """Longer than a request may ask for; and what the server lets go, it says so."""
    bundle = holding(tiny_bundle, tmp_path / "bundle", seconds_max=0.5)

    async def test(app: App, page: Page) -> None:
        for note_id in range(1, 13):  # of which some do not end by themselves
            await page.on(note_id, seed=note_id, lead=1.0)
        await page.until(lambda: any(len(sound) > 4 * 48000 * 1.2 for sound in page.sound.values()))
        for note_id in range(1, 13):
            await page.say("off", id=note_id)
        ends = [await page.told("end", id=note_id) for note_id in range(1, 13)]
        assert max(end["held_seconds"] for end in ends) > 1.0
        assert not any("let_go" in end for end in ends)
        assert not page.has("error")

    async def bounded(app: App, page: Page) -> None:
        for note_id in range(1, 13):
            await page.on(note_id, seed=note_id, lead=1.0)
        ends = [await page.told("end", id=note_id) for note_id in range(1, 13)]
        assert {end["held_seconds"] for end in ends if end.get("let_go")} == {0.4}

    playing(bundle, test)
    playing(bundle, bounded, max_seconds=0.4)


def test_a_held_note_ends_with_its_key_and_is_the_note_of_that_length(tiny_bundle: Path) -> None:
    async def test(app: App, page: Page) -> None:
        await page.on(1, lead=0.05)
        await page.until(lambda: len(page.sound[1]) > 4 * 48000 * 0.2)
        assert not page.has("end")
        await page.say("off", id=1)
        held = (await page.told("end", id=1))["held_seconds"]
        assert 0.1 < held <= 2.4
        assert (await page.told("release", id=1))["held_seconds"] == held
        await page.on(2, seconds=held, live=False)
        await page.told("end", id=2)
        again, heard = (np.frombuffer(page.sound[note_id], "<f4") for note_id in (2, 1))
        np.testing.assert_allclose(heard, again, atol=1e-4)
        await page.say("off", id=1)
        await page.say("cancel", id=1)
        await page.say("ping", t={"late": [1]})
        await page.told("pong", t={"late": [1]})
        assert not page.has("error")

    playing(tiny_bundle, test)


def test_without_a_seed_one_is_drawn_that_a_page_can_hold(tiny_bundle: Path) -> None:
    async def test(app: App, page: Page) -> None:
        for note_id in (1, 2):
            await page.on(note_id, seed=None, live=note_id == 1, seconds=0.2)
            await page.told("end", id=note_id)
        seeds = [each["seed"] for each in page.said if each["type"] == "start"]
        assert len(set(seeds)) == 2 and all(0 <= seed < 2**32 for seed in seeds)

    playing(tiny_bundle, test)


def test_closing_the_page_frees_its_slots_while_its_keys_are_down(tiny_bundle: Path) -> None:
    async def test(app: App, explorer: Explorer) -> None:
        engine = app.engine
        assert engine is not None
        with slow_steps():
            async with explorer.page() as page:
                for note_id in range(1, 7):
                    await page.on(note_id, lead=0.05)
                await page.until(lambda: all(page.has("start", id=note_id) for note_id in range(1, 5)))
                await wait_for_async(
                    lambda: (engine.n_occupied, engine.n_waiting) == (4, 2), "two notes to wait"
                )
            await wait_until_idle(app)
        assert not page.has("end") and not page.has("error")

    explore(tiny_bundle, test, n_slots=4)


def test_a_page_that_vanishes_without_a_word_frees_its_slots(tiny_bundle: Path) -> None:
    async def test(app: App, explorer: Explorer) -> None:
        async with explorer.page() as page:
            await page.on(1, lead=0.05)
            await page.until(lambda: page.sound[1])
            page.socket.transport.abort()
            await wait_until_idle(app)
            assert not page.has("end")

    explore(tiny_bundle, test)


def test_an_ended_hover_is_cancelled_at_the_server(tiny_bundle: Path) -> None:
    async def test(app: App, page: Page) -> None:
        engine = app.engine
        assert engine is not None
        with slow_steps():
            await page.on(1, lead=0.05)
            await page.until(lambda: page.sound[1])
            for note_id in (2, 3):
                await page.on(note_id, live=note_id == 2)  # one of each kind, both behind the first
            await wait_for_async(lambda: engine.n_waiting == 2, "both notes to wait")
            await page.say("cancel", id=2)
            await page.say("cancel", id=3)
            await wait_for_async(lambda: engine.n_waiting == 0, "both notes to be gone")
            assert engine.n_occupied == 1 and not page.has("end")
            await page.say("cancel", id=1)
        await wait_until_idle(app)
        await page.on(2, live=False, seconds=0.2)  # ids may be used again
        await page.told("end", id=2)
        assert [each["type"] for each in page.said] == ["hello", "start", "bent", "start", "release", "end"]

    playing(tiny_bundle, test, n_slots=1)


def test_previews_that_are_given_up_before_they_begin_leave_nothing_behind(tiny_bundle: Path) -> None:
    def n_notes() -> int:
        gc.collect()
        return sum(type(each) is PageNote for each in gc.get_objects())

    async def test(app: App, page: Page) -> None:
        before = n_notes()  # what an earlier test has left behind
        for note_id in range(1, 31):  # all of it comes at once, as from a page or a network that was busy
            await page.on(note_id, live=False)
            await page.say("cancel", id=note_id)
        await page.say("ping", t=1)
        await page.told("pong", t=1)
        await wait_for_async(lambda: n_notes() <= before, "the notes to be gone")

    playing(tiny_bundle, test)


def test_many_pages_play_many_notes_at_once(tiny_bundle: Path) -> None:
    async def one_page(explorer: Explorer, number: int) -> list[bytes]:
        async with explorer.page() as page:
            for note_id in range(1, 9):
                live = note_id % 2 == 0
                await page.on(note_id, seed=note_id, live=live, seconds=0.1 * note_id, lead=60.0)
            for note_id in range(1, 9):
                await page.told("end", id=note_id)
            return [page.sound[note_id] for note_id in range(1, 9)]

    async def test(app: App, explorer: Explorer) -> None:
        heard = await asyncio.gather(*(one_page(explorer, number) for number in range(6)))
        for note_id in range(8):
            first, *others = (np.frombuffer(sounds[note_id], "<f4") for sounds in heard)
            assert len(first) > 48000 * 0.1 * note_id
            for other in others:
                np.testing.assert_allclose(other, first, atol=2e-4)

    explore(tiny_bundle, test, n_slots=8)


def test_bad_messages_are_answered_one_by_one_and_the_socket_stays(tiny_bundle: Path) -> None:
    bad = {
        "nonsense": "no JSON",
        "[1]": "no JSON object",
        "[" * 5000: "no JSON",
        '{"type":"on","id":1,"x":NaN}': "no JSON",
        '{"type":"shout"}': 'type: "shout" is none of on, off, cancel, bend, move and ping',
        '{"type":"on","id":0}': "id: 0 is no whole number of 1 to 4294967295",
        '{"type":"off","id":true}': "id: true is no whole number",
        '{"type":"cancel"}': "id: null is no whole number",
    }

    async def test(app: App, page: Page) -> None:
        for message, reason in bad.items():
            n_said = len(page.said)
            await page.socket.send(message)
            told = await page.until(lambda n_said=n_said: page.said[n_said:])
            assert told[0]["code"] == "invalid_request" and reason in told[0]["message"], message
            assert "id" not in told[0]
        await page.socket.send(b"\x00\x01")
        await page.told("error", message="binary messages are not understood; send JSON as text")
        for number, (fields, reason) in enumerate(
            [
                ({"pitch": 600}, "pitch: 600 is out of range; a MIDI note number of 36 to 96 is allowed"),
                ({"x": 2}, "timbre: (2, 0.2) lies 2.009975 from the centre; x^2 + y^2 <= 1 is allowed"),
                ({"x": "0.1"}, "timbre: ('0.1', 0.2) is not a point"),
                ({"seconds": 99}, "seconds: 99 is not a length the bundle knows"),
                ({"top_k": 0, "live": False}, "top_k: 0 is out of range"),
                ({"lead": 0}, "lead: 0 is not allowed; 0.02 to 60 seconds are"),
                ({"live": 1}, "live: 1 is neither true nor false"),
                ({"loudness": 1}, "loudness: is no field here"),
            ],
            start=1,
        ):
            await page.on(number, **fields)
            told = await page.told("error", id=number)
            assert told["code"] == "invalid_request" and reason in told["message"]
        await page.on(1, lead=0.05)
        await page.told("start", id=1)
        await page.on(1)
        told = await page.told("error", id=1, message="id: a note with the id 1 is sounding")
        await page.say("off", id=1)
        await page.told("end", id=1)

    playing(tiny_bundle, test)


def test_an_oversize_message_closes_the_socket(tiny_bundle: Path) -> None:
    from websockets.exceptions import ConnectionClosed

    async def test(app: App, explorer: Explorer) -> None:
        async with explorer.page() as page:
            await page.on(1, lead=0.05)
            await page.until(lambda: page.sound[1])
            with contextlib.suppress(ConnectionClosed):
                await page.say("ping", t="x" * 20_000)
            await page.socket.wait_closed()
            assert page.socket.close_code == 1009
            await wait_until_idle(app)

    explore(tiny_bundle, test)


async def refused(opening: contextlib.AbstractAsyncContextManager[Page]) -> None:
    from websockets.exceptions import InvalidStatus

    with pytest.raises(InvalidStatus) as caught:
        async with opening:
            pass
    assert caught.value.response.status_code == 403


def test_a_page_of_another_site_is_turned_away(tiny_bundle: Path) -> None:
    async def test(app: App, explorer: Explorer) -> None:
        for origin in (None, "null", "http://evil.example", "http://127.0.0.1:1", "file://"):
            await refused(open_page(f"ws://{explorer.host}/api/play", origin))

    explore(tiny_bundle, test)


def test_a_name_that_dns_may_point_anywhere_is_turned_away(tiny_bundle: Path) -> None:
    async def test(app: App, explorer: Explorer) -> None:
        rebound = f"evil.example:{explorer.port}"
        where = {"host": "127.0.0.1", "port": explorer.port}
        await refused(open_page(f"ws://{rebound}/api/play", f"http://{rebound}", **where))

    explore(tiny_bundle, test)


def test_a_busy_server_is_told_of_at_once(tiny_bundle: Path) -> None:
    async def test(app: App, page: Page) -> None:
        for note_id in range(1, 6):
            await page.on(note_id, live=note_id == 1, lead=0.05)
            if note_id == 1:
                await page.until(lambda: page.sound[1])
        told = await page.told("error")
        assert told["code"] == "overloaded" and told["id"] in (3, 4, 5)
        assert not page.has("server")
        await page.say("cancel", id=1)

    playing(tiny_bundle, test, n_slots=1, queue_capacity=1)


def test_a_page_has_only_so_many_notes(tiny_bundle: Path) -> None:
    async def test(app: App, page: Page) -> None:
        for note_id in range(1, 71):
            await page.on(note_id, live=False)
        await page.told("error", code="overloaded", message="no more than 64 notes at once")

    playing(tiny_bundle, test, n_slots=1, queue_capacity=200)


def test_a_page_that_does_not_read_costs_no_memory_and_no_slots(
    tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    buffers: list[SendBuffer] = []

    class SmallBuffer(SendBuffer):
        def __init__(self) -> None:
            super().__init__(max_bytes=400_000, patience_seconds=0.3)
            self.most = 0
            buffers.append(self)

        def put_at_once(self, frame: str | bytes) -> None:
            super().put_at_once(frame)
            self.most = max(self.most, self.n_bytes)

    monkeypatch.setattr("timbrel.explore.session.SendBuffer", SmallBuffer)

    async def test(app: App, explorer: Explorer) -> None:
        async with explorer.page(max_queue=1) as page:
            page._task.cancel()  # it reads no more
            for note_id in range(1, 61):
                await page.on(note_id, live=note_id % 2 == 0, lead=60.0)
            await wait_for_async(
                lambda: any("does not take" in str(each) for each in _waiting(buffers)), "the refusal"
            )
            await wait_until_idle(app)
            assert buffers[0].most < 600_000
            resumed = Page(page.socket)
            await resumed.told("error", code="overloaded")
            await resumed.on(99, live=False, seconds=0.2)
            await resumed.told("end", id=99)
            await resumed.close()

    explore(tiny_bundle, test)


def test_a_page_that_only_talks_is_let_go(tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from websockets.exceptions import ConnectionClosed

    monkeypatch.setattr(
        "timbrel.explore.session.SendBuffer", lambda: SendBuffer(max_bytes=100_000, patience_seconds=0.3)
    )

    async def talk(page: Page) -> None:
        with contextlib.suppress(ConnectionClosed):
            while True:
                await page.say("ping", t="x" * 15_000)

    def n_sessions() -> int:
        return sum("Session." in repr(task.get_coro()) for task in asyncio.all_tasks())

    async def test(app: App, explorer: Explorer) -> None:
        async with explorer.page(max_queue=1, ping_interval=None) as page:
            await page.on(1, lead=60.0)
            page._task.cancel()  # it reads no more
            assert n_sessions()
            talking = asyncio.create_task(talk(page))
            try:
                await wait_for_async(lambda: not n_sessions(), "the session to end", seen=n_sessions)
                await wait_until_idle(app)
            finally:
                page.socket.transport.abort()
                await talking

    explore(tiny_bundle, test)


def _waiting(buffers: list[Any]) -> list[str | bytes]:
    return [frame for buffer in buffers for frame in buffer._frames]


def test_the_server_goes_away_and_comes_back_and_the_page_plays_on(
    tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("timbrel.explore.upstream.LONGEST_DELAY_SECONDS", 0.25)

    async def test() -> None:
        server = await asyncio.to_thread(ServerProcess, tiny_bundle)
        async with contextlib.AsyncExitStack() as stack:
            stack.callback(server.close)
            # The port of a server that has gone could be another's by the time at which it comes back.
            proxy = stack.enter_context(CutProxy(server.address))
            explorer = await stack.enter_async_context(exploring(proxy.address))
            page = await stack.enter_async_context(explorer.page())
            await page.on(1, lead=0.05)
            await page.until(lambda: page.sound[1])

            server.process.kill()
            assert (await page.told("error", id=1))["code"] == "unavailable"
            proxy.go_down()
            assert proxy.address in (await page.told("server", state="away"))["message"]
            for note_id in (2, 3):
                await page.on(note_id, live=note_id == 2)
                assert (await page.told("error", id=note_id))["code"] == "unavailable"
            status, code, message = (await explorer.ask("/api/model")).error
            assert (status, code) == (503, "unavailable") and proxy.address in message
            health = (await explorer.ask("/api/health")).json
            assert (health["bridge"], health["server"]) == ("ok", "away") and health["message"]
            late = await stack.enter_async_context(explorer.page())
            await late.told("server", state="away")

            restarted = await asyncio.to_thread(ServerProcess, tiny_bundle)
            stack.callback(restarted.close)
            proxy.target = restarted.address
            proxy.come_up()
            for each in (page, late):
                await each.told("server", state="back")
                for note_id in (4, 5):
                    await each.on(note_id, live=note_id == 4, seconds=0.2)
                    await each.told("end", id=note_id)
            await late.told("hello", sample_rate=48000)
            assert (await explorer.ask("/api/health")).json == {"bridge": "ok", "server": "serving"}

    run(test)


def test_a_server_that_comes_back_and_refuses_the_explorer_is_said_to_do_so(
    tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page that is open would say for ever that nobody answers, and its user wait."""
    monkeypatch.setattr("timbrel.explore.upstream.LONGEST_DELAY_SECONDS", 0.25)

    async def test() -> None:
        async with contextlib.AsyncExitStack() as stack:
            proxy = stack.enter_context(CutProxy("127.0.0.1:9"))
            proxy.go_down()
            explorer = await stack.enter_async_context(exploring(proxy.address))
            page = await stack.enter_async_context(explorer.page())
            away = await page.told("server", state="away")
            assert "not available" in away["message"]
            server = await asyncio.to_thread(ServerProcess, tiny_bundle, TIMBREL_TOKEN="open-sesame")
            stack.callback(server.close)
            proxy.target = server.address
            proxy.come_up()
            async with asyncio.timeout(30.0):
                await page.until(lambda: "explorer's token" in page.said[-1]["message"])
            assert [each["state"] for each in page.said if each["type"] == "server"][-1] == "away"

    run(test)


@pytest.mark.skipif(os.name != "posix", reason="no process of Windows can be stopped for a while")
def test_a_server_that_hangs_is_told_of_and_keeps_no_page_waiting(
    tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It hangs before the bridge has asked what it serves: the page's own questions are answered all the
    same, or it would think the bridge gone."""
    monkeypatch.setattr("timbrel.explore.upstream.PROBE_SECONDS", 1.0)

    async def test() -> None:
        server = await asyncio.to_thread(ServerProcess, tiny_bundle)
        async with contextlib.AsyncExitStack() as stack:
            stack.callback(server.close)
            server.signal(signal.SIGSTOP)
            stack.callback(server.signal, signal.SIGCONT)
            explorer = await stack.enter_async_context(exploring(server.address))
            page = await stack.enter_async_context(explorer.page())
            async with asyncio.timeout(20.0):
                for note_id in range(1, 30):
                    await page.on(note_id, live=note_id % 2 == 0)
                await page.say("ping", t=1)
                await page.told("pong", t=1)
                await page.told("server", state="away")
            server.signal(signal.SIGCONT)
            await page.told("server", state="back")
            await page.on(30, seconds=0.2)
            await page.told("end", id=30)

    run(test)


def test_a_note_may_take_as_long_as_it_comes_and_fails_where_nothing_does(
    tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of forty notes at once, on a machine that has other work."""
    limit = 6.0
    monkeypatch.setattr("timbrel.explore.upstream.CALL_SECONDS", limit)
    pause, n_steps = 0.0, 0
    step = Runner.step

    def slow_step(self: Runner, *arguments: Any) -> Any:
        nonlocal n_steps
        n_steps += 1
        if n_steps & (n_steps - 1) == 0:  # about once a reply, of which each is twice as long
            time.sleep(pause)
        return step(self, *arguments)

    monkeypatch.setattr(Runner, "step", slow_step)

    async def test(app: App, page: Page) -> None:
        nonlocal pause, n_steps
        pause, n_steps = 1.0, 0
        begun = time.monotonic()
        await page.on(1, seconds=2.4, live=False)
        await page.until(lambda: page.has("end", id=1) or page.has("error", id=1))
        assert page.has("end", id=1), page.said
        assert time.monotonic() - begun > limit
        pause, n_steps = limit + 1.0, 0
        await page.on(2, live=False)
        assert (await page.told("error", id=2))["code"] == "deadline"
        pause = 0.0

    playing(tiny_bundle, test)


@pytest.mark.skipif(os.name != "posix", reason="SIGHUP, of which Windows has none, has it read anew")
def test_a_page_is_told_of_another_bundle_that_is_served_meanwhile(
    tiny_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("timbrel.explore.upstream.LOOK_SECONDS", 0.1)

    def renew(manifest: pb.Manifest) -> None:
        """Another hash, and the same sound."""
        changed = tmp_path / "renewed" / "timbre_map.json"
        changed.write_text(changed.read_text() + "\n")
        file = next(file for file in manifest.files if file.name == changed.name)
        file.size, file.sha256 = changed.stat().st_size, hashlib.sha256(changed.read_bytes()).hexdigest()
        manifest.bundle_hash = bundle_hash(manifest.files)

    renewed = changed_manifest(tiny_bundle, tmp_path / "renewed", renew)
    hashes = [load_manifest(bundle / "manifest.json").bundle_hash for bundle in (tiny_bundle, renewed)]
    link = tmp_path / "current"
    link.symlink_to(tiny_bundle)

    async def test() -> None:
        server = await asyncio.to_thread(ServerProcess, link)
        async with contextlib.AsyncExitStack() as stack:
            stack.callback(server.close)
            explorer = await stack.enter_async_context(exploring(server.address))
            page = await stack.enter_async_context(explorer.page())
            await page.told("hello", bundle_hash=hashes[0])
            link.unlink()
            link.symlink_to(renewed)
            server.signal(signal.SIGHUP)
            await page.told("hello", bundle_hash=hashes[1])
            assert [each["type"] for each in page.said] == ["hello", "hello"]  # it was never away
            assert (await explorer.ask("/api/model")).json["bundle_hash"] == hashes[1]
            await page.on(1, live=False, seconds=0.2)
            await page.told("end", id=1)

    run(test)
