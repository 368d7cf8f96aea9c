"""The decode graphs on the stand-in: where their nodes go, and what a step and an admission cost."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from cuda_check.stand_in import StandIn

from timbrel_bundle.bundle import Bundle
from timbrel_bundle.errors import BundleError
from timbrel_bundle.layout import DECODER_STEP_HALF
from timbrel_bundle.runtime import CUDA, session_options
from timbrel_server.decoder.memory import Arena, Memory
from timbrel_server.decoder.runner import CaptureError, Runner
from timbrel_server.decoder.sessions import DECODER_GRAPHS, open_sessions
from timbrel_server.engine.request import NoteRequest
from timbrel_server.engine.slots import StepInput

N_SLOTS = 64
MOST_KERNELS = {"fp16": 105, "fp32": 131}
"""Kernels and products in a captured step of the bundle that ships, by precision; three of them
keep notes from ending before they sound, five read what the header network says."""
MOST_ADMISSION_KERNELS = 140
"""Kernels and products of a captured admission, however many notes begin."""


@pytest.fixture
def bundle(shipped: Path) -> Bundle:
    return Bundle.open(shipped)


@pytest.fixture
def runner(bundle: Bundle, precision: str) -> Runner:
    made = Runner(open_sessions(bundle, "cuda", 0, precision), bundle.manifest, N_SLOTS)
    made.warm_up()
    return made


def note(seed: int) -> NoteRequest:
    return NoteRequest((0.1, 0.2), 60, 100, 50, seed)


def full_step(bundle: Bundle, position: int) -> StepInput:
    gate = np.ones(N_SLOTS, np.int64)
    tokens = np.zeros((N_SLOTS, bundle.manifest.codec.n_codebooks), np.int64)
    return StepInput(gate > 0, np.full(N_SLOTS, position), tokens, gate)


def test_every_node_of_a_step_runs_on_cuda_and_none_copies(bundle: Bundle, precision: str) -> None:
    options = session_options(1)
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    [graph] = DECODER_GRAPHS[CUDA][precision]
    session = bundle.session(graph, [(CUDA, {}), "CPUExecutionProvider"], options)
    placed = [
        (part.ep_name, node.op_type)
        for part in session.get_provider_graph_assignment_info()
        for node in part.get_nodes()
    ]
    print(f"{graph}: {len(placed)} nodes")
    assert len(placed) > 50
    assert {provider for provider, _ in placed} == {CUDA}
    assert not [kind for _, kind in placed if kind.startswith("Memcpy")]


def test_each_batch_size_is_captured_once_on_the_thread_that_warms_up(
    bundle: Bundle, precision: str, stand_in: StandIn
) -> None:
    runner = Runner(open_sessions(bundle, "cuda", 0, precision), bundle.manifest, N_SLOTS, fast=True)
    before = len(stand_in.captures)
    threads: list[int] = []

    def work() -> None:
        threads.append(threading.get_native_id())
        runner.warm_up()
        runner.step(full_step(bundle, 0))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    made = stand_in.captures[before:]
    print(f"{precision}: {len(made)} captures of {sorted(n for _, n in made)} kernels")
    assert [thread for thread, _ in made] == threads * (len(runner.buckets) + 1)
    *steps, admission = [n for _, n in made]
    assert max(steps) <= MOST_KERNELS[precision]
    assert admission <= MOST_ADMISSION_KERNELS


def test_a_step_is_one_launch_and_copies_nothing(bundle: Bundle, runner: Runner, stand_in: StandIn) -> None:
    runner.admit([(row, note(row)) for row in range(N_SLOTS)])
    runner.step(full_step(bundle, 0))
    with stand_in.counting() as step:
        runner.step(full_step(bundle, 1))
    print(f"a step of {N_SLOTS} rows: {step.by_name}")
    assert step["uploads"] == step["downloads"] == 0 and step["graph_launches"] == 1
    assert step["kernels"] == step["products"] == step["allocations"] == step["device_copies"] == 0
    assert step["synchronisations"] <= 3


def test_notes_that_begin_together_share_one_launch(runner: Runner, stand_in: StandIn) -> None:
    with stand_in.counting() as one:
        runner.admit([(7, note(1))])
    with stand_in.counting() as many:
        runner.admit([(row, note(row)) for row in range(1, N_SLOTS, 2)])
    print(f"admission of one: {one.by_name}\nof {N_SLOTS // 2}, here and there: {many.by_name}")
    for admission in (one, many):
        assert admission["graph_launches"] == 1 and admission["uploads"] <= 2
        assert admission["kernels"] == admission["products"] == admission["allocations"] == 0


def test_no_captured_run_copies_from_the_host(bundle: Bundle, precision: str, stand_in: StandIn) -> None:
    """It would read that memory at each launch, whoever has it by then."""
    runner = Runner(open_sessions(bundle, "cuda", 0, precision), bundle.manifest, N_SLOTS)
    with stand_in.counting() as runs:
        runner._sessions.decoder.run_with_iobinding(
            runner._bindings[N_SLOTS, 0], runner._run_options[N_SLOTS]
        )
        runner._encode_all()
    assert runs["uploads"] == 0 and runs["captures"] == 2


def test_threads_that_wait_for_a_device_sleep(bundle: Bundle, precision: str, stand_in: StandIn) -> None:
    with stand_in.counting() as opening:
        open_sessions(bundle, "cuda", 1, precision, device_id=1)
    assert opening["sleeping_devices"] == 1


def test_an_arena_on_a_device_has_no_copy_on_the_host() -> None:
    tracemalloc.start()
    arena = Arena(16, (1 << 20,), Memory("cuda", 0))
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert arena.row_shape == (1 << 20,)
    assert kept < 1 << 20


def test_sessions_on_cuda_keep_fp32_and_need_no_threads(bundle: Bundle, precision: str) -> None:
    opened = open_sessions(bundle, "cuda", 0, precision)
    for session in (opened.decoder, opened.condition_encoder):
        assert session.get_provider_options()[CUDA]["use_tf32"] == "0"
        assert session.get_session_options().intra_op_num_threads == 1


def test_a_capture_that_fails_is_told_as_such(
    bundle: Bundle, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STAND_IN_CAPTURE", "fail")
    runner = Runner(open_sessions(bundle, "cuda", 0, precision), bundle.manifest, 2)
    with pytest.raises(CaptureError):
        runner.warm_up()


def test_the_provider_needs_no_library_that_the_extra_does_not_bring() -> None:
    """cuDNN, cuFFT and nvJitLink, in particular: sessions of both graphs have been opened by now."""
    maps = Path("/proc/self/maps").read_text(encoding="utf-8")
    assert "libonnxruntime_providers_cuda" in maps
    assert not re.search(r"libcudnn|libcufft|libnvJitLink", maps)


@pytest.mark.parametrize("provider", ["cpu", "auto"])
def test_what_the_runtime_says_of_missing_libraries_is_not_printed(provider: str) -> None:
    program = f"from timbrel_bundle.runtime import resolve_provider; resolve_provider({provider!r})"
    without = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}
    done = subprocess.run(
        [sys.executable, "-c", program], env=without, capture_output=True, text=True, check=True
    )
    assert (done.stdout, done.stderr) == ("", "")


def test_a_provider_that_fails_is_an_error_and_not_the_cpu(
    bundle: Bundle, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(BundleError, match="onnxruntime cannot load it"):
        bundle.session(DECODER_STEP_HALF, [(CUDA, {"device_id": "99"})])
    assert capfd.readouterr().out == ""


def test_conditions_reach_the_device_as_they_were_written(runner: Runner) -> None:
    """Kernels do nothing here, but copies do: what an admission reads lies where the graph looks for it."""
    runner.admit([(row, note(row)) for row in range(N_SLOTS)])
    conditions = runner._condition
    on_device = conditions._value.numpy()
    for name, array in conditions.arrays.items():
        start = conditions._offsets[name]
        assert np.array_equal(on_device[start : start + array.nbytes].view(array.dtype), array.reshape(-1))
