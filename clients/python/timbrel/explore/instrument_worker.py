"""Builds one instrument, in a process of its own: `python -m timbrel.explore.instrument_worker`.

Measuring notes keeps a processor and Python's lock busy; a process of low priority leaves both to those who
play. It reads one line of JSON (`BuildTask`) from its standard input and writes lines of JSON to its standard
output: how many notes are done, and last {"slug": NAME} or {"error": LINE}. It ends when its input does.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import zipfile
from collections.abc import Generator, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from timbrel import Client, Instrument, Model, NoteRequest, Security, TimbrelError
from timbrel.errors import refusal
from timbrel.explore.parameters import read_object, read_switch, read_text, refuse_unknown, shown
from timbrel.library import BuildOptions, LibraryJob, ModelIdentity, SamplingSettings, build_library
from timbrel.library.plan.folder import WORK
from timbrel.library.plan.formats import DEFAULT_FORMAT, format_of
from timbrel.library.plan.job import check_job
from timbrel.library.plan.ranges import parse_pitches
from timbrel.library.plan.voice import NamedPoint, name_voices
from timbrel.library.render.hold import LASTING_SECONDS
from timbrel.library.render.source import ClientSource, Name, NoteSource
from timbrel.library.render.store import RawNote
from timbrel_bundle.standard_streams import wait_for_end_of_input

NICENESS = 5
"""Enough to stand back behind those who play, and not so much as to starve on a busy machine."""

NOTES_AT_ONCE = 2
"""How many are asked of the server: the other slots are for those who play."""

PATIENCE_SECONDS = 60.0
"""How long the server may be away."""

FIELDS = frozenset(
    {"x", "y", "name", "pitches", "velocities", "seconds", "seed", "temperature", "format", "round_robins"}
)
SWITCHES = frozenset({"loops", "sf2"})

DEFAULT_PITCHES = "48-72:3"
DEFAULT_VELOCITIES = (60, 110)
MAX_NOTES = 256
MAX_NAME = 60

FIXED_TIME = (1980, 1, 1, 0, 0, 0)
"""The time of every member, so that equal libraries make equal zips; the format begins with that year."""


@dataclass(frozen=True)
class InstrumentRequest:
    """Says which instrument a page asks for: checked, with the defaults filled in."""

    x: float
    y: float
    name: str | None
    """For people; None names it by its point."""

    pitches: tuple[int, ...]
    velocities: tuple[int, ...]
    seconds: float | None
    """None: as what dies away needs it."""

    seed: int
    temperature: float
    format: str
    round_robins: int
    loops: bool
    sf2: bool
    """Whether a .sf2 file is written, too."""

    @property
    def n_notes(self) -> int:
        return len(self.pitches) * len(self.velocities) * self.round_robins

    @classmethod
    def parse(cls, content: bytes, model: Model) -> InstrumentRequest:
        """Reads the body of a request; raises InvalidRequestError where it or a field of it is wrong."""
        given = read_object(content)
        refuse_unknown(given, FIELDS | SWITCHES)
        low, high = model.pitch_range
        pitches = parse_pitches(read_text(given, "pitches") or DEFAULT_PITCHES)
        request = cls(
            x=_number(given, "x"),
            y=_number(given, "y"),
            name=_name(read_text(given, "name")),
            # The default is cut to what the bundle plays; what was asked for is not.
            pitches=pitches
            if "pitches" in given
            else tuple(p for p in pitches if low <= p <= high) or (low,),
            velocities=_velocities(given.get("velocities", DEFAULT_VELOCITIES)),
            seconds=_number(given, "seconds") if "seconds" in given else None,
            seed=_whole("seed", given.get("seed", LibraryJob.seed)),
            temperature=_number(given, "temperature", model.default_sampling.temperature),
            format=read_text(given, "format") or DEFAULT_FORMAT,
            round_robins=_whole("round_robins", given.get("round_robins", 1)),
            loops=read_switch(given, "loops", True),
            sf2=read_switch(given, "sf2", False),
        )
        if request.n_notes > MAX_NOTES:
            raise refusal(
                "pitches",
                f"{request.n_notes} notes are too many; {MAX_NOTES} at most, or use `timbrel library`",
            )
        check_job(request.job(model, ()), model)
        return request

    def job(self, model: Model, known: Sequence[Instrument]) -> LibraryJob:
        """Makes the job for the library's code; the nearest of `known` instruments is named in the files."""
        usual = min(LASTING_SECONDS, model.seconds_range[1])
        return LibraryJob(
            writer=ModelIdentity.of(model),
            voices=name_voices([NamedPoint(self.name, (self.x, self.y))], known),
            pitches=self.pitches,
            velocities=self.velocities,
            round_robins=self.round_robins,
            seconds=usual if self.seconds is None else self.seconds,
            sampling=SamplingSettings(**asdict(model.default_sampling) | {"temperature": self.temperature}),
            seed=self.seed,
            file_format=self.format,
            loops=self.loops,
        )


@dataclass(frozen=True)
class BuildTask:
    """Says what to build. The process reads it from its input, not its command line: it holds a token."""

    address: str
    token: str | None = field(repr=False)
    security: Security
    request: InstrumentRequest
    folder: Path
    """Where to build."""

    target: Path
    """The zip to write."""

    def to_line(self) -> bytes:
        return json.dumps(asdict(self), default=str).encode() + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> BuildTask:
        """Reads a line that `to_line` made."""
        fields = json.loads(line)
        fields["security"] = Security(**fields["security"])
        request = fields["request"]
        request |= {name: tuple(request[name]) for name in ("pitches", "velocities")}
        fields["request"] = InstrumentRequest(**request)
        for name in ("folder", "target"):
            fields[name] = Path(fields[name])
        return cls(**fields)


class CountedSource:
    """A source of raw notes that tells the explorer of each as it comes."""

    def __init__(self, source: NoteSource) -> None:
        self._source = source
        self._done: set[tuple[int, int, int | None]] = set()

    def render(
        self, orders: Iterable[tuple[Name, NoteRequest]]
    ) -> Generator[tuple[Name, RawNote], None, None]:
        asked = dict(orders)
        with contextlib.closing(self._source.render(asked.items())) as notes:
            for name, note in notes:
                # A note that was listened to, and comes again held for longer, is the same sample.
                self._done.add((asked[name].pitch, asked[name].velocity, asked[name].seed))
                _say(n_done=len(self._done))
                yield name, note


def build(task: BuildTask) -> str:
    """Builds and zips the instrument, and returns its name in files; raises TimbrelError or OSError."""
    # An empty token is none, and keeps the client from looking for another in the environment.
    with Client(task.address, task.token or "", security=task.security) as client:
        job = task.request.job(client.model(), client.timbre_map())
        source = CountedSource(ClientSource(client, NOTES_AT_ONCE, PATIENCE_SECONDS))
        options = BuildOptions(task.request.sf2, n_threads=1)
        build_library(client, job, task.folder, options, source, choose_holds=task.request.seconds is None)
    slug = job.voices[0].slug
    write_zip(task.folder, task.target, slug)
    return slug


def main() -> int:
    if hasattr(os, "nice"):
        with contextlib.suppress(OSError):
            os.nice(NICENESS)
    task = BuildTask.from_line(sys.stdin.buffer.readline())
    threading.Thread(target=_end_with_input, daemon=True).start()
    try:
        _say(slug=build(task))
    except (TimbrelError, OSError, ValueError) as error:
        _say(error=" ".join(str(error).split()))
        return 1
    return 0


def write_zip(folder: Path, target: Path, top: str) -> None:
    """Zips all files of a library but timbrel's own, whole or not at all, in the folder `top`."""
    part = target.with_suffix(".part")
    with zipfile.ZipFile(part, "w") as archive:
        for path in sorted(folder.rglob("*")):
            name = path.relative_to(folder)
            if not path.is_file() or name.parts[0] == WORK:
                continue
            member = zipfile.ZipInfo(f"{top}/{name.as_posix()}", FIXED_TIME)
            member.external_attr = 0o644 << 16
            stored = format_of(path).compressed
            member.compress_type = zipfile.ZIP_STORED if stored else zipfile.ZIP_DEFLATED
            archive.writestr(member, path.read_bytes(), compresslevel=None if stored else 1)
    os.replace(part, target)


def _say(**fields: Any) -> None:
    print(json.dumps(fields), flush=True)


def _end_with_input() -> None:
    """Ends the process with its input: whoever wants the instrument holds the other end."""
    wait_for_end_of_input()
    os._exit(1)


def _number(given: dict[str, Any], field: str, default: float | None = None) -> float:
    value = given.get(field, default)
    if not isinstance(value, int | float) or isinstance(value, bool) or not abs(value) < 1e9:
        raise refusal(field, f"{shown(value)} is no number" if field in given else "is missing")
    return float(value)


def _whole(field: str, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**63:
        raise refusal(field, f"{shown(value)} is no whole number of 0 or more")
    return value


def _name(text: str) -> str | None:
    """Puts a name in one line, of printable letters; None where there is none."""
    kept = "".join(letter if letter.isprintable() else " " for letter in text)
    return " ".join(kept.split())[:MAX_NAME].strip() or None


def _velocities(value: object) -> tuple[int, ...]:
    if not isinstance(value, list | tuple) or len(value) > 127:
        raise refusal("velocities", f"{shown(value)} is no list of MIDI velocities")
    return tuple(sorted({_whole("velocities", each) for each in value}))


if __name__ == "__main__":
    sys.exit(main())
