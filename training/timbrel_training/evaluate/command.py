"""`timbrel train evaluate`: are the notes in tune, and where is it lost?"""

from __future__ import annotations

import argparse

from timbrel_training.stage import add_folder

help = "how many notes are in tune: source, codec and model"


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    add_folder(parser, "notes", "the library of notes")
    add_folder(parser, "codec", "folder of the codec")
    add_folder(parser, "timbre", "folder of stage 1")
    add_folder(parser, "model", "folder of stage 2")
    parser.add_argument("--count", type=int, default=60, metavar="N", help="notes to judge (default: 60)")
    parser.add_argument(
        "--split",
        choices=("held-out", "training"),
        default="held-out",
        help="notes of held-out cells, or of training cells (default: held-out)",
    )
    parser.add_argument(
        "--weights",
        choices=("model", "best"),
        default="model",
        help="the latest, or those that predicted held-out notes best (default: model)",
    )
    parser.add_argument("--temperature", type=float, default=1.0, help="0 takes the likeliest token")
    parser.add_argument("--top-p", type=float, default=0.95, help="probability mass kept (default: 0.95)")


def run(args: argparse.Namespace) -> int:
    """Judges, and prints shares."""
    from timbrel_training.codec.timbrel_notes.train import load_codec
    from timbrel_training.evaluate.tuning import judge_tuning, pick_notes
    from timbrel_training.note_training.train import load_model
    from timbrel_training.notes.library import AudioLibrary
    from timbrel_training.notes.split import Split
    from timbrel_training.timbre.map import read_map
    from timbrel_training.writer import Sampling

    library = AudioLibrary(args.notes)
    chart, _ = read_map(args.timbre)
    split = Split.HELD_OUT_CELL if args.split == "held-out" else Split.TRAIN
    rows = pick_notes(library, chart, split, args.count)
    sampling = Sampling(temperature=args.temperature, top_p=args.top_p)
    model = load_model(args.model, args.weights)
    report = judge_tuning(library, rows, load_codec(args.codec), chart, model, sampling)
    print(*report.lines(), sep="\n")
    return 0
