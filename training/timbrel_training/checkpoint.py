"""Files that training leaves behind: resumable checkpoints, and finished weights with their description."""

from __future__ import annotations

import io
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor, nn
from torch.nn.modules.module import (
    register_module_buffer_registration_hook,
    register_module_parameter_registration_hook,
)

from timbrel_training.errors import CheckpointError, writing

FORMAT_VERSION = 1

SPARE_TENSORS, SPARE_NUMBERS = 64, 2**22
"""Beside twice what is stored; the numbers take 16 MB."""


def save_checkpoint(path: Path, state: Mapping[str, Any]) -> None:
    """Writes a training state of tensors and plain data, so that `path` is never half-written. Raises
    WriteError: the disk is full."""
    content = io.BytesIO()  # torch itself does not say that a disk is full
    torch.save({"format_version": FORMAT_VERSION, **state}, content)
    replace_file(path, lambda temporary: temporary.write_bytes(content.getbuffer()))


def load_checkpoint(path: Path) -> dict[str, Any]:
    """Reads what `save_checkpoint` wrote, onto the CPU. Raises CheckpointError: the file is missing, damaged
    or of another version."""
    if not path.is_file():
        raise CheckpointError(f"{path}: no such checkpoint")
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch.load raises whatever unpickling runs into
        reason = error.__class__.__name__
        raise CheckpointError(f"{path}: damaged checkpoint ({reason}); delete it") from error
    version = state.get("format_version") if isinstance(state, dict) else None
    if version != FORMAT_VERSION:
        raise CheckpointError(f"{path}: checkpoint version {version}, expected {FORMAT_VERSION}")
    return dict(state)


def save_weights(folder: Path, name: str, model: nn.Module, description: Mapping[str, Any]) -> None:
    """Writes `name`.safetensors (the state dict under its PyTorch names) and `name`.json (what it is).

    `description` must be plain JSON: config fields, figures reached, where the data came from. Raises
    WriteError: the disk is full.
    """
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {key: value.detach().cpu().contiguous().clone() for key, value in model.state_dict().items()}
    text = json.dumps(description, indent=2) + "\n"
    content = safetensors.torch.save(tensors)
    replace_file(folder / f"{name}.safetensors", lambda path: path.write_bytes(content))
    replace_file(folder / f"{name}.json", lambda path: path.write_text(text, encoding="utf-8"))


def load_description(folder: Path, name: str) -> dict[str, Any]:
    """Returns the JSON object beside the weights `name` in `folder`. Raises CheckpointError: missing or
    damaged."""
    path = folder / f"{name}.json"
    try:
        description = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read; train it first ({error.strerror})") from error
    except (ValueError, RecursionError) as error:  # the latter: nested thousands deep
        raise CheckpointError(f"{path}: damaged JSON ({error})") from None
    if not isinstance(description, dict):
        raise CheckpointError(f"{path}: expected a JSON object")
    return description


def load_weights(folder: Path, name: str, model: nn.Module) -> None:
    """Fills `model` with `name`.safetensors in `folder`. Raises CheckpointError: missing, damaged or of other
    names or shapes."""
    path = folder / f"{name}.safetensors"
    try:
        model.load_state_dict(safetensors.torch.load_file(path))
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read; train it first") from error
    except (RuntimeError, safetensors.SafetensorError) as error:
        raise CheckpointError(f"{path}: does not fit the model ({str(error).splitlines()[0]})") from error


@contextmanager
def no_larger_than(weights: Path) -> Iterator[None]:
    """Within it, no module can be made that has many more weights than a file of them: sizes that nobody has
    checked would otherwise take all memory, and hours, before names and shapes are compared.

    Tables that are not stored and what is made anew have room beside them. It is the process's, not the
    thread's. Raises ValueError: a module has more; CheckpointError: the file is missing or damaged.
    """
    try:
        with safetensors.safe_open(weights, framework="pt") as file:
            shapes = [file.get_slice(name).get_shape() for name in file.keys()]  # noqa: SIM118
    except OSError as error:
        raise CheckpointError(f"{weights}: cannot be read; train it first") from error
    except safetensors.SafetensorError as error:
        raise CheckpointError(f"{weights}: damaged ({str(error).splitlines()[0]})") from error
    n_stored = sum(map(math.prod, shapes))
    tensors_left, numbers_left = 2 * len(shapes) + SPARE_TENSORS, 2 * n_stored + SPARE_NUMBERS

    def count(_: nn.Module, __: str, tensor: Tensor | None) -> None:
        nonlocal tensors_left, numbers_left
        if tensor is not None:
            tensors_left, numbers_left = tensors_left - 1, numbers_left - tensor.numel()
        if min(tensors_left, numbers_left) < 0:
            raise ValueError(f"its sizes ask for far more than the {n_stored} weights that are stored")

    with register_module_parameter_registration_hook(count), register_module_buffer_registration_hook(count):
        yield


def replace_file(path: Path, write: Callable[[Path], object]) -> None:
    """Calls `write` with a temporary path beside `path`, then renames it into place. Raises WriteError: the
    disk is full."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with writing(path):
            write(temporary)
            os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
