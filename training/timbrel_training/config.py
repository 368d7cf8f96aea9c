"""The config of a whole training, from notes to model: one TOML file, a section per stage.

    config = load_config("cpu", ["model.d_model=192", "note_training.loop.max_minutes=30"])

`tiny`, `cpu` and `gpu` come with the package; any other name is a path.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from timbrel_training.codec.timbrel_notes.refine import RefiningConfig
from timbrel_training.codec.timbrel_notes.train import CodecTrainingConfig
from timbrel_training.errors import ConfigError
from timbrel_training.finetune_config import FineTuneConfig
from timbrel_training.model.config import ModelConfig
from timbrel_training.note_training.config import NoteTrainingConfig
from timbrel_training.notes.config import NotesConfig
from timbrel_training.settings import build, override
from timbrel_training.timbre.config import TimbreTrainingConfig
from timbrel_training.timbre_finetune_config import HearingConfig

NAMED = ("tiny", "cpu", "gpu")
"""Configs in the package: seconds for tests, about four hours on two cores, about 20 minutes on one H200."""
PLACEHOLDERS: dict[str, Any] = {"codebook_size": 1024, "n_codebooks": 3}
"""Of the model, until the token store is known: those of the timbrel-notes codec."""


@dataclass(frozen=True)
class Config:
    """A section per stage; each field of each section says what it is and why."""

    notes: NotesConfig = field(default_factory=NotesConfig)
    """Which notes to train on."""
    codec: CodecTrainingConfig = field(default_factory=CodecTrainingConfig)
    """The timbrel-notes codec and its training."""
    refine: RefiningConfig = field(default_factory=RefiningConfig)
    """The codec's decoder, trained on once its codes are fixed."""
    timbre: TimbreTrainingConfig = field(default_factory=TimbreTrainingConfig)
    """Stage 1: the timbre map."""
    model: ModelConfig = field(default_factory=lambda: ModelConfig(**PLACEHOLDERS))
    """Sizes of the note transformer. Codebooks and their size are the token store's, whatever stands here."""
    note_training: NoteTrainingConfig = field(default_factory=NoteTrainingConfig)
    """Stage 2: training of the note transformer."""
    hearing: HearingConfig = field(default_factory=HearingConfig)
    """The timbre encoder's second training, on what `locate` hears."""
    finetune: FineTuneConfig = field(default_factory=FineTuneConfig)
    """Fine-tuning of a bundle on further samples."""


def load_config(name: str, overrides: Sequence[str] = ()) -> Config:
    """The named config, or that of a TOML file, with `section.field=value` overrides.

    Raises:
        ConfigError: no such config, damaged TOML, an unknown field or a value that is not allowed.
    """
    if name in NAMED:
        text = resources.files("timbrel_training").joinpath("configs", f"{name}.toml").read_text("utf-8")
    else:
        try:
            text = Path(name).read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{name}: neither a readable file nor one of {', '.join(NAMED)}") from error
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{name}: {error}") from error
    table["model"] = {**PLACEHOLDERS, **table.get("model", {})}
    for assignment in overrides:
        override(table, assignment)
    try:
        return build(Config, table)
    except ConfigError:
        raise
    except ValueError as error:  # a section's own checks
        raise ConfigError(f"{name}: {error}") from error
