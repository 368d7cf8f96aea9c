"""`timbrel train codec`: a library of notes becomes the timbrel-notes codec."""

from __future__ import annotations

import argparse
import dataclasses

from timbrel_training.stage import add_config_arguments, add_device_argument, add_folder, config_of

help = "learn to code notes in few numbers"


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    add_config_arguments(parser)
    add_device_argument(parser)
    add_folder(parser, "notes", "the library of notes")
    add_folder(parser, "out", "folder for checkpoint and weights; an unfinished one is resumed")


def run(args: argparse.Namespace) -> int:
    """Trains, and prints the losses on held-out notes."""
    from timbrel_training.checkpoint import load_description
    from timbrel_training.codec.timbrel_notes.train import WEIGHTS_NAME, train_codec
    from timbrel_training.notes.library import AudioLibrary

    config = dataclasses.replace(config_of(args).codec, device=args.device)
    if train_codec(config, AudioLibrary(args.notes), args.out) is None:
        print(f"{args.out}: stopped before the last step; run the same command again to go on")
        return 0
    print(f"{args.out}: finished")
    for name, value in load_description(args.out, WEIGHTS_NAME)["figures"].items():
        print(f"  {name.replace('_', ' ')}: {value:.4g}")
    return 0
