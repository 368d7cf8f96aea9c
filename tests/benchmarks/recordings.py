"""How many real recordings `locate` names right: notes of twenty instruments that no bundle here learnt from.

Examples:
    python tests/benchmarks/recordings.py                       the bundle that ships
    python tests/benchmarks/recordings.py runs/cpu/bundle default

The recordings are the tonejs-instrument packages of npm (by N. Brosowsky: VSCO 2, Karoryfer, freesound and
the University of Iowa's guitar), fetched into a temporary folder, or once into that of --folder; those at
MIDI 33 to 96 count, 414. Right is an instrument of the kind, as listed below. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

sys.path.pop(0)  # this folder, whose profile.py would stand before Python's own

import numpy as np
import soundfile

from timbrel_bundle.bundle import Bundle
from timbrel_bundle.errors import BundleError
from timbrel_bundle.timbre_encoder import TimbreEncoder
from timbrel_export.bundle_folder import bundle_path

MUSESCORE = " of MuseScore General"
RIGHT = {
    "bass-electric": "Electric Bass (finger), Electric Bass (pick), Finger Bass",
    "bassoon": "Bassoon",
    "cello": f"Cello, Cello{MUSESCORE}",
    "clarinet": "Clarinet",
    "contrabass": f"Contrabass, Contrabass{MUSESCORE}",
    "flute": "Flute",
    "french-horn": "French Horn",
    "guitar-acoustic": "Acoustic Guitar (steel), Acoustic Guitar (nylon), "
    f"Acoustic Guitar (steel){MUSESCORE}",
    "guitar-electric": "Electric Guitar (jazz), Electric Guitar (clean), Electric Guitar (muted), "
    f"Overdriven Guitar, Overdriven Guitar{MUSESCORE}, Distortion Guitar, Distortion Guitar{MUSESCORE}",
    "guitar-nylon": "Acoustic Guitar (nylon)",
    "harmonium": "Reed Organ",
    "harp": "Orchestral Harp",
    "organ": "Church Organ",
    "piano": "Acoustic Grand Piano, Bright Acoustic Piano, Salamander Grand Piano, Piano String, "
    f"Acoustic Grand Piano{MUSESCORE}, Bright Acoustic Piano{MUSESCORE}",
    "saxophone": "Soprano Sax, Alto Sax, Baritone Sax",
    "trombone": "Trombone",
    "trumpet": "Trumpet",
    "tuba": "Tuba",
    "violin": f"Violin, Fiddle, Fiddle{MUSESCORE}",
    "xylophone": "Xylophone",
}
"""Package: names on the map that count as right."""
NOTES = ("C", "Cs", "D", "Ds", "E", "F", "Fs", "G", "Gs", "A", "As", "B")
LOWEST, HIGHEST = 33, 96
"""Pitches that bundles of the GM range have."""


def main(arguments: argparse.Namespace) -> None:
    """Prints a table for each bundle, then one line of JSON."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.folder or Path(temporary)
        fetch(folder)
        try:
            found = {name: measure(bundle_path(Path(name)), folder) for name in arguments.bundles}
        except BundleError as error:
            sys.exit(str(error))
    print(json.dumps(found))


def fetch(folder: Path) -> None:
    """Fetches what is missing of the packages by npm."""
    if shutil.which("npm") is None:
        sys.exit("the recordings are fetched by npm: apt-get install npm")
    folder.mkdir(parents=True, exist_ok=True)
    for kind in RIGHT:
        if not (folder / kind).is_dir():
            name = f"tonejs-instrument-{kind}-mp3"
            packed = subprocess.run(
                ["npm", "pack", "--silent", name], cwd=folder, check=True, capture_output=True, text=True
            )
            archive = folder / packed.stdout.split()[-1]
            with tarfile.open(archive) as package:
                package.extractall(folder / f"{kind}.part", filter="data")
            archive.unlink()
            (folder / f"{kind}.part").rename(folder / kind)


def measure(bundle_folder: Path, folder: Path) -> dict[str, float]:
    """Returns percentages of recordings: named right first, among three, said to be near nothing."""
    bundle = Bundle.open(bundle_folder)
    if bundle.timbre_references is None:
        sys.exit(f"{bundle_folder}: has no references, by which instruments are named")
    encoder = TimbreEncoder(bundle, n_threads=1)
    names = [point.instrument for point in bundle.timbre_map.points]
    rows = []
    print(f"{bundle_folder}\n{'':16} notes  first  among three  near nothing")
    for kind, right in RIGHT.items():
        own = []
        for path in sorted((folder / kind).rglob("*.mp3")):
            note = re.match(r"([A-G]s?)(\d)", path.stem)
            if note and LOWEST <= NOTES.index(note[1]) + 12 * (int(note[2]) + 1) <= HIGHEST:
                heard = encoder.hear(*soundfile.read(path, dtype="float32"))
                assert heard.shares is not None
                hits = [names[i] in right.split(", ") for i in np.argsort(-heard.shares)[:3]]
                own.append((hits[0], any(hits), not heard.near))
        print(f"{kind:16} {len(own):5}  {'  '.join(f'{100 * each:9.0f}' for each in np.mean(own, axis=0))}")
        rows += own
    first, three, nothing = (100 * np.mean(rows, axis=0)).round(1).tolist()
    return {"recordings": len(rows), "first": first, "among_three": three, "near_nothing": nothing}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "bundles", nargs="*", default=["default"], help="bundle folders; `default` is the one that ships"
    )
    parser.add_argument("--folder", type=Path, help="where the recordings are kept for another run")
    main(parser.parse_args())
