"""`timbrel verify`: is a sound library whole, in tune and playable?"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from timbrel.library.verify import verify_library

FAULTY_STATUS = 1

_EXAMPLES = """\
examples:
  timbrel verify violin
  timbrel verify violin --json | jq ".faults[]"
  timbrel verify map --out-of-tune 0.02              up to 2 % of the samples may be out of tune
  timbrel verify violin && cp -r violin ~/samples/   the exit status is 0 only where nothing is wrong

Every file is opened, measured by two pitch trackers and compared with the manifest; the joints of loops
are measured; scales are played through sfizz (.sfz) and FluidSynth (.sf2), where these are installed, and
velocity layers are to meet. Exit status: 0 passed, 1 faults, 2 no library there.
"""


class VerifyCommand:
    """Checks a library and prints what is wrong with it."""

    help = "check a sound library: files, tuning, loops, references, a scale"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.description = "Checks a folder that `timbrel library` wrote."
        parser.epilog = _EXAMPLES
        parser.add_argument("folder", type=Path, metavar="DIR", help="the library")
        parser.add_argument(
            "--out-of-tune",
            type=float,
            default=0.0,
            metavar="SHARE",
            help="share of the samples that may be out of tune or have no pitch, 0..1 (default %(default)g)",
        )
        parser.add_argument("--no-scale", action="store_true", help="play nothing through samplers")
        parser.add_argument("--json", action="store_true", help="print one JSON object instead")

    def run(self, args: argparse.Namespace) -> int:
        report = verify_library(
            args.folder,
            out_of_tune_allowed=args.out_of_tune,
            scale=not args.no_scale,
            show_progress=not args.json,
        )
        print(json.dumps(report.to_json(), indent=2) if args.json else report.to_text())
        return 0 if report.passed else FAULTY_STATUS


command = VerifyCommand()
