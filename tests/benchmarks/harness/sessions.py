"""The server's own sessions, and variants of them."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from timbrel_bundle.bundle import Bundle
from timbrel_bundle.layout import DECODER_STEP_PORTABLE
from timbrel_bundle.runtime import resolve_provider, session_options
from timbrel_server.decoder.sessions import FP32, DecoderSessions, open_sessions


def open_at(bundle: Bundle, n_threads: int, precision: str = FP32, provider: str = "cpu") -> DecoderSessions:
    """`open_sessions`, on the CPU and at fp32 unless told otherwise."""
    return open_sessions(bundle, provider, n_threads, precision)


def open_portable(bundle: Bundle, n_threads: int) -> DecoderSessions:
    """The step in operators of the ONNX standard alone, on the CPU."""
    decoder = bundle.session(DECODER_STEP_PORTABLE, resolve_provider("cpu"), session_options(n_threads))
    sessions = open_at(bundle, n_threads)
    return dataclasses.replace(sessions, decoder=decoder, decoder_graph=DECODER_STEP_PORTABLE)


def open_observed(
    bundle: Bundle, n_threads: int, precision: str, folder: Path
) -> tuple[DecoderSessions, Path]:
    """The decode graph with onnxruntime's profiler on; also the graph as onnxruntime runs it.

    Returns:
        the sessions, and the path of the optimized graph.
    """
    sessions = open_at(bundle, n_threads, precision)
    options: Any = session_options(n_threads)
    optimized = folder / "optimized.onnx"
    options.optimized_model_filepath = str(optimized)
    options.enable_profiling = True
    options.profile_file_prefix = str(folder / "profile")
    decoder = bundle.session(sessions.decoder_graph, resolve_provider("cpu"), options)
    return dataclasses.replace(sessions, decoder=decoder), optimized
