"""`generate_many` of both clients, with real servers and connections that break."""

from __future__ import annotations

import asyncio
import itertools
import socket
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from concurrent import futures
from contextlib import aclosing, closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import numpy as np
import pytest
from background_server import BackgroundServer
from bundle_variants import holding
from cut_proxy import CutProxy
from server_process import ServerProcess
from tqdm import tqdm
from waiting import wait_for, wait_for_async

import timbrel
from timbrel.aio import connection
from timbrel.progress import bar
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb
from timbrel_protos.timbrel.v1 import synthesizer_pb2_grpc as pb_grpc
from timbrel_server.decoder.runner import Runner

pytestmark = pytest.mark.usefixtures("codecs_loaded_once")

Heard = Callable[[int], object]
"""Called with the number of results so far, after each."""

PATIENCE_SECONDS = 60.0


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIMBREL_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
    for name in ("TIMBREL_SERVER", "TIMBREL_TOKEN", "TIMBREL_BUNDLE"):
        monkeypatch.delenv(name, raising=False)


def allow(client: timbrel.Client | timbrel.AsyncClient, seconds: float) -> None:
    """Bounds the time of its calls from now on: what it has asked for by then may have taken longer."""
    opened = client._connection
    opened.settings = replace(opened.settings, timeout=seconds)


def blocking(
    address: str,
    requests: Iterable[Any],
    heard: Heard = lambda n: None,
    timeout: float = PATIENCE_SECONDS,
    **options: Any,
) -> list[Any]:
    results = []
    with timbrel.Client(address, timeout=PATIENCE_SECONDS) as client:
        client.prepare()
        allow(client, timeout)
        for result in client.generate_many(requests, **options):
            results.append(result)
            heard(len(results))
    return results


def asynchronous(
    address: str,
    requests: Iterable[Any],
    heard: Heard = lambda n: None,
    timeout: float = PATIENCE_SECONDS,
    **options: Any,
) -> list[Any]:
    async def main() -> list[Any]:
        results = []
        async with timbrel.AsyncClient(address, timeout=PATIENCE_SECONDS) as client:
            await client.prepare()
            allow(client, timeout)
            async for result in client.generate_many(requests, **options):
                results.append(result)
                await asyncio.to_thread(heard, len(results))
        return results

    return asyncio.run(main())


@pytest.fixture(params=[blocking, asynchronous])
def generate_all(request: pytest.FixtureRequest) -> Callable[..., list[Any]]:
    """Renders all requests, by either client."""
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def slow_steps(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """The servers inside the test take a while for each step; where the event is set, they stand still."""
    stalled = threading.Event()
    step = Runner.step

    def slow(self: Runner, rows: object) -> list[list[int]]:
        deadline = time.monotonic() + PATIENCE_SECONDS
        time.sleep(0.01)
        while stalled.is_set() and time.monotonic() < deadline:
            time.sleep(0.01)
        return step(self, rows)  # type: ignore[arg-type]

    monkeypatch.setattr(Runner, "step", slow)
    return stalled


def n_in_hand(server: BackgroundServer) -> int:
    """Notes in a slot or in the queue."""
    engine = server.app.engine
    assert engine is not None
    return engine.n_occupied + engine.n_waiting


def notes(count: int, seconds: float = 0.3, seed: int | None = None) -> list[timbrel.NoteRequest]:
    return [
        timbrel.NoteRequest("Violin", 48 + number % 12, seconds=seconds, seed=seed, temperature=1.0)
        for number in range(count)
    ]


def check_notes(address: str, requests: list[timbrel.NoteRequest], got: list[timbrel.Note]) -> None:
    """Each request has its own note, and it is the one that `generate` gives for its seed."""
    assert [note.pitch for note in got] == [request.pitch for request in requests]
    assert len({note.seed for note in got}) == len(got)
    with timbrel.Client(address) as client:
        for note in got[:: max(1, len(got) // 5)]:
            alone = client.generate(
                "Violin", note.pitch, seconds=note.seconds, seed=note.seed, temperature=1.0
            )
            np.testing.assert_array_equal(note.codes, alone.codes)


def test_many_notes_are_those_that_generate_gives(
    server_address: str, generate_all: Callable[..., list[Any]]
) -> None:
    requests = notes(40)
    got = generate_all(server_address, requests)
    check_notes(server_address, requests, got)
    assert got[0].audio.dtype == np.float32 and len(got[0].audio) == got[0].duration * got[0].sample_rate


def test_notes_may_come_as_they_are_finished(
    tiny_bundle: Path, slow_steps: threading.Event, generate_all: Callable[..., list[Any]]
) -> None:
    requests = [timbrel.NoteRequest((0.0, 0.0), seconds=seconds, seed=1) for seconds in (2.4, 0.1, 0.1, 0.1)]
    slow_steps.set()
    with BackgroundServer(tiny_bundle, n_slots=4) as server, futures.ThreadPoolExecutor(1) as threads:

        def go_on_once_all_are_asked() -> None:
            wait_for(lambda: n_in_hand(server) == len(requests), "all to be taken on")
            slow_steps.clear()

        going_on = threads.submit(go_on_once_all_are_asked)
        got = generate_all(server.address, requests, ordered=False)
        going_on.result()
    assert sorted(index for index, _ in got) == [0, 1, 2, 3]
    assert got[-1][0] == 0  # the long one, whose steps take the better part of a second more
    assert all(note.seconds == requests[index].seconds for index, note in got)


def test_nobody_waits_for_a_progress_bar_that_is_not_shown(
    server_address: str, generate_all: Callable[..., list[Any]]
) -> None:
    """Whoever is interrupted while a bar is drawn keeps tqdm's lock: no client of the process went on."""
    requests = [timbrel.NoteRequest("Violin", seconds=0.1)]
    with futures.ThreadPoolExecutor(1) as pool, tqdm.get_lock():
        assert len(pool.submit(generate_all, server_address, requests).result(PATIENCE_SECONDS)) == 1


def test_a_standard_error_that_knows_no_terminals_gets_no_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs put such ones in its place, to have what is said in their log."""
    said: list[str] = []
    monkeypatch.setattr(sys, "stderr", SimpleNamespace(write=said.append, flush=lambda: None))
    with bar("notes", 1, "note") as shown:
        shown.update()
    assert said == []


def test_no_requests_give_no_notes(server_address: str, generate_all: Callable[..., list[Any]]) -> None:
    assert generate_all(server_address, []) == []


def test_a_bad_item_takes_its_place_among_the_notes(
    server_address: str, generate_all: Callable[..., list[Any]]
) -> None:
    requests = notes(20)
    requests[7] = timbrel.NoteRequest("Violni")
    requests[11] = timbrel.NoteRequest("Violin", pitch=12)
    got = generate_all(server_address, requests, on_error="return")
    assert [number for number, each in enumerate(got) if isinstance(each, timbrel.TimbrelError)] == [7, 11]
    assert "Violin" in str(got[7]) and got[11].fields[0].field == "pitch"
    assert sum(isinstance(each, timbrel.Note) for each in got) == 18


def test_or_ends_the_iteration_once_those_before_are_out(
    server_address: str, generate_all: Callable[..., list[Any]]
) -> None:
    requests = notes(20)
    requests[7] = timbrel.NoteRequest("Violin", pitch=12)
    n_heard: list[int] = []
    with pytest.raises(timbrel.InvalidRequestError, match="pitch"):
        generate_all(server_address, requests, n_heard.append)
    assert n_heard[-1] == 7


def test_what_reading_the_requests_raises_comes_after_the_notes_before(
    server_address: str, generate_all: Callable[..., list[Any]]
) -> None:
    def requests() -> Iterator[timbrel.NoteRequest]:
        yield from notes(5)
        raise ZeroDivisionError("by the caller")

    n_heard: list[int] = []
    with pytest.raises(ZeroDivisionError, match="by the caller"):
        generate_all(server_address, requests(), n_heard.append)
    assert n_heard[-1] == 5


def test_requests_that_were_cancelled_by_others_end_the_iteration(server_address: str) -> None:
    async def requests() -> AsyncIterator[timbrel.NoteRequest]:
        for note in notes(3):
            yield note
        abandoned: asyncio.Future[timbrel.NoteRequest] = asyncio.get_running_loop().create_future()
        abandoned.cancel()
        yield await abandoned

    async def main() -> int:
        n_heard = 0
        async with timbrel.AsyncClient(server_address, timeout=PATIENCE_SECONDS) as client:
            try:
                async with asyncio.timeout(PATIENCE_SECONDS / 2):
                    async for _ in client.generate_many(requests()):
                        n_heard += 1
            except asyncio.CancelledError:
                return n_heard
        raise AssertionError("it ended as if all had been asked for")

    assert asyncio.run(main()) == 3


@pytest.mark.parametrize(("option", "value"), [("on_error", "ignore"), ("max_in_flight", 0)])
def test_bad_options_are_refused_at_once(option: str, value: object) -> None:
    client = timbrel.Client("127.0.0.1:1")
    with pytest.raises(timbrel.InvalidRequestError, match=option):
        client.generate_many([], **{option: value})  # type: ignore[call-overload]


def test_a_connection_that_breaks_twice_loses_and_doubles_nothing(
    server_address: str, generate_all: Callable[..., list[Any]]
) -> None:
    requests = notes(40)
    with CutProxy(server_address) as proxy:

        def cut(n_heard: int) -> None:
            if n_heard in (5, 20):
                proxy.cut()

        got = generate_all(proxy.address, requests, cut, max_in_flight=8)
        assert proxy.n_connections >= 3
    check_notes(server_address, requests, got)


def test_a_server_that_is_killed_and_started_anew_is_waited_for(
    start_server: Callable[..., ServerProcess], generate_all: Callable[..., list[Any]]
) -> None:
    first = start_server()
    requests = notes(40)
    with CutProxy(first.address) as proxy:

        def restart(n_heard: int) -> None:
            if n_heard == 5:
                first.process.kill()
                first.process.wait()
                proxy.go_down()  # its port may soon be another's
                proxy.target = start_server().address
                proxy.come_up()

        got = generate_all(proxy.address, requests, restart, max_in_flight=8)
        check_notes(proxy.target, requests, got)


def test_a_server_that_does_not_come_back_is_given_up(
    server_address: str, generate_all: Callable[..., list[Any]]
) -> None:
    n_heard: list[int] = []
    with CutProxy(server_address) as proxy:

        def go_down(n_so_far: int) -> None:
            n_heard.append(n_so_far)
            if n_so_far == 5:
                proxy.go_down()

        with pytest.raises(timbrel.UnavailableError, match=proxy.address):
            # Pauses of 0.25, 0.5 and 1 s; the next would be of 2 s, which is more than is left then.
            generate_all(proxy.address, notes(200, 0.2), go_down, timeout=3.7, max_in_flight=4)
    assert n_heard[-1] >= 5  # what had come was handed out


def test_a_server_that_stands_still_meets_the_deadline(
    tiny_bundle: Path, slow_steps: threading.Event, generate_all: Callable[..., list[Any]]
) -> None:
    def stall(n_heard: int) -> None:
        if n_heard == 2:
            slow_steps.set()

    with BackgroundServer(tiny_bundle, n_slots=2) as server:
        try:
            with pytest.raises(timbrel.DeadlineExceededError, match="none came"):
                generate_all(server.address, notes(10), stall, timeout=1.5)
        finally:
            slow_steps.clear()
        server.wait_until_idle()


@pytest.mark.parametrize("many", [False, True])
def test_who_set_no_time_waits_as_much_longer_as_a_note_is_held(
    tiny_bundle: Path,
    tmp_path: Path,
    slow_steps: threading.Event,
    monkeypatch: pytest.MonkeyPatch,
    many: bool,
) -> None:
    bundle = holding(tiny_bundle, tmp_path / "bundle", seconds_max=60.0)
    with BackgroundServer(bundle) as server, timbrel.Client(server.address) as client:
        client.prepare()
        monkeypatch.setattr(connection, "DEFAULT_TIMEOUT_SECONDS", 1.0)
        allow(client, 1.0)
        slow_steps.set()
        threading.Timer(1.2, slow_steps.clear).start()
        request = timbrel.NoteRequest("Violin", seconds=60.0)
        note = next(client.generate_many([request])) if many else client.generate("Violin", seconds=60.0)
        assert note.seconds == 60.0


def test_who_keeps_the_event_loop_busy_blames_no_server_for_it(server_address: str) -> None:
    """A debugger does, and who decodes a long note."""
    requests = [timbrel.NoteRequest("Violin", seconds=0.2, seed=seed) for seed in range(2)]

    async def main() -> list[int]:
        seeds = []
        async with timbrel.AsyncClient(server_address) as client:
            await client.prepare()
            allow(client, 3.0)
            async for note in client.generate_many(requests, max_in_flight=1):
                seeds.append(note.seed)
                if note.seed == 0:
                    time.sleep(3.2)  # longer than the server may take for the other note
        return seeds

    assert asyncio.run(main()) == [0, 1]


def test_who_stops_iterating_frees_every_slot(tiny_bundle: Path, slow_steps: threading.Event) -> None:
    with (
        BackgroundServer(tiny_bundle, n_slots=4) as server,
        timbrel.Client(server.address) as client,
    ):
        with closing(client.generate_many(notes(50, 2.0), max_in_flight=8)) as results:
            next(results)
        server.wait_until_idle()
        for _ in client.generate_many(notes(50, 2.0), ordered=False):
            break
        server.wait_until_idle()


def test_so_does_a_task_that_is_cancelled(tiny_bundle: Path, slow_steps: threading.Event) -> None:
    async def main(address: str) -> None:
        async with timbrel.AsyncClient(address) as client:
            async with aclosing(client.generate_many(notes(50, 2.0))) as results:
                await anext(results)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.5):
                    async for _ in client.generate_many(notes(50, 2.0)):
                        pass
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.3):
                    await client.generate("Violin", seconds=2.0)
            async for _ in client.stream("Violin", seconds=2.0):
                break
            await asyncio.to_thread(server.wait_until_idle)

    with BackgroundServer(tiny_bundle, n_slots=4) as server:
        asyncio.run(main(server.address))


@pytest.mark.parametrize("ordered", [True, False])
def test_ten_thousand_requests_are_not_read_ahead_of_the_window(server_address: str, ordered: bool) -> None:
    n_read = 0

    def requests() -> Iterator[timbrel.NoteRequest]:
        nonlocal n_read
        for request in itertools.islice(itertools.cycle(notes(12, 0.1)), 10_000):
            n_read += 1
            yield request

    with timbrel.Client(server_address) as client:
        results = client.generate_many(requests(), ordered=ordered, max_in_flight=4)  # type: ignore[call-overload]
        for n_heard in range(1, 31):
            next(results)
            time.sleep(0.005)
            assert n_read <= n_heard + 2 * 4
        results.close()


def test_neither_are_they_by_an_event_loop(server_address: str) -> None:
    n_read = 0

    async def requests() -> AsyncIterator[timbrel.NoteRequest]:
        nonlocal n_read
        for request in itertools.islice(itertools.cycle(notes(12, 0.1)), 10_000):
            n_read += 1
            yield request

    async def main() -> None:
        async with (
            timbrel.AsyncClient(server_address) as client,
            aclosing(client.generate_many(requests(), max_in_flight=4)) as results,
        ):
            for n_heard in range(1, 31):
                await anext(results)
                await asyncio.sleep(0.005)
                assert n_read <= n_heard + 2 * 4

    asyncio.run(main())


def test_requests_may_wait_for_the_notes_before(server_address: str) -> None:
    """Reading and writing go on at once: the second request is made of the first note."""
    first_is_out = threading.Event()

    def requests() -> Iterator[timbrel.NoteRequest]:
        yield timbrel.NoteRequest("Violin", 60, seconds=0.2)
        assert first_is_out.wait(PATIENCE_SECONDS)
        yield timbrel.NoteRequest("Violin", 67, seconds=0.2)

    with timbrel.Client(server_address) as client:
        pitches = []
        for note in client.generate_many(requests()):
            pitches.append(note.pitch)
            first_is_out.set()
    assert pitches == [60, 67]


def test_an_absent_server_is_waited_for_by_one_call_too(server_address: str) -> None:
    with (
        CutProxy(server_address) as proxy,
        timbrel.Client(proxy.address, timeout=20) as client,
        futures.ThreadPoolExecutor(1) as threads,
    ):

        def come_up_once_looked_for(n_before: int) -> None:
            wait_for(lambda: proxy.n_turned_away > n_before, "the client to look for the server")
            proxy.come_up()

        client.prepare()
        proxy.go_down()
        coming = threads.submit(come_up_once_looked_for, proxy.n_turned_away)
        assert client.generate("Violin", seconds=0.2, seed=3).seed == 3
        coming.result()
        proxy.go_down()
        coming = threads.submit(come_up_once_looked_for, proxy.n_turned_away)
        assert sum(map(len, client.stream("Violin", seconds=0.2))) > 0
        coming.result()


def test_a_stream_is_not_begun_again_in_the_middle(
    tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    n_steps, is_cut = itertools.count(), threading.Event()
    step = Runner.step

    def stepping(self: Runner, rows: Any) -> list[list[int]]:
        """In the middle of the note, of some 80 steps, the engine stands still until it is cut."""
        assert next(n_steps) < 40 or is_cut.wait(PATIENCE_SECONDS)
        return step(self, rows)

    with (
        BackgroundServer(tiny_bundle) as server,
        CutProxy(server.address) as proxy,
        timbrel.Client(proxy.address) as client,
    ):
        client.prepare()
        monkeypatch.setattr(Runner, "step", stepping)
        chunks = client.stream("Violin", seconds=2.0)
        next(chunks)
        proxy.cut()
        with pytest.raises(timbrel.UnavailableError):
            list(chunks)
        is_cut.set()
        server.wait_until_idle()


def test_closing_the_client_ends_what_is_under_way(tiny_bundle: Path, slow_steps: threading.Event) -> None:
    async def main(address: str) -> None:
        client = timbrel.AsyncClient(address)
        with pytest.raises(timbrel.CancelledError):
            async for _ in client.generate_many(notes(50, 2.0)):
                await client.close()

    with BackgroundServer(tiny_bundle, n_slots=4) as server:
        blocking_client = timbrel.Client(server.address)
        with pytest.raises(timbrel.CancelledError):
            for _ in blocking_client.generate_many(notes(50, 2.0)):
                blocking_client.close()
        server.wait_until_idle()
        asyncio.run(main(server.address))
        server.wait_until_idle()


def test_closing_the_client_ends_the_wait_for_an_absent_server(
    server_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "ATTEMPTS_UNAVAILABLE", 1000)  # it waits until it is closed

    async def main(address: str) -> None:
        client = timbrel.AsyncClient(address, timeout=20)
        await client.prepare()
        proxy.go_down()
        n_before = proxy.n_turned_away
        waiting = asyncio.create_task(client.generate("Violin"))
        await wait_for_async(lambda: proxy.n_turned_away > n_before, "the client to look for the server")
        await client.close()
        with pytest.raises((RuntimeError, timbrel.CancelledError), match="closed"):
            await waiting

    with CutProxy(server_address) as proxy, futures.ThreadPoolExecutor() as threads:
        asyncio.run(main(proxy.address))
        proxy.come_up()
        client = timbrel.Client(proxy.address, timeout=20)
        client.prepare()
        client.point("Violin")
        proxy.go_down()
        n_before = proxy.n_turned_away
        waiting = threads.submit(client.generate, "Violin")
        wait_for(lambda: proxy.n_turned_away > n_before, "the client to look for the server")
        client.close()
        with pytest.raises((RuntimeError, timbrel.CancelledError), match="closed"):
            waiting.result()


def test_closing_the_client_does_not_wait_for_a_server_that_is_silent() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, futures.ThreadPoolExecutor() as threads:
        client = timbrel.Client(f"127.0.0.1:{silent.getsockname()[1]}", timeout=30)
        asking = threads.submit(client.model)
        accepted, _ = silent.accept()
        with accepted:
            closing = threads.submit(client.close)
            with pytest.raises(timbrel.CancelledError):
                asking.result(PATIENCE_SECONDS)
            closing.result(PATIENCE_SECONDS)


@pytest.mark.parametrize("kind", [timbrel.Client, timbrel.AsyncClient])
def test_what_cannot_be_iterated_is_refused_at_once(kind: Callable[[str], Any]) -> None:
    with pytest.raises(TypeError, match="itera"):
        kind("127.0.0.1:1").generate_many(7)


class Stammerer(pb_grpc.SynthesizerServicer):  # type: ignore[misc]
    """Passes everything on to a real server, and says every batch result three times."""

    def __init__(self, address: str) -> None:
        self._stub = pb_grpc.SynthesizerStub(grpc.insecure_channel(address))

    def GetModel(self, request: Any, context: grpc.ServicerContext) -> Any:
        return self._stub.GetModel(request)

    def GetTimbreMap(self, request: Any, context: grpc.ServicerContext) -> Any:
        return self._stub.GetTimbreMap(request)

    def GetFile(self, request: Any, context: grpc.ServicerContext) -> Any:
        yield from self._stub.GetFile(request)

    def GenerateBatch(self, requests: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        for response in self._stub.GenerateBatch(requests):
            yield from (response, response)
            yield pb.GenerateBatchResponse(id=10_000)
            yield response


@pytest.mark.parametrize("ordered", [True, False])
def test_what_is_said_twice_is_heard_once(
    server_address: str, ordered: bool, generate_all: Callable[..., list[Any]]
) -> None:
    server = grpc.server(futures.ThreadPoolExecutor(4))
    pb_grpc.add_SynthesizerServicer_to_server(Stammerer(server_address), server)
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    requests = notes(20)
    got = generate_all(address, requests, ordered=ordered)
    if not ordered:
        assert len({index for index, _ in got}) == len(got)
        got = [note for _, note in sorted(got, key=lambda each: each[0])]
    check_notes(server_address, requests, got)
    server.stop(None).wait()
