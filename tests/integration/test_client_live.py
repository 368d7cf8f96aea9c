"""The client's streams and its player, with a real server inside the test."""

from __future__ import annotations

import _thread
import asyncio
import gc
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from in_process_server import PATIENCE_SECONDS, serving
from waiting import wait_for

import timbrel
from timbrel.aio import decoding
from timbrel.aio import player as player_module
from timbrel_server.app import App
from timbrel_server.decoder.runner import Runner

pytestmark = pytest.mark.usefixtures("codecs_loaded_once")


class ServerThread:
    """A server on an event loop of its own, so that a blocking client can be tested beside it."""

    def __init__(self, bundle: Path) -> None:
        self._bundle = bundle
        self._started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))
        self._thread.start()
        assert self._started.wait(PATIENCE_SECONDS)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        async with serving(self._bundle, n_slots=4) as (self.app, _, _channel):
            self._started.set()
            await self._stop.wait()

    def wait_until(self, happened: Callable[[App], bool]) -> None:
        wait_for(
            lambda: happened(self.app), "the server to come to a state", seen=lambda: n_occupied(self.app)
        )

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()


A_MOMENT_SECONDS = max(0.002, 2.0 * time.get_clock_info("monotonic").resolution)
"""Less than a tick of an event loop's clock, 16 ms on Windows, would be over before anything is looked at."""


@pytest.fixture(scope="module")
def server(tiny_bundle: Path) -> Iterator[ServerThread]:
    made = ServerThread(tiny_bundle)
    yield made
    made.close()


@pytest.fixture
def client(server: ServerThread, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[timbrel.Client]:
    monkeypatch.setenv("TIMBREL_CACHE", str(tmp_path / "cache"))
    with timbrel.Client(server.app.address) as opened:
        yield opened


def n_occupied(app: App) -> int:
    assert app.engine is not None
    return app.engine.n_occupied


def steps_until(action: str, app: App, monkeypatch: pytest.MonkeyPatch, n_steps: int) -> list[int]:
    """Has the engine stand still after so many steps until a note meets this ("cancel", "release"); returns a
    count of steps."""
    made: list[int] = []
    is_met = threading.Event()
    step, act = Runner.step, getattr(type(app.engine), action)

    def stepping(self: Runner, rows: object) -> list[list[int]]:
        made.append(1)
        assert len(made) <= n_steps or is_met.wait(PATIENCE_SECONDS)
        return step(self, rows)  # type: ignore[arg-type]

    def acting(*arguments: Any) -> None:
        act(*arguments)
        is_met.set()

    monkeypatch.setattr(Runner, "step", stepping)
    monkeypatch.setattr(type(app.engine), action, acting)
    return made


def test_a_stream_is_the_note_that_generate_gives(client: timbrel.Client) -> None:
    for seed in range(4):
        note = client.generate("Violin", 60, 90, seconds=0.3 * seed + 0.2, seed=seed, temperature=1.0)
        chunks = list(client.stream("Violin", 60, 90, seconds=0.3 * seed + 0.2, seed=seed, temperature=1.0))
        assert all(chunk.dtype == np.float32 and len(chunk) for chunk in chunks)
        assert len(chunks) > 1
        # The first chunk that is heard is the third: the header's frames go ahead.
        assert len(chunks[0]) <= 9 * note.sample_rate / client.model().frame_rate
        np.testing.assert_allclose(np.concatenate(chunks), note.audio, atol=1e-4)


def test_who_stops_listening_frees_the_slot(
    client: timbrel.Client, server: ServerThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.prepare()
    for leave in (lambda chunks: chunks.close(), lambda chunks: None):
        with monkeypatch.context() as patched:
            steps = steps_until("cancel", server.app, patched, 30)
            chunks = client.stream("Violin", seconds=2.4, seed=1)
            next(chunks)
            leave(chunks)  # type: ignore[no-untyped-call]
            del chunks
            server.wait_until(lambda app: n_occupied(app) == 0)
            assert len(steps) <= 30 + 2, "the note, of 94 steps, was written on"


def test_the_timeout_of_a_stream_is_the_servers_and_not_the_listeners(
    client: timbrel.Client, server: ServerThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.prepare()
    connection = client._connection
    whole = len(client.generate("Violin", seconds=2.0, seed=1).audio)
    monkeypatch.setattr(connection, "settings", replace(connection.settings, timeout=3.0))
    chunks = client.stream("Violin", seconds=2.0, seed=1)
    heard = len(next(chunks))
    time.sleep(3.3)  # as long as listening may take
    assert heard + sum(map(len, chunks)) == whole
    steps_until("cancel", server.app, monkeypatch, 30)
    with pytest.raises(timbrel.DeadlineExceededError, match="nothing more of the note came within 3 seconds"):
        list(client.stream("Violin", seconds=2.0, seed=1))
    server.wait_until(lambda app: n_occupied(app) == 0)


def test_the_first_note_of_who_has_prepared_waits_for_itself_alone(
    client: timbrel.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.prepare()
    monkeypatch.delattr("timbrel.decoder.CodecDecoder")
    monkeypatch.delattr("timbrel.aio.transport.Transport.get_timbre_map")
    assert len(next(client.stream("Violin", seconds=0.3))) > 0


def test_a_bad_stream_is_refused_at_once(client: timbrel.Client) -> None:
    with pytest.raises(timbrel.InvalidRequestError, match="pitch"):
        client.stream("Violin", pitch=200)


def test_a_played_note_is_the_note_of_its_hold(client: timbrel.Client) -> None:
    client.prepare()
    with client.play(lead_seconds=0.05) as player:
        note = player.note_on("Flute", 64, seed=5, temperature=1.0)
        wait_for(lambda: note._note._replies.qsize() >= 6, "six replies")  # unheard: then nothing is left out
        note.off()
        note.off()
        chunks = list(note)
        note.off()
    assert note.seed == 5 and note.held_seconds is not None
    assert 0.1 <= note.held_seconds <= 2.4
    again = client.generate("Flute", 64, seconds=note.held_seconds, seed=5, temperature=1.0)
    np.testing.assert_allclose(np.concatenate(chunks), again.audio, atol=1e-4)


def test_what_was_written_ahead_of_the_release_is_left_out(
    client: timbrel.Client, server: ServerThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half a second of it or so: what was heard is the note of a shorter hold, without a click."""
    client.prepare()
    steps_until("release", server.app, monkeypatch, 40)
    now = [100.0]
    monkeypatch.setattr(player_module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    with client.play(lead_seconds=1.0) as player:
        note = player.note_on("Flute", 64, seed=5, temperature=0.0)
        beginning = next(note)
        wait_for(lambda: note._note._replies.qsize() >= 30, "thirty replies")
        now[0] += 0.3  # for so long it is played
        note.off()
        audio = np.concatenate([beginning, *note])
    assert note.held_seconds is not None
    whole = client.generate("Flute", 64, seconds=note.held_seconds, seed=5, temperature=0.0)
    left_out = len(whole.audio) - len(audio)
    assert left_out > 0.2 * whole.sample_rate
    shorter = note.held_seconds - left_out / whole.sample_rate
    again = client.generate("Flute", 64, seconds=shorter, seed=5, temperature=0.0).audio
    assert len(audio) == len(again)
    levels = [np.abs(each[: len(each) // 640 * 640].reshape(-1, 640)).max(axis=1) for each in (audio, again)]
    np.testing.assert_allclose(*levels, rtol=0.3, atol=1e-3 * levels[1].max())  # the pitch trembles otherwise


def test_notes_that_threads_read_are_decoded_together(
    client: timbrel.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Most of a run of one frame goes by whatever the number of notes; each is heard as it would be alone."""
    n_notes, sizes, go_on, decode_each = 4, list[int](), threading.Event(), decoding.decode_each

    def held_up(chunks: list[Any]) -> Any:
        sizes.append(len(chunks))
        assert go_on.wait(PATIENCE_SECONDS)
        return decode_each(chunks)

    client.prepare()
    alone = [client.generate("Violin", 60 + each, seconds=0.3, seed=each).audio for each in range(n_notes)]
    monkeypatch.setattr(decoding, "decode_each", held_up)
    with client.play() as player, ThreadPoolExecutor(n_notes) as pool:
        played = [player.note_on("Violin", 60 + each, seconds=0.3, seed=each) for each in range(2)]
        heard = [pool.submit(lambda note=note: np.concatenate([*note])) for note in played]
        streams = [client.stream("Violin", 60 + each, seconds=0.3, seed=each) for each in range(2, n_notes)]
        heard += [pool.submit(lambda stream=stream: np.concatenate([*stream])) for stream in streams]
        own = client._connection.decoding  # those that come at once are decoded at once, the first ones, too
        wait_for(lambda: sizes and sizes[0] + len(own._waiting) == n_notes, "notes to wait")
        go_on.set()
        for each, audio in zip(alone, heard, strict=True):
            np.testing.assert_allclose(audio.result(PATIENCE_SECONDS), each, atol=1e-4)
    assert sum(sizes[:2]) >= n_notes, "what came first, then all that waited for it"


def test_a_reader_that_is_interrupted_may_read_on(
    client: timbrel.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by Ctrl-C, in a notebook say."""
    runs, decode_each = list[int](), decoding.decode_each
    is_interrupted = threading.Event()

    def interrupting(chunks: list[Any]) -> Any:
        runs.append(len(chunks))
        if len(runs) == 9:
            _thread.interrupt_main()
            assert is_interrupted.wait(PATIENCE_SECONDS)
        return decode_each(chunks)

    whole = client.generate("Violin", 60, seconds=0.5, seed=1)
    monkeypatch.setattr(decoding, "decode_each", interrupting)
    heard: list[Any] = []
    with client.play() as player:
        note = player.note_on("Violin", 60, seconds=0.5, seed=1)
        with pytest.raises(KeyboardInterrupt):
            for chunk in note:
                heard.append(chunk)
        is_interrupted.set()
        heard += note
    np.testing.assert_allclose(np.concatenate(heard), whole.audio, atol=1e-4)


@pytest.mark.usefixtures("client")
def test_a_reader_that_is_cancelled_takes_nothing_from_the_note(server: ServerThread) -> None:
    async def main() -> tuple[list[Any], int, timbrel.Note]:
        async with (
            timbrel.AsyncClient(server.app.address) as client,
            client.play(lead_seconds=0.05) as player,
        ):
            note = await player.note_on("Flute", 64, seconds=1.0, seed=5)
            chunks, n_cancelled = [], 0
            while True:
                try:
                    chunks.append(await asyncio.wait_for(anext(note), A_MOMENT_SECONDS))
                except TimeoutError:
                    n_cancelled += 1
                except StopAsyncIteration:
                    return chunks, n_cancelled, await client.generate("Flute", 64, seconds=1.0, seed=5)

    chunks, n_cancelled, note = asyncio.run(main())
    assert n_cancelled > 0
    np.testing.assert_allclose(np.concatenate(chunks), note.audio, atol=1e-4)


@pytest.mark.usefixtures("client")
def test_a_note_whose_reader_is_cancelled_can_be_let_go(server: ServerThread) -> None:
    async def main() -> tuple[int, float | None]:
        async with (
            timbrel.AsyncClient(server.app.address) as client,
            client.play(lead_seconds=0.05) as player,
        ):
            note = await player.note_on("Flute", 64, seed=5)
            with pytest.raises(TimeoutError):
                while True:
                    await asyncio.wait_for(anext(note), A_MOMENT_SECONDS)
            note.off()
            return sum([len(chunk) async for chunk in note]), note.held_seconds

    n_samples, held_seconds = asyncio.run(main())
    assert n_samples > 0 and held_seconds is not None and held_seconds < 2.4


@pytest.mark.usefixtures("client")
def test_another_thread_may_let_go_of_a_note_of_an_event_loop(server: ServerThread) -> None:
    """A MIDI keyboard's callback, say. In debug mode asyncio sees to it that nothing of a loop is touched."""

    async def main() -> float | None:
        async with timbrel.AsyncClient(server.app.address) as client, client.play() as player:
            note = await player.note_on("Violin", 60, seed=1)
            await anext(note)
            await asyncio.to_thread(note.off)
            assert [len(chunk) async for chunk in note]
            await asyncio.to_thread(note.cancel)  # harmless, as it has ended
            return note.held_seconds

    assert asyncio.run(main(), debug=True)


def test_of_a_note_that_fails_when_its_reader_is_gone_nobody_complains(server: ServerThread) -> None:
    async def main() -> list[object]:
        complaints: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _loop, told: complaints.append(told))
        async with (
            timbrel.AsyncClient(server.app.address) as client,
            client.play(lead_seconds=100.0) as player,
        ):
            note = await player.note_on("Flute")
            reader = asyncio.create_task(note.__anext__())
            await asyncio.sleep(0)
            reader.cancel()
            assert note._next is not None
            await asyncio.wait({reader, note._next})
            del note, reader
        gc.collect()
        return complaints

    assert asyncio.run(main()) == []


def test_many_notes_sound_at_once_and_leaving_lets_go_of_them(client: timbrel.Client) -> None:
    client.prepare()
    with client.play(lead_seconds=0.05) as player:
        notes = [player.note_on("Violin", 50 + number, seed=number) for number in range(4)]
        with ThreadPoolExecutor(4) as pool:
            heads = list(pool.map(next, notes))
    for number, (head, note) in enumerate(zip(heads, notes, strict=True)):
        audio = np.concatenate([head, *note])  # what is left can be read after the stream has ended
        assert note.held_seconds is not None and note.held_seconds <= 2.4
        again = client.generate("Violin", 50 + number, seconds=note.held_seconds, seed=number)
        np.testing.assert_allclose(audio, again.audio, atol=1e-4)


def test_a_player_without_a_block_is_closed(client: timbrel.Client) -> None:
    """As in a notebook."""
    player = client.play()
    note = player.note_on("Violin", 60, seed=1)  # held
    next(note)
    player.close()
    assert sum(len(chunk) for chunk in note) > 0 and note.held_seconds is not None
    with pytest.raises(timbrel.UnavailableError, match="the player is closed"):
        player.note_on("Violin", 60)
    player.close()  # harmless


@pytest.mark.usefixtures("client")
def test_an_asynchronous_player_is_opened_by_its_first_note(server: ServerThread) -> None:
    async def main() -> list[int]:
        client = timbrel.AsyncClient(server.app.address)
        player = client.play()
        notes = await asyncio.gather(*(player.note_on("Violin", pitch, seed=1) for pitch in (60, 64)))
        await player.close()
        lengths = [sum([len(chunk) async for chunk in note]) for note in notes]
        for is_hurried in (False, True):  # closed before anything came of it, or by then
            player = client.play()
            hurried = [asyncio.ensure_future(player.note_on("Violin", 60))] if is_hurried else []
            await asyncio.sleep(0)
            await player.close()
            for late in (*hurried, player.note_on("Violin", 60), player.move("Violin")):
                with pytest.raises(timbrel.UnavailableError, match="the player is closed"):
                    await late
        await client.close()
        return lengths

    assert all(asyncio.run(main()))


def test_a_wheel_that_is_turned_before_the_first_note_bends_it(
    client: timbrel.Client, server: ServerThread
) -> None:
    async def main() -> list[Any]:
        async with timbrel.AsyncClient(server.app.address) as client:
            player = client.play()
            player.bend(30)
            note = await player.note_on("Violin", 60, seconds=0.3, seed=1)
            chunks = [chunk async for chunk in note]
            await player.close()
            return chunks

    bent = client.generate("Violin", 60, seconds=0.3, seed=1, cents=30)
    np.testing.assert_allclose(np.concatenate(asyncio.run(main())), bent.audio, atol=1e-4)


def test_what_is_wrong_with_one_note_leaves_the_others_alone(client: timbrel.Client) -> None:
    with client.play(lead_seconds=0.05) as player:
        note = player.note_on("Violin", seed=1)
        with pytest.raises(timbrel.InvalidRequestError, match="velocity"):
            player.note_on("Violin", velocity=500)
        gone = player.note_on("Violin", seed=2)
        gone.cancel()
        with pytest.raises(timbrel.CancelledError):
            list(gone)
        note.off()
        assert sum(map(len, note)) > 0


def test_an_exception_ends_every_note_at_once(client: timbrel.Client, server: ServerThread) -> None:
    with pytest.raises(KeyboardInterrupt), client.play(lead_seconds=0.05) as player:
        note = player.note_on("Violin", seed=1)
        next(note)
        raise KeyboardInterrupt
    server.wait_until(lambda app: n_occupied(app) == 0)
    with pytest.raises(timbrel.CancelledError):
        list(note)
    with pytest.raises(timbrel.CancelledError):
        player.note_on("Violin")


def test_a_note_that_nobody_has_any_more_is_written_no_further(client: timbrel.Client) -> None:
    with client.play() as player:
        note = player.note_on("Violin")
        next(note)
        heard = note._note._replies._queue  # type: ignore[attr-defined]
        del note
        gc.collect()

        def ends(reply: Any) -> bool:
            return isinstance(reply, timbrel.TimbrelError) or bool(reply.finish_reason)

        wait_for(lambda: heard and ends(heard[-1]), "the note to end")
        assert isinstance(heard[-1], timbrel.CancelledError)


def test_a_player_that_nobody_has_any_more_ends_its_stream(client: timbrel.Client) -> None:
    player = client.play()
    note = player.note_on("Violin")
    stream = player._player._stream
    assert stream is not None
    del player
    gc.collect()
    next(note)  # whose note it is
    assert stream.end is None
    del note
    gc.collect()
    wait_for(stream._reader.done, "the stream to end")


def test_a_lead_out_of_range_is_told_by_the_note(client: timbrel.Client) -> None:
    with client.play(lead_seconds=100.0) as player:
        note = player.note_on("Violin")
        with pytest.raises(
            timbrel.InvalidRequestError, match=r"lead_seconds: 100 is not allowed; 0\.02 to 60"
        ):
            next(note)
