"""Audio files are read to the sample, and damaged ones refused in one line."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
import soundfile

from timbrel_bundle.audio import checked_mono, checked_rate, read_audio, read_channels, read_pieces, resample
from timbrel_bundle.errors import AudioError

SINE = (0.5 * np.sin(2 * np.pi * 440 * np.arange(2400) / 24000)).astype(np.float32)


@pytest.mark.parametrize(("subtype", "step"), [("PCM_16", 2**-15), ("PCM_24", 2**-23), ("FLOAT", 0.0)])
def test_every_sample_is_read(tmp_path: Path, subtype: str, step: float) -> None:
    path = tmp_path / "note.wav"
    soundfile.write(path, SINE, 24000, subtype)
    audio, sample_rate = read_audio(path)
    assert sample_rate == 24000
    assert audio.dtype == np.float32
    np.testing.assert_allclose(audio, SINE, atol=step)


def test_stereo_is_averaged(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "stereo.flac", np.stack([SINE, 0 * SINE], axis=1), 24000)
    audio, _ = read_audio(tmp_path / "stereo.flac")
    np.testing.assert_allclose(audio, SINE / 2, atol=1e-4)


def _whole_wav() -> bytes:
    buffer = io.BytesIO()
    soundfile.write(buffer, SINE, 24000, format="WAV", subtype="PCM_16")
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty"),
        (b"no sound here", "is not an audio file that can be read"),
        (_whole_wav()[:30], "is not an audio file that can be read"),
        (_whole_wav()[:-1000], "is cut short, the last 1000 bytes"),
        (_whole_wav()[:44].replace((4800).to_bytes(4, "little"), bytes(4)), "holds no sound"),
    ],
)
def test_a_damaged_file_is_one_clear_line(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "note.wav"
    path.write_bytes(content)
    with pytest.raises(AudioError) as error:
        read_audio(path)
    assert str(error.value).startswith(str(path))
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("kind", "subtype"), [("RF64", "PCM_16"), ("AIFF", "PCM_16"), ("AIFF", "FLOAT"), ("WAVEX", "PCM_24")]
)
def test_a_sound_that_is_cut_short_is_refused(tmp_path: Path, kind: str, subtype: str) -> None:
    path = tmp_path / "note"
    soundfile.write(path, SINE, 24000, subtype, format=kind)
    assert len(read_audio(path)[0]) == len(SINE)
    path.write_bytes(path.read_bytes()[:-1000])
    with pytest.raises(AudioError, match=r"is cut short, the last \d+ bytes of its sound are missing"):
        read_audio(path)


def test_a_wav_of_unknown_length_is_read(tmp_path: Path) -> None:
    path = tmp_path / "piped.wav"
    path.write_bytes(_whole_wav().replace((4800).to_bytes(4, "little"), b"\xff" * 4))
    assert len(read_audio(path)[0]) == len(SINE)


def test_a_file_of_any_length_is_read_piece_by_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("timbrel_bundle.audio.MAX_SAMPLES", 1000)
    path = tmp_path / "long.wav"
    soundfile.write(path, np.random.default_rng(0).uniform(-1, 1, (2500, 2)), 8000, subtype="FLOAT")
    with pytest.raises(AudioError, match=r"holds 5000 samples .*, up to 1000 \(0.00104 minutes\) are read"):
        read_channels(path, 1000)
    pieces = list(read_pieces(path, 0.05))
    assert [start for start, _, _ in pieces] == pytest.approx([0.05 * number for number in range(7)])
    assert np.array_equal(np.concatenate([samples for _, samples, _ in pieces]), read_channels(path)[0])
    with pytest.raises(AudioError, match=r"pieces of 0\.1 s are too long"):
        list(read_pieces(path, 0.1))


def test_a_file_with_nan_is_refused(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "nan.wav", np.array([0.0, np.nan], np.float32), 24000, subtype="FLOAT")
    with pytest.raises(AudioError, match="not numbers"):
        read_audio(tmp_path / "nan.wav")


def test_what_is_not_a_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AudioError, match="is a folder"):
        read_audio(tmp_path)
    with pytest.raises(AudioError, match="there is no such file"):
        read_audio(tmp_path / "absent.wav")


def test_audio_that_cannot_be_written_is_refused() -> None:
    with pytest.raises(AudioError, match="mono audio"):
        checked_mono(np.zeros((10, 2)))
    with pytest.raises(AudioError, match="not numbers"):
        checked_mono(np.array([np.nan]))
    with pytest.raises(AudioError, match="a sample rate of 0 Hz"):
        checked_rate(0)


def test_resampling_keeps_the_tone() -> None:
    audio = resample(SINE, 24000, 48000)
    assert audio.shape == (4800,)
    peak = np.argmax(np.abs(np.fft.rfft(audio)))
    assert peak * 48000 / len(audio) == pytest.approx(440, abs=10)
    assert resample(SINE, 24000, 24000) is SINE
