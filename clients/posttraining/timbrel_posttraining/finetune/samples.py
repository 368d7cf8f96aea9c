"""A musician's samples: recordings are cleaned, varied, coded by the bundle's codec, placed on its map."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soxr
import torch
from numpy.typing import NDArray

from timbrel.progress import bar, counted
from timbrel_bundle.errors import AudioError
from timbrel_bundle.timbre_encoder import MIN_SECONDS, TimbreEncoder, prepare_recording
from timbrel_bundle.timbre_map import name_key
from timbrel_export.errors import ExportError
from timbrel_posttraining.bundles import NoteCoder
from timbrel_posttraining.finetune.base import Base
from timbrel_posttraining.finetune.tuning import sound_seconds
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb
from timbrel_training.codec.interface import KnownNote
from timbrel_training.errors import TrainingError
from timbrel_training.notes.cleaning import Cleaner
from timbrel_training.notes.dataset import NoteDataset
from timbrel_training.notes.folder import FolderSource
from timbrel_training.notes.render import render_dataset
from timbrel_training.notes.split import Split, SplitRule
from timbrel_training.posttraining_config import FineTuneConfig
from timbrel_training.timbre.map import MapPoint, gaps
from timbrel_training.tokens.store import TokenHeader
from timbrel_training.tokens.store_writer import TokenStoreWriter
from timbrel_training.tokens.table import TokenTable

SOURCE_PREFIX = "folder:"
Tell = Callable[[str], object]
"""Receives a line of text for the user."""

MOST_REFERENCES = 32
"""By so many a new instrument is recognised; of more recordings, those of near pitch share one."""
MOST_NAMED = 10
"""Instruments, and notes left out, that are named one by one."""
CODED_TOGETHER = 128
"""So many variants of an instrument are coded together, those of near pitch."""
N_ANGLES = 64
N_RADII = 100
"""Directions and distances tried: steps of a hundredth of the disc's radius and of 6 degrees."""

Point = NDArray[np.float32]


def open_samples(text: str, licence: str, base: Base) -> FolderSource:
    """Opens the recordings that `folder:DIR` names. Raises ExportError: not of that form; TrainingError: they
    cannot be read, or an instrument's name is taken."""
    folder = os.path.expanduser(text.removeprefix(SOURCE_PREFIX))
    if not text.startswith(SOURCE_PREFIX) or not folder:
        raise ExportError(f"--source {text!r}: fine-tuning reads recordings, expected {SOURCE_PREFIX}DIR")
    source = FolderSource(folder, sample_rate=base.header.sample_rate, licence=licence)
    check_names(source.groups(), [point.instrument for point in base.chart.points])
    source.check()
    return source


def as_read(source: FolderSource) -> Iterator[str]:
    """Says of each instrument, at most MOST_NAMED of them, which notes and velocities its samples are read
    as: where their names say none, or say them in words that are not known, this shows it."""
    groups = source.groups()
    for name in groups[:MOST_NAMED]:
        entries = [entry for entry in source.entries if entry.instrument == name]
        pitches, velocities = ({getattr(entry, of) for entry in entries} for of in ("pitch", "velocity"))
        yield (
            f"{name}: {counted(len(entries), 'sample')}, notes {min(pitches)} to {max(pitches)}, "
            f"velocities {min(velocities)} to {max(velocities)}"
        )
    if len(groups) > MOST_NAMED:
        yield f"and {counted(len(groups) - MOST_NAMED, 'instrument')} more"


def check_names(new: Sequence[str], old: Sequence[str]) -> None:
    """Raises TrainingError where a new instrument has the name of an old one: the map knows them by name."""
    known = {name_key(name): name for name in old}
    for name in new:
        if name_key(name) in known:
            raise TrainingError(
                f"{name!r}: the bundle has an instrument {known[name_key(name)]!r} already; "
                "give yours another name, in its file names or in the CSV's column `instrument`"
            )


@dataclass(frozen=True, eq=False)
class CodedSamples:
    """Recordings, each in several variants."""

    library: NoteDataset
    variants: list[Variant]
    table: TokenTable
    """The variants' codes, in the same order."""
    n_trained: int
    """Recordings that are trained on; the others are held out."""


def code_samples(
    source: FolderSource, base: Base, config: FineTuneConfig, work: Path, tell: Tell
) -> CodedSamples:
    """Reads, cleans and codes recordings into files of the folder `work`, unless they are there.

    Notes that the bundle could not be asked for are left out. Raises SourceError: a file cannot be read, or
    none is fit to train on; ExportError: no note is left; StoreError: the store is damaged.
    """
    library = _read_library(source, config.cell_fraction, work / "notes", tell)
    wanted = _within_ranges(library, base, tell)
    train_on_each(library, wanted)
    planned = plan_variants(library, wanted.tolist(), base.ranges.pitch, config)
    variants = long_enough(library, planned, base.header.hop_length, tell)
    variants.sort(key=lambda variant: (library.instrument[variant.row], *variant.played(library)))
    rows = np.unique([variant.row for variant in variants])
    path = work / "variants.bin"
    if not path.exists():
        _write_codes(library, variants, base, config.search_steps, path)
    trained = int((library.split[rows] == int(Split.TRAIN)).sum())
    return CodedSamples(library, variants, TokenTable.read(path), trained or len(rows))


@dataclass(frozen=True)
class Variant:
    """A recording as it is learnt: at a pitch and from an onset of its own."""

    row: int
    """Number of the note in the library."""
    semitones: int
    """Semitones by which it is repitched."""
    delay: float
    """Delay of its onset, as a fraction of a codec's frame."""

    @property
    def speed(self) -> float:
        """The speed at which it is played: 1 as recorded."""
        return float(2.0 ** (self.semitones / 12))

    def played(self, library: NoteDataset) -> tuple[int, int]:
        """Returns its pitch, 0 where that is not known, and its velocity."""
        return int(library.pitch[self.row]) + self.semitones, int(library.velocity[self.row])

    def audio(self, library: NoteDataset, hop_length: int) -> NDArray[np.float32]:
        """Makes the variant's audio [samples] at the library's rate; a frame has `hop_length` samples."""
        audio = library.audio(self.row)
        if self.semitones:
            rate = float(library.sample_rate)
            audio = soxr.resample(audio, rate * self.speed, rate, quality="HQ").astype(np.float32)
        return np.concatenate([np.zeros(round(self.delay * hop_length), np.float32), audio])

    def held_seconds(self, library: NoteDataset, hop_length: int) -> float:
        """Returns for how long its key is held, from the start of its audio."""
        delay = self.delay * hop_length / library.sample_rate
        return float(library.held_seconds[self.row]) / self.speed + delay


def train_on_each(library: NoteDataset, rows: NDArray[np.intp]) -> None:
    """Has all wanted rows of an instrument trained on whose few pitches are all held out."""
    for instrument in np.unique(library.instrument[rows]):
        own = rows[library.instrument[rows] == instrument]
        if not (library.split[own] == int(Split.TRAIN)).any():
            library.split[own] = int(Split.TRAIN)


def plan_variants(
    library: NoteDataset, rows: Sequence[int], pitches: tuple[int, int], config: FineTuneConfig
) -> list[Variant]:
    """Plans how often, at which pitches (lowest, highest) and from which onset the wanted rows of a library
    are learnt.

    Each note has `onset_variants` at its own pitch, and one at each near pitch that its instrument has no
    recording of; where there are several, onsets differ. Held-out notes are not repitched, nor is any to a
    held-out pitch.
    """
    near = [step for step in range(-config.semitones, config.semitones + 1) if step]
    taken = {(int(library.instrument[row]), int(library.pitch[row])) for row in rows}
    variants = []
    for row in rows:
        instrument, pitch = int(library.instrument[row]), int(library.pitch[row])
        variants += [Variant(row, 0, index / config.onset_variants) for index in range(config.onset_variants)]
        if library.split[row] == int(Split.TRAIN):
            variants += [
                Variant(row, step, index / len(near) if config.onset_variants > 1 else 0.0)
                for index, step in enumerate(near)
                if (instrument, pitch + step) not in taken and pitches[0] <= pitch + step <= pitches[1]
            ]
    return variants


def long_enough(
    library: NoteDataset, variants: Sequence[Variant], hop_length: int, tell: Tell
) -> list[Variant]:
    """Leaves out the variants that hold too little sound for the timbre encoder, and tells of them: what is
    played faster is shorter. Raises ExportError: none is left."""
    kept = []
    rate = library.sample_rate
    for variant in variants:
        try:
            # Repitching is slow: it is tried where the recording is short.
            seconds = sound_seconds(library.audio(variant.row), rate)
            if seconds < 2 * MIN_SECONDS * variant.speed:
                audio = variant.audio(library, hop_length)
                prepare_recording(audio, rate, pb.CodecSpec(sample_rate=rate), len(audio) / rate)
            kept.append(variant)
        except AudioError as error:
            pitch = int(library.pitch[variant.row])
            what = f"{library.name(variant.row)}, note {pitch}"
            what += f" repitched to {pitch + variant.semitones}" if variant.semitones else ""
            tell(f"left out: {what}: {error}")
    if not kept:
        raise ExportError(f"no sample holds {MIN_SECONDS:g} s of sound")
    return kept


def _read_library(source: FolderSource, cell_fraction: float, path: Path, tell: Tell) -> NoteDataset:
    """Cleans the recordings and keeps them as a library at `path`, unless it is there.

    Full-scale peaks are kept: sample libraries are often normalised to them.
    """
    if not path.exists():
        cleaner = Cleaner(clip_peak=math.inf)
        for line in render_dataset(
            source, path, 1, rule=SplitRule(cell_fraction), cleaner=cleaner, progress=True
        ).lines():
            tell(line)
    return NoteDataset(path)


def _within_ranges(library: NoteDataset, base: Base, tell: Tell) -> NDArray[np.intp]:
    """Finds the notes whose pitch and velocity the bundle knows."""
    kept = np.ones(len(library), dtype=bool)
    for name, values, (low, high) in (
        ("pitch", library.pitch, base.ranges.pitch),
        ("velocity", library.velocity, base.ranges.velocity),
    ):
        inside = (values >= low) & (values <= high)
        if outside := np.flatnonzero(kept & ~inside).tolist():
            notes = [f"{library.name(row)} {library.pitch[row]}" for row in outside[:MOST_NAMED]]
            notes += [f"and {len(outside) - MOST_NAMED} more"] if len(outside) > MOST_NAMED else []
            tell(
                f"left out: {len(outside)} of {name} outside the bundle's {low} to {high}: {', '.join(notes)}"
            )
        kept &= inside
    if not kept.any():
        raise ExportError("no sample is left to train on; see what the bundle knows with `timbrel info`")
    return np.flatnonzero(kept)


def _write_codes(
    library: NoteDataset, variants: Sequence[Variant], base: Base, search_steps: int, path: Path
) -> None:
    """Codes variants that are sorted by instrument and pitch, so many of an instrument together."""
    header = base.header
    coder = NoteCoder(base.bundle, search_steps)
    with (
        TokenStoreWriter(path, header) as writer,
        bar("coding", len(variants), "sample", initial=len(writer)) as shown,
    ):
        begin = 0
        while begin < len(variants):
            instrument = int(library.instrument[variants[begin].row])
            together = [
                variant
                for variant in variants[begin : begin + CODED_TOGETHER]
                if library.instrument[variant.row] == instrument
            ]
            begin += len(together)
            if missing := max(0, begin - len(writer)):
                notes = [_known_note(library, variant, header) for variant in together]
                codes = coder.encode_alike(_counted_off(notes, missing, shown.update))
                for variant, note, each in list(zip(together, notes, codes, strict=True))[-missing:]:
                    writer.add(
                        each,
                        instrument=library.instruments[instrument],
                        family=library.instrument_families[instrument],
                        pitch=int(note.pitch or 0),
                        velocity=note.velocity,
                        held_frames=coder.held_frames(note.held_seconds),
                        source="samples",
                        split=int(library.split[variant.row]),
                        cut=bool(library.cut[variant.row]),
                    )
        writer.finish()


def _counted_off(notes: Sequence[KnownNote], missing: int, done: Callable[[], object]) -> Iterator[KnownNote]:
    """Yields notes, and calls `done` as each of the last `missing` was heard."""
    for number, note in enumerate(notes):
        yield note
        if number >= len(notes) - missing:
            done()


def _known_note(library: NoteDataset, variant: Variant, header: TokenHeader) -> KnownNote:
    audio = variant.audio(library, header.hop_length)
    pitch, velocity = variant.played(library)
    held = variant.held_seconds(library, header.hop_length)
    return KnownNote(torch.from_numpy(audio), float(pitch) or None, velocity, held)


@dataclass(frozen=True, eq=False)
class Placement:
    """The points of M new instruments."""

    where: NDArray[np.float32]  # [M, 2]
    references: list[pb.TimbreReference]  # by which these are recognised; none where the bundle has none


def place_samples(base: Base, samples: CodedSamples, distance: float, tell: Tell) -> Placement:
    """Places the samples' instruments where the base's timbre encoder hears them, moved off other instruments
    by `distance` if need be, and tells so, a line for each instrument."""
    heard, embeddings = hear(base, samples)
    semitones = np.array([variant.semitones for variant in samples.variants])
    references: list[pb.TimbreReference] = []
    taken = base.chart.centroids
    names = [point.instrument for point in base.chart.points]
    where = []
    for index, name in enumerate(samples.table.instruments):
        rows = samples.table.instrument == index
        seen = heard[rows].mean(axis=0)
        found = find_place(seen, taken, distance)
        tell(_describe(name, seen, found, taken, names))
        where.append(found)
        if embeddings is not None:
            plain = np.flatnonzero(rows & (semitones == 0))
            n_recordings = len({samples.variants[row].row for row in plain})
            references += new_references(name, embeddings[plain], samples.table.pitch[plain], n_recordings)
        taken, names = np.concatenate([taken, found[None]]), [*names, name]
    return Placement(np.stack(where), references)


def hear(base: Base, samples: CodedSamples) -> tuple[NDArray[np.float32], NDArray[np.float32] | None]:
    """Finds where the bundle's timbre encoder hears each variant, float32 [N, 2] in the unit disc; and
    embeddings [N, D] where the bundle has references."""
    encoder, header = TimbreEncoder(base.bundle, n_threads=1), base.header
    with bar("hearing", len(samples.variants), "sample") as shown:
        heard = []
        for variant in samples.variants:
            audio = variant.audio(samples.library, header.hop_length)
            heard.append(encoder.hear(audio, header.sample_rate))
            shown.update()
    points = np.array([each.heard_at for each in heard], dtype=np.float32)
    embeddings = [each.embedding for each in heard if each.embedding is not None]
    return points, np.stack(embeddings) if embeddings else None


def new_references(
    name: str, embeddings: NDArray[np.float32], pitch: NDArray[np.int64], n_recordings: int
) -> list[pb.TimbreReference]:
    """Makes an instrument's references: mean directions of embeddings [n, D], one for each recording or some.

    The encoder was not trained to hear all samples of a new instrument alike: one mean would say too little.
    Embeddings and pitches [n] are of variants at the pitches recorded, as many of each recording.
    """
    groups = np.array_split(np.argsort(pitch, kind="stable"), min(MOST_REFERENCES, n_recordings))
    means = np.stack([embeddings[rows].mean(axis=0) for rows in groups])
    means /= np.linalg.norm(means, axis=1, keepdims=True)
    return [pb.TimbreReference(instrument=name, embedding=mean.tolist()) for mean in means]


def find_place(wanted: Point, others: Point, distance: float) -> Point:
    """Finds the point [2] of the unit disc nearest to `wanted` that keeps its distance from all others [n,
    2].

    The decoder knows an instrument by its point alone: two at one point would become a mixture of both. Where
    the disc is too full for that distance, the roomiest place is taken.
    """
    if gaps(wanted[None], others)[0] >= distance:
        return wanted
    candidates = _around(wanted)
    room = gaps(candidates, others)
    free = np.flatnonzero(room >= distance)
    return candidates[free[0] if len(free) else int(room.argmax())]


def new_points(samples: TokenTable, where: NDArray[np.float32]) -> list[MapPoint]:
    """Lists the samples' instruments as a map has them, at their points `where` [M, 2]."""
    found = []
    for index, (name, family) in enumerate(zip(samples.instruments, samples.families, strict=True)):
        pitches = samples.pitch[samples.instrument == index]
        x, y = where[index].tolist()
        found.append(MapPoint(name, family, x, y, int(pitches.min()), int(pitches.max())))
    return found


def _around(centre: Point) -> Point:
    """Lists points [n, 2] of the unit disc around one of them, nearest first."""
    radius = np.repeat(np.linspace(2.0 / N_RADII, 2.0, N_RADII), N_ANGLES)
    angle = np.tile(np.linspace(0.0, 2.0 * np.pi, N_ANGLES, endpoint=False), N_RADII)
    points = centre + np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
    inside: Point = points[np.hypot(points[:, 0], points[:, 1]) <= 1.0].astype(np.float32)
    return inside


def _describe(name: str, seen: Point, found: Point, taken: Point, names: list[str]) -> str:
    """Says in one line where an instrument went."""
    at = f"({found[0]:.2f}, {found[1]:.2f})"
    if not len(taken):
        return f"{name}: at {at}"
    distances = np.linalg.norm(taken - seen, axis=1)
    near = f"{distances.min():.2f} from {names[int(distances.argmin())]}"
    if (found == seen).all():
        return f"{name}: at {at}, {near}"
    return f"{name}: heard at ({seen[0]:.2f}, {seen[1]:.2f}), {near}: too near, so moved to {at}"
