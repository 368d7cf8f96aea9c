"""`timbrel train`: one subcommand per stage, from notes to a trained model.

timbrel train notes --source soundfont:FILE.sf2 --out runs/notes
timbrel train codec --notes runs/notes --out runs/codec
timbrel train tokens --notes runs/notes --codec runs/codec --out runs/tokens.bin
timbrel train timbre --tokens runs/tokens.bin --notes runs/notes --out runs/timbre
timbrel train model --tokens runs/tokens.bin --timbre runs/timbre --out runs/model
timbrel train headers --notes runs/notes --tokens runs/tokens.bin --codec runs/codec \\
    --timbre runs/timbre --model runs/model --out runs/headers
timbrel export --model runs/headers/model --timbre runs/timbre --codec runs/headers/codec \\
    --tokens runs/tokens.bin --notes runs/notes --out runs/b
timbrel train hearing --bundle runs/b --notes runs/notes --timbre runs/timbre --out runs/hearing
timbrel export --bundle runs/b --timbre runs/hearing --out runs/b
timbrel train evaluate --bundle runs/b --notes runs/notes --out runs/evaluation
timbrel train card --bundle runs/b --evaluation runs/evaluation

To teach a finished bundle instruments of your own:

timbrel train finetune --source folder:samples --out bundles/mine
"""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import entry_points
from typing import Any

STAGE_GROUP = "timbrel.train_stages"
"""Entry points of the stages that go on from a finished bundle, modules that have what a stage has. They live
in `timbrel_posttraining`, since training itself opens no bundle."""
LATER_STAGES = ("hearing", "evaluate", "card", "finetune", "unpack")
"""The order in which `--help` lists these; any other stage comes after them, by name."""
FROM_BUNDLE = "--from-bundle"
OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "not enough memory")
"""Words of torch's, by system."""


class TrainCommand:
    """The `train` entry of `timbrel.commands`."""

    help = (
        "train on notes of your own: notes, codec, tokens, timbre, model, headers, hearing, evaluate, card;"
        " or go on from a bundle: finetune, unpack"
    )

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Adds a subparser per stage."""
        parser.description = __doc__
        stages = parser.add_subparsers(title="stages", dest="stage", metavar="STAGE")
        for name, module in _stages():
            epilog = getattr(module, "examples", None)
            stage = stages.add_parser(name, help=module.help, description=module.help, epilog=epilog)
            module.configure(stage)
            stage.set_defaults(run_stage=module.run)
        if "finetune" in stages.choices:
            parser.add_argument(
                FROM_BUNDLE,
                nargs=argparse.REMAINDER,
                action=_FineTune,
                stages=stages,
                metavar="...",
                help=f"short for `finetune {FROM_BUNDLE} ...`",
            )
        parser.set_defaults(
            run_stage=lambda args: parser.error("the following arguments are required: STAGE")
        )

    def run(self, args: argparse.Namespace) -> int:
        """Runs the stage; returns its exit status. What it prints is in a file or a pipe at once. Raises
        MemoryError: there is not enough for torch."""
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(line_buffering=True)
        try:
            return int(args.run_stage(args))
        except RuntimeError as error:  # torch's, of a GPU or of this machine
            if not any(words in str(error) for words in OUT_OF_MEMORY):
                raise
            told = ". ".join(str(error).split(". ")[:2])  # hints at torch's own settings follow
            raise MemoryError(f"{told}; choose smaller batches (batch_size, batch_steps) or sizes") from error


class _FineTune(argparse.Action):
    """`train --from-bundle ...` stands for `train finetune --from-bundle ...`."""

    def __init__(self, *, stages: argparse.Action, **settings: Any) -> None:
        super().__init__(**settings)
        self._choose = stages

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        self._choose(parser, namespace, ["finetune", FROM_BUNDLE, *(values or ())])


def _stages() -> Iterator[tuple[str, Any]]:
    """Returns every stage, by name: training's own, then those of other packages."""
    # OpenMP, as torch has it, reads this as it is loaded: threads that wait for each other sleep. Else they
    # spin, and beside any other work on the machine a step takes many times as long.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    from timbrel_training.stages import STAGES  # imports torch, which `timbrel --help` need not wait for

    yield from STAGES.items()
    later = {point.name: point.load() for point in entry_points(group=STAGE_GROUP)}
    known = [name for name in LATER_STAGES if name in later]
    yield from ((name, later[name]) for name in (*known, *sorted(later.keys() - set(known))))


command = TrainCommand()
