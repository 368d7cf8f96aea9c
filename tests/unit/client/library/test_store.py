"""Raw notes on disk and in memory, and one process at a time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from timbrel.library import LibraryJob, LockedError, OtherJobError
from timbrel.library.plan.folder import LibraryFolder
from timbrel.library.render.level import Trimmed
from timbrel.library.render.store import DecodedNote, NoteStore, RawNote, SampleCache

CODES = np.arange(12, dtype=np.uint16).reshape(6, 2)


def test_a_note_comes_back_as_it_was(tmp_path: Path) -> None:
    store = NoteStore(tmp_path)
    assert not store.has("ab12") and store.load("ab12") is None
    store.save("ab12", RawNote(CODES, True))
    found = store.load("ab12")
    assert found is not None and found.truncated
    np.testing.assert_array_equal(found.codes, CODES)
    assert found.codes.dtype == np.uint16


def test_equal_notes_make_equal_bytes(tmp_path: Path) -> None:
    store = NoteStore(tmp_path)
    store.save("one", RawNote(CODES, False))
    store.save("two", RawNote(CODES.copy(), False))
    assert store.path("one").read_bytes() == store.path("two").read_bytes()


@pytest.mark.parametrize("damage", ["cut", "noise", "empty"])
def test_a_damaged_note_counts_as_none(tmp_path: Path, damage: str) -> None:
    store = NoteStore(tmp_path)
    store.save("key", RawNote(CODES, False))
    path = store.path("key")
    content = path.read_bytes()
    path.write_bytes({"cut": content[:-40], "noise": b"\x93" * 200, "empty": b""}[damage])
    assert store.load("key") is None


def test_two_jobs_cannot_hold_one_folder(tmp_path: Path) -> None:
    folder = LibraryFolder(tmp_path / "lib")
    with folder.lock(), pytest.raises(LockedError, match=r"in use by process \d+ on "), folder.lock():
        pass
    with folder.lock():
        pass


def test_a_folder_stays_with_its_job(tmp_path: Path, job: LibraryJob) -> None:
    folder = LibraryFolder(tmp_path / "lib")
    with folder.lock():
        folder.claim(job)
        folder.claim(job)
        with pytest.raises(OtherJobError, match=r"another job's library \(it differs in pitches, seconds\)"):
            folder.claim(replace(job, pitches=(60,), seconds=1.5))
        with pytest.raises(OtherJobError, match=r"to begin anew in this one, .* the hidden \.timbrel too"):
            folder.claim(replace(job, seconds=1.5))
        with pytest.raises(OtherJobError, match=r"differs in precision\); .* have its bundle served"):
            folder.claim(replace(job, writer=replace(job.writer, precision="int8")))


def test_a_folder_with_other_peoples_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(OtherJobError, match="holds files that are no timbrel library"):
        LibraryFolder(tmp_path).check()
    with pytest.raises(OtherJobError, match="is a file"):
        LibraryFolder(tmp_path / "thesis.txt").check()
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize("name", [".DS_Store", "Thumbs.db", "desktop.ini"])
def test_a_new_folder_is_empty_though_somebody_has_looked_into_it(
    tmp_path: Path, job: LibraryJob, name: str
) -> None:
    (tmp_path / name).write_bytes(b"\0\0\0\1Bud1")
    folder = LibraryFolder(tmp_path)
    with folder.lock():
        folder.claim(job)
    assert (tmp_path / name).exists()


def test_what_a_killed_run_was_writing_is_swept_away(tmp_path: Path, job: LibraryJob) -> None:
    folder = LibraryFolder(tmp_path / "lib")
    with folder.lock():
        folder.claim(job)
        left = [folder.codes / "ab" / ".key.npz.1-aa.tmp", folder.path / "samples" / "V" / ".V.wav.1-bb.tmp"]
        for path in left:
            path.parent.mkdir(parents=True)
            path.write_bytes(b"half")
        folder.sweep()
        assert not any(path.exists() for path in left)
        assert folder.job_file.exists()


def sound(n_samples: int) -> DecodedNote:
    note = RawNote(np.zeros((0, 3), dtype=np.uint16), False)
    return DecodedNote(note, Trimmed(np.zeros(n_samples, dtype=np.float32), 0))


def test_a_sound_is_taken_once() -> None:
    cache = SampleCache()
    kept = sound(100)
    cache.put("a", kept)
    assert cache.take("a") is kept and cache.take("a") is None


def test_the_oldest_make_room() -> None:
    cache = SampleCache(n_bytes=1000)
    for name in "abc":
        cache.put(name, sound(100))  # 400 bytes
    assert cache.take("a") is None
    assert cache.take("b") is not None and cache.take("c") is not None
    cache.put("huge", sound(1000))
    assert cache.take("huge") is None
    cache.put("d", sound(250))
    assert cache.take("d") is not None
