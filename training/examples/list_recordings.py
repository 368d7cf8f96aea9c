"""Lists free collections of recordings for timbrel, in a CSV file beside them.

    make players    # fetches them and runs this

The first is `swesterfeld/spectmorph-instruments`: single notes of strings, woodwinds and brass by the
University of Iowa, in the public domain, and sung vowels under CC0. The second is
`jurihock/philharmonia`: notes by players of the Philharmonia Orchestra at all dynamics, CC BY-SA 3.0, free
for any use but to be sold or given away as samples. The third, within
`trietngo/CS7990-Thesis-AirTrumpet-Python`, is a trumpet by the Music Technology Group of the Universitat
Pompeu Fabra, CC BY 4.0. Left out is what the map of the bundle that
ships has no name for, and what is played in a special way.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

IOWA = {
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
PHILHARMONIA = {
    "brass/french horn": "French Horn",
    "brass/trombone": "Trombone",
    "brass/trumpet": "Trumpet",
    "brass/tuba": "Tuba",
    "strings/banjo": "Banjo",
    "strings/cello": "Cello",
    "strings/double bass": "Contrabass",
    "strings/guitar": "Acoustic Guitar (nylon)",
    "strings/violin": "Violin",
    "woodwind/bass clarinet": "Clarinet",
    "woodwind/bassoon": "Bassoon",
    "woodwind/clarinet": "Clarinet",
    "woodwind/cor anglais": "English Horn",
    "woodwind/flute": "Flute",
    "woodwind/oboe": "Oboe",
    "woodwind/saxophone": "Alto Sax",
}
"""The same of the other one."""
PLAYED = {"normal": None, "arco-normal": None, "pizz-normal": "Pizzicato Strings"}
"""Articulation: name on the map, where it is not the instrument's."""
DYNAMICS = {
    "pianissimo": 30,
    "piano": 50,
    "mezzo-piano": 65,
    "mezzo-forte": 80,
    "forte": 100,
    "fortissimo": 120,
}

TRUMPET = "data/sample_sounds"
"""Where the third one's files lie."""

Row = tuple[str, str, int, str]
"""File, pitch, velocity, instrument."""


def main(folder: Path) -> None:
    """Writes folder/notes.csv: file, pitch, velocity, instrument."""
    if (folder / TRUMPET).is_dir():
        rows = list(trumpet(folder))
    else:
        rows = list(philharmonia(folder) if (folder / "data").is_dir() else iowa(folder))
    with (folder / "notes.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("file", "pitch", "velocity", "instrument"), *rows])


def iowa(folder: Path) -> Iterator[Row]:
    """Lists what each instrument's description names."""
    for name, instrument in IOWA.items():
        table = folder / name / "instrument.xml"
        if not table.is_file():
            sys.exit(f"{table}: no such file; {Path(__file__).name} says how to fetch it")
        for sample in ElementTree.parse(table).iter("sample"):
            yield f"{name}/{sample.attrib['filename']}", sample.attrib["midi_note"], 100, instrument


def philharmonia(folder: Path) -> Iterator[Row]:
    """Lists files named cello_As3_1_forte_arco-normal.mp3: note, seconds, dynamics, articulation."""
    for name, instrument in PHILHARMONIA.items():
        for path in sorted((folder / "data" / name).glob("*.mp3")):
            parts = path.stem.split("_")[1:]
            if len(parts) != 4:
                continue
            note, seconds, dynamics, articulation = parts
            is_one = path.stat().st_size > 0 and seconds != "phrase"
            if is_one and dynamics in DYNAMICS and articulation in PLAYED:
                name_played = PLAYED[articulation] or instrument
                yield str(path.relative_to(folder)), note.replace("s", "#"), DYNAMICS[dynamics], name_played


def trumpet(folder: Path) -> Iterator[Row]:
    """Lists files named 357485__mtg__trumpet-csharp4.wav."""
    for path in sorted((folder / TRUMPET).glob("*__trumpet-*.wav")):
        yield str(path.relative_to(folder)), path.stem.rpartition("-")[2], 100, "Trumpet"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    main(parser.parse_args().folder)
