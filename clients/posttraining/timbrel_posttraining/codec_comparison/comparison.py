"""Runs the designs, one after the other; what a design has finished is never done again.

The folder of a comparison holds a folder per design and budget: the trained codec as soon as it is trained,
and `row.json` once the design is finished. The report is made from all rows there are, so several runs (on a
core each, with different designs) may share the folder.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from timbrel_bundle.files import atomic_write
from timbrel_posttraining.codec_comparison import codec_training, figures
from timbrel_posttraining.codec_comparison.budget import Spent, Trainee, seconds_per_step
from timbrel_posttraining.codec_comparison.designs import DESIGNS, ComparisonConfig, Design
from timbrel_posttraining.codec_comparison.report import Row, row_to_json, write_report
from timbrel_training.checkpoint import load_description, load_weights, save_weights
from timbrel_training.codec.interface import Codec
from timbrel_training.errors import CheckpointError
from timbrel_training.notes.library import AudioLibrary
from timbrel_training.settings import build

CODEC = "codec"
"""Name of the trained codec's files."""
ROW = "row"
"""Stem of the finished row's file."""
REHEARSED_NOTES = 48
"""Notes coded for a rehearsal, beside as many held-out ones."""


@dataclasses.dataclass(frozen=True)
class Rehearsal:
    """The cost of one design's steps on one thread."""

    codec_seconds: float
    """Seconds per training step of the codec."""
    decoder_seconds: float
    """Seconds per training step of the note transformer on its codes."""

    def told(self, design: Design, config: ComparisonConfig) -> str:
        """Says what each of the design's steps costs, and how many the budget has."""
        codec_steps = 60.0 * config.minutes / self.codec_seconds
        decoder_steps = 60.0 * config.decoder_minutes / self.decoder_seconds
        return (
            f"{design.name}: codec {self.codec_seconds:.3f} s a step, {codec_steps:,.0f} steps in "
            f"{config.minutes:g} minutes; decoder {self.decoder_seconds:.3f} s, {decoder_steps:,.0f} in "
            f"{config.decoder_minutes:g}"
        )


class Comparison:
    """Designs on one library of notes.

    Args:
        library: the notes; at 48 kHz for the designs that come with this package.
        folder: of the results.
        config: the same for every design.
    """

    def __init__(self, library: AudioLibrary, folder: Path, config: ComparisonConfig) -> None:
        self.library, self.folder, self.config = library, folder, config

    def run(self, designs: Sequence[Design]) -> list[Row]:
        """Trains and judges the designs that are not finished yet; the report grows with each.

        Returns:
            All rows in the folder, those of earlier runs too.

        Raises:
            CheckpointError: a folder holds a row of other settings or notes.
            StoppedError: a signal ended a training early; run again to go on with that design.
        """
        missing = [design for design in designs if self._cached(design, ROW) is None]
        with one_thread():
            for design in missing:
                row = self._measure(design)
                entry = {"identity": self._identity(design), "row": row_to_json(row)}
                atomic_write(self._home(design) / f"{ROW}.json", json.dumps(entry, indent=2) + "\n")
                write_report(self.rows(), self.folder)
        write_report(self.rows(), self.folder)
        return self.rows()

    def rehearse(self, design: Design) -> Rehearsal:
        """Takes a few steps of the design's trainings, on one thread, and throws them away.

        Raises:
            StoppedError: a signal ended it early.
        """
        config = dataclasses.replace(
            self.config, n_training_notes=REHEARSED_NOTES, n_held_out_notes=REHEARSED_NOTES
        )
        with one_thread():
            codec_seconds = seconds_per_step(
                lambda: codec_training.codec_trainee(design, self.library, config),
                codec_training.loop_config(config),
                design.name,
            )
            codec = design.make_codec().eval()
            table = figures.code_notes(
                self.library, figures.chosen_notes(self.library, config), codec, config.note_seconds
            )

            def make() -> Trainee[Any]:
                trainer = figures.note_trainer(table, config)
                return Trainee(trainer.model, trainer.loss, trainer.batch)

            decoder_seconds = seconds_per_step(make, figures.loop_config(config), f"{design.name}, decoder")
        return Rehearsal(codec_seconds, decoder_seconds)

    def rows(self) -> list[Row]:
        """Reads all finished rows of the folder, in the order of the catalogue, short budgets first."""
        order = {design.name: number for number, design in enumerate(DESIGNS)}
        rows = [_read_row(path) for path in self.folder.glob(f"*/*/{ROW}.json")]
        return sorted(
            rows,
            key=lambda row: (row.minutes, row.decoder_minutes, order.get(row.design, len(order)), row.design),
        )

    def _measure(self, design: Design) -> Row:
        """Trains and measures one design; a codec that was trained already is taken up."""
        config, library = self.config, self.library
        codec, spent = self._codec(design)
        reconstruction = figures.judge_reconstruction(
            library, figures.judged_notes(library, config.n_judged_notes), codec
        )
        table = figures.code_notes(library, figures.chosen_notes(library, config), codec, config.note_seconds)
        predictability = figures.measure_predictability(
            table, config, self._home(design) / "decoder", f"{design.name}, decoder"
        )
        return Row(
            design=design.name,
            about=design.about,
            minutes=config.minutes,
            decoder_minutes=config.decoder_minutes,
            sample_rate=codec.sample_rate,
            frame_rate=codec.frame_rate,
            n_codebooks=codec.n_codebooks,
            codebook_size=codec.codebook_size,
            parameters=sum(parameter.numel() for parameter in codec.parameters()),
            spent=spent,
            reconstruction=reconstruction,
            usage=figures.CodeUsage.of(table),
            predictability=predictability,
        )

    def _codec(self, design: Design) -> tuple[Codec, Spent]:
        """Trains the design's codec, or takes up the one trained before."""
        home = self._home(design)
        if found := self._cached(design, CODEC):
            codec = design.make_codec()
            load_weights(home, CODEC, codec)
            return codec.eval().requires_grad_(False), build(Spent, found["spent"])
        codec, spent = codec_training.train_design(design, self.library, self.config, home / "training")
        description = {"identity": self._identity(design), "spent": dataclasses.asdict(spent)}
        save_weights(home, CODEC, codec, description)
        return codec, spent

    def _cached(self, design: Design, name: str) -> dict[str, Any] | None:
        """Reads what an earlier run left under this name; None where nothing is.

        Raises:
            CheckpointError: it was made with other settings or notes.
        """
        home = self._home(design)
        if not (home / f"{name}.json").exists():
            return None
        found = load_description(home, name)
        expected = self._identity(design)
        if found.get("identity") != expected:
            changed = _differences(found.get("identity") or {}, expected)
            raise CheckpointError(
                f"{home}: made with other {changed}; remove that folder or choose another --out"
            )
        return found

    def _home(self, design: Design) -> Path:
        return self.folder / design.name / self.config.budget

    def _identity(self, design: Design) -> dict[str, Any]:
        """The settings that a finished row shares with the run that takes it up, as JSON reads them back."""
        described = dataclasses.asdict(design)
        del described["about"]
        identity = {
            "design": described,
            "settings": dataclasses.asdict(self.config),
            "notes": hashlib.sha256(self.library.index.tobytes()).hexdigest(),
        }
        plain: dict[str, Any] = json.loads(json.dumps(identity))
        return plain


@contextmanager
def one_thread() -> Iterator[None]:
    """Keeps torch on one thread: designs differ in what several bring them, and cores are often shared."""
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(n_threads)


def _read_row(path: Path) -> Row:
    table: dict[str, Any] = load_description(path.parent, path.stem)["row"]
    known = {field.name for field in dataclasses.fields(Row)}
    return build(Row, {name: value for name, value in table.items() if name in known})


def _differences(found: Mapping[str, Any], expected: Mapping[str, Any]) -> str:
    return " and ".join(part for part, value in expected.items() if found.get(part) != value)
