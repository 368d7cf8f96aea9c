"""A note, as a client hands it out, and as notebooks show it."""

from __future__ import annotations

import base64
import os
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from timbrel.audio import audio_bytes, play, write_audio
from timbrel.errors import TimbrelError
from timbrel_bundle.request_fields import Cents, TimbrePath, is_finite, is_unbent

Decode = Callable[[npt.NDArray[np.uint16], int, Cents], npt.NDArray[np.float32]]
"""codes [frames, codebooks], seed, cents -> audio [samples]"""


@dataclass(frozen=True, eq=False)
class Note:
    """One sounding of an instrument: what was asked for, the codes that came, and their sound.

    >>> note = client.generate("Violin", pitch=67, seconds=0.5, seed=1)
    >>> note.audio.shape == (round(note.duration * note.sample_rate),)
    True
    >>> note.save("note.flac")
    PosixPath('note.flac')

    Notes of the same request, codes and codec are equal.

        >>> note == client.generate("Violin", pitch=67, seconds=0.5, seed=1)
        True

    A note can be pickled, with its sound where that has been decoded; else whoever gets it decodes, with the
    same codec in the same cache.

    Attributes:
        timbre: the point (x, y) of the timbre map.
        pitch: MIDI note number.
        velocity: MIDI velocity.
        seconds: how long the key was held, in seconds; the release follows.
        seed: the same request with this seed gives the same codes, and the same codes with it the same
            sound.
        truncated: whether the note was cut at the bundle's cap, before it had ended.
        codes: uint16 [frames, codebooks], read-only, `model().frame_rate` frames a second. A codec's first
            frames may hold no sound, as the four of timbrel-notes, which come on top of the duration.
        sample_rate: audio samples per second.
        cents: how far from its pitch it sounds: a number, or points (seconds, cents).
        path: where its timbre goes: points (seconds, (x, y)); () where it stays.
    """

    timbre: tuple[float, float]
    pitch: int
    velocity: int
    seconds: float
    seed: int
    truncated: bool
    codes: npt.NDArray[np.uint16]
    sample_rate: int
    _decode: Decode = field(repr=False)
    cents: Cents = 0.0
    path: TimbrePath = ()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Note):
            return NotImplemented
        return self._same == other._same and np.array_equal(self.codes, other.codes)

    def __hash__(self) -> int:
        return hash((self.timbre, self.pitch, self.velocity, self.seconds, self.seed))

    @property
    def _same(self) -> tuple[object, ...]:
        """All fields but the codes."""
        return tuple(getattr(self, each.name) for each in fields(self) if each.name != "codes")

    def __repr__(self) -> str:
        x, y = self.timbre
        bent = "" if is_unbent(self.cents) else f"cents={self.cents}, "
        return (
            f"Note(timbre=({x:.3f}, {y:.3f}), pitch={self.pitch}, velocity={self.velocity}, "
            f"seconds={self.seconds:g}, seed={self.seed}, {bent}truncated={self.truncated}, "
            f"frames={len(self.codes)})"
        )

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        for name in {"codes", "audio"} & state.keys():
            state[name].flags.writeable = False  # which NumPy does not pickle

    @cached_property
    def audio(self) -> npt.NDArray[np.float32]:
        """The sound, float32 [samples], mono. Decoded when it is first asked for, and then kept, read-only:
        `audio.copy()` can be changed. Raises MissingExtraError: no ONNX runtime is installed."""
        audio = self._decode(self.codes, self.seed, self.cents)
        audio.flags.writeable = False
        return audio

    @property
    def duration(self) -> float:
        """Length of the sound in seconds, the release included."""
        return len(self.audio) / self.sample_rate

    def save(self, path: str | os.PathLike[str], sample_rate: int | None = None) -> Path:
        """Writes the sound to a .wav (24 bit), .flac (24 bit) or .ogg (Vorbis) file, whole or not at all.

            >>> note = client.generate("Violin", seconds=0.5, seed=1)
            >>> note.save("note.flac", sample_rate=44_100).name
            'note.flac'
            >>> in_memory = io.BytesIO()
            >>> soundfile.write(in_memory, note.audio, note.sample_rate, format="WAV")

        Equal notes make byte-identical files, but for the random number that an Ogg stream is given.

        Args:
            sample_rate: the file's samples per second, 8000 to 192000; by default the note's own.

        Returns:
            The path.

        Raises:
            InvalidRequestError: the file name ends in something else, or the sample rate is out of range.
            OSError: the file cannot be written.
        """
        return write_audio(path, self.audio, self.sample_rate, sample_rate)

    def play(self, *, wait: bool = True) -> None:
        """Plays the sound on this machine's loudspeaker.

            >>> note.play()  # doctest: +SKIP

        Args:
            wait: return when it is over, or at once.

        Raises:
            MissingExtraError: sounddevice, which the speaker extra brings, is not installed.
            SpeakerError: the system has no PortAudio, or no device for sound.
        """
        play(self.audio, self.sample_rate, wait=wait)

    def _repr_html_(self) -> str:
        """The note in a notebook: a player with the sound in it, the waveform, the facts."""
        audio: npt.NDArray[np.float32] | None = None
        try:
            audio = self.audio
            # FLAC, which every browser plays and which loses nothing.
            flac = base64.b64encode(audio_bytes(audio, self.sample_rate, ".flac")).decode("ascii")
            player = f'<audio controls preload="auto" style="width:100%" src="data:audio/flac;base64,{flac}">'
            sound = f"{waveform_svg(audio)}{player}</audio>"
        except TimbrelError as error:
            sound = f"<p>{escape(str(error))}</p>"
        rows = "".join(
            f'<span style="white-space:nowrap"><span style="opacity:.65">{escape(name)}</span>'
            f"&nbsp;{escape(value)}</span> "
            for name, value in self._facts(audio).items()
        )
        # One <div> that needs nothing else: no script, no file, no network.
        return (
            f'<div style="{_STYLE}"><div><strong>Note</strong></div>{sound}'
            f'<div style="font-size:90%;display:flex;flex-wrap:wrap;gap:.2em 1.2em">{rows}</div></div>'
        )

    def _facts(self, audio: npt.NDArray[np.float32] | None) -> dict[str, str]:
        x, y = self.timbre
        facts = {
            "timbre": f"({x:.3f}, {y:.3f})",
            "pitch": str(self.pitch),
            "velocity": str(self.velocity),
            "held": f"{self.seconds:g} s",
            "seed": str(self.seed),
            "codes": f"{self.codes.shape[0]} frames of {self.codes.shape[-1]}",
        }
        if not is_unbent(self.cents):
            facts["cents"] = f"{self.cents:g}" if is_finite(self.cents) else "a curve"
        if audio is not None and len(audio):
            peak = 20.0 * np.log10(max(float(np.abs(audio).max()), 1e-6))
            facts["sound"] = f"{len(audio) / self.sample_rate:.2f} s at {self.sample_rate} Hz"
            facts["peak"] = f"{peak:.1f} dBFS"
        if self.truncated:
            facts["cut"] = "at the bundle's cap"
        return facts


WIDTH, HEIGHT = 600, 80
"""Of the waveform, in its own units; it takes the page's width."""

N_COLUMNS = 300
"""Points along the waveform's outline."""

_STYLE = "font-family:system-ui,sans-serif;max-width:40em"


def waveform_svg(audio: npt.NDArray[np.float32]) -> str:
    """The outline of audio [samples] as inline SVG in the text's colour, scaled to its loudest moment."""
    lowest, highest = outline(audio, N_COLUMNS)
    peak = max(float(np.abs(audio).max(initial=0.0)), 1e-9)
    scale = (HEIGHT / 2 - 2) / peak
    x = np.linspace(0, WIDTH, len(highest))
    points = [
        *(f"{x:.1f},{HEIGHT / 2 - scale * y:.1f}" for x, y in zip(x, highest, strict=True)),
        *(f"{x:.1f},{HEIGHT / 2 - scale * y:.1f}" for x, y in zip(x[::-1], lowest[::-1], strict=True)),
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="waveform" preserveAspectRatio="none" '
        f'style="width:100%;height:{HEIGHT}px;display:block">'
        f'<line x1="0" y1="{HEIGHT / 2:g}" x2="{WIDTH}" y2="{HEIGHT / 2:g}" stroke="currentColor" '
        f'stroke-opacity="0.3"/>'
        f'<polygon points="{" ".join(points)}" fill="currentColor" fill-opacity="0.75"/></svg>'
    )


def outline(
    audio: npt.NDArray[np.float32], n_columns: int
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """The lowest and the highest sample of each of `n_columns` stretches: fewer for a shorter sound."""
    if len(audio) == 0:
        zero = np.zeros(1, dtype=np.float32)
        return zero, zero
    starts = np.unique(np.linspace(0, len(audio), n_columns, endpoint=False).astype(int))
    return np.minimum.reduceat(audio, starts), np.maximum.reduceat(audio, starts)
