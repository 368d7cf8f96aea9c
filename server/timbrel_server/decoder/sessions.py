"""The two graphs that write notes, opened on the provider and in the precision that are asked for."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
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
from timbrel_server.decoder.memory import HOST, Memory

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

CAPTURES: Mapping[str, Sequence[bool]] = {CPU: (False,), CUDA: (True, False)}
"""By provider: whether the decoder's runs are captured as CUDA graphs, best first."""


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
    """Whether the decoder's runs are captured as CUDA graphs, one for each batch size."""

    device_id: int = 0
    """Which of several devices of the provider's kind, from 0."""

    @property
    def memory(self) -> Memory:
        """The memory that the graphs work in."""
        return Memory("cuda", self.device_id) if self.provider == CUDA else HOST


def open_sessions(
    bundle: Bundle, provider: str, n_threads: int, precision: str = AUTO, device_id: int = 0
) -> DecoderSessions:
    """Opens the best decode graph that loads, and the condition encoder.

    Args:
        provider: "auto", "cpu" or "cuda".
        n_threads: threads of a step; 0 leaves it to the runtime.
        precision: one of PRECISIONS; it is the whole engine's, whatever the batch size.
        device_id: which of several CUDA devices; the CPU is one.

    Raises:
        ProviderError: the provider is unknown or cannot be used here, or has no graph of that precision.
        BundleError: a file is missing or damaged, or no decode graph loads.
    """
    providers = resolve_provider(provider)
    by_precision = DECODER_GRAPHS[providers[0]]
    precision = next(iter(by_precision)) if precision == AUTO else precision
    if precision not in by_precision:
        allowed = ", ".join((AUTO, *by_precision))
        raise ProviderError(f"precision {precision!r} cannot be had on {providers[0]}; allowed: {allowed}")
    attempts = [(graph, captures) for graph in by_precision[precision] for captures in CAPTURES[providers[0]]]
    for graph, captures in attempts[:-1]:
        try:
            return _open(bundle, graph, providers, n_threads, precision, device_id, captures)
        except BundleError as error:
            _log.warning("falling back from %s%s: %s", graph, " with CUDA graphs" * captures, error)
    graph, captures = attempts[-1]
    return _open(bundle, graph, providers, n_threads, precision, device_id, captures)


def _open(
    bundle: Bundle,
    graph: str,
    providers: Sequence[str],
    n_threads: int,
    precision: str,
    device_id: int,
    captures: bool,
) -> DecoderSessions:
    decoder = _session(bundle, graph, _with_options(providers, device_id, captures), n_threads)
    # One run a note, of three positions: not worth a second pool of threads.
    condition_graph = layout.CONDITION_ENCODER_HALF if precision == FP16 else layout.CONDITION_ENCODER
    condition_encoder = _session(bundle, condition_graph, _with_options(providers, device_id, False), 1)
    return DecoderSessions(
        providers[0],
        precision,
        graph,
        decoder,
        condition_encoder,
        captures,
        device_id if providers[0] == CUDA else 0,
    )


def _with_options(providers: Sequence[str], device_id: int, captures: bool) -> list[Provider]:
    """Adds to CUDA, among these providers, what it is to be told."""
    options = {"device_id": str(device_id), "enable_cuda_graph": str(int(captures))}
    return [(name, options) if name == CUDA else name for name in providers]


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
