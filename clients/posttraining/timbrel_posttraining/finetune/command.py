"""`timbrel train finetune`: a bundle learns instruments from recordings."""

from __future__ import annotations

import argparse
from pathlib import Path

from timbrel_export.errors import ExportError
from timbrel_training.stages import add_config_arguments, add_device_argument, add_folder, config_of

help = "teach a bundle instruments of your own, from a folder of samples"

EPILOG = """\
examples:
  timbrel train finetune --from-bundle server/bundles/default --source folder:samples --out bundles/mine
  timbrel train --from-bundle server/bundles/default --source folder:samples --out bundles/mine
  timbrel serve --bundle bundles/mine

Samples are WAV or FLAC files of one note each, named by MIDI number and perhaps velocity: reed_060_v100.wav
is an instrument "reed". A CSV in the folder may say more; the training README has its columns. Twenty samples
over the pitches you play are a good start. An interrupted run goes on by the same command.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EPILOG
    add_folder(parser, "from-bundle", "folder of the bundle to start from")
    parser.add_argument("--source", required=True, metavar="folder:DIR", help="the samples")
    add_folder(parser, "out", "the bundle to make; unfinished work lies beside it in OUT.partial")
    parser.add_argument(
        "--licence", default="unknown", help="licence of the samples, for the manifest (default: unknown)"
    )
    parser.add_argument("--name", default="", help="the new bundle's name (default: that of its folder)")
    add_config_arguments(parser)
    add_device_argument(parser)


def run(args: argparse.Namespace) -> int:
    """Fine-tunes, and prints where the new instruments are."""
    try:
        from timbrel_posttraining.finetune.run import FineTuning, fine_tune_bundle
    except ImportError as error:
        raise ExportError(
            f"fine-tuning needs {error.name}, which is not installed: pip install 'timbrel[cpu,train,export]'"
        ) from error
    task = FineTuning(
        base=args.from_bundle,
        source=args.source,
        out=args.out,
        config=config_of(args).finetune,
        config_name=Path(args.config).name,
        licence=args.licence,
        name=args.name,
        device=args.device,
    )
    manifest = fine_tune_bundle(task)
    if manifest is None:
        print(f"{task.work}: stopped before the last step; run the same command again to go on")
        return 0
    source = manifest.training.sources[-1]
    print(f"{args.out}: {manifest.name}, {source.n_instruments} new of {source.n_notes} samples")
    print(f"  try it: timbrel serve --bundle {args.out}")
    return 0
