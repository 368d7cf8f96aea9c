"""Calls a server through NVIDIA's unmodified tritonclient, and prints what came of it as one line of JSON.

    python triton_caller.py HOST:PORT MODEL

Run by a test in a virtual environment of its own: tritonclient wants another protobuf than the server may
have, and its stubs and ours, of one package, cannot be loaded by one process.
"""

from __future__ import annotations

import json
import queue
import sys
from typing import Any

import numpy as np
import tritonclient.grpc as triton
from tritonclient.grpc import model_config_pb2, service_pb2
from tritonclient.utils import InferenceServerException

PATIENCE_SECONDS = 60


def inputs(rows: list[tuple[float, float, int, int, float, int]], **sampling: Any) -> list[Any]:
    """The tensors of some notes: (x, y, pitch, velocity, seconds, seed) each."""
    x, y, pitch, velocity, seconds, seed = zip(*rows, strict=True)
    columns = {
        "TIMBRE": (np.array([x, y], np.float32).T.copy(), "FP32"),
        "PITCH": (np.array(pitch, np.int32)[:, None], "INT32"),
        "VELOCITY": (np.array(velocity, np.int32)[:, None], "INT32"),
        "SECONDS": (np.array(seconds, np.float32)[:, None], "FP32"),
        "SEED": (np.array(seed, np.uint64)[:, None], "UINT64"),
    }
    for name, (value, dtype, kind) in sampling.items():
        columns[name] = (np.full((len(rows), 1), value, dtype), kind)
    tensors = []
    for name, (array, datatype) in columns.items():
        tensor = triton.InferInput(name, array.shape, datatype)
        tensor.set_data_from_numpy(array)
        tensors.append(tensor)
    return tensors


NOTES = [(0.1, 0.2, 60, 100, 0.5, 1), (-0.3, 0.4, 48, 80, 0.2, 2), (0.0, 0.0, 72, 127, 2.4, 2**64 - 1)]
SAMPLING: dict[str, Any] = {
    "TEMPERATURE": (1.0, np.float32, "FP32"),
    "TOP_K": (256, np.int32, "INT32"),
    "TOP_P": (1.0, np.float32, "FP32"),
}


def describe(client: Any, model: str) -> dict[str, Any]:
    """What the server says of itself."""
    metadata = client.get_model_metadata(model)
    config = client.get_model_config(model).config
    index = client.get_model_repository_index()
    return {
        "live": client.is_server_live(),
        "ready": client.is_server_ready(),
        "model_ready": client.is_model_ready(model),
        "unknown_ready": client.is_model_ready("unknown"),
        "server": client.get_server_metadata().name,
        "model": metadata.name,
        "inputs": [[each.name, each.datatype, list(each.shape)] for each in metadata.inputs],
        "outputs": [[each.name, each.datatype, list(each.shape)] for each in metadata.outputs],
        "optional": [each.name for each in config.input if each.optional],
        "types": [model_config_pb2.DataType.Name(each.data_type) for each in config.output],
        "dims": [list(each.dims) for each in [*config.input[:2], *config.output]],
        "most": config.max_batch_size,
        "index": [[each.name, each.version, each.state] for each in index.models],
    }


def infer(client: Any, model: str) -> dict[str, Any]:
    """Three notes at once: as codes by default, then as audio too."""
    asked = inputs(NOTES, **SAMPLING)
    result = client.infer(model, asked, request_id="three")
    outputs = [triton.InferRequestedOutput(name) for name in ("CODES", "AUDIO")]
    both = client.infer(model, asked, outputs=outputs)
    return {
        "id": result.get_response().id,
        "codes": result.as_numpy("CODES").tolist(),
        "lengths": result.as_numpy("LENGTHS").tolist(),
        "has_audio": result.as_numpy("AUDIO") is not None,
        "same_codes": bool(np.array_equal(result.as_numpy("CODES"), both.as_numpy("CODES"))),
        "audio": both.as_numpy("AUDIO").tolist(),
    }


def stream(client: Any, model: str) -> dict[str, Any]:
    """Two notes, a bad one and several in one request, on one stream."""
    heard: queue.Queue[Any] = queue.Queue()
    client.start_stream(lambda result, error: heard.put((result, error)))
    audio = [triton.InferRequestedOutput("AUDIO")]
    client.async_stream_infer(model, inputs(NOTES[:1], **SAMPLING), request_id="first")
    client.async_stream_infer(model, inputs(NOTES[1:2], **SAMPLING), request_id="second", outputs=audio)
    client.async_stream_infer(model, inputs([(0, 0, 5, 100, 0.5, 1)]), request_id="bad")
    client.async_stream_infer(
        model, inputs(NOTES, **SAMPLING), request_id="three", enable_empty_final_response=True
    )
    n_open, codes, sound, errors, finals, three = 4, [], [], [], [], 0
    while n_open:
        result, error = heard.get(timeout=PATIENCE_SECONDS)
        if error is not None:
            errors.append(error.message())
            n_open -= 1
            continue
        response = result.get_response()
        final = response.parameters["triton_final_response"].bool_param
        if response.id == "first":
            codes += result.as_numpy("CODES")[0].tolist()
        elif response.id == "second":
            sound += result.as_numpy("AUDIO")[0].tolist()
        else:
            three = len(result.as_numpy("LENGTHS"))
        if final:
            finals.append(response.id)
            n_open -= 1
    client.stop_stream()
    return {"codes": codes, "audio": sound, "errors": errors, "finals": sorted(finals), "three": three}


def fail(client: Any, model: str) -> dict[str, Any]:
    """The status of calls that make no sense."""

    def status(call: Any) -> list[str]:
        try:
            call()
        except InferenceServerException as error:
            return [str(error.status()), str(error.message())]
        return ["none", ""]

    wrong_type = triton.InferInput("PITCH", [1, 1], "INT64")
    wrong_type.set_data_from_numpy(np.array([[60]], np.int64))
    good = inputs(NOTES[:1])
    return {
        "unknown model": status(lambda: client.infer("unknown", good)),
        "unknown version": status(lambda: client.infer(model, good, model_version="7")),
        "out of range": status(lambda: client.infer(model, inputs([(0.9, 0.9, 5, 100, 0.5, 1)]))),
        "below zero": status(lambda: client.infer(model, inputs([(0, 0, -5, 100, 0.5, 1)]))),
        "missing": status(lambda: client.infer(model, good[:1])),
        "defaults": status(lambda: client.infer(model, good[:2])),
        "wrong type": status(lambda: client.infer(model, [good[0], wrong_type, *good[2:]])),
        "unknown output": status(
            lambda: client.infer(model, good, outputs=[triton.InferRequestedOutput("SONG")])
        ),
        "too many": status(lambda: client.infer(model, inputs(NOTES * 11))),
    }


def protocol() -> dict[str, Any]:
    """Every field of tritonclient's messages: its number, its type, whether it repeats."""
    return {
        message.full_name: _fields(message)
        for file in (service_pb2, model_config_pb2)
        for message in _with_nested(file.DESCRIPTOR.message_types_by_name.values())
    }


def _with_nested(messages: Any) -> Any:
    for message in messages:
        yield message
        yield from _with_nested(message.nested_types)


def _fields(message: Any) -> dict[str, Any]:
    return {field.name: [field.number, field.type, field.label == 3] for field in message.fields}


def main() -> None:
    """Prints everything."""
    address, model = sys.argv[1:]
    with triton.InferenceServerClient(address) as client:
        parts = {part.__name__: part(client, model) for part in (describe, infer, stream, fail)}
    print(json.dumps({**parts, "protocol": protocol()}))


if __name__ == "__main__":
    main()
