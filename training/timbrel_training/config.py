"""The config of a whole training, from notes to model: one TOML file, a section per stage.

    config = load_config("cpu", ["model.d_model=192", "note_training.loop.max_minutes=30"])

`tiny`, `cpu`, `gpu`, `band` and `encodec` come with the package; any other name is a path. A file that says
`extends = "cpu"` holds only what is different there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from timbrel_training.codec import registry
from timbrel_training.errors import ConfigError
from timbrel_training.model.config import ModelConfig, without_former
from timbrel_training.note_training.header_fitting import HeaderTrainingConfig
from timbrel_training.note_training.train import NoteTrainingConfig
from timbrel_training.notes.config import NotesConfig
from timbrel_training.posttraining_config import FineTuneConfig, TimbreFinetuneConfig
from timbrel_training.settings import build, override, parse_toml
from timbrel_training.timbre.model import TimbreTrainingConfig

NAMED = ("tiny", "cpu", "gpu", "band", "hearing", "players", "encodec")
"""Configs in the package: seconds for tests, some five hours on two cores, one for a GPU, the
notes of many instruments, without a training, and Meta's codec in place of timbrel's own."""
PLACEHOLDERS: dict[str, Any] = {"codebook_size": 1024, "n_codebooks": 10}
"""The model's codebooks until the token store is known: those of the timbrel-notes codec."""


@dataclass(frozen=True)
class Config:
    """A section per stage; each field of each section says what it is and why."""

    notes: NotesConfig = field(default_factory=NotesConfig)
    """The notes to train on."""
    codec: Any = field(default_factory=lambda: registry.design_named(registry.DEFAULT).config())
    """The codec and its training: the config class of its design, which `codec.id` names in a TOML file."""
    timbre: TimbreTrainingConfig = field(default_factory=TimbreTrainingConfig)
    """Stage 1: the timbre map."""
    model: ModelConfig = field(default_factory=lambda: ModelConfig(**PLACEHOLDERS))
    """Sizes of the note transformer. Codebooks and their size are the token store's, whatever stands here."""
    note_training: NoteTrainingConfig = field(default_factory=NoteTrainingConfig)
    """Stage 2: training of the note transformer."""
    headers: HeaderTrainingConfig = field(default_factory=HeaderTrainingConfig)
    """The training of what says headers and what plays them, together."""
    hearing: TimbreFinetuneConfig = field(default_factory=TimbreFinetuneConfig)
    """The timbre encoder's second training, on what `locate` hears."""
    finetune: FineTuneConfig = field(default_factory=FineTuneConfig)
    """Fine-tuning of a bundle on further samples."""


def load_config(name: str, overrides: Sequence[str] = ()) -> Config:
    """Returns the named config, or that of a TOML file, with `section.field=value` overrides. Raises
    ConfigError: no such config, damaged TOML, an unknown field or a value that is not allowed."""
    table = _read(name)
    table["model"] = {**PLACEHOLDERS, **table.get("model", {})}
    own = table.get("codec", {}).get("id", registry.DEFAULT)
    for assignment in sorted(overrides, key=lambda each: not each.startswith("codec.id=")):
        override(table, assignment)
        if (chosen := table.get("codec", {}).get("id", own)) != own:  # the file's fields are another design's
            own, table["codec"] = chosen, {"id": chosen}
    try:
        table["model"] = without_former(table["model"])
        design = registry.design_named(table.setdefault("codec", {}).pop("id", registry.DEFAULT))
        return build(Config, table, types={"codec": design.config})
    except ConfigError:
        raise
    except ValueError as error:  # a former field of the model
        raise ConfigError(f"{name}: {error}") from error


def _read(name: str) -> dict[str, Any]:
    """Returns a config as a table, on top of the one that it `extends`."""
    if name in NAMED:
        text = resources.files("timbrel_training").joinpath("configs", f"{name}.toml").read_text("utf-8")
    else:
        try:
            text = Path(name).read_text("utf-8-sig")
        except (OSError, ValueError) as error:
            raise ConfigError(f"{name}: neither a readable file nor one of {', '.join(NAMED)}") from error
    try:
        table = parse_toml(text)
    except ConfigError as error:
        raise ConfigError(f"{name}: {error}") from error
    for section in ("codec", "model"):  # looked into before the sections are made
        if not isinstance(table.get(section, {}), dict):
            raise ConfigError(f"{name}: {section}: {table[section]!r}, expected a section")
    if (base := table.pop("extends", None)) is None:
        return table
    if base not in NAMED:
        raise ConfigError(f"{name}: extends {base!r}, expected one of {', '.join(NAMED)}")
    below = _read(base)
    if "id" in table.get("codec", {}):  # its fields may be another design's
        below.pop("codec", None)
    return _merged(below, table)


def _merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Returns both tables as one, sections within sections too."""
    both = {**below, **above}
    for name in below.keys() & above.keys():
        if isinstance(below[name], dict) and isinstance(above[name], dict):
            both[name] = _merged(below[name], above[name])
    return both
