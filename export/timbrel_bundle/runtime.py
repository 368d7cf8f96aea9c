"""The ONNX runtime: importing it when first needed, options for sessions, and what they run on.

`timbrel` works without a runtime until it decodes. onnxruntime-gpu lists CUDA on machines without a GPU too,
and a session made for it then silently runs on the CPU. So CUDA is tried on a graph of one node before it is
promised, and a session is asked what it runs on.
"""

from __future__ import annotations

import contextlib
import functools
import io
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from timbrel_bundle.errors import ProviderError, RuntimeMissingError, one_line

if TYPE_CHECKING:
    import onnxruntime as ort

_log = logging.getLogger(__name__)

LOG_FATAL_ONLY = 4
"""onnxruntime's severity 4: its warnings speak to those who write graphs, its errors are raised as well. What
it logs goes to standard error as it is, names of a graph from elsewhere among it."""

CPU = "CPUExecutionProvider"
CUDA = "CUDAExecutionProvider"

Provider = str | tuple[str, dict[str, str]]
"""onnxruntime's name of one, alone or with its options."""

PROVIDERS: dict[str, tuple[str, ...]] = {"cpu": (CPU,), "cuda": (CUDA, CPU)}
"""A user may name these besides "auto". Of onnxruntime's names, those behind the first run what it cannot."""

PREFERENCE = ("cuda", "cpu")
"""The order in which "auto" tries them."""

NOT_BUILT_IN = (
    "the onnxruntime installed is built without it "
    '(pip uninstall onnxruntime, then pip install "timbrel[gpu]", brings the one that has it)'
)

PROBE_GRAPH = (
    b'\x08\x07:/\n\x10\n\x01x\x12\x01y"\x08Identity\x12\x01gZ\x0b\n\x01x\x12\x06\n\x04\x08\x01\x12\x00'
    b"b\x0b\n\x01y\x12\x06\n\x04\x08\x01\x12\x00B\x04\n\x00\x10\r"
)
"""An ONNX model of one Identity node: y = x, float32 scalars, opset 13."""


@functools.cache
def load_runtime() -> ModuleType:
    """The module onnxruntime. Raises RuntimeMissingError: it is not installed."""
    try:
        import onnxruntime as ort
    except ModuleNotFoundError as error:
        if error.name != "onnxruntime":
            raise
        raise RuntimeMissingError from None
    if not hasattr(ort, "InferenceSession"):  # of two builds in one folder, uninstalling one leaves a husk
        raise RuntimeMissingError
    ort.set_default_logger_severity(LOG_FATAL_ONLY)
    runtime: ModuleType = ort
    return runtime


def n_cores() -> int:
    """The number of cores that this process is bound to."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cores_within_quota() -> int:
    """The number of cores that this process may keep busy: those that it is bound to, no more than the quota
    of its container (`--cpus`) or service (CPUQuota) is worth. At least 1."""
    return max(1, min([n_cores(), *(int(quota) for quota in _quotas())]))


def _quotas(system: Path = Path("/")) -> Iterator[float]:
    """Yields how many cores the control groups of this process leave it, of those that bound it."""
    try:
        groups = (system / "proc/self/cgroup").read_text().splitlines()
    except OSError:  # not Linux
        return
    for controllers, _, path in (line.partition(":")[2].partition(":") for line in groups):
        if controllers and "cpu" not in controllers.split(","):
            continue
        root = system / "sys/fs/cgroup" / ("cpu" if controllers else "")
        group = root / path.lstrip("/")
        for folder in (group, *group.parents):
            with contextlib.suppress(OSError, ValueError):  # no such group is seen from here, or no bound
                if controllers:
                    quota, period = (folder / f"cpu.cfs_{name}_us" for name in ("quota", "period"))
                    words = [quota.read_text(), period.read_text()]
                else:
                    words = (folder / "cpu.max").read_text().split()
                if (quota_us := int(words[0])) > 0:
                    yield quota_us / int(words[1])


def session_options(n_threads: int = 0, *, spin: bool = True) -> ort.SessionOptions:
    """Options for one session; `n_threads` are those within an operator, 0 one per core that this process may
    keep busy: onnxruntime knows nothing of quotas, and threads beyond one have all wait until it is renewed.

    Threads that `spin` wait for their next piece of work with their core kept busy: a run of many small
    operators is up to a tenth faster, and whatever else wants the core is slower. More of them than cores
    would spin against each other, and take seconds to load a graph: they sleep.
    """
    options: ort.SessionOptions = load_runtime().SessionOptions()
    n_within = cores_within_quota()
    options.intra_op_num_threads = n_threads or (n_within if n_within < n_cores() else 0)
    options.inter_op_num_threads = 1
    spins = spin and n_threads <= n_within
    options.add_session_config_entry("session.intra_op.allow_spinning", str(int(spins)))
    # Between runs nobody spins: by default they go on for milliseconds, until the next frame of a live note.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    options.log_severity_level = LOG_FATAL_ONLY
    # What `graph_header` read as ONNX is not to be taken for onnxruntime's own format, by four bytes in it.
    options.add_session_config_entry("session.load_model_format", "ONNX")
    return options


def resolve_provider(name: str) -> list[str]:
    """The providers to make sessions with: onnxruntime's names, the one asked for first.

    The name is "cpu", "cuda", or "auto" for CUDA where it works and the CPU elsewhere; in any case. Raises
    ProviderError: it is unknown, or cannot be used here; RuntimeMissingError: onnxruntime is not installed.
    """
    key = name.strip().lower()
    if key == "auto":
        key = next(candidate for candidate in PREFERENCE if obstacle(PROVIDERS[candidate][0]) is None)
    if key not in PROVIDERS:
        raise ProviderError(f"unknown provider {name!r}; allowed: auto, {', '.join(PROVIDERS)}")
    chosen = PROVIDERS[key]
    if fault := obstacle(chosen[0]):
        raise ProviderError(f"provider {key!r} cannot be used here: {fault}; use --provider cpu or auto")
    return list(chosen)


def provider_in_use(session: ort.InferenceSession) -> str:
    """The provider a session really runs on, in onnxruntime's name: the first of its list."""
    return str(session.get_providers()[0])


@functools.cache
def obstacle(provider: str) -> str | None:
    """Tells why this provider (onnxruntime's name) cannot be used on this machine; None where it can."""
    ort = load_runtime()
    if provider == CPU:
        return None
    if provider not in ort.get_available_providers():
        return NOT_BUILT_IN
    options = session_options(n_threads=1)
    # Makes CUDA's libraries that came with pip findable; it prints what it does not find.
    with contextlib.redirect_stdout(io.StringIO()) as missing:
        ort.preload_dlls(cudnn=False)
    for line in missing.getvalue().splitlines():
        _log.debug("%s", line)
    try:
        session = ort.InferenceSession(PROBE_GRAPH, options, providers=[provider, CPU], enable_fallback=0)
    except Exception as error:  # onnxruntime's exceptions share no base class of their own
        return one_line(error)
    if provider_in_use(session) != provider:
        return "no device or driver for it was found"
    return None
