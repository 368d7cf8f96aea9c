"""Files that training leaves behind: resumable checkpoints, and finished weights with their description."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import nn

from timbrel_training.errors import CheckpointError, writing

FORMAT_VERSION = 1


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
