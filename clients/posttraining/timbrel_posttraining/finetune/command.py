"""`timbrel train finetune`: a bundle learns instruments from recordings."""

from __future__ import annotations

import argparse
from pathlib import Path

from timbrel.progress import counted
from timbrel_export.errors import ExportError
from timbrel_training.stages import (
    add_config_arguments,
    add_device_argument,
    add_folder,
    config_of,
    status_of,
)

help = "teach a bundle instruments of your own, from a folder of samples"

examples = """\
examples:
  timbrel train finetune --source folder:samples --out bundles/mine           from the bundle that ships
  timbrel train finetune --source folder:samples --out bundles/mine --retune
  timbrel train --from-bundle bundles/mine --source folder:more --out bundles/ours
  timbrel serve --bundle bundles/mine

Samples are WAV, FLAC, AIFF, MP3 or Ogg files of one note each, named by note or MIDI number, and perhaps by
dynamics or velocity: reed_060_v100.wav, Violin_C#4_mf.wav, alto-sax-Bb2-ff.aif. A CSV in the folder may say
more; the training README has its columns. Each one's pitch is measured, and those that are not in tune with
their names are listed. Twenty samples over the pitches you play are a good start. An interrupted run goes on
by the same command.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    parser.add_argument(
        "--from-bundle",
        default="default",
        metavar="DIR",
        help="folder of the bundle to start from (default: the one that ships, which is called `default`)",
    )
    parser.add_argument(
        "--source",
        action="append",
        required=True,
        metavar="folder:DIR",
        help="the samples, of one instrument or several; those in subfolders, too",
    )
    add_folder(parser, "out", "the bundle to make; unfinished work lies beside it in OUT.partial")
    parser.add_argument(
        "--licence", default="unknown", help="licence of the samples, for the manifest (default: unknown)"
    )
    parser.add_argument("--name", default="", help="the new bundle's name (default: that of its folder)")
    parser.add_argument(
        "--retune",
        action="store_true",
        help="bring samples in tune that are more than 20 cents off their names",
    )
    add_config_arguments(parser)
    add_device_argument(parser)


def run(args: argparse.Namespace) -> int:
    """Fine-tunes, and prints where the new instruments are."""
    try:
        from timbrel_export.bundle_folder import bundle_path
        from timbrel_posttraining.finetune.run import fine_tune_bundle, unfinished
    except ModuleNotFoundError as error:
        raise ExportError(
            f'fine-tuning needs {error.name}, which is not installed: pip install "timbrel[cpu,train,export]"'
        ) from error
    if len(args.source) > 1:
        raise ExportError(
            f"--source {args.source[1]}: one folder is learnt at a time; put the other into it, "
            "or fine-tune the new bundle with it, by --from-bundle"
        )
    manifest = fine_tune_bundle(
        bundle_path(args.from_bundle, "--from-bundle"),
        args.source[0],
        args.out,
        config_of(args).finetune,
        Path(args.config).name,
        licence=args.licence,
        name=args.name,
        device=args.device,
        retune=args.retune,
    )
    if manifest is None:
        return status_of(unfinished(args.out), finished=False)
    source = manifest.training.sources[-1]
    print(f"{args.out}: {manifest.name}, {source.n_instruments} new of {counted(source.n_notes, 'sample')}")
    print(f"  try it: timbrel serve --bundle {args.out}")
    return 0
