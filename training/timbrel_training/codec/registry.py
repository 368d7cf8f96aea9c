"""The registry of codecs. A new one needs a folder beside this file, its import and its place in DESIGNS."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file

from timbrel_training.checkpoint import load_description, load_weights
from timbrel_training.codec import encodec, timbrel_notes
from timbrel_training.codec.interface import WEIGHTS_NAME, Codec, CodecDesign
from timbrel_training.errors import CheckpointError, ConfigError

DESIGNS = {design.id: design for design in (timbrel_notes.DESIGN, encodec.DESIGN)}
"""Every kind of codec by its id."""
DEFAULT = timbrel_notes.DESIGN
"""What a config without `codec.id` means."""


def design_named(id: object) -> CodecDesign:
    """Returns the design of this id.

    Raises:
        ConfigError: there is none.
    """
    if not isinstance(id, str) or id not in DESIGNS:
        raise ConfigError(f"codec.id: {id!r}, expected {_known()}")
    return DESIGNS[id]


def design_of(config: Any) -> CodecDesign:
    """Returns the design that a config's section `codec` belongs to."""
    return next(design for design in DESIGNS.values() if isinstance(config, design.config))


def load_codec(folder: Path) -> Codec:
    """Returns the finished codec in `folder`, ready to use.

    Raises:
        CheckpointError: nothing finished there, damaged, or of a design that is not known.
    """
    about = load_description(folder, WEIGHTS_NAME)
    if about.get("id") not in DESIGNS:
        raise CheckpointError(f"{folder}: holds codec {about.get('id')!r}, expected {_known()}")
    codec = DESIGNS[about["id"]].build(about["config"])
    load_weights(folder, WEIGHTS_NAME, codec)
    return codec.eval().requires_grad_(False)


def codec_in_bundle(weights: Path) -> Codec:
    """Returns the codec whose weights and config a bundle's codec.safetensors holds, ready to use.

    Raises:
        CheckpointError: it holds none that is known here, or not all of it.
    """
    try:
        with safe_open(weights, framework="pt") as file:
            about = json.loads((file.metadata() or {}).get("config", "{}"))
        codec = DESIGNS[about["id"]].build(about["config"])
        codec.load_state_dict(load_file(weights))
    except OSError as error:
        raise CheckpointError(f"{weights}: cannot be read ({error.strerror})") from None
    except (KeyError, TypeError, ValueError, RuntimeError, SafetensorError) as error:
        raise CheckpointError(
            f"{weights}: holds no codec that this timbrel can make again ({str(error).splitlines()[0]})"
        ) from None
    return codec.eval().requires_grad_(False)


def _known() -> str:
    return " or ".join(map(repr, DESIGNS))
