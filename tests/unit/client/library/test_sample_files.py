"""WAV files with sampler chunks, read back by another program's reader."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import soundfile
from wavinfo import WavInfoReader

from timbrel.library.finish.instrument_files import Region
from timbrel.library.finish.sample_files import read_chunks, read_sampler_chunk, wav_bytes
from timbrel_bundle.audio import whole_samples
from timbrel_bundle.errors import AudioError

Tone = Callable[..., npt.NDArray[np.float32]]


def write(
    path: Path, audio: npt.NDArray[np.float32], region: Region, texts: dict[str, str] | None = None
) -> Path:
    path.write_bytes(wav_bytes(audio, 48_000, region, texts))
    return path


def test_the_sound_comes_back_to_the_last_bit_of_24(tmp_path: Path, tone: Tone) -> None:
    audio = tone(60, 0.1)[:-1]
    path = write(tmp_path / "a.wav", audio, Region("", 60))
    info = soundfile.info(path)
    assert (info.format, info.subtype, info.channels, info.samplerate) == ("WAV", "PCM_24", 1, 48_000)
    read, _ = soundfile.read(path, dtype="float32")
    np.testing.assert_allclose(read, audio, atol=2.0**-24)


def test_samples_beyond_full_scale_are_clipped_not_wrapped() -> None:
    samples = np.array([2.0, -2.0, 0.0], dtype=np.float32)
    assert whole_samples(samples).tolist() == [2**23 - 1, -(2**23), 0]
    assert b"data\x09\0\0\0\xff\xff\x7f\0\0\x80\0\0\0" in wav_bytes(samples, 48_000, Region("", 60))


def test_loop_and_texts_as_wavinfo_reads_them(tmp_path: Path, tone: Tone) -> None:
    texts = {"INAM": "Übung", "ISFT": "timbrel", "ICMT": "odd"}
    path = write(tmp_path / "a.wav", tone(64, 0.1), Region("", 64, loop=(100, 2000)), texts)
    found = WavInfoReader(str(path), info_encoding="utf-8")
    sampler = found.smpl.to_dict()
    assert (sampler["midi_note"], sampler["midi_pitch_detune_cents"]) == (64, 0)
    assert sampler["sample_period_ns"] == 20_833
    (loop,) = sampler["loops"]
    assert (loop["start_samples"], loop["end_samples"], loop["loop_type_description"]) == (
        100,
        2000,
        "FORWARD",
    )
    assert (found.info.title, found.info.software, found.info.comment) == ("Übung", "timbrel", "odd")


@pytest.mark.parametrize(
    ("tune", "key", "cents"), [(0, 60, 0.0), (-12, 60, 12.0), (12, 59, 88.0), (50, 59, 50.0)]
)
def test_smpl_states_where_the_sample_sounds(
    tmp_path: Path, tone: Tone, tune: int, key: int, cents: float
) -> None:
    """A sample that is to be tuned down sounds above its key."""
    path = write(tmp_path / "a.wav", tone(60, 0.1), Region("", 60, tune=tune))
    chunk = read_sampler_chunk(read_chunks(path)["smpl"])
    assert (chunk.key, chunk.loops) == (key, ())
    assert chunk.cents == pytest.approx(cents, abs=1e-4)


def test_inst_states_the_zones(tmp_path: Path, tone: Tone) -> None:
    region = Region("", 60, tune=-7, keys=(58, 61), velocities=(61, 100))
    inst = read_chunks(write(tmp_path / "a.wav", tone(60, 0.1), region))["inst"]
    assert np.frombuffer(inst, dtype=np.int8).tolist() == [60, -7, 0, 58, 61, 61, 100]


def test_every_chunk_begins_at_an_even_offset(tone: Tone) -> None:
    content = wav_bytes(tone(60, 0.1)[:4799], 48_000, Region("", 60), {"INAM": "even"})
    assert len(content) % 2 == 0
    assert int.from_bytes(content[4:8], "little") == len(content) - 8


def test_equal_arguments_make_equal_bytes(tone: Tone) -> None:
    region, texts = Region("", 60), {"INAM": "a", "ICMT": "b"}
    turned = dict(reversed(texts.items()))
    assert wav_bytes(tone(60, 0.1), 48_000, region, texts) == wav_bytes(tone(60, 0.1), 48_000, region, turned)


def test_what_is_no_sound_is_refused() -> None:
    with pytest.raises(AudioError, match="not numbers"):
        wav_bytes(np.array([np.nan], dtype=np.float32), 48_000, Region("", 60))


@pytest.mark.parametrize(
    "content", [b"", b"RIFF", b"OggS" + bytes(40), b"RIFF\x10\0\0\0WAVEfmt \xff\0\0\0ab"]
)
def test_a_damaged_file_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.wav"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"is no WAV file|is cut short"):
        read_chunks(path)
