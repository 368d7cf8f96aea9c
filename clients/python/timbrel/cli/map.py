"""`timbrel map`: the timbre map, as text or as a picture."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from timbrel.cli import options
from timbrel.core.timbre import Instrument
from timbrel.errors import refusal
from timbrel.progress import counted
from timbrel.timbre_map.picture import check_picture_path, draw_map
from timbrel.timbre_map.text import UNICODE_SIGNS, draw_text

_EXAMPLES = """\
examples:
  timbrel map                                     in the terminal
  timbrel map --out map.png                       as a picture (pip install "timbrel[demo]")
  timbrel map --server studio:50051 --width 120
  timbrel map --json | jq -r ".instruments[] | [.name, .timbre[0], .timbre[1]] | @tsv"

Points that are near each other sound alike. Any point of the disc can be played: timbrel render --timbre X,Y.
The terminal's view is coloured by family where it goes to a terminal and NO_COLOR is not set.
"""

NARROWEST = 24
"""Columns: fewer show nothing."""


class MapCommand:
    """Shows where the instruments lie."""

    help = "show the timbre map: in the terminal, or as a PNG"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.description = "Shows the timbre map: the unit disc and the instruments in it, by family."
        parser.epilog = _EXAMPLES
        parser.add_argument("--out", metavar="FILE", help="write a .png picture instead")
        parser.add_argument(
            "--width", type=int, metavar="COLUMNS", help="of the view (default: the terminal's)"
        )
        options.add_json_option(parser)
        options.add_server_options(parser)

    def run(self, args: argparse.Namespace) -> int:
        path = None if args.out is None else check_picture_path(args.out)
        width = _width(args.width)
        with options.client_of(args) as client:
            model, instruments = client.model(), client.timbre_map()
        if path is not None:
            draw_map(instruments, path, f"{model.name}: {counted(len(instruments), 'instrument')}")
        if args.json:
            options.print_json(_facts(model.name, instruments, path))
        elif path is not None:
            print(f"{path}: {counted(len(instruments), 'instrument')}")
        else:
            print(draw_text(instruments, width, colour=_wants_colour(), unicode=_can_say_signs()))
        return 0


def _facts(name: str, instruments: Sequence[Instrument], path: Path | None) -> dict[str, object]:
    facts: dict[str, object] = {"model": name, "instruments": [asdict(each) for each in instruments]}
    return facts if path is None else {**facts, "file": str(path)}


def _width(asked: int | None) -> int:
    width = shutil.get_terminal_size().columns if asked is None else asked
    if asked is not None and asked < NARROWEST:
        raise refusal("width", f"must be {NARROWEST} or more, got {asked}")
    return max(width, NARROWEST)


def _wants_colour() -> bool:
    """See https://no-color.org."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _can_say_signs() -> bool:
    """Whether standard output's encoding has the signs that are not ASCII's."""
    try:
        "".join(UNICODE_SIGNS).encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True


command = MapCommand()
