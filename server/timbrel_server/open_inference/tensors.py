"""Tensors as the Open Inference Protocol carries them, and as arrays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from timbrel_bundle.request_fields import Violation
from timbrel_protos.inference import grpc_service_pb2 as oip
from timbrel_server.errors import InvalidRequestError, shortened

Array: TypeAlias = npt.NDArray[Any]

_DTYPES = {"FP32": "<f4", "INT32": "<i4", "UINT16": "<u2", "UINT64": "<u8"}
"""The protocol's data types in use here, as numpy's."""

_CONTENTS = {"FP32": "fp32_contents", "INT32": "int_contents", "UINT64": "uint64_contents"}
"""The fields where InferTensorContents has elements of a data type."""


@dataclass(frozen=True)
class InputSpec:
    """A tensor [B, width] that a model takes."""

    name: str
    datatype: str
    width: int = 1
    optional: bool = False

    @property
    def shape(self) -> tuple[int, int]:
        """The shape as metadata tells it: -1 for B."""
        return (-1, self.width)


def read_inputs(
    request: oip.ModelInferRequest, specs: Sequence[InputSpec], most_rows: int
) -> Mapping[str, Array]:
    """Reads the tensors of a request by name, [B, width] each, all of one B.

    Raises:
        InvalidRequestError: naming every tensor that is unknown, missing, or of another type or size.
    """
    by_name = {spec.name: spec for spec in specs}
    faults = list(_naming_faults([tensor.name for tensor in request.inputs], by_name))
    arrays: dict[str, Array] = {}
    raw = request.raw_input_contents
    if raw and len(raw) != len(request.inputs):
        faults.append(("raw_input_contents", f"{len(raw)} are given for {len(request.inputs)} inputs"))
    elif not faults:
        n_rows = request.inputs[0].shape[0] if request.inputs[0].shape else 0
        for index, tensor in enumerate(request.inputs):
            spec = by_name[tensor.name]
            elements = raw[index] if raw else None
            fault = _shape_fault(tensor, spec, n_rows, most_rows) or _size_fault(
                tensor, spec, elements, n_rows
            )
            if fault:
                faults.append((tensor.name, fault))
            else:
                arrays[tensor.name] = _to_array(tensor, spec, elements)
    if faults:
        raise InvalidRequestError(faults)
    return arrays


def add_output(response: oip.ModelInferResponse, name: str, datatype: str, array: Array) -> None:
    """Appends a tensor to a response."""
    response.outputs.add(name=name, datatype=datatype, shape=array.shape)
    response.raw_output_contents.append(np.ascontiguousarray(array, _DTYPES[datatype]).tobytes())


def _naming_faults(given: Sequence[str], specs: Mapping[str, InputSpec]) -> Iterator[Violation]:
    for name, count in Counter(given).items():
        if name not in specs:
            yield "inputs", f"{shortened(name)!r} is no input; there are {', '.join(specs)}"
        elif count > 1:
            yield name, "is given more than once"
    for spec in specs.values():
        if not spec.optional and spec.name not in given:
            yield spec.name, f"is missing; {spec.datatype} [B, {spec.width}] is needed"


def _shape_fault(
    tensor: oip.ModelInferRequest.InferInputTensor, spec: InputSpec, n_rows: int, most_rows: int
) -> str | None:
    if tensor.datatype != spec.datatype:
        return f"is of type {shortened(tensor.datatype)!r}; {spec.datatype} is needed"
    if len(tensor.shape) != 2 or tensor.shape[1] != spec.width:
        shown = shortened(str(list(tensor.shape[:8])))
        return f"is of shape {shown}; [B, {spec.width}] is needed"
    if tensor.shape[0] != n_rows or not 1 <= n_rows <= most_rows:
        return f"has {tensor.shape[0]} rows; 1 to {most_rows} are allowed, as many as the other inputs have"
    return None


def _size_fault(
    tensor: oip.ModelInferRequest.InferInputTensor, spec: InputSpec, raw: bytes | None, n_rows: int
) -> str | None:
    n_elements = n_rows * spec.width
    if raw is not None:
        n_bytes = n_elements * np.dtype(_DTYPES[spec.datatype]).itemsize
        return None if len(raw) == n_bytes else f"has {len(raw)} bytes; {n_bytes} are needed"
    given = len(getattr(tensor.contents, _CONTENTS[spec.datatype]))
    return None if given == n_elements else f"has {given} elements; {n_elements} are needed"


def _to_array(tensor: oip.ModelInferRequest.InferInputTensor, spec: InputSpec, raw: bytes | None) -> Array:
    dtype = _DTYPES[spec.datatype]
    if raw is not None:
        return np.frombuffer(raw, dtype).reshape(-1, spec.width)
    elements = getattr(tensor.contents, _CONTENTS[spec.datatype])
    return np.array(elements, dtype).reshape(-1, spec.width)
