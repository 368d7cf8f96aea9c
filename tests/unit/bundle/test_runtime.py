"""Everything imports without an ONNX runtime; with one, CUDA is promised only where it works."""

from __future__ import annotations

import contextlib
import os
import pkgutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from waiting import wait_for

import timbrel_bundle
from timbrel_bundle import runtime
from timbrel_bundle.errors import ProviderError, RuntimeMissingError
from timbrel_bundle.runtime import (
    CPU,
    CUDA,
    PROBE_GRAPH,
    cores_within_quota,
    load_runtime,
    provider_in_use,
    resolve_provider,
    session_options,
)

TASKS = Path("/proc/self/task")
MODULES = [f"timbrel_bundle.{module.name}" for module in pkgutil.iter_modules(timbrel_bundle.__path__)]


def test_no_module_imports_onnxruntime() -> None:
    program = f"import sys, {', '.join(MODULES)}; sys.exit('onnxruntime' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@pytest.mark.parametrize("found", [None, ModuleType("onnxruntime")], ids=["absent", "a husk"])
def test_a_missing_runtime_names_the_extras(
    monkeypatch: pytest.MonkeyPatch, found: ModuleType | None
) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", found)
    load_runtime.cache_clear()
    with pytest.raises(RuntimeMissingError) as error:
        load_runtime()
    load_runtime.cache_clear()
    message = 'onnxruntime is not installed: pip install "timbrel[cpu]", or "timbrel[gpu]" for an NVIDIA GPU'
    assert str(error.value) == message
    assert isinstance(error.value, ValueError) and isinstance(error.value, ImportError)


@pytest.mark.parametrize(
    "program",
    [
        "from timbrel_bundle import runtime; runtime.load_runtime()",
        "import timbrel, onnxruntime",  # as swift-f0 does
        "import timbrel_export, onnxruntime",  # as the export's own modules do
        "import timbrel_server, timbrel_server.app, onnxruntime",
    ],
)
def test_the_runtime_keeps_no_record_of_its_user(tmp_path: Path, program: str) -> None:
    hidden = ("XDG_CACHE_HOME", "ORT_DISABLE_TELEMETRY")
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    subprocess.run([sys.executable, "-c", program], env={**environment, "HOME": str(tmp_path)}, check=True)
    assert list(tmp_path.rglob("*")) == []


NO_DRIVER = RuntimeError("CUDA failure 35: driver too old\nand much more")


@pytest.fixture(autouse=True)
def fresh_probe() -> Iterator[None]:
    runtime.obstacle.cache_clear()
    yield
    runtime.obstacle.cache_clear()


def _pretend(monkeypatch: pytest.MonkeyPatch, available: list[str], used: list[str] | Exception) -> None:
    """An onnxruntime that lists `available` and whose sessions run on `used`."""

    def make_session(*_: Any, **__: Any) -> Any:
        if isinstance(used, Exception):
            raise used
        return SimpleNamespace(get_providers=lambda: used)

    options = load_runtime().SessionOptions
    fake = SimpleNamespace(
        get_available_providers=lambda: available,
        InferenceSession=make_session,
        SessionOptions=options,
        preload_dlls=lambda **_: print("Failed to load libcudnn.so.9"),
    )
    monkeypatch.setattr(runtime, "load_runtime", lambda: fake)


@pytest.mark.parametrize("name", ["cpu", "CPU", " cpu "])
def test_the_cpu_is_always_there(name: str) -> None:
    assert resolve_provider(name) == [CPU]


@pytest.mark.parametrize(
    ("available", "used", "expected"),
    [
        ([CPU], [CPU], [CPU]),
        ([CUDA, CPU], [CPU], [CPU]),  # a GPU build on a machine without one
        ([CUDA, CPU], NO_DRIVER, [CPU]),
        ([CUDA, CPU], [CUDA, CPU], [CUDA, CPU]),
    ],
)
def test_auto_takes_what_works(
    monkeypatch: pytest.MonkeyPatch, available: list[str], used: Any, expected: list[str]
) -> None:
    _pretend(monkeypatch, available, used)
    assert resolve_provider("auto") == expected


@pytest.mark.parametrize(
    ("available", "used", "fault"),
    [
        ([CPU], [CPU], "is built without it"),
        ([CUDA, CPU], [CPU], "no device or driver"),
        ([CUDA, CPU], NO_DRIVER, "CUDA failure 35: driver too old"),
    ],
)
def test_cuda_asked_for_in_vain_is_one_line(
    monkeypatch: pytest.MonkeyPatch, available: list[str], used: Any, fault: str
) -> None:
    _pretend(monkeypatch, available, used)
    with pytest.raises(ProviderError) as error:
        resolve_provider("cuda")
    assert "provider 'cuda' cannot be used here: " in str(error.value)
    assert fault in str(error.value)
    assert "\n" not in str(error.value)


def test_cuda_that_works(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    _pretend(monkeypatch, [CUDA, CPU], [CUDA, CPU])
    assert resolve_provider("cuda") == [CUDA, CPU]
    assert capsys.readouterr().out == ""  # of libraries that are missing, and may well be


@pytest.mark.parametrize("name", ["tpu", "", "CPUExecutionProvider"])
def test_an_unknown_name_lists_what_is_allowed(name: str) -> None:
    with pytest.raises(ProviderError) as error:
        resolve_provider(name)
    assert str(error.value) == f"unknown provider {name!r}; allowed: auto, cpu, cuda"


def test_the_provider_in_use_is_the_sessions_own() -> None:
    session = load_runtime().InferenceSession(PROBE_GRAPH, session_options(1), providers=[CPU])
    assert provider_in_use(session) == CPU


@pytest.mark.skipif(not TASKS.is_dir(), reason="the states of threads are read from Linux's /proc")
@pytest.mark.parametrize("spin", [True, False])
def test_threads_sleep_between_runs(spin: bool) -> None:
    size = 256
    product = onnx.helper.make_graph(
        [onnx.helper.make_node("MatMul", ["x", "x"], ["y"])],
        "product",
        [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [size, size])],
        [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [size, size])],
    )
    opset = onnx.helper.make_opsetid("", 17)
    model = onnx.helper.make_model(product, ir_version=8, opset_imports=[opset])
    others = set(TASKS.iterdir())
    session = load_runtime().InferenceSession(
        model.SerializeToString(), session_options(2, spin=spin), providers=[CPU]
    )
    own = [task for task in TASKS.iterdir() if task not in others]
    assert own  # the pool's

    def states_after_a_run() -> set[str]:
        session.run(None, {"x": np.ones((size, size), np.float32)})
        time.sleep(0.002)
        found = set()
        for task in own:
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # another's, that has ended
                found.add((task / "stat").read_text().rpartition(")")[2].split()[0])
        return found

    # A thread that spins is running or runnable, however busy the machine; and so is one that has yet to go
    # to sleep, where others have the cores.
    wait_for(lambda: states_after_a_run() == {"S"}, "threads that sleep")


def test_more_threads_than_cores_do_not_spin_against_each_other() -> None:
    """Sixteen on two cores took fifteen seconds to load a graph."""
    n_within = cores_within_quota()
    spins = [
        session_options(n).get_session_config_entry("session.intra_op.allow_spinning")
        for n in (0, 1, n_within, n_within + 1)
    ]
    assert spins == ["1", "1", "1", "0"]


@pytest.mark.parametrize(
    ("groups", "files", "n_cores"),
    [
        ("0::/\n", {"cpu.max": "250000 100000\n"}, 2),
        ("0::/a/b\n", {"a/b/cpu.max": "max 100000\n", "a/cpu.max": "300000 100000\n"}, 3),
        (
            "4:cpu,cpuacct:/docker/x\n0::/\n",
            {"cpu/cpu.cfs_quota_us": "50000", "cpu/cpu.cfs_period_us": "100000"},
            1,
        ),
        ("1:cpu:/\n", {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, 0),
        ("0::/\n", {"cpu.max": "12800000 100000\n"}, 0),
        ("0::/\n", {}, 0),
    ],
)
def test_a_session_has_no_more_threads_than_its_quota_is_worth(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, groups: str, files: dict[str, str], n_cores: int
) -> None:
    """0: as many as onnxruntime makes by itself."""
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text(groups)
    for name, text in files.items():
        file = tmp_path / "sys/fs/cgroup" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    read = runtime._quotas
    monkeypatch.setattr(runtime, "_quotas", lambda: read(tmp_path))
    monkeypatch.setattr(runtime, "n_cores", lambda: 64)
    assert cores_within_quota() == (n_cores or 64)
    assert session_options().intra_op_num_threads == n_cores
    assert session_options(7).intra_op_num_threads == 7


def test_the_probe_is_a_sound_graph() -> None:
    onnx.checker.check_model(onnx.load_from_string(PROBE_GRAPH))
