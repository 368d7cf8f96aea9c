"""The ONNX runtime, imported when first needed: `timbrel` works without one until it decodes."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import TYPE_CHECKING

from timbrel_bundle.errors import RuntimeMissingError

if TYPE_CHECKING:
    import onnxruntime as ort

LOG_ERRORS_ONLY = 3
"""onnxruntime's severity 3: its warnings speak to those who write graphs."""


@functools.cache
def load_runtime() -> ModuleType:
    """The module onnxruntime, with pip-installed CUDA libraries made findable where it is the GPU build.

    Raises:
        RuntimeMissingError: it is not installed.
    """
    try:
        import onnxruntime as ort
    except ModuleNotFoundError as error:
        if error.name != "onnxruntime":
            raise
        raise RuntimeMissingError from None
    if not hasattr(ort, "InferenceSession"):  # of two builds in one folder, uninstalling one leaves a husk
        raise RuntimeMissingError
    ort.set_default_logger_severity(LOG_ERRORS_ONLY)
    if "CUDAExecutionProvider" in ort.get_available_providers():
        ort.preload_dlls()
    runtime: ModuleType = ort
    return runtime


def session_options(n_threads: int = 0) -> ort.SessionOptions:
    """Options for one session.

    Args:
        n_threads: threads within an operator; 0 lets onnxruntime take one per core.
    """
    options: ort.SessionOptions = load_runtime().SessionOptions()
    options.intra_op_num_threads = n_threads
    options.inter_op_num_threads = 1
    options.log_severity_level = LOG_ERRORS_ONLY
    return options
