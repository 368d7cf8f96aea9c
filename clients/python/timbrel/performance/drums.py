"""Drums, which timbrel has none of: those of a piece, played by FluidSynth with a SoundFont."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import soundfile

from timbrel.errors import TimbrelError, refusal
from timbrel.performance.mix import RAMP_SECONDS, Stereo

PROGRAM = "fluidsynth"
GAIN = 0.8
"""FluidSynth's gain at which a General MIDI font's piano is as loud as timbrel's."""

DRUMS = 9
"""The channel, counted from 0, on which FluidSynth has kits."""

TICKS_A_SECOND = 2000
TAIL_SECONDS = 3.0
"""Cymbals ring on for so long behind the last event."""


class DrumsError(TimbrelError):
    """FluidSynth is missing, or cannot play the drums."""


def check_drums(font: Path) -> None:
    """Says early what can be said without playing. Raises InvalidRequestError: the file is no SoundFont;
    DrumsError: FluidSynth is not installed."""
    try:
        with font.open("rb") as file:
            head = file.read(12)
    except OSError as error:
        raise refusal("drums", f"{font}: {(error.strerror or 'it cannot be read').lower()}") from None
    if head[:4] != b"RIFF" or head[8:] != b"sfbk":
        raise refusal("drums", f"{font} is no SoundFont; a .sf2 or .sf3 file is needed")
    if shutil.which(PROGRAM) is None:
        raise DrumsError(
            "drums want FluidSynth, which is not installed (Debian: apt-get install fluidsynth; "
            "macOS: brew install fluid-synth; Windows: choco install fluidsynth); without --drums they are "
            "left out"
        )


def play_drums(events: Sequence[tuple[float, Any]], font: Path, sample_rate: int) -> Stereo:
    """The sound [samples, 2] of the messages of channels with drums, (seconds, mido message) by time, until
    it has died away. Raises DrumsError: FluidSynth cannot load the font, finds no kit in it, or fails."""
    mix = np.zeros((0, 2), dtype=np.float32)
    for channel in sorted({message.channel for _, message in events}):  # one at a time: they may be long
        kit = _play_kit([event for event in events if event[1].channel == channel], font, sample_rate)
        longer, shorter = (kit, mix) if len(kit) > len(mix) else (mix, kit)
        longer[: len(shorter)] += shorter
        mix = longer
    return mix


def _play_kit(events: Sequence[tuple[float, Any]], font: Path, sample_rate: int) -> Stereo:
    """The sound of one channel, as of General MIDI's channel of drums."""
    import mido

    file = mido.MidiFile(type=0, ticks_per_beat=TICKS_A_SECOND)
    track = file.add_track()
    track.append(mido.MetaMessage("set_tempo", tempo=1_000_000))
    now = 0
    for seconds, message in events:
        tick = round(seconds * TICKS_A_SECOND)
        track.append(message.copy(time=tick - now, channel=DRUMS))
        now = tick
    track.append(mido.MetaMessage("end_of_track", time=round(TAIL_SECONDS * TICKS_A_SECOND)))
    with TemporaryDirectory(prefix="timbrel-drums-") as folder:
        score, sound = Path(folder) / "drums.mid", Path(folder) / "drums.wav"
        file.save(score)
        command = [PROGRAM, "-n", "-i", "-q", "-R", "0", "-C", "0", "-g", str(GAIN), "-r", str(sample_rate)]
        # Nor is it to do what its user has it do at its start: to load other fonts, or to be louder.
        # FluidSynth 2.6 reads that beside what -f names.
        homes = dict.fromkeys(("HOME", "XDG_CONFIG_HOME", "USERPROFILE"), folder)
        command += ["-f", os.devnull, "-O", "float", "-T", "wav", "-F", str(sound)]
        command += [str(font.resolve()), str(score)]
        ended = subprocess.run(
            command,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            check=False,
            env={**os.environ, **homes},
        )
        told = [line for line in ended.stderr.splitlines() if line.startswith("fluidsynth:")]
        trouble = " ".join(" ".join(told).split())  # without what the system's sound says beside it
        # It goes on, and ends well, where the disk is full.
        failed = ended.returncode or any(each in trouble for each in ("Failed to load", "write error"))
        if failed or not sound.is_file():
            raise DrumsError(
                f"FluidSynth cannot play the drums with {font}: {trouble[:200] or 'it says nothing'}"
            )
        audio, _ = soundfile.read(sound, dtype="float32", always_2d=True)
    heard = np.flatnonzero(audio.any(axis=1))  # FluidSynth itself goes on for seconds of silence
    if not len(heard) and "No preset found" in trouble:
        raise DrumsError(f"{font} has no drum kit: FluidSynth looks for one in bank 128")
    return np.asarray(audio[: heard[-1] + 1 if len(heard) else 0])


def at_volume(sound: Stereo, volume_db: Sequence[tuple[float, float]], sample_rate: int) -> Stereo:
    """A sound [samples, 2] with a volume that changes, in place: (seconds, dB from then on). A step is a ramp
    before it, as of a channel's faders."""
    steps = [(seconds, decibels) for seconds, decibels in volume_db if seconds * sample_rate < len(sound)]
    places = [round(max(0.0, seconds * sample_rate)) for seconds, _ in steps]
    gains = np.array([10.0 ** (decibels / 20.0) for _, decibels in steps], dtype=np.float32)
    following = zip([*places[1:], len(sound)], [*gains[1:], *gains[-1:]], strict=True)
    for begin, gain, (end, next_gain) in zip(places, gains, following, strict=True):
        steady = max(begin, end - round(RAMP_SECONDS * sample_rate))
        if gain != 1.0:
            sound[begin:steady] *= gain
        sound[steady:end] *= np.linspace(gain, next_gain, end - steady, dtype=np.float32)[:, np.newaxis]
    return sound
