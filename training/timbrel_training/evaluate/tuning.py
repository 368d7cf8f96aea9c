"""How many notes are in tune: the source's, the codec's reconstruction of them, and the model's."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from timbrel.pitch import PitchMeter, is_in_tune
from timbrel_training.codec.interface import Codec, encode_note
from timbrel_training.errors import TrainingError
from timbrel_training.model.transformer import NoteTransformer
from timbrel_training.notes.library import AudioLibrary
from timbrel_training.notes.split import Split
from timbrel_training.timbre.map import TimbreMap
from timbrel_training.writer import Sampling, write_notes

LOWEST, HIGHEST = 36, 94
"""Pitches judged: what swift-f0 can hear."""


@dataclass
class TuningReport:
    """Pitches of the same notes in three forms: fractional MIDI note numbers, None where unvoiced."""

    asked: list[int] = field(default_factory=list)
    source: list[float | None] = field(default_factory=list)
    codec: list[float | None] = field(default_factory=list)
    generated: list[float | None] = field(default_factory=list)
    seconds: list[tuple[float, float]] = field(default_factory=list)
    """Length of the source note and of the generated one."""

    def share(self, name: str) -> float:
        """Share of notes in tune: `name` is source, codec or generated."""
        measured: list[float | None] = getattr(self, name)
        return float(np.mean([is_in_tune(a, m) for a, m in zip(self.asked, measured, strict=True)]))

    def lines(self) -> list[str]:
        """What to print."""
        shares = [f"{name:10s} {100 * self.share(name):5.1f} %" for name in ("source", "codec", "generated")]
        ratio = float(np.median([made / max(given, 1e-3) for given, made in self.seconds]))
        return [
            f"in tune within 50 cents, {len(self.asked)} notes:",
            *shares,
            f"length of generated notes, median of source: {ratio:.2f}",
        ]


def pick_notes(library: AudioLibrary, chart: TimbreMap, split: Split, n_notes: int) -> NDArray[np.int64]:
    """Some notes of a split at random, always the same ones, whose instruments are on the map.

    Raises:
        TrainingError: there are none.
    """
    names = {point.instrument for point in chart.points}
    known = np.array([name in names for name in library.instruments])[library.instrument]
    judged = (library.pitch >= LOWEST) & (library.pitch <= HIGHEST) & known
    rows = np.flatnonzero(judged & (library.split == int(split)))
    if not len(rows):
        raise TrainingError(f"{library.path}: no notes of split {split.name.lower()} to judge")
    return np.sort(np.random.default_rng(0).permutation(rows)[:n_notes])


@torch.no_grad()
def judge_tuning(
    library: AudioLibrary,
    rows: NDArray[np.int64],
    codec: Codec,
    chart: TimbreMap,
    model: NoteTransformer,
    sampling: Sampling,
) -> TuningReport:
    """Measures notes `rows` of the library, what the codec keeps of them, and what the model writes for them.

    Raises:
        MissingExtraError: swift-f0 is not installed.
    """
    meter = PitchMeter()
    points = {point.instrument: (point.x, point.y) for point in chart.points}
    held = np.maximum(1, np.round(library.held_seconds[rows] * codec.frame_rate)).astype(np.int64)
    written = write_notes(
        model,
        np.array([points[library.name(int(row))] for row in rows], dtype=np.float32),
        library.pitch[rows].astype(np.int64),
        library.velocity[rows].astype(np.float32),
        held,
        sampling,
    )
    report = TuningReport()
    for row, codes in zip(rows, written, strict=True):
        audio, pitch = library.audio(int(row)), int(library.pitch[row])
        kept = encode_note(codec, torch.from_numpy(audio), float(pitch))
        report.asked.append(pitch)
        report.source.append(meter.measure(audio, library.sample_rate))
        report.codec.append(meter.measure(_decode(codec, kept), codec.sample_rate))
        made = _decode(codec, torch.from_numpy(codes.astype(np.int64)))
        report.generated.append(meter.measure(made, codec.sample_rate))
        report.seconds.append((len(audio) / library.sample_rate, len(made) / codec.sample_rate))
    return report


def _decode(codec: Codec, codes: torch.Tensor) -> NDArray[np.float32]:
    """Audio [samples] of codes int64 [T, K]."""
    if not len(codes):
        return np.zeros(0, np.float32)
    return codec.decode(codes[None])[0].numpy()
