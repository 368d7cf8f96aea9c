"""The two graphs that write notes, opened on the provider and in the precision that are asked for."""

from __future__ import annotations

import contextlib
import gc
import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from timbrel_bundle import layout
from timbrel_bundle.bundle import Bundle
from timbrel_bundle.errors import BundleError, ProviderError
from timbrel_bundle.runtime import (
    CPU,
    CUDA,
    Provider,
    load_runtime,
    provider_in_use,
    resolve_provider,
    session_options,
)
from timbrel_server.decoder.memory import HOST, Memory, cuda_runtime

_log = logging.getLogger(__name__)

FP32, FP16, INT8 = "fp32", "fp16", "int8"
AUTO = "auto"

PRECISIONS = (AUTO, FP32, FP16, INT8)
"""The precisions that the decoder's arithmetic may have. AUTO is a provider's first in DECODER_GRAPHS."""

DECODER_GRAPHS: Mapping[str, Mapping[str, Sequence[str]]] = {
    CPU: {
        FP32: (layout.DECODER_STEP, layout.DECODER_STEP_PORTABLE),
        INT8: (layout.DECODER_STEP_INT8,),
        FP16: (layout.DECODER_STEP_HALF,),
    },
    # GroupQueryAttention on CUDA knows fp16 and bf16 only.
    CUDA: {FP16: (layout.DECODER_STEP_HALF,), FP32: (layout.DECODER_STEP_PORTABLE,)},
}
"""Decode graphs by provider and precision, best first."""


class CaptureGate:
    """Keeps this process away from CUDA while one of its threads captures a graph.

    onnxruntime captures in CUDA's global mode: what any other thread then allocates, frees or copies fails,
    and breaks the capture. So whoever uses a device says so, and a capture waits until nobody does.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._n_users = 0
        self._n_capturing = 0  # those who wait for their turn among them

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        """Whoever is within uses a device, as others may, but captures nothing and does not enter again."""
        with self._changed:
            while self._n_capturing:
                self._changed.wait()
            self._n_users += 1
        try:
            yield
        finally:
            with self._changed:
                self._n_users -= 1
                self._changed.notify_all()

    @contextlib.contextmanager
    def capturing(self) -> Iterator[None]:
        """Whoever is within has all devices to itself; those who come wait, so that its turn comes soon."""
        with self._changed:
            self._n_capturing += 1
            while self._n_users:
                self._changed.wait()
            self._n_users += 1
        collects = gc.isenabled()
        gc.disable()  # on whatever thread, it might free another session's memory
        try:
            yield
        finally:
            if collects:
                gc.enable()
            with self._changed:
                self._n_users -= 1
                self._n_capturing -= 1
                self._changed.notify_all()


CUDA_GATE = CaptureGate()
"""This process's: for all that opens, runs or frees what may live on a device."""


@dataclass(frozen=True)
class DecoderSessions:
    """The graphs, ready to run."""

    provider: str
    """The one really in use, in onnxruntime's name."""

    precision: str
    """The precision of the decoder's arithmetic: one of PRECISIONS, never AUTO."""

    decoder_graph: str
    """File name of the decode graph in use."""

    decoder: Any
    condition_encoder: Any

    captures: bool = False
    """Whether runs are captured as CUDA graphs: the decoder's, one for each batch size, and the condition
    encoder's."""

    device_id: int = 0
    """Which of several devices of the provider's kind, from 0."""

    @property
    def memory(self) -> Memory:
        """The memory that the graphs work in."""
        return Memory("cuda", self.device_id) if self.provider == CUDA else HOST


def free_sessions(last: list[Any]) -> None:
    """Empties this list and frees what nothing refers to any more, while no graph is captured."""
    with CUDA_GATE.in_use():
        last.clear()
        gc.collect()  # an engine's parts know one another: its memory would stay for long


def open_sessions(
    bundle: Bundle,
    provider: str,
    n_threads: int,
    precision: str = AUTO,
    device_id: int = 0,
    *,
    captures: bool = True,
) -> DecoderSessions:
    """Opens the best decode graph that loads, and the condition encoder.

    Args:
        provider: "auto", "cpu" or "cuda".
        n_threads: threads of a step on the CPU; 0 leaves it to the runtime.
        precision: one of PRECISIONS; it is the whole engine's, whatever the batch size.
        device_id: which of several CUDA devices; the CPU is one.
        captures: whether runs on CUDA are captured as graphs.

    Raises:
        ProviderError: the provider is unknown or cannot be used here, or has no graph of that precision.
        BundleError: a file is missing or damaged, or no decode graph loads.
    """
    with CUDA_GATE.in_use():
        providers = resolve_provider(provider)
        by_precision = DECODER_GRAPHS[providers[0]]
        precision = next(iter(by_precision)) if precision == AUTO else precision
        if precision not in by_precision:
            allowed = ", ".join((AUTO, *by_precision))
            raise ProviderError(
                f"precision {precision!r} cannot be had on {providers[0]}; allowed: {allowed}"
            )
        ways = (True, False) if captures and providers[0] == CUDA else (False,)
        *others, last = [(graph, way) for graph in by_precision[precision] for way in ways]
        for graph, way in others:
            try:
                return _open(bundle, graph, providers, n_threads, precision, device_id, way)
            except BundleError as error:
                _log.warning("falling back from %s%s: %s", graph, " with CUDA graphs" * way, error)
        return _open(bundle, last[0], providers, n_threads, precision, device_id, last[1])


def _open(
    bundle: Bundle,
    graph: str,
    providers: Sequence[str],
    n_threads: int,
    precision: str,
    device_id: int,
    captures: bool,
) -> DecoderSessions:
    is_remote = providers[0] == CUDA
    decoder = _session(
        bundle, graph, _with_options(providers, device_id, captures), 1 if is_remote else n_threads
    )
    # One run for the notes of a step, of three positions each: not worth a second pool of threads.
    condition_graph = layout.CONDITION_ENCODER_HALF if precision == FP16 else layout.CONDITION_ENCODER
    condition_encoder = _session(bundle, condition_graph, _with_options(providers, device_id, captures), 1)
    if is_remote:
        _sleep_while_waiting(device_id)
    return DecoderSessions(
        providers[0], precision, graph, decoder, condition_encoder, captures, device_id if is_remote else 0
    )


def _with_options(providers: Sequence[str], device_id: int, captures: bool) -> list[Provider]:
    """Adds to CUDA, among these providers, what it is to be told: that fp32 is not TF32, among it."""
    options = {"device_id": str(device_id), "enable_cuda_graph": str(int(captures)), "use_tf32": "0"}
    return [(name, options) if name == CUDA else name for name in providers]


def _sleep_while_waiting(device_id: int) -> None:
    """Has threads that wait for a CUDA device sleep until it is done.

    CUDA has them ask again and again: each engine would keep a core busy for as long as it writes notes.
    """
    cudart, blocking_sync = cuda_runtime(), 4
    status = cudart.cudaSetDevice(device_id) or cudart.cudaSetDeviceFlags(blocking_sync)
    if status != 0:
        _log.warning("threads that wait for CUDA device %d keep a core busy (error %d)", device_id, status)


def run_options(graph_id: int | None = None) -> Any:
    """Makes the options of a run that is captured as the CUDA graph of this number, then replayed; None: of
    any other run.

    A step of few rows is bound by its launches, and a captured graph is one launch.

    Any other run has no options at all: onnxruntime's Python (1.31) asks any options for the graph, and where
    they name none, the exception that answers costs 50 microseconds.
    """
    if graph_id is None:
        return None
    options = load_runtime().RunOptions()
    options.add_run_config_entry("gpu_graph_id", str(graph_id))
    return options


def _session(bundle: Bundle, graph: str, providers: Sequence[Provider], n_threads: int) -> Any:
    session = bundle.session(graph, providers, session_options(n_threads))
    wanted = providers[0] if isinstance(providers[0], str) else providers[0][0]
    if (used := provider_in_use(session)) != wanted:
        raise ProviderError(f"{graph} runs on {used}, {wanted} was asked for; use --provider cpu or auto")
    return session
