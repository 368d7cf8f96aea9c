"""The two graphs that write notes, opened on the provider that is asked for."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from timbrel_bundle.bundle import Bundle
from timbrel_bundle.errors import BundleError, ProviderError
from timbrel_bundle.layout import CONDITION_ENCODER, DECODER_STEP, DECODER_STEP_PORTABLE
from timbrel_bundle.providers import CPU, CUDA, provider_in_use, resolve_provider
from timbrel_bundle.runtime import session_options

_log = logging.getLogger(__name__)

DECODER_GRAPHS: Mapping[str, Sequence[str]] = {
    CPU: (DECODER_STEP, DECODER_STEP_PORTABLE),
    # GroupQueryAttention on CUDA knows fp16 and bf16 only, and the decoder runs in fp32.
    CUDA: (DECODER_STEP_PORTABLE,),
}
"""Decode graphs by provider, best first."""

PRECISION = "fp32"
"""Of the decoder's arithmetic."""


@dataclass(frozen=True)
class DecoderSessions:
    """Ready to run."""

    provider: str
    """The one really in use, in onnxruntime's name."""

    decoder_graph: str
    """File name of the decode graph in use."""

    decoder: Any
    condition_encoder: Any

    @property
    def memory(self) -> str:
        """onnxruntime's name for the memory that the graphs work in: "cpu" or "cuda"."""
        return "cuda" if self.provider == CUDA else "cpu"


def open_sessions(bundle: Bundle, provider: str, n_threads: int) -> DecoderSessions:
    """Opens the best decode graph that loads, and the condition encoder.

    Args:
        provider: "auto", "cpu" or "cuda".
        n_threads: threads of a step; 0 leaves it to the runtime.

    Raises:
        ProviderError: the provider is unknown or cannot be used here.
        BundleError: a file is missing or damaged, or no decode graph loads.
    """
    providers = resolve_provider(provider)
    graphs = DECODER_GRAPHS[providers[0]]
    for graph in graphs[:-1]:
        try:
            return _open(bundle, graph, providers, n_threads)
        except BundleError as error:
            _log.warning("falling back to %s: %s", graphs[-1], error)
    return _open(bundle, graphs[-1], providers, n_threads)


def _open(bundle: Bundle, graph: str, providers: Sequence[str], n_threads: int) -> DecoderSessions:
    decoder = _session(bundle, graph, providers, n_threads)
    # One run a note, of three positions: not worth a second pool of threads.
    condition_encoder = _session(bundle, CONDITION_ENCODER, providers, 1)
    return DecoderSessions(providers[0], graph, decoder, condition_encoder)


def _session(bundle: Bundle, graph: str, providers: Sequence[str], n_threads: int) -> Any:
    session = bundle.session(graph, providers, session_options(n_threads))
    if (used := provider_in_use(session)) != providers[0]:
        raise ProviderError(
            f"{graph} runs on {used}, {providers[0]} was asked for; use --provider cpu or auto"
        )
    return session
