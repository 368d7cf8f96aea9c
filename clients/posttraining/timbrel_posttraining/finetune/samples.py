"""A musician's recordings: read, cleaned, coded by the bundle's codec, and placed on its map."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from timbrel_bundle.codec import CodecEncoder
from timbrel_bundle.layout import TIMBRE_ENCODER
from timbrel_export.errors import ExportError
from timbrel_posttraining.finetune.base import Base
from timbrel_posttraining.finetune.material import check_names
from timbrel_posttraining.finetune.take import Take, plan_takes
from timbrel_training.notes.cleaning import Cleaner
from timbrel_training.notes.dataset import NoteDataset
from timbrel_training.notes.folder import FolderSource
from timbrel_training.notes.render import render_dataset
from timbrel_training.notes.split import Split, SplitRule
from timbrel_training.posttraining_config import FineTuneConfig
from timbrel_training.tokens.store import TokenStore
from timbrel_training.tokens.store_writer import TokenStoreWriter
from timbrel_training.tokens.table import TokenTable

KIND = "folder:"
Tell = Callable[[str], object]


def open_samples(text: str, licence: str, base: Base) -> FolderSource:
    """The recordings that `folder:DIR` names.

    Raises:
        ExportError: not of that form.
        TrainingError: they cannot be read, or an instrument's name is taken.
    """
    folder = text.removeprefix(KIND)
    if not text.startswith(KIND) or not folder:
        raise ExportError(f"--source {text!r}: fine-tuning reads recordings, expected {KIND}DIR")
    source = FolderSource(folder, sample_rate=base.header.sample_rate, licence=licence)
    check_names(source.groups(), [point.instrument for point in base.chart.points])
    return source


def read_library(source: FolderSource, cell_fraction: float, path: Path, tell: Tell) -> NoteDataset:
    """The recordings as a library at `path`, made where it is not there yet.

    Full-scale peaks are kept: sample libraries are often normalised to them.

    Raises:
        SourceError: a file cannot be read, or none is fit to train on.
    """
    if not path.exists():
        cleaner = Cleaner(clip_peak=math.inf)
        for line in render_dataset(
            source, path, 1, rule=SplitRule(cell_fraction), cleaner=cleaner, progress=True
        ).lines():
            tell(line)
    return NoteDataset(path)


@dataclass(frozen=True, eq=False)
class CodedSamples:
    """Recordings as codes, each several times."""

    table: TokenTable
    n_trained: int
    """Recordings that are trained on; the others are held out."""


def code_library(
    library: NoteDataset, base: Base, config: FineTuneConfig, path: Path, tell: Tell
) -> CodedSamples:
    """Codes the library's notes into a token store at `path`, unless it is there.

    Notes that the bundle could not be asked for are left out.

    Raises:
        ExportError: no note is left.
        StoreError: the store is damaged.
    """
    rows = _within_ranges(library, base, tell)
    if not path.exists():
        _write_codes(library, plan_takes(library, rows.tolist(), base.ranges.pitch, config), base, path)
    trained = int((library.split[rows] == int(Split.TRAIN)).sum())
    return CodedSamples(TokenTable.from_store(TokenStore(path)), trained or len(rows))


def locate(base: Base, table: TokenTable) -> NDArray[np.float32]:
    """Where the bundle's timbre encoder sees each note, float32 [N, 2] in the unit disc."""
    session = base.bundle.session(TIMBRE_ENCODER, inputs=["codes", "n_frames"], outputs=["timbre"])
    points = []
    for index in range(table.n_notes):
        codes = table.note(index).astype(np.int64)[None]
        given = {"codes": codes, "n_frames": np.array([codes.shape[1]], dtype=np.int64)}
        points.append(session.run(["timbre"], given)[0][0])
    return np.stack(points).astype(np.float32)


def _within_ranges(library: NoteDataset, base: Base, tell: Tell) -> NDArray[np.intp]:
    """Numbers of the notes whose pitch and velocity the bundle knows."""
    kept = np.ones(len(library), dtype=bool)
    for name, values, (low, high) in (
        ("pitch", library.pitch, base.ranges.pitch),
        ("velocity", library.velocity, base.ranges.velocity),
    ):
        inside = (values >= low) & (values <= high)
        if count := int((kept & ~inside).sum()):
            tell(f"left out: {count} of {name} outside the bundle's {low} to {high}")
        kept &= inside
    if not kept.any():
        raise ExportError("no sample is left to train on; see what the bundle knows with `timbrel info`")
    return np.flatnonzero(kept)


def _write_codes(library: NoteDataset, takes: Sequence[Take], base: Base, path: Path) -> None:
    header = base.header
    encoder = CodecEncoder(base.bundle)
    with TokenStoreWriter(path, header) as writer:
        for take in tqdm(takes[len(writer) :], "coding", len(takes), initial=len(writer)):
            row, instrument = take.row, int(library.instrument[take.row])
            audio = take.audio(library, header.hop_length)
            pitch = int(library.pitch[row]) + take.semitones
            writer.add(
                encoder.encode(audio, header.sample_rate, float(pitch) if pitch else None),
                instrument=library.instruments[instrument],
                family=library.instrument_families[instrument],
                pitch=pitch,
                velocity=int(library.velocity[row]),
                held_frames=take.held_frames(library, header.hop_length),
                source="samples",
                split=int(library.split[row]),
                cut=bool(library.cut[row]),
            )
        writer.finish()
