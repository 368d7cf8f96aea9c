from __future__ import annotations

import base64
import copy
import io
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from timbrel import InvalidRequestError, MissingExtraError, Note, TimbrelError
from timbrel.decoder import Decoder
from timbrel_bundle.runtime import load_runtime

RATE = 8000


def make_note(audio: np.ndarray[Any, Any], calls: list[int] | None = None) -> Note:
    """A note whose decoder gives this sound, and counts into `calls`."""

    def decode(codes: np.ndarray[Any, Any], seed: int, cents: object) -> np.ndarray[Any, Any]:
        assert (seed, cents) == (7, 0.0)
        if calls is not None:
            calls.append(len(codes))
        return audio.astype(np.float32)

    return Note((0.5, 0.0), 60, 100, 1.0, 7, False, np.zeros((4, 2), np.uint16), RATE, decode)


TONE = 0.5 * np.sin(np.arange(4000) * 0.3)


def test_decodes_when_first_asked_and_then_keeps_it() -> None:
    calls: list[int] = []
    note = make_note(TONE, calls)
    assert calls == []
    assert note.audio.dtype == np.float32
    assert note.audio is note.audio
    assert note.duration == 0.5
    assert calls == [4]


def test_the_sound_is_changed_in_copies_only() -> None:
    """Else a fade in a game's mix would be heard, and saved, with the note from then on."""
    note = make_note(TONE)
    for each in (note, copy.deepcopy(note)):
        with pytest.raises(ValueError, match="read-only"):
            each.audio *= 0.5
        assert each.audio.copy().flags.writeable


def test_notes_are_equal_where_request_codes_and_codec_are() -> None:
    note = make_note(TONE)
    alike = replace(note, codes=note.codes.copy())
    assert note == alike and len({note, alike}) == 1
    for change in (
        {"pitch": 61},
        {"seed": 8},
        {"timbre": (0.5, 0.1)},
        {"codes": note.codes[:3]},
        {"codes": note.codes + np.uint16(1)},
        {"cents": 5.0},
        {"_decode": Decoder(Path("bundle"))},
    ):
        assert note != replace(note, **change) and len({note, replace(note, **change)}) == 2, change
    assert note != "a note"
    assert replace(note, _decode=Decoder(Path("a"))) == replace(note, _decode=Decoder(Path("a")))
    assert replace(note, _decode=Decoder(Path("a"))) != replace(note, _decode=Decoder(Path("b")))


@pytest.mark.parametrize(("name", "kind"), [("note.wav", "WAV"), ("note.FLAC", "FLAC")])
def test_saves_24_bits_and_the_same_bytes_each_time(tmp_path: Path, name: str, kind: str) -> None:
    path = tmp_path / name
    assert make_note(TONE).save(path) == path
    first = path.read_bytes()
    make_note(TONE).save(str(path))
    assert path.read_bytes() == first

    info = soundfile.info(path)
    assert (info.format, info.subtype, info.samplerate, info.channels) == (kind, "PCM_24", RATE, 1)
    audio, _ = soundfile.read(path)
    assert np.abs(audio - TONE).max() < 2**-22
    assert [each.name for each in tmp_path.iterdir()] == [name]


def test_saves_ogg(tmp_path: Path) -> None:
    path = make_note(TONE).save(tmp_path / "note.ogg")
    info = soundfile.info(path)
    assert (info.format, info.subtype, info.samplerate, info.channels) == ("OGG", "VORBIS", RATE, 1)
    audio, _ = soundfile.read(path)
    assert len(audio) == len(TONE)
    assert np.sqrt(np.mean((audio - TONE) ** 2)) < 0.05 * np.sqrt(np.mean(TONE**2))


@pytest.mark.parametrize("name", ["note.wav", "note.flac", "note.ogg"])
def test_saves_at_another_rate_the_same_pitch_and_length(tmp_path: Path, name: str) -> None:
    path = make_note(TONE).save(tmp_path / name, sample_rate=44_100)
    audio, rate = soundfile.read(path)
    assert rate == 44_100
    assert len(audio) / rate == pytest.approx(len(TONE) / RATE, abs=1e-4)
    spectrum = np.abs(np.fft.rfft(audio * np.hanning(len(audio))))
    assert spectrum.argmax() * rate / len(audio) == pytest.approx(0.3 * RATE / (2 * np.pi), abs=2.0)


@pytest.mark.parametrize("rate", [0, -1, 7_999, 192_001, 44_100.5])
def test_refuses_sample_rates_that_no_player_takes(tmp_path: Path, rate: Any) -> None:
    with pytest.raises(InvalidRequestError, match="8000 to 192000"):
        make_note(TONE).save(tmp_path / "note.wav", sample_rate=rate)
    assert list(tmp_path.iterdir()) == []


def test_clips_what_is_too_loud(tmp_path: Path) -> None:
    audio, _ = soundfile.read(make_note(np.array([0.0, 2.0, -2.0])).save(tmp_path / "loud.wav"))
    assert audio[1] > 0.99 and audio[2] == -1.0


def test_an_empty_note_saves_an_empty_file(tmp_path: Path) -> None:
    path = make_note(np.zeros(0)).save(tmp_path / "empty.wav")
    assert soundfile.info(path).frames == 0


@pytest.mark.parametrize("name", ["note.mp3", "note", "missing/note.wav"])
def test_refuses_other_endings_and_missing_folders(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidRequestError):
        make_note(TONE).save(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_shows_itself_without_its_codes() -> None:
    assert repr(make_note(TONE)) == (
        "Note(timbre=(0.500, 0.000), pitch=60, velocity=100, seconds=1, seed=7, truncated=False, frames=4)"
    )


class _Page(HTMLParser):
    """The elements of a page with their attributes; their nesting is checked."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: dict[str, list[dict[str, str | None]]] = {}
        self.text = ""
        self._open: list[str] = []
        self.feed(page)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.setdefault(tag, []).append(dict(attrs))
        self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.setdefault(tag, []).append(dict(attrs))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_a_notebook_shows_a_player_with_the_very_sound_a_waveform_and_the_facts() -> None:
    page = _Page(make_note(TONE)._repr_html_())
    (player,) = page.elements["audio"]
    kind, _, data = str(player["src"]).partition(",")
    assert kind == "data:audio/flac;base64"
    audio, rate = soundfile.read(io.BytesIO(base64.b64decode(data)))
    assert rate == RATE and np.abs(audio - TONE).max() < 2**-22
    (outline,) = page.elements["polygon"]
    points = [tuple(map(float, point.split(","))) for point in str(outline["points"]).split()]
    height = float(str(page.elements["svg"][0]["viewbox"]).split()[3])
    assert 0.0 <= min(y for _, y in points) < 0.1 * height
    assert 0.9 * height < max(y for _, y in points) <= height
    for fact in ("(0.500, 0.000)", "60", "100", "1 s", "7", "0.50 s at 8000 Hz", "-6.0 dBFS"):
        assert fact in page.text.replace("\xa0", " ")
    assert "script" not in page.elements


@pytest.mark.parametrize(
    ("cents", "shown"),
    [(-31.5, "-31.5"), (np.int64(50), "50"), (np.float32(50), "50"), (((0, 50),), "a curve")],
)
def test_a_notebook_shows_how_far_a_note_is_bent(cents: Any, shown: str) -> None:
    """Also in the numbers that one walks through by `np.arange(-50, 51, 10)`."""
    page = _Page(
        replace(make_note(TONE), cents=cents, _decode=lambda *_: TONE.astype(np.float32))._repr_html_()
    )
    assert f"cents {shown} " in page.text.replace("\xa0", " ")


def test_a_notebook_shows_an_empty_note_too() -> None:
    assert "audio" in _Page(make_note(np.zeros(0))._repr_html_()).elements


def test_a_notebook_says_what_is_missing_where_nothing_decodes() -> None:
    def decode(codes: np.ndarray[Any, Any], seed: int, cents: object) -> np.ndarray[Any, Any]:
        raise MissingExtraError("decoding a note <into sound>", "cpu")

    note = Note((0.5, 0.0), 60, 100, 1.0, 7, True, np.zeros((4, 2), np.uint16), RATE, decode)
    page = _Page(note._repr_html_())
    assert "timbrel[cpu]" in page.text and "<into sound>" in page.text
    assert "audio" not in page.elements and "cap" in page.text


def test_a_runtime_that_cannot_be_loaded_is_not_told_as_missing(
    tmp_path: Path, tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "onnxruntime.py").write_text("raise ImportError('libgomp.so.1: cannot open')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "onnxruntime", raising=False)
    load_runtime.cache_clear()
    with pytest.raises(TimbrelError, match=r"cannot be loaded: libgomp\.so\.1") as caught:
        Decoder(tiny_bundle).load()
    assert not isinstance(caught.value, MissingExtraError)
