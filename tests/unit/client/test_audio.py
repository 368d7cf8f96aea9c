"""Sound files, and the loudspeaker: what is said where there is none, and what a device is handed."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tempfile
import tracemalloc
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import soundfile

from timbrel import InvalidRequestError, MissingExtraError, Note, TimbrelError
from timbrel.audio import (
    SpeakerError,
    audio_bytes,
    check_audio_path,
    check_audio_target,
    play,
    resampled,
    write_audio,
)
from timbrel_bundle.errors import AudioError

RATE = 48_000

STEREO = np.stack(
    [0.5 * np.sin(np.arange(RATE) * 0.05), 0.25 * np.sin(np.arange(RATE) * 0.07)], axis=1
).astype(np.float32)


@pytest.mark.parametrize("ending", [".wav", ".flac", ".ogg"])
def test_stereo_keeps_its_sides_and_equal_sounds_make_equal_files(tmp_path: Path, ending: str) -> None:
    one = write_audio(tmp_path / f"one{ending}", STEREO, RATE)
    if ending != ".ogg":  # whose streams are numbered at random
        assert one.read_bytes() == audio_bytes(STEREO, RATE, ending)
    audio, rate = soundfile.read(one, always_2d=True)
    assert rate == RATE and audio.shape == STEREO.shape
    for side, written in zip(STEREO.T, audio.T, strict=True):
        assert np.corrcoef(side, written)[0, 1] > 0.999
        assert np.std(written) == pytest.approx(np.std(side), rel=0.02)


@pytest.mark.parametrize("ending", [".wav", ".flac", ".ogg"])
@pytest.mark.parametrize("shape", [(0,), (0, 2)])
def test_no_sound_is_a_file_that_can_be_read(ending: str, shape: tuple[int, ...]) -> None:
    """libsndfile writes a FLAC file of no samples as no bytes at all."""
    file = audio_bytes(np.zeros(shape, np.float32), RATE, ending)
    audio, rate = soundfile.read(io.BytesIO(file))
    assert len(audio) <= 1 and not audio.any() and rate == RATE and audio.shape[1:] == shape[1:]


def test_samples_are_rounded_to_24_bits_and_no_format_differs() -> None:
    """Rounded down, a note that has died away would be a level of its own, and no WAV file its FLAC file."""
    quiet = (STEREO * 2.0**-22).astype(np.float32)
    for sound in (STEREO, quiet):
        wav, flac = (
            soundfile.read(io.BytesIO(audio_bytes(sound, RATE, ending)), dtype="int32")[0] >> 8
            for ending in (".wav", ".flac")
        )
        np.testing.assert_array_equal(wav, np.rint(sound * 2.0**23))
        np.testing.assert_array_equal(wav, flac)


@pytest.mark.parametrize("ending", [".wav", ".flac", ".ogg"])
def test_sides_laid_out_the_other_way_are_named(ending: str) -> None:
    """libsndfile blames the sample rate, or ends the process."""
    with pytest.raises(
        AudioError, match=r"shape \[2, 300\] has 300 channels: \[samples, channels\] with 1 to 8"
    ):
        audio_bytes(np.zeros((2, 300), np.float32), RATE, ending)


def test_a_long_ogg_is_written() -> None:
    """libsndfile's Vorbis encoder overflows its stack where it gets minutes at once."""
    n_samples = 6_000_000
    file = io.BytesIO(audio_bytes(np.zeros(n_samples, np.float32), RATE, ".ogg"))
    assert soundfile.info(file).frames == n_samples


def test_resampling_keeps_both_sides_in_step() -> None:
    halved = resampled(STEREO, RATE, RATE // 2)
    assert halved.shape == (RATE // 2, 2)
    assert np.abs(halved[1000:-1000] - STEREO[2000:-2000:2]).max() < 1e-3
    assert resampled(STEREO, RATE, RATE) is STEREO


@pytest.mark.parametrize("audio", [np.zeros((2, 2, 2)), np.array([0.0, np.nan]), np.float32(1.0)])
def test_what_is_no_sound_is_refused(tmp_path: Path, audio: np.ndarray) -> None:
    with pytest.raises(AudioError):
        write_audio(tmp_path / "x.wav", audio, RATE)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("ending", [".wav", ".flac", ".ogg"])
def test_a_long_sound_is_not_held_twice(tmp_path: Path, ending: str) -> None:
    noise = np.random.default_rng(1).uniform(-1.0, 1.0, (2_000_000, 2)).astype(np.float32)
    tracemalloc.start()
    try:
        write_audio(tmp_path / f"long{ending}", noise, RATE)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1.1 * noise.nbytes  # the file's content, and a block


def test_a_target_is_tried_with_its_sample_rate(tmp_path: Path) -> None:
    assert check_audio_target(tmp_path / "a.wav", 65_537) == tmp_path / "a.wav"
    assert check_audio_target(tmp_path / "a.flac", None) == tmp_path / "a.flac"
    with pytest.raises(InvalidRequestError, match=r"65537 Hz is none that FLAC files can have"):
        check_audio_target(tmp_path / "a.flac", 65_537)
    with pytest.raises(InvalidRequestError, match="sample_rate"):
        check_audio_target(tmp_path / "a.wav", 1)
    assert list(tmp_path.iterdir()) == []


AS_NOBODY = """
import os, sys
from timbrel.audio import check_audio_path
if os.geteuid() == 0:  # who may write anywhere
    os.setuid(65534)
check_audio_path(sys.argv[1])
"""


@pytest.mark.skipif(os.name != "posix", reason="who may write where is POSIX's")
def test_a_folder_that_may_not_be_written_to_is_told_before() -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o555)
        command = [sys.executable, "-c", AS_NOBODY, f"{folder}/a.wav"]
        done = subprocess.run(command, capture_output=True, text=True)
    assert "may not be written to" in done.stderr, done.stderr


def test_paths_are_checked_before_there_is_a_sound(tmp_path: Path) -> None:
    assert check_audio_path(tmp_path / "a.OGG") == tmp_path / "a.OGG"
    for path in (tmp_path / "a.mp3", tmp_path / "none" / "a.wav", tmp_path):
        with pytest.raises(InvalidRequestError):
            check_audio_path(path)
    (tmp_path / "folder.wav").mkdir()
    with pytest.raises(InvalidRequestError, match="folder"):
        check_audio_path(tmp_path / "folder.wav")


TONE = np.sin(np.arange(800) * 0.3).astype(np.float32)


def make_note() -> Note:
    return Note((0.5, 0.0), 60, 100, 1.0, 7, False, np.zeros((4, 2), np.uint16), 8000, lambda *_: TONE)


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
