"""The registry of codecs: those of this folder, and those that other packages bring as entry points.

    [project.entry-points."timbrel.codecs"]
    my-codec = "my_package.codec:DESIGN"     # a CodecDesign whose id is my-codec

A design is imported when it is first asked for.
"""

from __future__ import annotations

import json
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file

from timbrel_training.checkpoint import load_description, load_weights, no_larger_than
from timbrel_training.codec.interface import WEIGHTS_NAME, Codec, CodecDesign
from timbrel_training.errors import CheckpointError, ConfigError

GROUP = "timbrel.codecs"
"""Entry points of designs, by id."""
DEFAULT = "timbrel-notes-2"
"""What a config without `codec.id` means."""
OWN = (
    EntryPoint(DEFAULT, "timbrel_training.codec.timbrel_notes:DESIGN", GROUP),
    EntryPoint("encodec", "timbrel_training.codec.encodec:DESIGN", GROUP),
)
_loaded: dict[str, CodecDesign] = {}


def design_named(id: object) -> CodecDesign:
    """Returns the design of this id. Raises ConfigError: there is none, or it cannot be imported."""
    if isinstance(id, str) and id in _loaded:
        return _loaded[id]
    points = {point.name: point for point in (*entry_points(group=GROUP), *OWN)}
    if not isinstance(id, str) or id not in points:
        raise ConfigError(f"codec.id: {id!r}, expected {' or '.join(map(repr, sorted(points)))}")
    point = points[id]
    try:
        design = point.load()
    except Exception as error:  # whatever another package's import runs into
        reason = str(error).partition("\n")[0]
        raise ConfigError(f"codec {id!r}: {point.value} cannot be imported ({reason})") from error
    if not isinstance(design, CodecDesign) or design.id != id:
        raise ConfigError(f"codec {id!r}: {point.value} is no CodecDesign of this id")
    _loaded[id] = design
    return design


def design_of(config: Any) -> CodecDesign:
    """Returns the design that a config's section `codec` belongs to."""
    return next(design for design in _loaded.values() if type(config) is design.config)


def load_codec(folder: Path) -> Codec:
    """Returns the finished codec in `folder`, ready to use. Raises CheckpointError: nothing finished there,
    damaged, or of a design that is not known."""
    about = load_description(folder, WEIGHTS_NAME)
    with no_larger_than(folder / f"{WEIGHTS_NAME}.safetensors"):
        try:
            codec = design_named(about.get("id")).build(about["config"])
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise CheckpointError(f"{folder}: holds no codec that can be made again ({error})") from error
    load_weights(folder, WEIGHTS_NAME, codec)
    return codec.eval().requires_grad_(False)


def codec_in_bundle(weights: Path) -> Codec:
    """Returns the codec whose weights and config a bundle's codec.safetensors holds, ready to use. Raises
    CheckpointError: it holds none that is known here, or not all of it."""
    try:
        with safe_open(weights, framework="pt") as file:
            about = json.loads((file.metadata() or {}).get("config", "{}"))
        with no_larger_than(weights):
            codec = design_named(about["id"]).build(about["config"])
        tensors = load_file(weights)
        if wrong := [name for name, tensor in tensors.items() if not tensor.isfinite().all()]:
            raise ValueError(f"the weight {wrong[0]} is not finite")
        codec.load_state_dict(tensors)
    except OSError as error:
        raise CheckpointError(f"{weights}: cannot be read ({error.strerror})") from None
    except (KeyError, TypeError, ValueError, RuntimeError, SafetensorError) as error:
        raise CheckpointError(
            f"{weights}: holds no codec that this timbrel can make again ({str(error).splitlines()[0]})"
        ) from None
    return codec.eval().requires_grad_(False)
