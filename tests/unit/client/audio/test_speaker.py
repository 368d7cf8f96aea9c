"""The loudspeaker: what is said where there is none, and what a device is handed where there is one."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from timbrel import MissingExtraError, Note, TimbrelError
from timbrel.audio.speaker import SpeakerError, play

TONE = np.sin(np.arange(800) * 0.3).astype(np.float32)


def make_note() -> Note:
    return Note((0.5, 0.0), 60, 100, 1.0, 7, False, np.zeros((4, 2), np.uint16), 8000, lambda codes: TONE)


class _Device(ModuleType):
    """Stands in for sounddevice, which needs hardware."""

    class PortAudioError(Exception):
        pass

    def __init__(self, failure: BaseException | None = None) -> None:
        super().__init__("sounddevice")
        self.calls: list[Any] = []
        self._failure = failure

    def play(self, audio: np.ndarray[Any, Any], sample_rate: int) -> None:
        self.calls.append((audio, sample_rate))
        if isinstance(self._failure, self.PortAudioError):
            raise self._failure

    def wait(self) -> None:
        self.calls.append("wait")
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        self.calls.append("stop")


@pytest.mark.parametrize(("wait", "after"), [(True, ["wait"]), (False, [])])
def test_the_sound_goes_to_the_device_at_its_rate(
    monkeypatch: pytest.MonkeyPatch, wait: bool, after: list[str]
) -> None:
    device = _Device()
    monkeypatch.setitem(sys.modules, "sounddevice", device)
    make_note().play(wait=wait)
    (audio, rate), *rest = device.calls
    assert audio is TONE and rate == 8000 and rest == after


def test_an_interrupt_stops_the_sound(monkeypatch: pytest.MonkeyPatch) -> None:
    device = _Device(KeyboardInterrupt())
    monkeypatch.setitem(sys.modules, "sounddevice", device)
    with pytest.raises(KeyboardInterrupt):
        make_note().play()
    assert device.calls[-1] == "stop"


def test_no_device_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    device = _Device(_Device.PortAudioError("Error querying device -1"))
    monkeypatch.setitem(sys.modules, "sounddevice", device)
    with pytest.raises(SpeakerError, match=r"no sound device .* 8000 Hz \(Error querying device -1\)"):
        play(TONE, 8000)


def test_without_the_extra_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sounddevice", None)
    with pytest.raises(MissingExtraError, match=r"timbrel\[speaker\]"):
        make_note().play()


def test_on_a_machine_without_sound_it_is_an_error_of_ours_or_it_plays() -> None:
    """Whatever is installed here: no other exception comes out."""
    try:
        play(np.zeros(80, np.float32), 8000)
    except TimbrelError as error:
        assert "\n" not in str(error)
