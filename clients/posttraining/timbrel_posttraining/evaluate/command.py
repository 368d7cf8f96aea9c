"""`timbrel train evaluate`: judges a bundle."""

from __future__ import annotations

import argparse
from pathlib import Path

from timbrel_training.stages import add_folder, add_jobs

help = "judge a finished bundle against the notes it learnt from: report.json, report.html, listening.html"

examples = """\
examples:
  timbrel train evaluate --bundle runs/cpu/bundle --notes runs/cpu/notes
  timbrel train evaluate --bundle runs/cpu/bundle --notes runs/cpu/notes --count 60     # a quick look
  timbrel train evaluate --bundle DIR --notes DATASET --out runs/judged --jobs 8
  timbrel train evaluate --bundle DIR --notes DATASET --section locate --count 600     # one section's figures

The notes are written by a private server with its default sampling, each once, with a seed made of what the
note is. Every figure comes with a 95 % interval, and beside it stands the same figure of real notes (source,
another draw, a sampler) and of the codec's reconstruction. listening.html plays a few notes for a blind ABX
comparison by ear. A run that was stopped goes on when it is started again.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    add_folder(parser, "bundle", "the bundle to judge; `default` is the one that ships")
    add_folder(parser, "notes", "the dataset of notes that it learnt from")
    parser.add_argument(
        "--count",
        type=int,
        default=2000,
        metavar="N",
        help="notes of the largest sections, which the others take a share of (default: 2000)",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("runs/evaluation"),
        metavar="DIR",
        help="folder for the report, and for what was made so far (default: runs/evaluation/)",
    )
    parser.add_argument(
        "--section",
        action="append",
        default=[],
        metavar="NAME",
        help="judge this section alone, may be given several times: prints all its figures, writes no report",
    )
    add_jobs(parser, "processes that measure")


def run(args: argparse.Namespace) -> int:
    """Judges, writes the report and prints the figures that have a bar."""
    from timbrel_export.bundle_folder import bundle_path
    from timbrel_posttraining.evaluate import evaluation

    settings = evaluation.Settings(
        bundle_path(args.bundle), args.notes, args.out, args.count, args.jobs, tuple(args.section)
    )
    if settings.sections:
        for section in evaluation.judge_sections(settings):
            print(f"{section.title}. {section.method}", *section.lines(), sep="\n")
        return 0
    report = evaluation.evaluate(settings)
    print(*(figure.line for figure in report.judged()), sep="\n")
    print(*(args.out / name for name in evaluation.WRITTEN), sep="\n")
    return 0
