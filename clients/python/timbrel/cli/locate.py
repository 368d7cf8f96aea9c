"""`timbrel locate`: where a recording lies on the timbre map."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from glob import glob
from os.path import exists
from typing import Any

from timbrel.cli import options
from timbrel.cli.dispatch import USAGE_STATUS
from timbrel.client import Client
from timbrel.core.location import Location
from timbrel.errors import InvalidRequestError, refusal
from timbrel_bundle.audio import read_channels, read_pieces
from timbrel_bundle.errors import AudioError, printable

_EXAMPLES = """\
examples:
  timbrel locate oboe.wav
  timbrel locate oboe.wav --nearest 10
  timbrel locate *.wav                                              many files, one after the other
  timbrel locate improvisation.flac --hop 2                         a long one, every two seconds of it
  timbrel locate oboe.flac --json | jq -r ".nearest[0].name"
  timbrel render --timbre "0.31,-0.42" --pitch 48 --out low.wav     the point that was found, played

A file, or with --hop each piece of it, holds one note, at any level and sample rate, mono or stereo;
silence and the noise of a room around it do no harm. Instruments are told by how their notes begin: a
piece that begins in the middle of one is told less surely. Beside each instrument stand the share of such
recordings that are of it, as measured with notes of the sources that the bundle learnt from (of other
recordings fewer are), and its distance on the map.
"""


SHORTEST_HOP, LONGEST_HOP = 0.05, 3600.0
"""Seconds: nothing is located by less, and no piece with one note is longer."""

NOTHING_NEAR = "nothing on this map is near"


class LocateCommand:
    """Prints the point of a recording and the instruments nearest to it."""

    help = "find the place of a recording on the timbre map, and its instrument"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.description = (
            "Says where on the timbre map a recording lies, and of which instruments it may be."
        )
        parser.epilog = _EXAMPLES
        parser.add_argument("files", nargs="+", metavar="FILE", help="a WAV, AIFF, FLAC, Ogg or MP3 file")
        parser.add_argument(
            "--hop",
            type=float,
            metavar="SECONDS",
            help="take a recording of any length piece by piece, each of so many seconds",
        )
        parser.add_argument(
            "--nearest", type=int, default=5, metavar="N", help="instruments to name (default %(default)s)"
        )
        options.add_json_option(parser)
        options.add_server_options(parser)

    def run(self, args: argparse.Namespace) -> int:
        if args.hop is not None and not SHORTEST_HOP <= args.hop <= LONGEST_HOP:
            raise refusal("hop", f"must be {SHORTEST_HOP:g} to {LONGEST_HOP:g} seconds, got {args.hop:g}")
        facts: list[dict[str, Any]] = []
        status = 0
        files = list(_matching(args.files))
        with options.client_of(args) as client:
            for file in files:
                try:
                    for start, location in _locations(client, args, file):
                        place = {} if start is None else {"start_seconds": start}
                        facts.append({"file": file, **place, **asdict(location)})
                        if not args.json:
                            print(as_text(_place(file, start), location))
                except (AudioError, InvalidRequestError) as error:
                    if len(files) == 1:
                        raise
                    about = "" if isinstance(error, AudioError) else f"{file}: "
                    print(printable(f"timbrel: {about}{error}"), file=sys.stderr)
                    status = USAGE_STATUS
        status = status if facts else USAGE_STATUS  # where no piece holds a note, say
        if args.json:
            one = len(files) == 1 and args.hop is None
            options.print_json(facts[0] if one else {"locations": facts})
        return status


def _matching(names: Iterable[str]) -> Iterator[str]:
    """The names, and for a pattern, which Windows's shells leave to programs, those that it matches."""
    for name in names:
        is_pattern = not exists(name) and ("*" in name or "?" in name)
        yield from sorted(glob(name)) or [name] if is_pattern else [name]


def _locations(
    client: Client, args: argparse.Namespace, file: str
) -> Iterator[tuple[float | None, Location]]:
    """Where a file lies, or each piece of it that holds a note, with its start in s."""
    pieces = [(None, *read_channels(file))] if args.hop is None else read_pieces(file, args.hop)
    for start, piece, sample_rate in pieces:
        try:
            yield start, client.locate(piece, sample_rate, n_nearest=args.nearest)
        except InvalidRequestError as error:
            if args.hop is None or {each.field for each in error.fields} != {"audio"}:
                raise
            print(f"{_place(file, start)}: {error}", file=sys.stderr)  # a rest, say


def _place(file: str, start: float | None) -> str:
    return printable(file if start is None else f"{file} at {start:.2f} s")


def as_text(name: str, location: Location) -> str:
    """The point, and a line for each instrument: name, family, share in percent where it is known, distance.
    One line where nothing is near."""
    if location.near is False:
        return f"{name}: {NOTHING_NEAR}"
    x, y = location.timbre
    lines = [f"{name}: ({x:+.3f}, {y:+.3f})"]
    name_width = max((len(each.name) for each in location.nearest), default=0)
    family_width = max((len(each.family) for each in location.nearest), default=0)
    for each in location.nearest:
        share = "" if each.share is None else f"{each.share:4.0%}  "
        who = f"{each.name:<{name_width}}  {each.family:<{family_width}}"
        lines.append(f"  {who}  {share}{each.distance:.3f}")
    return "\n".join(lines)


command = LocateCommand()
