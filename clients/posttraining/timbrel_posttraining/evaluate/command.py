"""`timbrel train evaluate`: how good is a bundle?"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from timbrel_training.stages import add_folder

if TYPE_CHECKING:
    from timbrel_posttraining.evaluate.figure import Figure, SectionReport

help = "judge a finished bundle against the notes it learnt from: report.json and report.html"

_EXAMPLES = """\
examples:
  timbrel train evaluate --bundle runs/cpu/bundle --notes runs/cpu/notes
  timbrel train evaluate --bundle runs/cpu/bundle --notes runs/cpu/notes --count 60     # a quick look
  timbrel train evaluate --bundle DIR --notes LIBRARY --out runs/judged --jobs 8
  timbrel train evaluate --bundle DIR --notes LIBRARY --section locate --count 600     # one section's figures

The notes are written by a private server with its default sampling, each once, with a seed made of what the
note is. Every figure comes with a 95 % interval, and beside it stands the same figure of the source notes and
of the codec's reconstruction. A run that was stopped goes on when it is started again.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _EXAMPLES
    add_folder(parser, "bundle", "the bundle to judge")
    add_folder(parser, "notes", "the library of notes that it learnt from")
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
    parser.add_argument(
        "--jobs",
        type=int,
        default=os.cpu_count() or 1,
        metavar="N",
        help="processes that measure (default: one per core)",
    )


def run(args: argparse.Namespace) -> int:
    """Judges, writes the report and prints the figures that have a bar."""
    from timbrel_posttraining.evaluate.evaluation import REPORT_HTML, REPORT_JSON, evaluate, judge_sections
    from timbrel_posttraining.evaluate.settings import Settings

    settings = Settings(args.bundle, args.notes, args.out, args.count, args.jobs, tuple(args.section))
    if settings.sections:
        for section in judge_sections(settings, progress=sys.stderr.isatty()):
            print(f"{section.title}. {section.method}", *_lines(section.figures), *_rows(section), sep="\n")
        return 0
    report = evaluate(settings, progress=sys.stderr.isatty())
    print(*_lines(report.judged()), sep="\n")
    print(f"{args.out / REPORT_JSON}\n{args.out / REPORT_HTML}")
    return 0


def _lines(figures: Iterable[Figure]) -> Iterable[str]:
    """One line per figure: name, value and interval; where there is a bar, that and the verdict."""
    verdicts = {True: "met", False: "MISSED", None: "not measured"}
    for figure in figures:
        verdict = verdicts[figure.met] if figure.has_bar else ""
        yield f"{figure.name:32} {figure.shown:36} {figure.bar_shown:18} {verdict}".rstrip()


def _rows(section: SectionReport) -> Iterable[str]:
    """The section's tables, a line per row."""
    for table in section.tables:
        yield f"{table.title} ({', '.join(table.columns)}):"
        yield from (f"  {', '.join(map(str, row))}" for row in table.rows)
