"""`timbrel train card`: a bundle's manifest and its evaluation become its model card."""

from __future__ import annotations

import argparse

from timbrel_training.stages import add_folder

help = "write a bundle's MODEL_CARD.md and the picture of its map from its evaluation"

examples = """\
example:
  timbrel train evaluate --bundle runs/cpu/bundle --notes runs/cpu/notes --out runs/cpu/evaluation
  timbrel train card --bundle runs/cpu/bundle --evaluation runs/cpu/evaluation

Card and picture are no part of what the bundle's hash names: writing them does not make it another bundle.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    add_folder(parser, "bundle", "the bundle, which receives the card; `default` is the one that ships")
    add_folder(parser, "evaluation", "the folder that `timbrel train evaluate` wrote of this very bundle")


def run(args: argparse.Namespace) -> int:
    """Writes both files."""
    from timbrel_export.bundle_folder import bundle_path
    from timbrel_posttraining.model_card.card import write_card

    print(write_card(bundle_path(args.bundle), args.evaluation))
    return 0
