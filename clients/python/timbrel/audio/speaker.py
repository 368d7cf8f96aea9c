"""This machine's loudspeaker, by sounddevice and the system's PortAudio."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from timbrel.errors import MissingExtraError, TimbrelError

EXTRA = "speaker"


class SpeakerError(TimbrelError):
    """A sound cannot be played on this machine: no PortAudio, or no device that takes it."""


def play(audio: npt.NDArray[np.float32], sample_rate: int, *, wait: bool = True) -> None:
    """Plays audio, and stops what was played before.

    Args:
        audio: [samples] or [samples, channels], full scale at 1.
        sample_rate: its samples per second.
        wait: return when it is over; an interrupt (Ctrl-C) stops it. Otherwise return at once.

    Raises:
        MissingExtraError: sounddevice, which the speaker extra brings, is not installed.
        SpeakerError: the system has no PortAudio, or no device for sound.
    """
    device = _sounddevice()
    try:
        device.play(audio, sample_rate)
        if wait:
            device.wait()
    except KeyboardInterrupt:
        device.stop()
        raise
    except device.PortAudioError as error:
        reason = " ".join(str(error).split())
        raise SpeakerError(f"no sound device plays this at {sample_rate} Hz ({reason})") from None


def _sounddevice() -> Any:
    try:
        import sounddevice
    except ImportError as error:
        raise MissingExtraError("playing on the loudspeaker", EXTRA) from error
    except OSError:
        raise SpeakerError(
            "playing on the loudspeaker needs the system's PortAudio (Debian: apt-get install libportaudio2)"
        ) from None
    return sounddevice
