"""Writes 24 samples of an instrument that no bundle knows, as a musician might record them.

    python training/examples/make_samples.py samples

Two-operator FM with a modulator at three times the pitch (harmonics 1, 2, 4, 5, 7, 8, ...: every third one is
missing), brighter when played harder, held for a second and a half; twelve pitches, two velocities.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import soundfile
from numpy.typing import NDArray

SAMPLE_RATE = 44_100
PITCHES = range(40, 88, 4)
VELOCITIES = (50, 110)
HELD_SECONDS = 1.5
RELEASE_SECONDS = 0.06
TAIL_SECONDS = 0.5


def main(folder: Path) -> None:
    """Writes the samples as folder/reed_040_v050.wav and so on."""
    folder.mkdir(parents=True, exist_ok=True)
    for pitch in PITCHES:
        for velocity in VELOCITIES:
            audio = fm_note(pitch, velocity)
            soundfile.write(folder / f"reed_{pitch:03d}_v{velocity:03d}.wav", audio, SAMPLE_RATE)


def fm_note(pitch: int, velocity: int, sample_rate: int = SAMPLE_RATE) -> NDArray[np.float32]:
    """One note, float32 [samples]."""
    time = np.arange(int((HELD_SECONDS + TAIL_SECONDS) * sample_rate)) / sample_rate
    turn = 2 * np.pi * 440.0 * 2.0 ** ((pitch - 69) / 12) * time
    index = (0.4 + 1.8 * velocity / 127) * (0.6 + 0.4 * np.exp(-time / 0.3))
    rise = 1.0 - np.exp(-time / 0.015)
    fall = np.exp(-np.maximum(time - HELD_SECONDS, 0.0) / RELEASE_SECONDS)
    audio: NDArray[np.float32] = np.sin(turn + index * np.sin(3 * turn)) * rise * fall
    return (0.5 * (velocity / 127) ** 0.8 * audio).astype(np.float32)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    main(parser.parse_args().folder)
