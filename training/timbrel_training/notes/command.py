"""`timbrel train notes`: a source of notes becomes a library on disk."""

from __future__ import annotations

import argparse
import os

from timbrel_training.notes.library import render_library
from timbrel_training.notes.sources import FORMS, open_sources
from timbrel_training.stage import add_config_arguments, add_folder, config_of

help = "render or read notes into a library to train on"


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    add_config_arguments(parser)
    parser.add_argument(
        "--source", required=True, action="append", help=f"{FORMS}; may be given several times"
    )
    add_folder(parser, "out", "the library to make; an unfinished one is continued")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, metavar="N", help="processes (default: one per core)"
    )
    parser.add_argument("--licence", help="licence of the recordings, kept for the manifest")


def run(args: argparse.Namespace) -> int:
    """Makes the library and prints what it holds."""
    config = config_of(args).notes
    source = open_sources(args.source, config, args.licence)
    summary = render_library(source, args.out, args.jobs, rule=config.rule, progress=True)
    print(f"{args.out}:", *summary.lines(), sep="\n  ")
    return 0
