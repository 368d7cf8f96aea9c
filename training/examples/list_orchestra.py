"""Lists the recordings of `swesterfeld/spectmorph-instruments` for timbrel, in a CSV file beside them.

    make instruments/orchestra    # fetches them and runs this

Single notes of strings, woodwinds and brass by the University of Iowa, in the public domain, and sung vowels
under CC0. Left out is what the map of the bundle that ships has no name for.
"""

from __future__ import annotations

import argparse
import csv
import sys
from pathlib import Path
from xml.etree import ElementTree

INSTRUMENTS = {
    "alto-flute": "Flute",
    "alto-saxophone": "Alto Sax",
    "bass-clarinet": "Clarinet",
    "bass-trombone": "Trombone",
    "bassoon": "Bassoon",
    "cello": "Cello",
    "clarinet": "Clarinet",
    "claudia-ah": "Choir Aahs",
    "claudia-oh": "Voice Oohs",
    "double-bass": "Contrabass",
    "french-horn": "French Horn",
    "mirko-ah": "Choir Aahs",
    "mirko-oh": "Voice Oohs",
    "oboe": "Oboe",
    "soprano-saxophone": "Soprano Sax",
    "sven-ah": "Choir Aahs",
    "sven-oh": "Voice Oohs",
    "tenor-trombone": "Trombone",
    "trumpet": "Trumpet",
    "violin": "Violin",
}
"""Folder of the collection: name on the map."""


def main(folder: Path) -> None:
    """Writes folder/notes.csv: file, pitch, instrument."""
    rows = []
    for name, instrument in INSTRUMENTS.items():
        table = folder / name / "instrument.xml"
        if not table.is_file():
            sys.exit(f"{table}: no such file; {Path(__file__).name} says how to fetch it")
        for sample in ElementTree.parse(table).iter("sample"):
            rows.append((f"{name}/{sample.attrib['filename']}", sample.attrib["midi_note"], instrument))
    with (folder / "notes.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("file", "pitch", "instrument"), *rows])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    main(parser.parse_args().folder)
