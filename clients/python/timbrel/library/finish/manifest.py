"""The manifest: one line of facts for every sample, as JSON, and as Parquet where pyarrow is installed.

Families of instruments go by NSynth's words, so that what reads its examples.json reads our manifest; after
Engel et al. 2017, "Neural Audio Synthesis of Musical Notes with WaveNet Autoencoders".
"""

from __future__ import annotations

import io
import json
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from timbrel.audio import SAMPLE_RATES
from timbrel.core.model import Model
from timbrel.library.finish.loop import Loop
from timbrel.library.plan.job import LibraryJob, ModelIdentity
from timbrel.library.plan.notes import codes_hash
from timbrel.library.render.pitch import is_in_tune
from timbrel.library.render.renderer import ChosenNote
from timbrel.library.render.store import RawNote
from timbrel_bundle.audio import MAX_SAMPLES
from timbrel_bundle.errors import UNPRINTABLE, one_line
from timbrel_bundle.files import atomic_path, atomic_write, parse_json
from timbrel_bundle.manifest import LONGEST_HOLD_SECONDS, LONGEST_TEXT
from timbrel_bundle.request_fields import SAMPLING_FIELDS, SamplingSettings

NSYNTH_FAMILIES = {
    "bass": (0, "bass"),
    "brass": (1, "brass"),
    "pipe": (2, "flute"),
    "winds": (2, "flute"),
    "guitar": (3, "guitar"),
    "keys": (4, "keyboard"),
    "piano": (4, "keyboard"),
    "chromatic percussion": (5, "mallet"),
    "organ": (6, "organ"),
    "reed": (7, "reed"),
    "strings": (8, "string"),
    "synth lead": (9, "synth_lead"),
}
"""Our families, in small letters -> NSynth's number and name."""

UNKNOWN_FAMILY = -1

NSYNTH_SYNTHETIC = 2
"""NSynth's number of the source "synthetic", beside 0 "acoustic" and 1 "electronic"."""


@dataclass(frozen=True)
class ManifestRow:
    """The facts of one sample. The first eleven fields are NSynth's; `sampling` is flat, as in COLUMNS."""

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
    """Rate of the file, in Hz."""

    instrument_family: int
    """NSynth's number, of the nearest instrument of the map; -1 for a family it does not know."""

    instrument_family_str: str
    instrument_source: int
    instrument_source_str: str

    file: str
    """Path within the library, with forward slashes."""

    sha256: str
    """Hash of the file."""

    n_samples: int
    """Length of the file."""

    x: float
    """Where the instrument lies on the timbre map."""

    y: float
    nearest_instrument: str
    """The nearest of the timbre map: the instrument itself where it was asked for by name."""

    round_robin: int
    """Number of the take, from 1."""

    seed: int
    """The seed that the codes were really drawn with."""

    attempts: int
    """Renderings until one was in tune, or tries were used up."""

    held_seconds: float
    """How long the key was held."""

    truncated: bool
    """Whether the note was cut at the bundle's cap."""

    sampling: SamplingSettings
    """How codes were drawn: each field a number."""

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
    """Time from the start of the file to the onset."""

    gain_db: float
    """Applied to every note of the instrument alike."""

    loudness_lufs: float
    """The loudest 400 ms, K-weighted, of the file."""

    level_lufs: float
    """The same of the first second that a held key plays of it, loop included: by this, velocity layers are
    brought together."""

    peak_db: float
    """Largest sample of the file, in dB of full scale."""

    pitch_measured: float | None
    """Fractional MIDI note number by the first tracker, before `tune`; None where it hears none."""

    pitch_measured_other: float | None
    """The same by the second; None, too, where it was not asked."""

    trackers: str
    """The trackers that listened: "yin+swift-f0", or "yin" alone where it heard the pitch asked within 5
    cents, so that nothing was left for another to decide."""

    tune_cents: int
    """Cents that the sampler is told to add."""

    in_tune: bool
    """Within 50 cents of the pitch by either tracker, `tune_cents` included."""

    loop_mode: str
    loop_start: int | None
    """First sample of the loop."""

    loop_end: int | None
    """Last sample of the loop, itself played."""

    loop_joint_db: float | None
    """Sharpness of the joint over the sharpest moment within the loop: a click would be far above 0."""

    release_start: int | None
    """Sample at which the key was let go, where what follows is used as a release sample."""

    @property
    def loop(self) -> Loop | None:
        """The first and the last sample of the loop, if there is one."""
        return (
            None if self.loop_start is None or self.loop_end is None else Loop(self.loop_start, self.loop_end)
        )

    def to_json(self) -> str:
        """Writes the row as one line of JSON."""
        return json.dumps(self.flat(), ensure_ascii=False, allow_nan=False)

    def flat(self) -> dict[str, Any]:
        """Gives the value of each of COLUMNS, in order."""
        return {name: vars(self).get(name, vars(self.sampling).get(name)) for name in COLUMNS}

    @classmethod
    def from_json(cls, line: str) -> ManifestRow:
        """Reads a row from a line of JSON. Raises ValueError: the line is not JSON, or has other fields, or
        one of another type or out of range."""
        values: Any = parse_json(line)
        try:
            row = cls.from_flat(values)
        except TypeError as error:
            raise ValueError(f"is no row of a library's manifest ({one_line(error)})") from None
        for name, value in row.flat().items():
            if not _is_of(value, COLUMNS[name]):
                raise ValueError(f"has {name} {value!r:.40}, expected {COLUMNS[name]}")
        for name, (low, high) in RANGES.items():
            if not low <= getattr(row, name) <= high:
                raise ValueError(f"has {name} {getattr(row, name)}, {low} to {high} are allowed")
        if not _KEY.fullmatch(row.key):
            raise ValueError(f"has the key {row.key!r:.40}, which names no note")
        return row

    @classmethod
    def from_flat(cls, values: Mapping[str, Any]) -> ManifestRow:
        """Makes a row of a value for each of COLUMNS; raises TypeError where there are others."""
        own = {**{each.name: each.off for each in SAMPLING_FIELDS if each.off is not None}, **values}
        sampling = {name: own.pop(name) for name in _SAMPLING_COLUMNS if name in own}
        return cls(**own, sampling=SamplingSettings(**sampling))


RANGES = {
    "pitch": (0, 127),
    "velocity": (0, 127),
    "sample_rate": SAMPLE_RATES,
    "n_samples": (0, MAX_SAMPLES),
    "held_seconds": (0, LONGEST_HOLD_SECONDS),
    "tune_cents": (-10_000, 10_000),
}
"""What fields of a row may be, both ends included: a manifest may come from anywhere."""

TABLE_FOOT_BYTES = 2**12
"""At the end of a table lies who wrote it."""

LONGEST_LINE = 2**16
"""Characters of a row."""

_KEY = re.compile("[0-9A-Za-z]{3,100}")

_SAMPLING_COLUMNS = {each.name: each.kind.__name__ for each in SAMPLING_FIELDS}


COLUMNS: dict[str, str] = {}
for _field in fields(ManifestRow):
    COLUMNS |= _SAMPLING_COLUMNS if _field.name == "sampling" else {_field.name: str(_field.type)}
"""Name of each field of a row's JSON, and of the table -> its type, as an annotation says it."""


def nsynth_family(family: str) -> tuple[int, str]:
    """Gives NSynth's number and name of a family of the timbre map.

    One that it does not know is UNKNOWN_FAMILY, and keeps its own name, in small letters.
    """
    folded = family.casefold()
    return NSYNTH_FAMILIES.get(folded) or (UNKNOWN_FAMILY, folded.replace(" ", "_") or "unknown")


def rendering_facts(
    job: LibraryJob, model: Model, note: ChosenNote, number: int, raw: RawNote
) -> dict[str, Any]:
    """Gives what is known of a note, of this number within the library, once it is rendered, under the names
    of COLUMNS."""
    planned = note.planned
    family_number, family_name = nsynth_family(planned.voice.family)
    return {
        "note": number,
        "note_str": Path(planned.file).stem,
        "instrument": number // job.n_notes_each,
        "instrument_str": planned.voice.name,
        "pitch": planned.pitch,
        "velocity": planned.velocity,
        "instrument_family": family_number,
        "instrument_family_str": family_name,
        "instrument_source": NSYNTH_SYNTHETIC,
        "instrument_source_str": "synthetic",
        "x": planned.voice.timbre[0],
        "y": planned.voice.timbre[1],
        "nearest_instrument": planned.voice.nearest,
        "round_robin": planned.round_robin,
        "seed": planned.first_seed + note.attempt.number,
        "attempts": note.n_attempts,
        "held_seconds": job.held_seconds(planned.voice),
        "truncated": raw.truncated,
        **job.sampling.to_dict(),
        **vars(ModelIdentity.of(model)),
        "key": note.attempt.key,
        "codes_sha256": codes_hash(raw.codes),
        "n_frames": len(raw.codes),
    }


def tuning_facts(note: ChosenNote) -> dict[str, Any]:
    """Gives how a note is tuned, under the names of COLUMNS."""
    measured = note.measured
    return {
        "pitch_measured": measured.pitch,
        "pitch_measured_other": measured.other_pitch,
        "trackers": measured.trackers,
        "tune_cents": note.tune_cents,
        "in_tune": is_in_tune(note.planned.pitch, *measured.heard, tune=note.tune_cents),
    }


def write_rows(path: Path, rows: Iterable[ManifestRow]) -> None:
    """Writes one JSON object a line, the file whole or not at all."""
    with atomic_path(path) as temporary, temporary.open("x", encoding="utf-8", newline="\n") as file:
        for row in rows:
            file.write(row.to_json() + "\n")


def read_rows(path: Path) -> Iterator[ManifestRow]:
    """Reads the rows of a manifest.

    Raises:
        OSError: the file cannot be read.
        ValueError: a line is damaged; the message names it.
    """
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(iter(lambda: file.readline(LONGEST_LINE), ""), start=1):
            try:
                yield ManifestRow.from_json(line)
            except ValueError as error:
                raise ValueError(f"{path}: line {number} {error}") from None


def write_table(path: Path, rows: Sequence[ManifestRow]) -> bool:
    """Writes the same as Parquet; False, and no table of before left, where pyarrow is not installed."""
    try:
        content = _table_bytes(rows)
    except ImportError:
        path.unlink(missing_ok=True)
        return False
    atomic_write(path, content)
    return True


def _table_bytes(rows: Sequence[ManifestRow]) -> bytes:
    """Makes the table; the same rows make the same bytes. Raises ImportError: pyarrow is not installed."""
    import pyarrow
    import pyarrow.parquet

    types = {
        "int": pyarrow.int64(),
        "float": pyarrow.float64(),
        "str": pyarrow.string(),
        "bool": pyarrow.bool_(),
    }
    # Stated, not inferred: a library without loops has the columns of one with loops.
    schema = pyarrow.schema([(name, types[kind.split(" ")[0]]) for name, kind in COLUMNS.items()])
    flat = [row.flat() for row in rows]
    table = pyarrow.table({name: [each[name] for each in flat] for name in COLUMNS}, schema=schema)
    content = io.BytesIO()
    pyarrow.parquet.write_table(table, content)
    return content.getvalue()


def is_table_of(path: Path, rows: Sequence[ManifestRow]) -> bool | None:
    """Tells whether a table is, byte by byte, what `write_table` makes of these rows; None where another
    version of pyarrow wrote it, or none is installed. It is not read: what is damaged may end the process."""
    try:
        import pyarrow

        wanted = _table_bytes(rows)
    except ImportError:
        return None
    if path.stat().st_size == len(wanted) and path.read_bytes() == wanted:
        return True
    with path.open("rb") as file:
        file.seek(-min(TABLE_FOOT_BYTES, path.stat().st_size), os.SEEK_END)
        foot = file.read()
    writer = re.search(rb"parquet-cpp-arrow version ([0-9.]+)", foot)
    return None if writer is not None and writer[1].decode() != pyarrow.cpp_version else False


def _is_of(value: object, kind: str) -> bool:
    """Tells whether a value is what an annotation says: int, float, str, bool, or one of them or None."""
    kind, _, optional = kind.partition(" | ")
    if value is None:
        return optional == "None"
    if isinstance(value, int) and abs(value) >= 2**63 and kind != "str":
        return False
    if kind == "float":
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if isinstance(value, str) and (len(value) > LONGEST_TEXT or UNPRINTABLE.search(value)):
        return False
    return type(value).__name__ == kind
