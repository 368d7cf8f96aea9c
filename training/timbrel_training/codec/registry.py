"""The registry of codecs. A new one needs a folder beside this file, its import and its place in DESIGNS."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from timbrel_training.checkpoint import load_description
from timbrel_training.codec import encodec, timbrel_notes
from timbrel_training.codec.interface import WEIGHTS_NAME, Codec, CodecDesign
from timbrel_training.errors import CheckpointError, ConfigError

DESIGNS = {design.id: design for design in (timbrel_notes.DESIGN, timbrel_notes.NEXT_DESIGN, encodec.DESIGN)}
"""Every kind of codec by its id; the first is what a config without `codec.id` means."""
DEFAULT = timbrel_notes.DESIGN


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
    id = load_description(folder, WEIGHTS_NAME).get("id")
    if id not in DESIGNS:
        raise CheckpointError(f"{folder}: holds codec {id!r}, expected {_known()}")
    return DESIGNS[id].load(folder)


def codec_from_bundle(path: Path) -> Codec:
    """Returns the codec whose weights lie in a bundle's codec.safetensors, ready to use.

    Raises:
        CheckpointError: no codec can be built from them.
    """
    raise CheckpointError(
        f"{path}: does not say how its codec is built; name a bundle with an encoder's graph"
    )


def _known() -> str:
    return " or ".join(map(repr, DESIGNS))
