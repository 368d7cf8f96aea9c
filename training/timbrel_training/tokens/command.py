"""`timbrel train tokens`: every note of a library, as the codec writes it."""

from __future__ import annotations

import argparse
import os

from timbrel_training.stage import add_folder

help = "code a library of notes into a token store"


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    add_folder(parser, "notes", "the library of notes")
    add_folder(parser, "codec", "folder of the finished codec")
    add_folder(parser, "out", "the store to make; an unfinished one is continued")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, metavar="N", help="processes (default: one per core)"
    )


def run(args: argparse.Namespace) -> int:
    """Codes, and prints what the store holds."""
    from timbrel_training.codec.timbrel_notes.train import codec_hash, load_codec
    from timbrel_training.notes.library import AudioLibrary
    from timbrel_training.tokens.store import TokenStore
    from timbrel_training.tokens.tokenize import tokenize_library

    codec = load_codec(args.codec)
    tokenize_library(AudioLibrary(args.notes), codec, codec_hash(args.codec), args.out, args.jobs)
    store = TokenStore(args.out)
    seconds = len(store.codes) / store.header.frame_rate
    print(
        f"{args.out}: {len(store)} notes, {seconds / 3600:.2f} hours, {args.out.stat().st_size / 1e6:.1f} MB"
    )
    return 0
