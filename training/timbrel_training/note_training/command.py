"""`timbrel train model`: tokenised notes and a timbre map become a note transformer."""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path

from timbrel_training.stage import add_config_arguments, add_device_argument, add_folder, config_of

help = "stage 2: learn to write notes from points of the map"


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    add_config_arguments(parser)
    add_device_argument(parser)
    add_folder(parser, "tokens", "the token store")
    add_folder(parser, "timbre", "folder of stage 1")
    add_folder(parser, "out", "folder for checkpoint and weights; an unfinished one is resumed")
    parser.add_argument(
        "--init",
        type=Path,
        metavar="PATH",
        help="folder of another `train model` of the same sizes: begin from its weights, on a new schedule",
    )


def run(args: argparse.Namespace) -> int:
    """Trains, and prints nats per token."""
    from timbrel_training.loop import pick_device
    from timbrel_training.note_training.train import train_notes
    from timbrel_training.token_table import TokenTable
    from timbrel_training.tokens.store import TokenStore

    config = config_of(args)
    table = TokenTable.from_store(TokenStore(args.tokens))
    model_config = dataclasses.replace(
        config.model,
        codebook_size=table.codebook_size,
        n_codebooks=table.n_codebooks,
        codes_per_semitone=table.codes_per_semitone,
        code_offset=table.code_offset,
    )
    device = pick_device(args.device)
    loop = train_notes(
        config.note_training,
        model_config,
        table,
        args.timbre,
        args.out,
        device,
        name=Path(args.config).stem,
        init=args.init,
    )
    figures = loop.history[-1] if loop.history else {}
    print(f"{args.out}: {loop.step} of {loop.config.n_steps} steps")
    for name, value in figures.items():
        print(f"  {name.replace('_', ' ')}: {value:.3f}")
    return 0
