"""`timbrel train timbre`: tokenised notes become a map of timbres."""

from __future__ import annotations

import argparse

from timbrel_training.stage import add_config_arguments, add_device_argument, add_folder, config_of

help = "stage 1: learn the map of timbres from tokenised notes"


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    add_config_arguments(parser)
    add_device_argument(parser)
    add_folder(parser, "tokens", "the token store")
    add_folder(parser, "codec", "folder of the codec that made it")
    add_folder(parser, "out", "folder for checkpoint, encoder and map; an unfinished one is resumed")


def run(args: argparse.Namespace) -> int:
    """Trains, and prints how well the map separates instruments."""
    from timbrel_training.codec.timbrel_notes.train import load_codec
    from timbrel_training.loop import pick_device
    from timbrel_training.timbre.train import train_timbre
    from timbrel_training.token_table import TokenTable
    from timbrel_training.tokens.store import TokenStore

    config = config_of(args).timbre
    table = TokenTable.from_store(TokenStore(args.tokens))
    figures = train_timbre(config, table, load_codec(args.codec), args.out, pick_device(args.device))
    print(f"{args.out}: {len(table.instruments)} instruments, {table.n_notes} notes")
    for name, value in figures.scalars().items():
        print(f"  {name.replace('_', ' ')}: {value:.3f}")
    return 0
