"""Files are written whole or not at all."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
import without_posix

from timbrel_bundle.files import atomic_path, atomic_write, sha256_file


def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(RuntimeError), atomic_path(path) as temporary:
        temporary.write_text("half")
        raise RuntimeError
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_write_for_which_there_is_no_room_names_its_file(
    tmp_path: Path, full_disk: Callable[[int], AbstractContextManager[None]]
) -> None:
    path = tmp_path / "file"
    with full_disk(1000), pytest.raises(OSError) as caught:
        atomic_write(path, bytes(2000))
    assert caught.value.filename == str(path)
    assert not list(tmp_path.iterdir())


def test_a_write_that_is_not_allowed_names_its_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with pytest.raises(OSError) as caught, atomic_path(path) as temporary:
        temporary.symlink_to(tmp_path / "gone" / "file")
        temporary.write_bytes(b"")
    assert caught.value.filename == str(path)


def test_a_write_replaces_and_honours_the_umask(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    before = os.umask(0o022)
    try:
        atomic_write(path, "neu: \N{MUSIC SHARP SIGN}")
    finally:
        os.umask(before)
    assert path.read_text(encoding="utf-8") == "neu: \N{MUSIC SHARP SIGN}"
    assert path.stat().st_mode & 0o777 == 0o644


def test_a_name_may_be_as_long_as_names_can_be(tmp_path: Path) -> None:
    path = tmp_path / f"{'a' * 251}.wav"
    atomic_write(path, b"sound")
    assert path.read_bytes() == b"sound"


def test_a_folder_is_not_written_over(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError, match="is a folder"):
        atomic_write(tmp_path, b"")


def test_the_hash_is_sha256(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"timbrel")
    assert sha256_file(tmp_path / "file") == hashlib.sha256(b"timbrel").hexdigest()


def test_what_cannot_be_replaced_is_named_and_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on Windows while a player has the file open; the temporary file's name says nothing to anybody."""
    path = tmp_path / "violin.wav"
    path.write_text("old")
    monkeypatch.setattr(os, "replace", without_posix.replace_what_is_closed)
    with (
        path.open() as player,
        pytest.raises(PermissionError, match="another program may have it open") as told,
    ):
        atomic_write(path, b"new")
    assert told.value.filename == str(path)
    assert player.closed and list(tmp_path.iterdir()) == [path] and path.read_text() == "old"
