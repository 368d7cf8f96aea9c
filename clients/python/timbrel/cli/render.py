"""`timbrel render`: one note to a file."""

from __future__ import annotations

import argparse
import time

from timbrel.audio_file import check_audio_path
from timbrel.cli.options import add_server_options, client_of
from timbrel.core.timbre import parse_timbre

_EXAMPLES = """\
examples:
  timbrel render --timbre Violin --pitch 60 --out note.wav
  timbrel render --timbre 0.2,-0.4 --pitch 48 --velocity 80 --seconds 3 --seed 1 --out low.flac
  timbrel render --timbre Flute --pitch 72 --temperature 0 --server studio:50051 --out flute.wav

The same command with the same --seed writes the same bytes. `timbrel info` lists the instruments and ranges.
"""


class RenderCommand:
    """Renders a note and says how long it is and how long it took."""

    help = "render one note to a .wav or .flac file"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.description = "Renders one note to a 24-bit .wav or .flac file."
        parser.epilog = _EXAMPLES
        note = parser.add_argument_group("note")
        note.add_argument(
            "--timbre", required=True, metavar="X,Y|NAME", help="a point of the unit disc, or an instrument"
        )
        note.add_argument("--pitch", type=int, default=60, help="MIDI note number (default %(default)s: C4)")
        note.add_argument("--velocity", type=int, default=100, help="1..127 (default %(default)s)")
        note.add_argument(
            "--seconds", type=float, default=2.0, help="how long the key is held (default %(default)s)"
        )
        note.add_argument("--out", required=True, metavar="FILE", help="the file to write")
        sampling = parser.add_argument_group("sampling")
        sampling.add_argument("--seed", type=int, help="for the same note again (default: drawn and printed)")
        sampling.add_argument("--temperature", type=float, help="0 always takes the most likely code")
        sampling.add_argument("--top-k", type=int, help="draw from the k most likely codes only")
        sampling.add_argument(
            "--top-p", type=float, help="draw from the likeliest codes of this probability only"
        )
        add_server_options(parser)

    def run(self, args: argparse.Namespace) -> int:
        timbre = parse_timbre(args.timbre)
        path = check_audio_path(args.out)
        with client_of(args) as client:
            client.prepare()
            start = time.perf_counter()
            note = client.generate(
                timbre,
                args.pitch,
                args.velocity,
                args.seconds,
                args.seed,
                temperature=args.temperature,
                top_k=args.top_k,
                top_p=args.top_p,
            )
            duration = note.duration
            elapsed = time.perf_counter() - start
        note.save(path)
        cut = ", cut at the bundle's cap" if note.truncated else ""
        print(
            f"{path}: {duration:.2f} s, pitch {note.pitch}, velocity {note.velocity}, seed {note.seed}{cut} "
            f"({elapsed:.2f} s, {duration / elapsed:.1f} x real time)"
        )
        return 0


command = RenderCommand()
