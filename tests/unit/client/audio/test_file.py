from __future__ import annotations

import io
import subprocess
import sys
import tempfile
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import soundfile

from timbrel import InvalidRequestError
from timbrel.audio.file import (
    audio_bytes,
    check_audio_path,
    check_audio_target,
    resampled,
    write_audio,
)
from timbrel.audio.ogg import SERIAL, checksum, with_fixed_serial
from timbrel_bundle.errors import AudioError

RATE = 48_000

STEREO = np.stack(
    [0.5 * np.sin(np.arange(RATE) * 0.05), 0.25 * np.sin(np.arange(RATE) * 0.07)], axis=1
).astype(np.float32)


@pytest.mark.parametrize("ending", [".wav", ".flac", ".ogg"])
def test_stereo_keeps_its_sides_and_equal_sounds_make_equal_files(tmp_path: Path, ending: str) -> None:
    one = write_audio(tmp_path / f"one{ending}", STEREO, RATE)
    other = write_audio(tmp_path / f"other{ending}", STEREO, RATE)
    assert one.read_bytes() == other.read_bytes()
    audio, rate = soundfile.read(one, always_2d=True)
    assert rate == RATE and audio.shape == STEREO.shape
    for side, written in zip(STEREO.T, audio.T, strict=True):
        assert np.corrcoef(side, written)[0, 1] > 0.999
        assert np.std(written) == pytest.approx(np.std(side), rel=0.02)


def test_a_long_ogg_is_written() -> None:
    """libsndfile's Vorbis encoder overflows its stack where it gets minutes at once."""
    n_samples = 6_000_000
    file = io.BytesIO(audio_bytes(np.zeros(n_samples, np.float32), RATE, ".ogg"))
    assert soundfile.info(file).frames == n_samples


def test_ogg_pages_carry_the_fixed_serial_and_their_own_checksum() -> None:
    content = audio_bytes(STEREO, RATE, ".ogg")
    start = n_pages = 0
    while start < len(content):
        count = content[start + 26]
        end = start + 27 + count + sum(content[start + 27 : start + 27 + count])
        page = content[start:end]
        assert page[:4] == b"OggS" and int.from_bytes(page[14:18], "little") == SERIAL
        assert int.from_bytes(page[22:26], "little") == checksum(page[:22] + bytes(4) + page[26:])
        start, n_pages = end, n_pages + 1
    assert n_pages > 2 and with_fixed_serial(content) == content


def test_the_checksum_is_the_one_that_libogg_writes() -> None:
    """A page as the library wrote it, before anything was changed."""
    content = io.BytesIO()
    soundfile.write(content, STEREO, RATE, format="OGG", subtype="VORBIS")
    raw = content.getvalue()
    count = raw[26]
    page = raw[: 27 + count + sum(raw[27 : 27 + count])]
    assert int.from_bytes(page[22:26], "little") == checksum(page[:22] + bytes(4) + page[26:])


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
    with pytest.raises(AudioError, match="65537"):
        check_audio_target(tmp_path / "a.flac", 65_537)
    with pytest.raises(InvalidRequestError, match="sample_rate"):
        check_audio_target(tmp_path / "a.wav", 1)
    assert list(tmp_path.iterdir()) == []


AS_NOBODY = """
import os, sys
from timbrel.audio.file import check_audio_path
if os.geteuid() == 0:  # who may write anywhere
    os.setuid(65534)
check_audio_path(sys.argv[1])
"""


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
