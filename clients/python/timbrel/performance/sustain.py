"""A rendered note made ready for the mix: where its attack is, and how it is held for longer than it was."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from timbrel.library.finish.loop import (
    BEFORE_RELEASE_SECONDS,
    STEADY_SECONDS,
    STEADY_SHARE,
    Loop,
    LoopedSound,
    as_held,
    find_loop,
)
from timbrel.library.render.level import LEAD_IN_SECONDS, SILENCE_DB, Audio, envelope, rms_db, trim
from timbrel.note import Note

ATTACK_DB = -20.0
"""The attack is where a note first comes this near to the loudest moment of its beginning: what precedes it
is breath, bow or the codec's first frame."""

BEGINNING_SECONDS = 0.25
"""A note that swells afterwards still began when it began."""

EARLIEST_SECONDS = 0.008
"""How long before its attack a note may be heard: what rises for longer begins on time and is loud later, as
it would be under a player's hands."""


@dataclass(frozen=True)
class TrimmedNote:
    """A note's sound from just before its attack until it has died away."""

    audio: Audio
    """[samples]"""

    attack: int
    """The sample that belongs at the note's time in the score."""

    released: int
    """The sample at which the key was let go; beyond the end for a sound that had died away before."""

    sample_rate: int

    removed: int = 0
    """Samples that were cut from its beginning; negative where there is silence before it."""

    @classmethod
    def of(cls, note: Note, audio: Audio | None = None, held: float | None = None) -> TrimmedNote:
        """Trims a note's sound and finds its attack; the sound and the seconds held may be given instead."""
        rate = note.sample_rate
        trimmed = trim(note.audio if audio is None else audio, rate, note.truncated)
        released = round((note.seconds if held is None else held) * rate) - trimmed.removed
        return cls(trimmed.audio, find_attack(trimmed.audio, rate), released, rate, trimmed.removed)

    def seconds(self) -> npt.NDArray[np.float64]:
        """When each sample is heard, from the attack on: negative before."""
        return (np.arange(len(self.audio)) - self.attack) / self.sample_rate

    @property
    def attack_seconds(self) -> float:
        """Seconds of the note as it was decoded, until its attack."""
        return (self.removed + self.attack) / self.sample_rate


def find_attack(audio: Audio, sample_rate: int) -> int:
    """Where audio [samples], trimmed to its onset, has its attack."""
    beginning = envelope(audio[: round(BEGINNING_SECONDS * sample_rate)], sample_rate)
    loudest = float(beginning.max(initial=0.0))
    if loudest <= 0.0:
        return 0
    attack = int(np.argmax(beginning >= loudest * 10.0 ** (ATTACK_DB / 20.0)))
    return min(attack, round((LEAD_IN_SECONDS + EARLIEST_SECONDS) * sample_rate))


DEAD_DB = 60.0
"""A sound this far below its start when its key is let go has rung out: there is nothing to lengthen."""

JOIN_SECONDS = 0.04
"""Crossfade from the loop into the release."""

RELEASE_PLAY_SECONDS = 0.015
"""A release may come this much earlier or later, for its waveform to fit the loop's: a period of 33 Hz and
more, and nothing that is heard."""


class Sustain:
    """One note, to be lengthened by as much as each of its places in a piece asks for.

    The loop lies in the held part and falls in level as that did, so that plucked strings ring on and bowed
    ones last. The release is the note's own, at the level that the loop has come to.
    """

    def __init__(self, note: TrimmedNote) -> None:
        self._note = note
        self._n_join = round(JOIN_SECONDS * note.sample_rate)
        # A sound that ends with its hold has no release but the fade of its end.
        self._released = max(0, min(note.released, len(note.audio) - self._n_join))
        self._held = note.audio[: self._released]

    def lengthened(self, n_samples: int) -> TrimmedNote | None:
        """The note with its key held for so many samples more, at least 0; as it is where it has rung out.

        None where no loop is found that cannot be heard.
        """
        if self._has_rung_out():
            return self._note
        if self._loop is None:
            return None
        rate = self._note.sample_rate
        play = round(RELEASE_PLAY_SECONDS * rate)
        held = as_held(self._loop.audio, self._loop.loop, self._released + n_samples + play)
        body = _faded(held, self._decay, rate)
        fall = 10.0 ** (-self._decay * n_samples / rate / 20.0)
        release = (self._note.audio[self._released - self._n_join :] * fall).astype(np.float32)
        audio, place = _joined(body, release, self._n_join, 2 * play)
        return replace(self._note, audio=audio, released=place)

    def lengthened_frames(
        self, note: Note, n_extra: int, frame_rate: float
    ) -> npt.NDArray[np.signedinteger[Any]]:
        """The same where a codec's codes say how a sound goes on: the frames of them to decode, [frames], for
        the key to be held for `n_extra` more. What dies goes on dying as if it were held; what trembles goes
        round the loop, or stays as it was last where there is none."""
        every = np.arange(len(note.codes))
        if n_extra == 0 or self._has_rung_out():
            return every
        hop = round(note.sample_rate / frame_rate)
        n_lead = len(every) - len(note.audio) // hop  # frames that hold no sound
        loop = self._loop.loop if self._loop else Loop(self._released, self._released)
        start, end, released = (
            min(max(round((place + self._note.removed) / hop) + n_lead, 0), len(every))
            for place in (loop.start, loop.end + 1, self._released)
        )
        end = max(end, 1)
        start = min(start, end - 1)
        held = np.arange(released + n_extra)
        looped = np.where(held < end, held, start + (held - start) % (end - start))
        return np.concatenate([looped, every[released:]])

    def _has_rung_out(self) -> bool:
        """Whether the note has died away before it is let go."""
        quarter = len(self._held) // 4
        if quarter == 0 or self._note.released - self._released > 2 * self._n_join:
            return True
        first, last = rms_db(self._held[:quarter]), rms_db(self._held[-quarter:])
        return last < max(first - DEAD_DB, SILENCE_DB + 1.0)

    @cached_property
    def _decay(self) -> float:
        """The fall while it is held, in dB a second from its second quarter to its last; not below 0."""
        quarter = len(self._held) // 4
        drop = rms_db(self._held[quarter : 2 * quarter]) - rms_db(self._held[3 * quarter : 4 * quarter])
        return max(0.0, drop * self._note.sample_rate / (2 * quarter))

    @cached_property
    def _loop(self) -> LoopedSound | None:
        """The best loop of the held part, its decay undone."""
        rate = self._note.sample_rate
        begin = max(round(STEADY_SHARE * len(self._held)), round(STEADY_SECONDS * rate))
        stop = len(self._held) - round(BEFORE_RELEASE_SECONDS * rate)
        return find_loop(_faded(self._held, -self._decay, rate), rate, begin, stop)


def _faded(audio: Audio, decay: float, sample_rate: int) -> Audio:
    """The sound falling by so many dB a second, or rising where that is negative."""
    gains = np.arange(len(audio), dtype=np.float64)  # changed in place: the sound may be minutes long
    gains *= -decay / 20.0 / sample_rate
    np.power(10.0, gains, out=gains)
    gains *= audio
    return gains.astype(np.float32)


def _joined(body: Audio, release: Audio, n_join: int, play: int) -> tuple[Audio, int]:
    """The body turning into the release within its last `n_join` samples, or up to `play` before, where the
    two are most alike; and where the release then begins."""
    likeness = np.correlate(body[len(body) - play - n_join :], release[:n_join], mode="valid")
    place = len(body) - play + int(np.argmax(likeness))
    share = np.linspace(0.0, 1.0, n_join, dtype=np.float32)
    joint = (1.0 - share) * body[place - n_join : place] + share * release[:n_join]
    return np.concatenate([body[: place - n_join], joint, release[n_join:]]), place
