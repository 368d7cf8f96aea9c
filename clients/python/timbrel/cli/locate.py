"""`timbrel locate`: where a recording lies on the timbre map."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import asdict

from timbrel.cli import options
from timbrel.core.location import Location
from timbrel_bundle.audio import read_channels

_EXAMPLES = """\
examples:
  timbrel locate oboe.wav
  timbrel locate oboe.wav --pitch 69 --nearest 10
  timbrel locate oboe.flac --json | jq -r '.nearest[0].name'
  timbrel render --timbre 0.31,-0.42 --pitch 48 --out low.wav       the point that was found, played

The file holds one note, at any level and sample rate, mono or stereo; silence around it does no harm.
"""


class LocateCommand:
    """Prints the point of a recording and the instruments nearest to it."""

    help = "find the place of a recording on the timbre map"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.description = "Says where on the timbre map a recording of a note lies, and what lies around."
        parser.epilog = _EXAMPLES
        parser.add_argument(
            "file", metavar="FILE", help="a .wav or .flac file, or another that libsndfile reads"
        )
        parser.add_argument(
            "--pitch", type=float, help="its MIDI note number, where you know it (default: it is estimated)"
        )
        parser.add_argument(
            "--nearest", type=int, default=5, metavar="N", help="instruments to name (default %(default)s)"
        )
        options.add_json_option(parser)
        options.add_server_options(parser)

    def run(self, args: argparse.Namespace) -> int:
        audio, sample_rate = read_channels(args.file)
        with options.client_of(args) as client:
            location = client.locate(audio, sample_rate, args.pitch, n_nearest=args.nearest)
        if args.json:
            options.print_json({"file": args.file, **asdict(location)})
        else:
            print(as_text(args.file, location))
        return 0


def as_text(name: str, location: Location) -> str:
    """The point, and a line for each instrument."""
    x, y = location.timbre
    return "\n".join([f"{name}: ({x:+.3f}, {y:+.3f})", *_neighbour_lines(location)])


def _neighbour_lines(location: Location) -> Iterator[str]:
    """Name, family and distance, in columns."""
    name_width = max((len(each.name) for each in location.nearest), default=0)
    family_width = max((len(each.family) for each in location.nearest), default=0)
    for each in location.nearest:
        yield f"  {each.name:<{name_width}}  {each.family:<{family_width}}  {each.distance:.3f}"


command = LocateCommand()
