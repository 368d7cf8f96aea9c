"""Big jobs in a bad world: kills, servers that go away, full disks. Nothing is lost, and one line says it."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from cut_proxy import CutProxy
from library_kills import TIMBREL, KilledJob, check_kills
from note_proxy import NoteProxy
from requirements_gate import require_system
from server_process import ServerProcess, server_environment
from waiting import PATIENCE_SECONDS, wait_for

from timbrel_server.config import default_bundle_path

StartServer = Callable[..., ServerProcess]

JOB = ["--timbre", "Violin", "--pitches", "60-89", "--velocities", "90", "--seconds", "0.5", "--tries", "1"]
"""30 notes."""


@pytest.fixture
def timbrel(tmp_path: Path) -> Callable[..., subprocess.Popen[str]]:
    """Starts `timbrel library` in the test's folder."""

    def start(*arguments: str, servers: str, **options: Any) -> subprocess.Popen[str]:
        environment = server_environment(TIMBREL_SERVER=servers, TIMBREL_CACHE=str(tmp_path / "cache"))
        return subprocess.Popen(
            [TIMBREL, "library", *arguments, "--json"],
            env=environment,
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=options.pop("stderr", subprocess.PIPE),
            text=True,
            **options,
        )

    return start


Timbrel = Callable[..., "subprocess.Popen[str]"]


def notes_in(folder: Path) -> int:
    return len(list(folder.rglob("*.npz")))


def wait_for_notes(folder: Path, count: int) -> None:
    wait_for(lambda: notes_in(folder) >= count, f"{count} notes", seen=lambda: notes_in(folder))


@contextmanager
def answering(server: ServerProcess, n_notes: int) -> Iterator[tuple[NoteProxy, threading.Event]]:
    """A proxy that answers so many notes and no more, until it is told to go on: the job is under way."""
    goes_on = threading.Event()
    with NoteProxy(server.address) as proxy:
        proxy.may_answer = lambda: len(proxy.answered) < n_notes or goes_on.is_set()
        yield proxy, goes_on


def test_kills_change_nothing_and_ask_for_nothing_twice(start_server: StartServer, tmp_path: Path) -> None:
    server = start_server("--slots", "2")
    job = ["--timbre", "Violin", "--timbre", "Flute", "--pitches", "60-65", "--velocities", "40,120"]
    with NoteProxy(server.address) as proxy:
        check_kills(KilledJob(tmp_path, proxy, [*job, "--seconds", "0.3", "--tries", "1"]), 24, 3, seed=6)


def test_two_servers_share_a_job(start_server: StartServer, timbrel: Timbrel, tmp_path: Path) -> None:
    with (
        NoteProxy(start_server("--slots", "2").address) as one,
        NoteProxy(start_server("--slots", "2").address) as other,
    ):
        # Neither is done with the whole job before the other has been asked.
        one.may_answer = other.may_answer = lambda: bool(one.asked and other.asked)
        process = timbrel(*JOB, "--out", "lib", servers=f"{one.address},{other.address}")
        out, error = process.communicate(timeout=120)
        assert process.returncode == 0, error
        assert json.loads(out)["n_rendered"] == len(one.answered) + len(other.answered) == 30
        assert one.answered and other.answered
        assert not set(one.asked) & set(other.asked), "each note is asked of one server"


def test_one_of_two_servers_goes_for_good_and_the_other_does_all(
    start_server: StartServer, timbrel: Timbrel, tmp_path: Path
) -> None:
    staying, leaving = start_server("--slots", "1"), start_server("--slots", "1")
    servers = f"{leaving.address},{staying.address}"
    process = timbrel(*JOB, "--out", "lib", "--timeout", "5", servers=servers)
    wait_for_notes(tmp_path / "lib", 6)
    leaving.process.kill()
    out, error = process.communicate(timeout=120)
    assert process.returncode == 0, error
    assert json.loads(out)["n_rendered"] == json.loads(out)["n_notes"] == 30
    lines = error.splitlines()
    assert all(line.startswith("timbrel: ") for line in lines) and len(lines) <= 2, error


@pytest.mark.slow
def test_a_server_that_is_away_for_a_while_costs_no_note(
    start_server: StartServer, timbrel: Timbrel, tmp_path: Path
) -> None:
    errors = tmp_path / "errors"
    with answering(start_server("--slots", "1"), 5) as (notes, goes_on), CutProxy(notes.address) as proxy:
        with errors.open("w") as stderr:
            process = timbrel(*JOB, "--out", "lib", "--timeout", "5", servers=proxy.address, stderr=stderr)
        wait_for_notes(tmp_path / "lib", 5)
        proxy.go_down()
        wait_for(lambda: "waiting for it" in errors.read_text(), "the job to notice", seen=errors.read_text)
        kept = notes_in(tmp_path / "lib")
        goes_on.set()
        proxy.come_up()
        out, _ = process.communicate(timeout=120)
    error = errors.read_text()
    assert process.returncode == 0, error
    assert kept == 5 and json.loads(out)["n_rendered"] == 30
    said = [line for line in error.splitlines() if line.startswith("timbrel: ")]
    assert "waiting for it, up to 300 s" in said[0]
    assert said[-1] == f"timbrel: {proxy.address} is back"


def test_ctrl_c_does_not_wait_for_a_server_that_hangs(
    start_server: StartServer, timbrel: Timbrel, tmp_path: Path
) -> None:
    with answering(start_server("--slots", "1"), 1) as (notes, _), CutProxy(notes.address) as proxy:
        process = timbrel(*JOB, "--out", "lib", "--timeout", "600", servers=proxy.address)
        wait_for_notes(tmp_path / "lib", 1)
        proxy.forget()  # nothing more is heard of it, as of a process that is stopped
        try:
            process.send_signal(signal.SIGINT)
            _, error = process.communicate(timeout=PATIENCE_SECONDS)
        finally:
            process.kill()
    assert (process.returncode, error.count("\n")) == (130, 1) and "interrupted" in error, error


def test_servers_of_different_bundles_are_refused(
    server_address: str, start_server: StartServer, timbrel: Timbrel, tmp_path: Path
) -> None:
    other = start_server(bundle=default_bundle_path())
    process = timbrel(*JOB, "--out", "lib", servers=f"{server_address},{other.address}")
    out, error = process.communicate(timeout=60)
    assert (process.returncode, out, error.count("\n")) == (2, "", 1)
    assert f"{other.address} has the bundle hash" in error and "all servers of a job" in error
    assert not (tmp_path / "lib").exists()


FILL_AND_MAKE_ROOM = """\
head -c 2500000 /dev/zero > disk/ballast
"$@" 2> first; echo $?
find disk/lib -name '*.npz' | wc -l
find disk/lib -name '*.tmp' | wc -l
rm disk/ballast
"$@" 2> second; echo $?
"""


def test_a_disk_that_fills_up(server_address: str, tmp_path: Path) -> None:
    """A real one, of 4 MB."""
    require_system("bubblewrap")
    (tmp_path / "disk").mkdir()
    done = subprocess.run(
        [
            *("bwrap", "--dev-bind", "/", "/", "--size", "4000000", "--tmpfs", str(tmp_path / "disk")),
            *("--die-with-parent", "sh", "-c", FILL_AND_MAKE_ROOM, "sh"),
            *(TIMBREL, "library", *JOB, "--json", "--out", "disk/lib"),
        ],
        env=server_environment(TIMBREL_SERVER=server_address, TIMBREL_CACHE=str(tmp_path / "cache")),
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    status, n_kept, n_unfinished, *summary, last_status = done.stdout.splitlines()
    said = (tmp_path / "first").read_text()
    assert (status, n_unfinished) == ("2", "0") and said.count("\n") == 1, said
    assert "no space is left on the disk of disk/lib; what was rendered is kept" in said
    assert last_status == "0", (tmp_path / "second").read_text()
    assert json.loads("".join(summary))["n_rendered"] == 30 - int(n_kept)


def test_two_processes_on_one_folder(start_server: StartServer, timbrel: Timbrel, tmp_path: Path) -> None:
    with answering(start_server("--slots", "1"), 1) as (proxy, goes_on):
        first = timbrel(*JOB, "--out", "lib", servers=proxy.address)
        wait_for_notes(tmp_path / "lib", 1)  # and it cannot be done before the second has begun
        second = timbrel(*JOB, "--out", "lib", servers=proxy.address)
        out, error = second.communicate(timeout=60)
        goes_on.set()
        assert (second.returncode, out, error.count("\n")) == (2, "", 1)
        assert f"lib is in use by process {first.pid} on" in error
        out, error = first.communicate(timeout=120)
    assert first.returncode == 0 and json.loads(out)["n_rendered"] == 30
