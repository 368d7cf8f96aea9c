"""The client among processes and event loops: forks, Ctrl-C, notebooks, parents that die."""

from __future__ import annotations

import asyncio
import copy
import gc
import operator
import os
import pickle
import signal
import subprocess
import sys
import weakref
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from background_server import BackgroundServer
from server_process import ServerProcess, server_environment
from waiting import wait_for, wait_until_gone

import timbrel
from timbrel import threads

PATIENCE_SECONDS = 180.0


@pytest.fixture(autouse=True)
def environment(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TIMBREL_SERVER", "TIMBREL_TOKEN", "TIMBREL_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TIMBREL_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


FORK = """
import os, signal, sys, timbrel

def attempt(name, action):
    try:
        action()
    except BaseException as error:
        print(name, type(error).__name__, error, sep="|", flush=True)
    else:
        print(name, "worked", sep="|", flush=True)

def from_anew():
    with timbrel.Client(sys.argv[1]) as another:
        another.generate("Violin", seconds=0.2)

if os.fork() == 0:
    attempt("before", from_anew)
    os._exit(0)
os.wait()
client = timbrel.Client(sys.argv[1])
client.prepare()
player = client.play()
if "playing" in sys.argv:
    player.__enter__()
if (child := os.fork()) == 0:
    signal.alarm(120)
    attempt("generate", lambda: client.generate("Violin"))
    attempt("stream", lambda: client.stream("Violin"))
    attempt("many", lambda: next(client.generate_many([timbrel.NoteRequest("Violin")])))
    attempt("note_on", lambda: player.note_on("Violin"))
    attempt("model", client.model)
    attempt("close", client.close)
    attempt("from anew", from_anew)
    os._exit(0)
print("child", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), sep="|", flush=True)
attempt("parent", lambda: client.generate("Violin", seconds=0.2))
if "playing" in sys.argv:
    player.__exit__(None, None, None)
"""


def what_a_fork_says(address: str, *arguments: str) -> dict[str, str]:
    done = subprocess.run(
        [sys.executable, "-c", FORK, address, *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=True,
        env=server_environment(TIMBREL_CACHE=os.environ["TIMBREL_CACHE"]),
    )
    said = dict(line.split("|", 1) for line in done.stdout.splitlines())
    assert said["child"] == "0", (said, done.stderr)
    for name in ("generate", "stream", "many", "model"):
        assert said[name].startswith("RuntimeError|this client was made by process"), said
        assert "make clients after the fork" in said[name]
    assert said["before"] == said["close"] == said["parent"] == "worked", said
    assert said["from anew"].startswith("RuntimeError|process"), said
    assert "which had called a server by then" in said["from anew"]
    return said


def test_a_forked_child_is_told_that_the_client_is_its_parents(server_address: str) -> None:
    what_a_fork_says(server_address)


def test_a_child_forked_while_notes_are_played_live_is_told_too(server_address: str) -> None:
    said = what_a_fork_says(server_address, "playing")
    assert said["note_on"].startswith("RuntimeError|this client was made by process"), said


def test_notes_travel_between_processes_with_their_sound_or_without(server_address: str) -> None:
    with timbrel.Client(server_address) as client:
        notes = [client.generate("Violin", seconds=0.2, seed=seed, cents=[(0, 9), (1, 0)]) for seed in (1, 2)]
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        decoded_there = list(pool.map(operator.attrgetter("audio"), notes))
        assert not any("audio" in vars(note) for note in notes), "it is decoded where it is asked for"
        assert [each.tolist() for each in decoded_there] == [note.audio.tolist() for note in notes]
        back = list(pool.map(copy.copy, notes))
    assert all("audio" in vars(note) for note in back), "it is not decoded twice"
    assert back[0]._decode is back[1]._decode, "nor is the codec loaded for each"
    for note, again in zip(notes, back, strict=True):
        assert again == note and np.array_equal(again.audio, note.audio)
        assert not again.codes.flags.writeable
        assert copy.deepcopy(note)._decode is note._decode


def test_a_client_does_not_travel_and_says_so(server_address: str) -> None:
    with timbrel.Client(server_address) as client, client.play() as player:
        for what in (client, client.generate, player, timbrel.AsyncClient(server_address)):
            with pytest.raises(TypeError, match="a client is neither copied nor sent to another process"):
                pickle.dumps(what)
            with pytest.raises(TypeError, match="make another one there"):
                copy.deepcopy(what)


@pytest.mark.parametrize(
    ("module", "asked", "thread"),
    [
        ("gevent.monkey", "is_module_patched", "threading"),
        ("eventlet.patcher", "is_monkey_patched", "thread"),
    ],
)
def test_a_program_without_threads_of_its_own_is_told(
    server_address: str, monkeypatch: pytest.MonkeyPatch, module: str, asked: str, thread: str
) -> None:
    """Before the loop's thread is begun: under eventlet nothing else would go on."""
    monkeypatch.setattr(threads, "_loop_thread", None)
    monkeypatch.setitem(sys.modules, module, SimpleNamespace(**{asked: lambda name: name == thread}))
    library = module.partition(".")[0]
    with pytest.raises(RuntimeError, match=f"{library} has replaced the threads of this process"):
        timbrel.Client(server_address).model()
    assert threads._loop_thread is None


OPEN_LOOP = """
import asyncio, os, subprocess, sys, timbrel

async def main():
    async with timbrel.AsyncClient(sys.argv[1]) as client:
        await client.generate("Violin", seconds=0.2)
        done = subprocess.run(["true"], preexec_fn=lambda: None)
        print("program", done.returncode, sep="|", flush=True)
        if (child := os.fork()) == 0:
            os._exit(7)
        print("child", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), sep="|", flush=True)
        await client.generate("Violin", seconds=0.2)

asyncio.run(main())
"""


def test_children_that_call_no_server_live_beside_an_open_asynchronous_client(server_address: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", OPEN_LOOP, server_address],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=True,
        env=server_environment(TIMBREL_CACHE=os.environ["TIMBREL_CACHE"]),
    )
    assert done.stdout.split() == ["program|0", "child|7"], done.stderr


INTERRUPTED = """
import sys, timbrel, itertools
endless = (timbrel.NoteRequest("Violin", seconds=2.0) for _ in itertools.count())
with timbrel.Client(bundle=sys.argv[1]) as client:
    print(client._connection.private_server.pid, flush=True)
    for number, note in enumerate(client.generate_many(endless)):
        if number == 3:
            print("under way", flush=True)
"""

INTERRUPTED_LOOP = """
import sys, timbrel, itertools, asyncio
endless = (timbrel.NoteRequest("Violin", seconds=2.0) for _ in itertools.count())
async def main():
    async with timbrel.AsyncClient(bundle=sys.argv[1]) as client:
        print(client._connection.private_server.pid, flush=True)
        number = 0
        async for note in client.generate_many(endless):
            number += 1
            if number == 3:
                print("under way", flush=True)
asyncio.run(main())
"""

INTERRUPTED_NOTE = """
import sys, timbrel
with timbrel.Client(bundle=sys.argv[1]) as client:
    print(client._connection.private_server.pid, flush=True)
    client.prepare()
    print("under way", flush=True)
    while True:
        client.generate("Violin", seconds=2.0)
"""


@pytest.mark.parametrize("script", [INTERRUPTED, INTERRUPTED_LOOP, INTERRUPTED_NOTE])
def test_ctrl_c_ends_the_program_and_its_private_server(tiny_bundle: Path, script: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", script, str(tiny_bundle)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=server_environment(TIMBREL_CACHE=os.environ["TIMBREL_CACHE"]),
    ) as program:
        assert program.stdout is not None and program.stderr is not None
        server = int(program.stdout.readline())
        assert program.stdout.readline() == "under way\n"
        program.send_signal(signal.SIGINT)
        errors = program.stderr.read()
        assert program.wait(PATIENCE_SECONDS) in (-signal.SIGINT, 130), errors
    assert errors.splitlines()[-1] == "KeyboardInterrupt", errors
    assert "Exception ignored" not in errors and "never retrieved" not in errors, errors
    wait_until_gone(server)


LEFT_OPEN = """
import atexit, sys, threading, time
if sys.argv[2] == "thread":
    atexit.register(time.sleep, 1.0)  # after the client's: nothing can be asked any more
import timbrel
from timbrel import threads
threads.STOP_SECONDS = 60.0  # a busy machine takes longer than usual to end the program
client = timbrel.Client(sys.argv[1])
client.prepare()
def render():
    while True:
        client.generate("Violin", seconds=2.0)
match sys.argv[2]:
    case "many":
        left = client.generate_many([timbrel.NoteRequest("Violin", seconds=2.0)] * 20)
        next(left)
    case "stream":
        left = client.stream("Violin", seconds=2.0)
        next(left)
    case "play":
        player = client.play()
        next(player.note_on("Violin"))
    case "thread":
        threading.Thread(target=render, daemon=True).start()
        time.sleep(0.2)
print("end")
"""


@pytest.mark.parametrize("left", ["nothing", "many", "stream", "play", "thread"])
def test_a_program_ends_in_silence_whatever_it_leaves_open(server_address: str, left: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LEFT_OPEN, server_address, left],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
        env=server_environment(TIMBREL_CACHE=os.environ["TIMBREL_CACHE"]),
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "end\n", "")


SERVER_DIES = """
import asyncio, gc, os, signal, sys, timbrel
async def main():
    async with timbrel.AsyncClient(sys.argv[1]) as client:
        await client.prepare()
        player = await client.play().__aenter__()
        note = await player.note_on("Violin", seconds=2.0)
        await anext(note)
        os.kill(int(sys.argv[2]), signal.SIGKILL)
        try:
            async for _ in note:
                pass
        except timbrel.UnavailableError:
            pass
    del player, note  # it was not left: the explorer goes on by a new one
    gc.collect()
asyncio.run(main())
print("end")
"""


def test_a_server_that_dies_under_a_player_leaves_no_complaint_of_a_lost_task(
    start_server: Callable[..., ServerProcess],
) -> None:
    server = start_server()
    done = subprocess.run(
        [sys.executable, "-c", SERVER_DIES, server.address, str(server.process.pid)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
        env=server_environment(TIMBREL_CACHE=os.environ["TIMBREL_CACHE"]),
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "end\n", "")


def test_a_client_that_nobody_holds_any_more_lets_go_of_its_connection(server_address: str) -> None:
    client = timbrel.Client(server_address)
    client.generate("Violin", seconds=0.2)
    list(client.generate_many([timbrel.NoteRequest("Violin", seconds=0.2)] * 2))
    connection = weakref.ref(client._connection)
    del client

    def is_gone() -> bool:
        gc.collect()
        return connection() is None

    wait_for(is_gone, "the connection to be let go of")


def test_the_blocking_client_works_within_a_running_event_loop(server_address: str) -> None:
    """A notebook's cells run in one."""

    async def cell() -> list[int]:
        with timbrel.Client(server_address) as client:
            note = client.generate("Violin", seconds=0.2, seed=1)
            many = list(client.generate_many([timbrel.NoteRequest("Violin", seconds=0.2, seed=2)] * 2))
            assert sum(map(len, client.stream("Violin", seconds=0.2))) > 0
            return [note.seed, *(each.seed for each in many)]

    assert asyncio.run(cell()) == [1, 2, 2]


def test_an_asynchronous_client_outside_of_asyncio_says_what_to_do(tiny_bundle: Path) -> None:
    begun = timbrel.AsyncClient(bundle=tiny_bundle).model()
    with pytest.raises(RuntimeError, match=r"no event loop of asyncio .* under trio, use a timbrel\.Client"):
        begun.send(None)  # as another framework would


def test_an_asynchronous_client_belongs_to_one_event_loop(server_address: str) -> None:
    client = timbrel.AsyncClient(server_address)

    async def render() -> int:
        return (await client.generate("Violin", seconds=0.2, seed=1)).seed

    assert asyncio.run(render()) == 1
    with pytest.raises(RuntimeError, match="another event loop"):
        asyncio.run(render())


def test_a_closed_asynchronous_client_says_so(server_address: str) -> None:
    async def main() -> None:
        async with timbrel.AsyncClient(server_address) as client:
            await client.model()
        with pytest.raises(RuntimeError, match="closed"):
            await client.model()

    asyncio.run(main())


def test_an_asynchronous_client_starts_a_server_that_ends_with_it(tiny_bundle: Path) -> None:
    async def main() -> int:
        async with timbrel.AsyncClient(bundle=tiny_bundle) as client:
            notes = [client.generate("Violin", seconds=0.2, seed=seed) for seed in range(4)]
            assert [note.seed for note in await asyncio.gather(*notes)] == [0, 1, 2, 3]
            private = client._connection.private_server
            assert private is not None
            return private.pid

    wait_until_gone(asyncio.run(main()))


def test_an_event_loop_plays_live(tiny_bundle: Path) -> None:
    async def main(address: str) -> None:
        async with timbrel.AsyncClient(address) as client:
            await client.prepare()
            async with client.play() as player:
                chord = [await player.note_on("Violin", pitch, seed=pitch) for pitch in (60, 64, 67)]
                first = [await anext(note) for note in chord]
                for note in chord:
                    note.off()
                lengths = [sum([len(chunk) async for chunk in note]) for note in chord]
            assert all(len(chunk) > 0 for chunk in first) and [note.seed for note in chord] == [60, 64, 67]
            held = chord[0].held_seconds
            assert held is not None
            alone = await client.generate("Violin", 60, seconds=held, seed=60)
            left_out = len(alone.audio) - len(first[0]) - lengths[0]  # what was written ahead of the release
            assert 0 <= left_out < held * alone.sample_rate and left_out % 1280 == 0
            with pytest.raises(timbrel.UnavailableError, match="player is closed"):
                await player.note_on("Violin")
            with pytest.raises(ZeroDivisionError):
                async with client.play() as player:
                    note = await player.note_on("Violin")
                    await anext(note)
                    raise ZeroDivisionError
            with pytest.raises(timbrel.CancelledError):
                async for _ in note:
                    pass
            await asyncio.to_thread(server.wait_until_idle)

    with BackgroundServer(tiny_bundle) as server:
        asyncio.run(main(server.address))


def test_an_event_loop_streams_and_locates_as_threads_do(server_address: str) -> None:
    async def main() -> None:
        async with timbrel.AsyncClient(server_address) as client:
            with timbrel.Client(server_address) as blocking:
                chunks = [chunk async for chunk in client.stream("Violin", seconds=0.5, seed=3)]
                note = blocking.generate("Violin", seconds=0.5, seed=3)
                assert sum(map(len, chunks)) == len(note.audio)
                assert (await client.decode(note.codes, note.seed)).tolist() == note.audio.tolist()
                assert await client.locate(note.audio, note.sample_rate) == blocking.locate(
                    note.audio, note.sample_rate
                )
                assert await client.model() == blocking.model()
                assert await client.timbre_map() == blocking.timbre_map()
                assert await client.point("violin") == blocking.point("Violin")
                with pytest.raises(timbrel.InvalidRequestError, match="Violin"):
                    await client.generate("Violni")

    asyncio.run(main())
