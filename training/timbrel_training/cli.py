"""`timbrel train`: one subcommand per stage, from notes to a trained model.

timbrel train notes --source soundfont:FILE.sf2 --out runs/notes
timbrel train codec --notes runs/notes --out runs/codec
timbrel train tokens --notes runs/notes --codec runs/codec --out runs/tokens.bin
timbrel train timbre --tokens runs/tokens.bin --codec runs/codec --out runs/timbre
timbrel train model --tokens runs/tokens.bin --timbre runs/timbre --out runs/model
timbrel train evaluate --notes runs/notes --codec runs/codec --timbre runs/timbre --model runs/model
"""

from __future__ import annotations

import argparse
from importlib import import_module

STAGES = {
    "notes": "timbrel_training.notes.command",
    "codec": "timbrel_training.codec.command",
    "tokens": "timbrel_training.tokens.command",
    "timbre": "timbrel_training.timbre.command",
    "model": "timbrel_training.note_training.command",
    "evaluate": "timbrel_training.evaluate.command",
}
"""Stage, in order, and the module with its `help`, `configure(parser)` and `run(args)`."""


class TrainCommand:
    """The `train` entry of `timbrel.commands`."""

    help = "train on notes of your own: notes, codec, tokens, timbre, model, evaluate"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Adds a subparser per stage."""
        parser.description = __doc__
        parser.formatter_class = argparse.RawDescriptionHelpFormatter
        stages = parser.add_subparsers(title="stages", dest="stage", metavar="STAGE", required=True)
        for name, path in STAGES.items():
            module = import_module(path)
            stage = stages.add_parser(name, help=module.help, description=module.help)
            module.configure(stage)
            stage.set_defaults(run_stage=module.run)

    def run(self, args: argparse.Namespace) -> int:
        """Runs the stage; returns its exit status."""
        return int(args.run_stage(args))


command = TrainCommand()
