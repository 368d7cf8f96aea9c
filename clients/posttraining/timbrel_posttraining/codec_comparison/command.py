"""`timbrel train compare-codecs`: which codec sounds best, and whose codes are easiest to predict?"""

from __future__ import annotations

import argparse
from typing import Any

from timbrel_training.optimization import AUTO, PRECISIONS
from timbrel_training.stages import add_folder

help = "train codec designs for the same time and judge them by the same figures"

EXAMPLES = """\
timbrel train compare-codecs --list
timbrel train compare-codecs --notes runs/notes --out runs/codecs --rehearse
timbrel train compare-codecs --notes runs/notes --out runs/codecs --minutes 20 --decoder-minutes 10
timbrel train compare-codecs --notes runs/notes --out runs/codecs --design seanet-75 --design timbrel-notes-50

Each design has one thread, and minutes are its processor time: a busy machine takes longer. Two runs with
different designs may share --out, each on a core of its own. Finished designs are kept: a run that was
stopped goes on with the design it was at.
"""


class ListDesigns(argparse.Action):
    """Prints the designs and ends the command, whatever else is missing from the line."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        from timbrel_posttraining.codec_comparison.designs import DESIGNS

        for design in DESIGNS:
            print(f"{design.name:32s} {design.about}")
        parser.exit()


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    parser.epilog = EXAMPLES
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--list", action=ListDesigns, nargs=0, help="name and describe the designs, and exit")
    add_folder(parser, "notes", "the library of notes, at 48 kHz")
    add_folder(parser, "out", "folder for the table, the codecs and what is finished")
    parser.add_argument(
        "--design", action="append", default=[], metavar="NAME", help="one of them (default: all); repeatable"
    )
    parser.add_argument(
        "--minutes", type=float, default=20.0, metavar="N", help="training of each codec (default: 20)"
    )
    parser.add_argument(
        "--decoder-minutes",
        type=float,
        default=10.0,
        metavar="N",
        help="training of the note transformer on each codec's codes (default: 10)",
    )
    parser.add_argument(
        "--precision",
        choices=PRECISIONS,
        default=AUTO,
        help="of training (default: bfloat16 where the processor is built for it, else float32)",
    )
    parser.add_argument(
        "--rehearse", action="store_true", help="take a few steps of each design and print what they cost"
    )


def run(args: argparse.Namespace) -> int:
    """Compares, and prints the table."""
    from timbrel_posttraining.codec_comparison import codec_training, comparison, designs
    from timbrel_training.notes.dataset import NoteDataset

    chosen = designs.designs_named(args.design)
    config = designs.ComparisonConfig(
        minutes=args.minutes, decoder_minutes=args.decoder_minutes, precision=args.precision
    )
    compared = comparison.Comparison(NoteDataset(args.notes), args.out, config)
    try:
        if args.rehearse:
            for design in chosen:
                print(compared.rehearse(design).summary(design, config), flush=True)
        else:
            print(comparison.to_markdown(compared.run(chosen)))
            print(args.out / comparison.MARKDOWN_NAME)
    except codec_training.StoppedError as error:
        print(f"{error}; run the same command again to go on with it")
    return 0
