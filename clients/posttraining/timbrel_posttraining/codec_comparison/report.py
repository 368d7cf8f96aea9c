"""The comparison as a Markdown page and a JSON file."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from timbrel_bundle.files import atomic_write
from timbrel_posttraining.codec_comparison.budget import Spent
from timbrel_posttraining.codec_comparison.figures import CodeUsage, Predictability, Reconstruction

JSON_NAME = "comparison.json"
MARKDOWN_NAME = "comparison.md"


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
    spent: Spent
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
    """The row's fields, and the figures that follow from them."""
    return {
        **asdict(row),
        "tokens_per_second": row.tokens_per_second,
        "bits_per_second": row.predictability.bits_per_second,
    }


def to_markdown(rows: Sequence[Row]) -> str:
    """A table of designs, a table of their codebooks, and what the figures mean."""
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
