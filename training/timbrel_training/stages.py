"""The stages of `timbrel train` that lead from notes to a trained model, as the command line offers them.

A stage has a `help`, adds its arguments in `configure` and does its work in `run`, which returns the exit
status. Stages of other packages are modules with these names.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from timbrel_training.checkpoint import load_description
from timbrel_training.codec import registry
from timbrel_training.codec.interface import WEIGHTS_NAME, codes_hash
from timbrel_training.codec.tokenize import tokenize_dataset
from timbrel_training.config import NAMED, Config, load_config
from timbrel_training.loop import Loop, n_cores, pick_device
from timbrel_training.note_training.headers import HeaderFolders, train_headers
from timbrel_training.note_training.train import train_notes
from timbrel_training.notes.cleaning import Cleaner
from timbrel_training.notes.dataset import NoteDataset
from timbrel_training.notes.render import counted, render_dataset
from timbrel_training.notes.sources import FORMS, open_sources
from timbrel_training.timbre.map import ENCODER
from timbrel_training.timbre.train import train_timbre
from timbrel_training.tokens.table import TokenTable


class NotesStage:
    """`timbrel train notes`: a source of notes becomes a dataset on disk."""

    help = "render or read notes into a dataset to train on"
    examples = """
examples:
  timbrel train notes --out runs/notes                                    # the config's sources
  timbrel train notes --config tiny --source soundfont:/usr/share/sounds/sf2/FluidR3_GM.sf2 --out runs/notes
  timbrel train notes --source sfz:"Grand Piano.sfz" --licence CC0-1.0 --out runs/notes
  timbrel train notes --source "synthetic:Nylon String" --source folder:samples --out runs/notes

A soundfont is played by FluidSynth, an .sfz instrument by sfizz. What was left out, dropped and held out is
listed at the end. A run that was stopped goes on by the same command.
"""

    def configure(self, parser: argparse.ArgumentParser) -> None:
        add_config_arguments(parser)
        parser.add_argument(
            "--source",
            action="append",
            default=[],
            help=f"{FORMS}; may be given several times (default: the config's [[notes.sources]])",
        )
        add_folder(parser, "out", "the dataset to make; an unfinished one is continued")
        add_jobs(parser)
        parser.add_argument("--licence", help="licence of sources whose own is not known, for the manifest")

    def run(self, args: argparse.Namespace) -> int:
        config = config_of(args).notes
        source = open_sources(args.source, config, args.licence)
        cleaner = Cleaner(check_pitch=config.check_pitch)
        summary = render_dataset(
            source, args.out, args.jobs, rule=config.rule, cleaner=cleaner, progress=True
        )
        print(f"{args.out}:", *summary.lines(), sep="\n  ")
        return 0


class CodecStage:
    """`timbrel train codec`: a dataset of notes becomes a codec."""

    help = "learn to code notes in few numbers"
    examples = """
examples:
  timbrel train codec --notes runs/notes --out runs/codec
  timbrel train codec --notes runs/notes --out runs/codec --set codec.loop.n_steps=4000
  timbrel train codec --notes runs/notes --out runs/codec --set codec.init=runs/on/codec    # go on from it
  timbrel train codec --config encodec --weights meta --notes runs/notes --out runs/codec
  timbrel train codec --config encodec --weights none --notes runs/notes --out runs/codec

Meta's weights of EnCodec are for non-commercial use (CC BY-NC 4.0); a bundle made with them says so.
"""

    def configure(self, parser: argparse.ArgumentParser) -> None:
        add_config_arguments(parser)
        parser.add_argument("--device", help="short for --set codec.device=DEVICE: auto, cpu or cuda")
        add_folder(parser, "notes", "the dataset of notes")
        add_folder(parser, "out", "folder for checkpoint and weights; an unfinished one is resumed")
        parser.add_argument(
            "--design",
            metavar="ID",
            help="short for --set codec.id=ID: timbrel-notes-2, encodec or a package's own",
        )
        parser.add_argument(
            "--weights",
            metavar="FILE",
            help="short for --set codec.weights=FILE: EnCodec's, `meta` for a download, `none` to train them",
        )

    def run(self, args: argparse.Namespace) -> int:
        given = {"codec.id": args.design, "codec.weights": args.weights, "codec.device": args.device}
        args.set += [f"{field}={value}" for field, value in given.items() if value is not None]
        config = config_of(args).codec
        codec = registry.design_of(config).train(config, NoteDataset(args.notes), args.out)
        if codec is not None:
            print(f"{args.out}: finished")
            _print_figures(load_description(args.out, WEIGHTS_NAME).get("figures", {}), ".4g")
        return status_of(args.out, codec is not None)


class TokensStage:
    """`timbrel train tokens`: every note of a dataset, as the codec writes it."""

    help = "code a dataset of notes into a token store"
    examples = """
example:
  timbrel train tokens --notes runs/notes --codec runs/codec --out runs/tokens.bin
"""

    def configure(self, parser: argparse.ArgumentParser) -> None:
        add_folder(parser, "notes", "the dataset of notes")
        add_folder(parser, "codec", "folder of the finished codec")
        add_folder(parser, "out", "the store to make; an unfinished one is continued")
        add_jobs(parser)

    def run(self, args: argparse.Namespace) -> int:
        codec = registry.load_codec(args.codec)
        tokenize_dataset(
            NoteDataset(args.notes), codec, codes_hash(args.codec), args.out, args.jobs, args.codec
        )
        table = TokenTable.read(args.out)
        hours = len(table.codes) / table.header.frame_rate / 3600
        size = args.out.stat().st_size / 1e6
        print(f"{args.out}: {counted(table.n_notes, 'note')}, {hours:.2f} hours, {size:.1f} MB")
        return 0


class TimbreStage:
    """`timbrel train timbre`: notes become a map of timbres."""

    help = "stage 1: learn the map of timbres from the sound of notes"
    examples = """
examples:
  timbrel train timbre --tokens runs/tokens.bin --notes runs/notes --out runs/timbre
  timbrel train timbre --tokens runs/tokens.bin --notes runs/notes --out runs/t --set timbre.loop.n_steps=2000

The folder's map.png shows the map, where matplotlib is installed (it is in timbrel[demo]).
"""

    def configure(self, parser: argparse.ArgumentParser) -> None:
        add_config_arguments(parser)
        add_device_argument(parser)
        add_folder(parser, "tokens", "the token store")
        add_folder(parser, "notes", "the dataset that it was made of")
        add_folder(
            parser, "out", "folder for features, checkpoint, encoder and map; an unfinished one is resumed"
        )

    def run(self, args: argparse.Namespace) -> int:
        config = config_of(args).timbre
        table = TokenTable.read(args.tokens)
        notes = NoteDataset(args.notes)
        figures = train_timbre(config, table, notes, args.out, pick_device(args.device))
        n_instruments = len(table.instruments)
        print(f"{args.out}: {counted(n_instruments, 'instrument')}, {counted(table.n_notes, 'note')}")
        _print_figures(figures, ".3f")
        return status_of(args.out, load_description(args.out, ENCODER)["steps"] >= config.loop.n_steps)


class ModelStage:
    """`timbrel train model`: tokenised notes and a timbre map become a note transformer."""

    help = "stage 2: learn to write notes from points of the map"
    examples = """
examples:
  timbrel train model --tokens runs/tokens.bin --timbre runs/timbre --out runs/model
  timbrel train model --tokens runs/tokens.bin --timbre runs/timbre --out runs/model --set model.d_model=256
  timbrel train model --tokens runs/tokens.bin --timbre runs/timbre --init runs/model --out runs/further

`tensorboard --logdir runs` shows the curves of every stage while it learns.
"""

    def configure(self, parser: argparse.ArgumentParser) -> None:
        add_config_arguments(parser)
        add_device_argument(parser)
        add_folder(parser, "tokens", "the token store")
        add_folder(parser, "timbre", "folder of stage 1")
        add_folder(parser, "out", "folder for checkpoint and weights; an unfinished one is resumed")
        parser.add_argument(
            "--init",
            type=Path,
            metavar="PATH",
            help="folder of another `train model` of the same sizes: begin from its weights, on a new"
            " schedule",
        )

    def run(self, args: argparse.Namespace) -> int:
        config = config_of(args)
        table = TokenTable.read(args.tokens)
        header = table.header
        model_config = dataclasses.replace(
            config.model,
            codebook_size=header.codebook_size,
            n_codebooks=header.n_codebooks,
            codes_per_semitone=header.codes_per_semitone,
            code_offset=header.code_offset,
            codebook_delay=header.codebook_delay,
            lead_frames=header.lead_frames,
            # It says a header's frames whole, and a step of a delayed codebook is of an earlier frame.
            header_width=0 if header.lead_frames and header.codebook_delay else config.model.header_width,
            held_codes=header.held_codes,
            released_codes=header.released_codes,
        )
        if (width := model_config.width_per_head) % model_config.HEAD_DIM_MULTIPLE:
            print(
                f"heads are {width} wide: such a model trains, but no bundle can be made of it; "
                f"for one they have to be a multiple of {model_config.HEAD_DIM_MULTIPLE} "
                "(model.head_dim, or d_model / n_heads)"
            )
        loop = train_notes(
            config.note_training,
            model_config,
            table,
            args.timbre,
            args.out,
            pick_device(args.device),
            name=Path(args.config).stem,
            init=args.init,
        )
        return print_loop(args.out, loop)


class HeadersStage:
    """`timbrel train headers`: a model and a codec become a model and a codec that fit each other."""

    help = "fit what says a note's header and what plays it to each other"
    examples = """
example:
  timbrel train headers --notes runs/notes --tokens runs/tokens.bin --codec runs/codec --timbre runs/timbre \\
      --model runs/model --out runs/headers
  timbrel export --model runs/headers/model --codec runs/headers/codec --tokens runs/tokens.bin \\
      --timbre runs/timbre --notes runs/notes --out runs/bundle
"""

    def configure(self, parser: argparse.ArgumentParser) -> None:
        add_config_arguments(parser)
        add_device_argument(parser)
        add_folder(parser, "notes", "the dataset of notes")
        add_folder(parser, "tokens", "the token store made of it")
        add_folder(parser, "codec", "folder of the finished codec, with its measurements of the notes")
        add_folder(parser, "timbre", "folder of stage 1")
        add_folder(parser, "model", "folder of stage 2")
        add_folder(parser, "out", "folder for checkpoint, codec/ and model/; an unfinished one is resumed")

    def run(self, args: argparse.Namespace) -> int:
        config = config_of(args)
        folders = HeaderFolders(args.notes, args.tokens, args.codec, args.timbre, args.model)
        loop = train_headers(
            config.headers, config.note_training, folders, args.out, pick_device(args.device)
        )
        if loop is None:
            print(f"{args.out}: nothing to fit, no network says headers; codec/ and model/ are as they were")
            return 0
        return print_loop(args.out, loop)


STAGES: Mapping[str, Any] = {
    "notes": NotesStage(),
    "codec": CodecStage(),
    "tokens": TokensStage(),
    "timbre": TimbreStage(),
    "model": ModelStage(),
    "headers": HeadersStage(),
}
"""The stages by name, in order."""
UNFINISHED_STATUS = 3


def status_of(folder: Path, finished: bool) -> int:
    """Returns the exit status of a training in a folder; says how it goes on where its sitting ended before
    the last step, which whatever runs next must not take for its end."""
    if not finished:
        print(f"{folder}: stopped before the last step; run the same command again to go on")
    return 0 if finished else UNFINISHED_STATUS


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
    """Returns the config that the arguments ask for. Raises ConfigError: see `load_config`."""
    return load_config(args.config, args.set)


def add_jobs(parser: argparse.ArgumentParser, what: str = "processes") -> None:
    """Adds --jobs."""
    help = f"{what} (default: one per core)"
    parser.add_argument("--jobs", type=_jobs, default=n_cores(), metavar="N", help=help)


def _jobs(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number from 1, got {text!r}")
    return int(text)


def print_loop(folder: Path, loop: Loop[Any]) -> int:
    """Prints how far a training in a folder has come, and its last figures; returns its exit status."""
    print(f"{folder}: {loop.step} of {counted(loop.config.n_steps, 'step')}")
    _print_figures(loop.history[-1] if loop.history else {}, ".3f")
    return status_of(folder, loop.finished)


def _print_figures(figures: Mapping[str, Any], form: str) -> None:
    for name, value in figures.items():
        print(f"  {name.replace('_', ' ')}: {value:{form}}")
