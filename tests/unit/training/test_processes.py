"""Processes that work beside others keep to one core."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from timbrel_training import processes
from timbrel_training.errors import TrainingError
from timbrel_training.processes import results

PROBE = """
import numpy, torch
from threadpoolctl import threadpool_info
from timbrel_training import processes
processes.begin()
numpy.ones((300, 300)) @ numpy.ones((300, 300))
print(torch.get_num_threads(), max(pool["num_threads"] for pool in threadpool_info()))
"""


def test_torch_and_numpy_keep_to_one_thread() -> None:
    done = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1", "1"]


def test_results_come_in_order_from_workers_of_their_own() -> None:
    with results(int, int.__add__, [3, 1, 2], jobs=2) as sums:
        assert list(sums) == [3, 1, 2]


def test_there_are_no_more_processes_than_windows_can_wait_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "MOST_PROCESSES", 2)
    with results(os.getpid, _pid_of, range(40), jobs=64) as found:
        assert 1 <= len(set(found)) <= 2


def _pid_of(pid: int, _: int) -> int:
    return pid


def test_a_process_that_the_system_ends_is_one_clear_line() -> None:
    with (
        pytest.raises(
            TrainingError, match=r"a worker process was ended, perhaps for want of memory; .*--jobs"
        ),
        results(int, _end, [False, True, False], jobs=2) as found,
    ):
        list(found)


def _end(_: int, is_ended: bool) -> None:
    if is_ended:
        os._exit(9)


KILLED = """
import os
from timbrel_training.processes import results
if __name__ == "__main__":
    with results(os.getpid, int.__add__, [0, 0, 0], jobs=2) as found:
        next(found)
        os._exit(9)
"""


def test_processes_end_when_the_one_that_they_work_for_is_killed(tmp_path: Path) -> None:
    (script := tmp_path / "killed.py").write_text(KILLED)
    # Returns once nobody holds its output any more.
    done = subprocess.run([sys.executable, script], stdout=subprocess.PIPE, timeout=60.0)
    assert done.returncode == 9


INTERRUPTED = """
import os, time
from timbrel_training.processes import results

def last(_, seconds):
    os.write(1, b"working\\n")
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(0.05)

if __name__ == "__main__":
    try:
        with results(int, last, [600.0] * 9, jobs=2) as found:
            next(found)
    except KeyboardInterrupt:
        print("interrupted")
else:
    os.write(1, b"beginning\\n")
    time.sleep(0.5 if os.name == "posix" else 5.0)  # for as long it takes there to press Ctrl-C
"""

PRESSED = """
import ctypes, sys
console = ctypes.windll.kernel32
console.FreeConsole(), console.AttachConsole(int(sys.argv[1])), console.SetConsoleCtrlHandler(None, True)
console.GenerateConsoleCtrlEvent(0, 0)
"""


def press_ctrl_c(pid: int) -> None:
    """Sends an interrupt as the terminal of a process does, to those that it has begun, too."""
    if sys.platform == "win32":
        subprocess.run([sys.executable, "-S", "-c", PRESSED, str(pid)], check=True)
    else:
        os.killpg(pid, signal.SIGINT)


@pytest.mark.parametrize("moment", ["beginning", "working"])
def test_nobody_waits_for_processes_at_an_interrupt_nor_hears_of_them(moment: str, tmp_path: Path) -> None:
    (script := tmp_path / "interrupted.py").write_text(INTERRUPTED)
    with subprocess.Popen(
        [sys.executable, script],
        start_new_session=True,
        creationflags=getattr(subprocess, "CREATE_NEW_CONSOLE", 0),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        try:
            assert running.stdout is not None
            while running.stdout.readline().strip() != moment:
                assert running.poll() is None
            press_ctrl_c(running.pid)
            output, complaints = running.communicate(timeout=60.0)
        finally:
            running.kill()
    assert running.returncode == 0
    assert "interrupted" in output
    assert complaints == ""
