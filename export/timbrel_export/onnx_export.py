"""torch.onnx.export, the way every graph of a bundle is made."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

BATCH = "batch"
"""Name of the first axis of most inputs."""


def export_program(
    module: nn.Module,
    inputs: tuple[Any, ...],
    *,
    input_names: Sequence[str],
    output_names: Sequence[str],
    dynamic_shapes: tuple[Any, ...],
    opset_version: int,
) -> Any:
    """Traces a module into an ONNX program; `save_graph` simplifies it, with the weights set aside.

    Args:
        module: put into evaluation mode.
        inputs: examples, whose dynamic axes must not be 1, which export would take for a constant.
        input_names: one per tensor of `inputs`, lists flattened.
        output_names: one per output.
        dynamic_shapes: shaped like `inputs`, naming the axes that vary.
        opset_version: of the ONNX standard.
    """
    # The exporter reports its progress through both, at length.
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return torch.onnx.export(
                module.eval(),
                inputs,
                input_names=list(input_names),
                output_names=list(output_names),
                dynamic_shapes=dynamic_shapes,
                opset_version=opset_version,
                dynamo=True,
                optimize=False,
                verbose=False,
            )
    finally:
        logger.setLevel(level)
