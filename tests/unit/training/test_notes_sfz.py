"""An .sfz instrument that the test writes: layers, round robins, release samples, keyswitches."""

from __future__ import annotations

import codecs
import errno
import os
import pickle
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import soundfile
from numpy.typing import NDArray
from requirements_gate import require_sfizz

from timbrel_training.notes.note import Note, SourceError
from timbrel_training.notes.playing import NoteRecorder
from timbrel_training.notes.sfz import SfzSource

RATE = 48_000
SECONDS = 1.5
AT_ONCE = NoteRecorder(onset_seconds=0.0)
LAYER_HERTZ = {"soft": 1, "hard": 3}
"""Each sample sounds one harmonic of middle C alone, so that a note tells which sample was played."""
ROUND_ROBIN = {1: 5, 2: 7}
RELEASE = 9
C4 = 440.0 * 2.0 ** (-9 / 12)


def sample(path: Path, harmonic: int, level: float = 0.3, seconds: float = SECONDS) -> None:
    time = np.arange(int(seconds * RATE)) / RATE
    tone = level * np.sin(2 * np.pi * C4 * time) + level * np.sin(2 * np.pi * harmonic * C4 * time)
    soundfile.write(path, tone, RATE, subtype="PCM_24")


@pytest.fixture(scope="module")
def instrument(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Keys 59 to 61: three layers, the hardest with two takes, a release sample, an idle articulation."""
    require_sfizz("train")
    folder = tmp_path_factory.mktemp("sfz")
    (folder / "Samples").mkdir()
    (folder / "Programs").mkdir()
    for name, harmonic in LAYER_HERTZ.items():
        sample(folder / "Samples" / f"{name}.wav", harmonic)
    for take, harmonic in ROUND_ROBIN.items():
        sample(folder / "Samples" / f"take{take}.wav", harmonic)
    sample(folder / "Samples" / "release.wav", RELEASE, 0.02, 0.2)
    sample(folder / "Samples" / "idle.wav", 11)
    (folder / "Programs" / "Box.sfz").write_text(
        "<control>\ndefault_path=..\\Samples\\\n"
        "<global>\nlokey=59\nhikey=61\npitch_keycenter=60\nampeg_release=0.02\nloop_mode=no_loop\n"
        "sw_lokey=24\nsw_hikey=25\nsw_default=24\n"
        "<group>\nsw_last=24\n"
        "<region>\nsample=soft.wav\nhivel=60\n"
        "<region>\nsample=hard.wav\nlovel=61\nhivel=90\n"
        "<region>\nsample=take1.wav\nlovel=91\nseq_length=2\nseq_position=1\n"
        "<region>\nsample=take2.wav\nlovel=91\nseq_length=2\nseq_position=2\n"
        "<region>\nsample=release.wav\ntrigger=release\n"
        "<group>\nsw_last=25\n<region>\nsample=idle.wav\n"
    )
    return folder / "Programs" / "Box.sfz"


def harmonic_of(audio: NDArray[np.float32], pitch: int) -> int:
    """The loudest harmonic above the fundamental."""
    hertz = 440.0 * 2.0 ** ((pitch - 69) / 12)
    power = np.abs(np.fft.rfft(audio * np.hanning(len(audio)), 1 << 18))
    levels = {n: power[round(n * hertz * (1 << 18) / RATE)] for n in range(2, 14)}
    loudest = max(levels, key=lambda n: float(levels[n]))
    return loudest if levels[loudest] > 0.1 * power[round(hertz * (1 << 18) / RATE)] else 1


def held(note: Note) -> NDArray[np.float32]:
    return note.audio[: int(min(note.held_seconds, SECONDS) * RATE)]


def test_velocities_choose_layers_and_draws_take_turns(instrument: Path) -> None:
    notes = list(SfzSource(instrument, recorder=AT_ONCE, pitches=(60,), n_draws=30))
    takes = []
    for note in notes:
        heard = harmonic_of(held(note), 60)
        if note.velocity > 90:
            takes.append(heard)
        else:
            assert heard == LAYER_HERTZ["soft" if note.velocity <= 60 else "hard"]
    assert set(takes) == set(ROUND_ROBIN.values())
    assert 0.4 < max(float(np.abs(note.audio).max()) for note in notes) < 0.9


def test_a_release_sample_sounds_after_the_key_is_let_go(instrument: Path) -> None:
    notes = [
        n for n in SfzSource(instrument, recorder=AT_ONCE, pitches=(60,), n_draws=12) if n.held_seconds < 1.0
    ]
    assert len(notes) > 4
    for note in notes:
        released = note.audio[int((note.held_seconds + 0.12) * RATE) :]
        assert 0.1 < note.seconds - note.held_seconds < 0.4
        assert harmonic_of(released, 60) == RELEASE and harmonic_of(held(note), 60) != RELEASE


def test_only_pitches_that_the_instrument_has_are_played_and_in_tune(instrument: Path) -> None:
    source = SfzSource(instrument, pitches=range(40, 80), n_draws=2)
    notes = list(source)
    assert [note.pitch for note in notes] == [59, 59, 60, 60, 61, 61]
    for note in notes:
        power = np.abs(np.fft.rfft(held(note), 1 << 20))
        low = int(400 / RATE * (1 << 20))
        hertz = float(power[:low].argmax()) * RATE / (1 << 20)
        if note.held_seconds > 0.4:
            assert abs(1200 * np.log2(hertz / (440.0 * 2.0 ** ((note.pitch - 69) / 12)))) < 3


def test_notes_are_whole_however_fast_they_are_rendered_and_come_again(instrument: Path) -> None:
    source = SfzSource(instrument, pitches=(60,), n_draws=6, family="Ethnic", licence="CC0-1.0")
    notes, again = list(source), list(pickle.loads(pickle.dumps(source)))
    assert all(np.array_equal(a.audio, b.audio) for a, b in zip(notes, again, strict=True))
    for note in notes:  # a sample that was still being read from disk would have fallen silent
        end = held(note)[-RATE // 20 :]
        assert float(np.abs(end).max()) > 0.3 * float(np.abs(note.audio).max())
    assert {(n.instrument, n.family, n.source) for n in notes} == {("Box", "Ethnic", "sfz Box")}
    assert source.licences == {"sfz Box": "CC0-1.0"}


def test_each_note_is_the_first_of_its_phrase(instrument: Path) -> None:
    path = instrument.with_name("Solo.sfz")
    path.write_text(
        "<control>\ndefault_path=..\\Samples\\\n"
        "<global>\nlokey=59\nhikey=61\npitch_keycenter=60\nloop_mode=no_loop\n"
        "<region>\nsample=soft.wav\ntrigger=first\n<region>\nsample=hard.wav\ntrigger=legato\n"
    )
    notes = list(SfzSource(path, recorder=AT_ONCE, n_draws=2))
    assert [harmonic_of(held(note), note.pitch) for note in notes] == [LAYER_HERTZ["soft"]] * 6


def test_files_of_other_encodings_are_played(instrument: Path, tmp_path: Path) -> None:
    for name in (b"mark", b"fl\xfbte"):  # the latter as Windows wrote it
        shutil.copyfile(
            instrument.parents[1] / "Samples" / "soft.wav", os.fsencode(tmp_path) + b"/%s.wav" % name
        )
        text = codecs.BOM_UTF8 * (name == b"mark") + b"<region>\nsample=%s.wav\nlokey=60\nhikey=60\n" % name
        (tmp_path / "instrument.sfz").write_bytes(text)
        assert len(list(SfzSource(tmp_path / "instrument.sfz", n_draws=1))) == 1


def test_a_folder_above_need_not_let_itself_be_listed(
    instrument: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed, closed = Path.iterdir, instrument.parents[2]

    def iterdir(folder: Path) -> Iterator[Path]:
        if folder == closed:
            raise PermissionError(errno.EACCES, "Permission denied", str(folder))
        return listed(folder)

    monkeypatch.setattr(Path, "iterdir", iterdir)  # whoever is root may list all
    played = SfzSource(instrument, recorder=AT_ONCE, pitches=[60], n_draws=1)
    assert len(list(played.notes("Box"))) == 1
    closed = instrument.parent
    with pytest.raises(SourceError, match=r"Box\.sfz: .* cannot be read \(Permission denied\)"):
        played.check()


def test_where_windows_makes_no_links_the_message_says_how_it_does(
    instrument: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def symlink_to(*_: object) -> None:
        error = OSError(errno.EINVAL, "A required privilege is not held by the client")
        error.winerror = 1314
        raise error

    monkeypatch.setattr(Path, "symlink_to", symlink_to)
    with pytest.raises(SourceError, match=r"Box\.sfz: Windows lets no links be made .* developer mode"):
        SfzSource(instrument).check()


def test_what_cannot_be_played_is_one_clear_line(tmp_path: Path) -> None:
    require_sfizz("train")
    with pytest.raises(SourceError, match=r"missing\.sfz: there is no such file"):
        SfzSource(tmp_path / "missing.sfz")
    (tmp_path / "empty.sfz").write_text("<region>\nsample=nowhere.wav\n")
    with pytest.raises(SourceError, match=r"empty\.sfz: no region can be played: .* samples are missing"):
        list(SfzSource(tmp_path / "empty.sfz"))
    (tmp_path / "deaf.sfz").write_bytes(bytes(range(256)))
    with pytest.raises(SourceError, match=r"deaf\.sfz: no region can be played"):
        list(SfzSource(tmp_path / "deaf.sfz"))


def test_without_sfizz_the_message_names_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "box.sfz").write_text("<region>\nsample=*sine\n")
    monkeypatch.setitem(sys.modules, "pysfizz", None)
    with pytest.raises(SourceError, match="pip install pysfizz"):
        list(SfzSource(tmp_path / "box.sfz"))


def test_where_sfizz_cannot_be_loaded_the_message_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "box.sfz").write_text("<region>\nsample=*sine\n")
    (tmp_path / "pysfizz.py").write_text(
        'raise ImportError("libatomic.so.1: cannot open shared object file")'
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "pysfizz", raising=False)
    with pytest.raises(SourceError, match=r"libatomic\.so\.1: cannot open .* apt-get install libatomic1"):
        list(SfzSource(tmp_path / "box.sfz"))
