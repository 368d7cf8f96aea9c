"""`timbrel train refine`: the finished codec's decoder learns on the codes themselves."""

from __future__ import annotations

import argparse
import dataclasses

from timbrel_training.stage import add_config_arguments, add_device_argument, add_folder, config_of

help = "improve a finished codec's sound without changing its codes"


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    parser.epilog = (
        "timbrel train refine --codec runs/codec --notes runs/notes --tokens runs/tokens.bin"
        " --out runs/refined"
    )
    add_config_arguments(parser)
    add_device_argument(parser)
    add_folder(parser, "codec", "the finished codec; it is left as it is")
    add_folder(parser, "notes", "the library of notes")
    add_folder(parser, "tokens", "the same notes as the codec's codes")
    add_folder(parser, "out", "folder for checkpoint and weights; an unfinished one is resumed")


def run(args: argparse.Namespace) -> int:
    """Trains, and prints the losses on held-out notes."""
    from timbrel_training.checkpoint import load_description
    from timbrel_training.codec.timbrel_notes.refine import refine_codec
    from timbrel_training.codec.timbrel_notes.train import WEIGHTS_NAME
    from timbrel_training.notes.library import AudioLibrary
    from timbrel_training.tokens.store import TokenStore

    config = dataclasses.replace(config_of(args).refine, device=args.device)
    if refine_codec(config, args.codec, AudioLibrary(args.notes), TokenStore(args.tokens), args.out) is None:
        print(f"{args.out}: stopped before the last step; run the same command again to go on")
        return 0
    print(f"{args.out}: finished")
    for name, value in load_description(args.out, WEIGHTS_NAME)["figures"].items():
        print(f"  {name.replace('_', ' ')}: {value:.4g}")
    return 0
