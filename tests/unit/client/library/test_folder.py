from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from timbrel.library import LibraryJob
from timbrel.library.plan.folder import LibraryFolder, OtherJobError

ADDED = ("Violin.sf2", "Violin_maj.sfz", "Violin_maj.dspreset")
OTHERS = ("Violin.sfz", "Violin.dspreset", "Violin_maj.txt", "Viola_maj.sfz", "mine.sf2")
TUNED = (-31.0, *[None] * 127)


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} - {"tuning.json"}


def test_what_another_tuning_left_goes_and_nothing_else(tmp_path: Path) -> None:
    folder = LibraryFolder(tmp_path)
    for tuning, kept in ((None, True), (TUNED, False), (TUNED, True), (None, False)):
        for name in (*ADDED, *OTHERS):
            (tmp_path / name).write_text("")
        folder.tune(tuning, {"Violin"})
        assert names(tmp_path) == {*OTHERS, *(ADDED if kept else ())}
        written = json.loads(folder.tuning.read_text()) if folder.tuning.exists() else None
        assert written == (None if tuning is None else list(tuning))


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP])
def test_a_file_system_without_locks_will_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    pytest.importorskip("fcntl")

    def flock(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("fcntl.flock", flock)
    with LibraryFolder(tmp_path / "library").lock():
        pass


def test_a_copy_that_lacks_the_hidden_folder_is_called_a_library(tmp_path: Path) -> None:
    (tmp_path / "manifest.jsonl").write_text("")
    with pytest.raises(OtherJobError, match=r"holds a library without its folder \.timbrel.*; copy that too"):
        LibraryFolder(tmp_path).check()


def test_a_damaged_job_says_how_the_library_goes_on(tmp_path: Path, job: LibraryJob) -> None:
    folder = LibraryFolder(tmp_path)
    folder.work.mkdir()
    folder.job_file.write_bytes(bytes(100))
    with pytest.raises(OtherJobError, match=r"job\.json is damaged; delete it"):
        folder.claim(job)
    folder.job_file.unlink()
    folder.claim(job)
    folder.claim(job)


def test_a_link_in_place_of_the_tuning_is_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("mine")
    (tmp_path / "library").mkdir()
    folder = LibraryFolder(tmp_path / "library")
    folder.tuning.symlink_to(outside)
    folder.tune(TUNED, ())
    assert outside.read_text() == "mine" and not folder.tuning.is_symlink()
