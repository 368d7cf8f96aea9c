"""Runs the designs, one after the other, and reports; what a design has finished is never done again.

The folder of a comparison holds a folder per design and budget: the trained codec as soon as it is trained,
and `row.json` once the design is finished. The report, a Markdown page and a JSON file, is made from all rows
there are, so several runs (on a core each, with different designs) may share the folder.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch

from timbrel_bundle.files import atomic_write
from timbrel_posttraining.codec_comparison import codec_training, figures
from timbrel_posttraining.codec_comparison.designs import DESIGNS, ComparisonConfig, Design
from timbrel_posttraining.codec_comparison.figures import CodeUsage, Predictability, Reconstruction
from timbrel_training.checkpoint import load_description, load_weights, save_weights
from timbrel_training.codec.interface import Codec
from timbrel_training.errors import CheckpointError
from timbrel_training.notes.dataset import NoteDataset
from timbrel_training.settings import build

CODEC = "codec"
"""Name of the trained codec's files."""
ROW = "row"
"""Stem of the finished row's file."""
REHEARSED_NOTES = 48
"""Notes coded for a rehearsal, beside as many held-out ones."""

JSON_NAME = "comparison.json"
MARKDOWN_NAME = "comparison.md"


@dataclass(frozen=True)
class Rehearsal:
    """The cost of one design's steps on one thread."""

    codec_seconds: float
    """Seconds per training step of the codec."""
    decoder_seconds: float
    """Seconds per training step of the note transformer on its codes."""

    def summary(self, design: Design, config: ComparisonConfig) -> str:
        """Says what each of the design's steps costs, and how many the budget has."""
        codec_steps = 60.0 * config.minutes / self.codec_seconds
        decoder_steps = 60.0 * config.decoder_minutes / self.decoder_seconds
        return (
            f"{design.name}: codec {self.codec_seconds:.3f} s a step, {codec_steps:,.0f} steps in "
            f"{config.minutes:g} minutes; decoder {self.decoder_seconds:.3f} s, {decoder_steps:,.0f} in "
            f"{config.decoder_minutes:g}"
        )


class Comparison:
    """Compares designs on one library of notes.

    Args:
        library: the notes; at 48 kHz for the designs that come with this package.
        folder: of the results.
        config: the same for every design.
    """

    def __init__(self, library: NoteDataset, folder: Path, config: ComparisonConfig) -> None:
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
        config = replace(self.config, n_training_notes=REHEARSED_NOTES, n_held_out_notes=REHEARSED_NOTES)
        with one_thread():
            codec_seconds = codec_training.seconds_per_step(
                lambda: codec_training.codec_trainee(design, self.library, config),
                codec_training.loop_config(config),
                design.name,
            )
            codec = design.make_codec().eval()
            table = figures.code_notes(
                self.library, figures.chosen_notes(self.library, config), codec, config.note_seconds
            )

            def make() -> codec_training.Trainee[Any]:
                trainer = figures.note_trainer(table, config)
                return codec_training.Trainee(trainer.model, trainer.loss, trainer.batch)

            decoder_seconds = codec_training.seconds_per_step(
                make, figures.loop_config(config), f"{design.name}, decoder"
            )
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

    def _codec(self, design: Design) -> tuple[Codec, codec_training.Spent]:
        """Trains the design's codec, or takes up the one trained before."""
        home = self._home(design)
        if found := self._cached(design, CODEC):
            codec = design.make_codec()
            load_weights(home, CODEC, codec)
            return codec.eval().requires_grad_(False), build(codec_training.Spent, found["spent"])
        codec, spent = codec_training.train_design(design, self.library, self.config, home / "training")
        description = {"identity": self._identity(design), "spent": asdict(spent)}
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
        described = asdict(design)
        del described["about"]
        identity = {
            "design": described,
            "settings": asdict(self.config),
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
    known = {field.name for field in fields(Row)}
    return build(Row, {name: value for name, value in table.items() if name in known})


def _differences(found: Mapping[str, Any], expected: Mapping[str, Any]) -> str:
    return " and ".join(part for part, value in expected.items() if found.get(part) != value)


@dataclass(frozen=True)
class Row:
    """A row of the report: one design's figures."""

    design: str
    """The design's name."""
    about: str
    """Its description."""
    minutes: float
    """Minutes that the codec was trained for."""
    decoder_minutes: float
    """Minutes that the note transformer was trained for on its codes."""
    sample_rate: int
    """Hz."""
    frame_rate: float
    """Frames per second."""
    n_codebooks: int
    """Codes per frame."""
    codebook_size: int
    """Codes of each codebook."""
    parameters: int
    """Parameters of the codec, without a discriminator."""
    spent: codec_training.Spent
    """The training of the codec."""
    reconstruction: Reconstruction
    """Figures of held-out notes."""
    usage: CodeUsage
    """Usage over the notes that the note transformer was given."""
    predictability: Predictability
    """Figures of held-out notes."""

    @property
    def tokens_per_second(self) -> float:
        """Codes per second of audio, all codebooks together."""
        return self.frame_rate * self.n_codebooks


COLUMNS: tuple[tuple[str, Callable[[Row], str]], ...] = (
    ("design", lambda row: row.design),
    ("minutes, codec + decoder", lambda row: f"{row.minutes:g} + {row.decoder_minutes:g}"),
    ("kHz", lambda row: f"{row.sample_rate / 1000:g}"),
    ("frames/s", lambda row: f"{row.frame_rate:g}"),
    ("codebooks", lambda row: str(row.n_codebooks)),
    ("tokens/s", lambda row: f"{row.tokens_per_second:g}"),
    ("parameters", lambda row: f"{row.parameters / 1e6:.2f} M"),
    ("steps", lambda row: f"{row.spent.steps:,}"),
    ("log-mel, dB", lambda row: f"{row.reconstruction.median_db:.2f}"),
    ("in tune, source", lambda row: _percent(row.reconstruction.source_in_tune)),
    ("in tune, codec", lambda row: _percent(row.reconstruction.codec_in_tune)),
    ("in tune by either, source", lambda row: _percent(row.reconstruction.source_in_tune_by_either)),
    ("in tune by either, codec", lambda row: _percent(row.reconstruction.codec_in_tune_by_either)),
    ("decoder steps", lambda row: f"{row.predictability.spent.steps:,}"),
    ("nats/s", lambda row: f"{row.predictability.nats_per_second:,.0f}"),
    ("bits/s", lambda row: f"{row.predictability.bits_per_second:,.0f}"),
)

BY_CODEBOOK: tuple[tuple[str, Callable[[Row], Iterable[str]]], ...] = (
    ("codes in use", lambda row: (str(count) for count in row.usage.distinct)),
    ("perplexity", lambda row: (f"{value:.0f}" for value in row.usage.perplexity)),
    ("frames that change", lambda row: (_percent(share) for share in row.usage.change)),
    ("nats per token", lambda row: (f"{nats:.2f}" for nats in row.predictability.nats_by_codebook)),
)

NOTES = """\
Log-mel: median over held-out notes of the mean absolute difference to the source, 80 mels, 1024 / 256 at
24 kHz, clipped 60 dB below the source's peak. In tune: within 50 cents of the pitch asked, by swift-f0, and
by either swift-f0 or YIN. Nats and bits per second of audio: cross entropy of held-out notes under the same
note transformer, trained for the same time on each design's codes. Each training had one thread; minutes are
its processor time.
"""


def write_report(rows: Sequence[Row], folder: Path) -> None:
    """Writes comparison.json and comparison.md, each whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"rows": [row_to_json(row) for row in rows]}, indent=2) + "\n"
    atomic_write(folder / JSON_NAME, text)
    atomic_write(folder / MARKDOWN_NAME, to_markdown(rows))


def row_to_json(row: Row) -> dict[str, Any]:
    """Lists the row's fields, and the figures that follow from them."""
    return {
        **asdict(row),
        "tokens_per_second": row.tokens_per_second,
        "bits_per_second": row.predictability.bits_per_second,
    }


def to_markdown(rows: Sequence[Row]) -> str:
    """Writes a table of designs, a table of their codebooks, and the meaning of the figures."""
    designs = [[shown(row) for _, shown in COLUMNS] for row in rows]
    codebooks = [
        [row.design, name, *values]
        for row in rows
        for name, values in ((name, list(shown(row))) for name, shown in BY_CODEBOOK)
    ]
    widest = max((row.n_codebooks for row in rows), default=0)
    about = [f"- `{row.design}`: {row.about}" for row in {row.design: row for row in rows}.values()]
    parts = [
        "# Codec designs compared",
        _table([heading for heading, _ in COLUMNS], designs),
        NOTES,
        "## Codebooks",
        _table(["design", "", *map(str, range(widest))], codebooks),
        "## Designs",
        "\n".join(about) + "\n",
    ]
    return "\n".join(part if part.endswith("\n") else part + "\n" for part in parts)


def _table(headings: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    width = len(headings)
    padded = [[*line, *[""] * (width - len(line))] for line in lines]
    rows = [list(headings), ["---"] * width, *padded]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows) + "\n"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
