"""Arguments that the training stages share."""

from __future__ import annotations

import argparse
from pathlib import Path

from timbrel_training.config import NAMED, Config, load_config


def add_config_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds --config and --set."""
    parser.add_argument(
        "--config", default="cpu", metavar="NAME", help=f"{', '.join(NAMED)}, or a TOML file (default: cpu)"
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="SECTION.FIELD=VALUE",
        help="override one field of the config; may be given several times",
    )


def add_device_argument(parser: argparse.ArgumentParser) -> None:
    """Adds --device."""
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda (default: auto)")


def add_folder(parser: argparse.ArgumentParser, name: str, help: str) -> None:
    """Adds a required --NAME PATH."""
    parser.add_argument(f"--{name}", required=True, type=Path, metavar="PATH", help=help)


def config_of(args: argparse.Namespace) -> Config:
    """The config that the arguments ask for.

    Raises:
        ConfigError: see `load_config`.
    """
    return load_config(args.config, args.set)
