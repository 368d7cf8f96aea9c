"""`timbrel train hearing`: the timbre encoder of a bundle learns to locate real recordings."""

from __future__ import annotations

import argparse
from pathlib import Path

from timbrel_training.stages import (
    add_config_arguments,
    add_device_argument,
    add_folder,
    add_jobs,
    config_of,
    print_loop,
)

help = "train the timbre encoder on, on recordings and on notes that the bundle writes itself"

examples = """\
examples:
  timbrel train hearing --bundle runs/cpu/bundle --notes runs/cpu/notes --timbre runs/cpu/timbre \\
      --out runs/cpu/hearing
  timbrel export --bundle runs/cpu/bundle --timbre runs/cpu/hearing --out runs/cpu/bundle

Every instrument stays at its point, so that the model need not be trained again. The bundle is served
privately and writes some thousand notes; these and source notes are then heard as `locate` hears recordings.
A run that was stopped goes on when it is started again.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    add_config_arguments(parser)
    add_device_argument(parser)
    add_folder(parser, "bundle", "a bundle exported with that stage 1; `default` is the one that ships")
    add_folder(parser, "notes", "the dataset of notes that it learnt from")
    parser.add_argument(
        "--also",
        type=Path,
        action="append",
        default=[],
        metavar="PATH",
        help="another dataset, such as of recordings, its instruments named as on the map; may be repeated",
    )
    add_folder(parser, "timbre", "folder of stage 1, where training begins")
    add_folder(parser, "out", "folder for lessons, checkpoint, encoder and map; an unfinished one is resumed")
    add_jobs(parser, "processes that hear")


def run(args: argparse.Namespace) -> int:
    """Trains, and prints how well notes are located."""
    from timbrel_bundle.bundle import Bundle
    from timbrel_export.bundle_folder import bundle_path
    from timbrel_posttraining.timbre_finetune.trainer import fine_tune_timbre
    from timbrel_training.loop import pick_device
    from timbrel_training.notes.dataset import NoteDataset

    bundle = Bundle.open(bundle_path(args.bundle))
    bundle.require()
    loop = fine_tune_timbre(
        config_of(args).hearing,
        bundle,
        [NoteDataset(path) for path in (args.notes, *args.also)],
        args.timbre,
        args.out,
        pick_device(args.device),
        args.jobs,
    )
    return print_loop(args.out, loop)
