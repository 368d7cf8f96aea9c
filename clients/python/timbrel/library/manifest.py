"""One line of facts for every sample: manifest.jsonl, and manifest.parquet where pyarrow is installed."""

from __future__ import annotations

import importlib.util
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from timbrel_bundle.files import atomic_path, atomic_write


@dataclass(frozen=True)
class ManifestRow:
    """One sample. The first eleven fields are NSynth's."""

    note: int
    """Number within the library, from 0."""

    note_str: str
    """The file's name without its ending."""

    instrument: int
    """Number within the library, from 0."""

    instrument_str: str
    pitch: int
    """MIDI note number asked for."""

    velocity: int
    sample_rate: int
    """Of the file, in Hz."""

    instrument_family: int
    """NSynth's number, of the nearest instrument of the map; -1 for a family it does not know."""

    instrument_family_str: str
    instrument_source: int
    instrument_source_str: str

    file: str
    """Path within the library, with forward slashes."""

    sha256: str
    """Of the file."""

    n_samples: int
    """Length of the file."""

    x: float
    """Where on the timbre map."""

    y: float
    nearest_instrument: str
    """Of the timbre map; the instrument itself where it was asked for by name."""

    round_robin: int
    """From 1."""

    seed: int
    """That the codes were really drawn with."""

    attempts: int
    """Renderings until one was in tune, or tries were used up."""

    held_seconds: float
    """How long the key was held."""

    truncated: bool
    """Whether the note was cut at the bundle's cap."""

    temperature: float
    top_k: int
    top_p: float

    bundle_hash: str
    codec: str
    codec_hash: str
    """SHA-256 over the codec's files."""

    precision: str
    provider: str
    key: str
    """Hash of all that decides about the codes: the note's name in the store."""

    codes_sha256: str
    n_frames: int
    bandwidth_hz: float
    """Highest frequency that the sample can hold: half the codec's sample rate, or the file's where lower."""

    lead_in_seconds: float
    """From the start of the file to the onset."""

    gain_db: float
    """Applied to every note of the instrument alike."""

    loudness_lufs: float
    """The loudest 400 ms, K-weighted, of the file."""

    peak_db: float
    """Largest sample of the file, in dB of full scale."""

    pitch_measured: float | None
    """Fractional MIDI note number by the first tracker, before `tune`; None where it hears none."""

    pitch_measured_other: float | None
    """The same by the second; None, too, where it was not asked."""

    trackers: str
    """Those that listened: for example "yin+swift-f0", or "yin" alone where it heard the pitch asked within 5
    cents, so that nothing was left for another to decide."""

    tune_cents: int
    """What the sampler is told to add."""

    in_tune: bool
    """Within 50 cents of the pitch by either tracker, `tune_cents` included."""

    loop_mode: str
    loop_start: int | None
    """First sample of the loop."""

    loop_end: int | None
    """Last sample of the loop, itself played."""

    loop_joint_db: float | None
    """Sharpness of the joint over the sharpest moment within the loop: a click would be far above 0."""

    def to_json(self) -> str:
        return json.dumps(vars(self), ensure_ascii=False, allow_nan=False)

    @classmethod
    def from_json(cls, line: str) -> ManifestRow:
        """
        Raises:
            ValueError: the line is not JSON, or has other fields, or one of another type.
        """
        values: Any = json.loads(line)
        try:
            row = cls(**values)
        except TypeError as error:
            raise ValueError(f"is no row of a library's manifest ({error})") from None
        for each in fields(cls):
            if not _is_of(getattr(row, each.name), str(each.type)):
                raise ValueError(f"has {each.name} {values[each.name]!r:.40}, expected {each.type}")
        return row


def _is_of(value: object, kind: str) -> bool:
    """Whether a value is what a field's annotation says: int, float, str, bool, or one of them or None."""
    kind, _, optional = kind.partition(" | ")
    if value is None:
        return optional == "None"
    if kind == "float":
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return type(value).__name__ == kind


def write_rows(path: Path, rows: Iterable[ManifestRow]) -> None:
    """One JSON object a line, the file whole or not at all."""
    with atomic_path(path) as temporary, temporary.open("x", encoding="utf-8", newline="\n") as file:
        for row in rows:
            file.write(row.to_json() + "\n")


def read_rows(path: Path) -> Iterator[ManifestRow]:
    """
    Raises:
        OSError: the file cannot be read.
        ValueError: a line is damaged; the message names it.
    """
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            try:
                yield ManifestRow.from_json(line)
            except ValueError as error:
                raise ValueError(f"{path}: line {number} {error}") from None


def has_pyarrow() -> bool:
    return importlib.util.find_spec("pyarrow") is not None


def write_table(path: Path, rows: Sequence[ManifestRow]) -> bool:
    """The same as Parquet; False, and nothing written, where pyarrow is not installed."""
    if not has_pyarrow():
        return False
    import pyarrow
    import pyarrow.parquet

    types = {
        "int": pyarrow.int64(),
        "float": pyarrow.float64(),
        "str": pyarrow.string(),
        "bool": pyarrow.bool_(),
    }
    # Stated, not inferred: a library without loops has the columns of one with loops.
    schema = pyarrow.schema(
        [(each.name, types[str(each.type).split(" ")[0]]) for each in fields(ManifestRow)]
    )
    table = pyarrow.table(
        {each.name: [getattr(row, each.name) for row in rows] for each in schema}, schema=schema
    )
    sink = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(table, sink)
    atomic_write(path, sink.getvalue().to_pybytes())
    return True
