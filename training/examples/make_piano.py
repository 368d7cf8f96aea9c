"""Writes the .sfz file of the Salamander Grand Piano, whose recordings npm has as one package for each layer.

    make instruments/salamander    # fetches them and runs this

Alexander Holm's recordings of a Yamaha C5, every third key in 16 layers of velocity, are under CC BY 3.0.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

N_LAYERS = 16
LOWEST, HIGHEST = 21, 108
STEP = 3
NAMES = ("C", "C#", "D", "D#", "E", "F", "F#", "G", "G#", "A", "A#", "B")
SOUND = "ampeg_release=0.4 amp_veltrack=70"
"""Dampers end a note within half a second; between its layers, velocity goes on to change the level."""


def main(folder: Path) -> None:
    """Writes folder/Salamander Grand Piano.sfz, for A0v1.ogg to C8v16.ogg beside it."""
    lines = [f"<global> {SOUND}"]
    for layer in range(N_LAYERS):
        low, high = 1 + 127 * layer // N_LAYERS, 127 * (layer + 1) // N_LAYERS
        lines.append(f"<group> lovel={low} hivel={high}")
        for pitch in range(LOWEST, HIGHEST + 1, STEP):
            sample = f"{NAMES[pitch % 12]}{pitch // 12 - 1}v{layer + 1}.ogg"
            if not (folder / sample).is_file():
                sys.exit(f"{folder / sample}: no such file; {Path(__file__).name} says how to fetch them")
            keys = f"lokey={pitch - 1} hikey={pitch + 1} pitch_keycenter={pitch}"
            lines.append(f"<region> sample={sample} {keys}")
    (folder / "Salamander Grand Piano.sfz").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    main(parser.parse_args().folder)
