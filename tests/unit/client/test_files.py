"""The files cache: whole files only, kept, checked, and continued where they broke off."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
import without_posix

from timbrel import files
from timbrel.errors import BundleMismatchError, DeadlineExceededError, UnavailableError
from timbrel.files import FileCache, cache_folder
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb

NAMES = ("codec_decoder.onnx", "codec.safetensors")


class Source:
    """Hands out files in small pieces and counts the transfers."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = files
        self.transfers: list[tuple[str, int]] = []
        self.break_after: int | None = None

    def __call__(self, name: str, offset: int) -> Iterator[pb.GetFileResponse]:
        self.transfers.append((name, offset))
        data = self.files[name]
        for start in range(offset, len(data), 100):
            if self.break_after is not None and start >= self.break_after:
                self.break_after = None
                raise UnavailableError("broken off")
            yield pb.GetFileResponse(data=data[start : start + 100], total_size=len(data))


@pytest.fixture
def source() -> Source:
    return Source({NAMES[0]: b"graph" * 100, NAMES[1]: bytes(1000)})


@pytest.fixture
def manifest(source: Source, manifest_of: Callable[[dict[str, bytes]], pb.Manifest]) -> pb.Manifest:
    return manifest_of(source.files)


def test_files_arrive_whole_and_are_fetched_once(source: Source, manifest: pb.Manifest, cache: Path) -> None:
    folder = FileCache(manifest, source).require(NAMES)
    assert folder == cache / "bundles" / manifest.bundle_hash
    assert {name: (folder / name).read_bytes() for name in NAMES} == source.files
    assert sorted(path.name for path in folder.iterdir()) == sorted([*NAMES, "manifest.json"])

    FileCache(manifest, source).require(NAMES)
    assert len(source.transfers) == 2


def test_files_are_found_where_a_program_has_gone_since(
    source: Source, manifest: pb.Manifest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Notes are decoded when their sound is asked for."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TIMBREL_CACHE", "cache")
    folder = FileCache(manifest, source).require(NAMES)
    monkeypatch.chdir("/")
    assert (folder / NAMES[0]).is_file()


@pytest.mark.skipif(files.ON_WINDOWS, reason="parts are not continued there")
def test_a_broken_transfer_is_continued(source: Source, manifest: pb.Manifest) -> None:
    source.break_after = 300
    cache = FileCache(manifest, source)
    with pytest.raises(UnavailableError):
        cache.require(NAMES)
    assert not (cache.folder / NAMES[0]).exists()

    folder = cache.require(NAMES)
    assert source.transfers[:2] == [(NAMES[0], 0), (NAMES[0], 300)]
    assert (folder / NAMES[0]).read_bytes() == source.files[NAMES[0]]


def test_a_wrong_beginning_is_thrown_away(source: Source, manifest: pb.Manifest) -> None:
    cache = FileCache(manifest, source)
    cache.folder.mkdir(parents=True)
    (cache.folder / f"{NAMES[0]}.part").write_bytes(b"x" * 200)
    (cache.folder / f"{NAMES[1]}.part").write_bytes(b"x" * 5000)
    folder = cache.require(NAMES)
    assert {name: (folder / name).read_bytes() for name in NAMES} == source.files


def test_an_altered_cached_file_is_fetched_again(source: Source, manifest: pb.Manifest) -> None:
    folder = FileCache(manifest, source).require(NAMES)
    (folder / NAMES[0]).write_bytes(b"y" * 500)
    FileCache(manifest, source).require(NAMES)
    assert (folder / NAMES[0]).read_bytes() == source.files[NAMES[0]]


def test_the_manifest_of_a_later_server_is_written_once(source: Source, manifest: pb.Manifest) -> None:
    """A cache that is whole may lie where nothing can be written."""
    later = pb.Manifest.FromString(manifest.SerializeToString() + b"\x9a\x3e\x03new")  # field 995, a text
    path = FileCache(later, source).require(NAMES) / "manifest.json"
    before = path.stat().st_ino
    FileCache(later, source).require(NAMES)
    assert path.stat().st_ino == before


@pytest.mark.parametrize("served", [b"other" * 100, b"graph" * 99, b"graph" * 101])
def test_what_differs_from_the_manifest_is_refused(
    source: Source, manifest: pb.Manifest, served: bytes
) -> None:
    source.files[NAMES[0]] = served
    cache = FileCache(manifest, source)
    with pytest.raises(BundleMismatchError, match=NAMES[0]):
        cache.require(NAMES)
    assert not (cache.folder / NAMES[0]).exists()


def test_a_bundle_without_the_file_is_a_mismatch(source: Source, manifest: pb.Manifest) -> None:
    with pytest.raises(BundleMismatchError, match=r"no flac\.onnx"):
        FileCache(manifest, source).require(["flac.onnx"])


@pytest.mark.skipif(files.ON_WINDOWS, reason="parts are not shared there")
def test_many_at_once_end_with_the_same_whole_files(source: Source, manifest: pb.Manifest) -> None:
    with ThreadPoolExecutor(8) as pool:
        folders = list(pool.map(lambda _: FileCache(manifest, source).require(NAMES), range(8)))
    assert len(set(folders)) == 1
    assert {name: (folders[0] / name).read_bytes() for name in NAMES} == source.files
    assert len(source.transfers) == 2


def test_a_file_that_another_process_never_finishes_is_not_waited_for_without_end(
    source: Source, manifest: pb.Manifest
) -> None:
    """One that was stopped (Ctrl-Z) while it fetched, say."""
    fcntl = pytest.importorskip("fcntl")
    cache = FileCache(manifest, source, timeout=0.1)
    cache.folder.mkdir(parents=True)
    with (cache.folder / f"{NAMES[0]}.part").open("ab") as part:
        fcntl.flock(part, fcntl.LOCK_EX)
        with pytest.raises(DeadlineExceededError, match=r"another process .* within the 0\.1 s allowed here"):
            cache.require(NAMES)
    assert cache.require(NAMES) == cache.folder


def test_a_file_system_that_locks_no_files_will_do(
    source: Source, manifest: pb.Manifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flock(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")  # as NFS has it where no server keeps them

    pytest.importorskip("fcntl")
    monkeypatch.setattr("fcntl.flock", flock)
    folder = FileCache(manifest, source).require(NAMES)
    assert {path.name for path in folder.iterdir()} == {*NAMES, "manifest.json"}


@pytest.mark.skipif(not hasattr(os, "O_NOFOLLOW"), reason="parts are not shared there")
def test_nothing_is_written_where_another_s_link_leads(
    source: Source, manifest: pb.Manifest, tmp_path: Path
) -> None:
    cache = FileCache(manifest, source)
    cache.folder.mkdir(parents=True)
    (cache.folder / f"{NAMES[0]}.part").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match=r"the bundle's files cannot be kept here .*: set TIMBREL_CACHE"):
        cache.require(NAMES)
    assert not (tmp_path / "elsewhere").exists()


def test_a_folder_that_cannot_be_written_is_a_system_error(
    source: Source, manifest: pb.Manifest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("TIMBREL_CACHE", str(tmp_path / "file"))
    fault = r"file.bundles.\w+: the bundle's files cannot be kept here \([\w ]+\): set TIMBREL_CACHE"
    with pytest.raises(OSError, match=fault):
        FileCache(manifest, source).require(NAMES)


def test_a_full_disk_wants_room(
    source: Source, manifest: pb.Manifest, full_disk: Callable[[int], AbstractContextManager[None]]
) -> None:
    fault = r"cannot be kept here \(File too large\): make room, or set TIMBREL_CACHE"
    with full_disk(100), pytest.raises(OSError, match=fault):
        FileCache(manifest, source).require(NAMES)


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"TIMBREL_CACHE": "/a", "XDG_CACHE_HOME": "/b"}, "/a"),
        ({"XDG_CACHE_HOME": "/b"}, "/b/timbrel"),
        ({"HOME": "/c", "USERPROFILE": "/c"}, "/c/.cache/timbrel"),
    ],
)
def test_the_cache_folder_follows_the_environment(
    environment: dict[str, Any], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("TIMBREL_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert cache_folder() == Path(expected)


def test_without_a_home_the_cache_folder_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pwd")
    for name in ("TIMBREL_CACHE", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", {}.__getitem__)
    with pytest.raises(OSError, match=r"no home folder .* set TIMBREL_CACHE"):
        cache_folder()


class TestElsewhere:
    """Where files are not locked, and one that is open is not renamed: on Windows."""

    @pytest.fixture(autouse=True)
    def windows(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(files, "ON_WINDOWS", True)
        if os.name == "posix":
            monkeypatch.setattr("os.replace", without_posix.replace_what_is_closed)

    def test_files_arrive_whole_and_nothing_else_stays(self, source: Source, manifest: pb.Manifest) -> None:
        source.break_after = 300
        cache = FileCache(manifest, source)
        with pytest.raises(UnavailableError):
            cache.require(NAMES)
        assert list(cache.folder.iterdir()) == []
        folder = cache.require(NAMES)
        assert {name: (folder / name).read_bytes() for name in NAMES} == source.files
        assert {path.name for path in folder.iterdir()} == {*NAMES, "manifest.json"}

    def test_many_at_once_end_with_the_same_whole_files(self, source: Source, manifest: pb.Manifest) -> None:
        with ThreadPoolExecutor(8) as pool:
            folders = list(pool.map(lambda _: FileCache(manifest, source).require(NAMES), range(8)))
        assert {name: (folders[0] / name).read_bytes() for name in NAMES} == source.files

    def test_a_manifest_that_another_process_is_reading_is_replaced_once_it_has(
        self, source: Source, manifest: pb.Manifest, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        cache = FileCache(manifest, source)
        path = cache.require(NAMES) / "manifest.json"
        kept = path.read_bytes()
        path.write_text("{}")
        with path.open():
            monkeypatch.setattr(files, "READING_SECONDS", 0.1)
            with pytest.raises(OSError, match=r"cannot be kept here .*may have it open"):
                cache.require(NAMES)
        monkeypatch.setattr(files, "READING_SECONDS", 60.0)
        with path.open() as reader:
            monkeypatch.setattr(files.time, "sleep", lambda _: reader.close())
            cache.require(NAMES)
        assert path.read_bytes() == kept

    def test_one_that_another_process_has_brought_and_opened_meanwhile_will_do(
        self, source: Source, manifest: pb.Manifest, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def bring(part: str, path: Path) -> None:
            path.write_bytes(source.files[path.name])
            raise PermissionError(13, "Access is denied", part, None, str(path))

        monkeypatch.setattr(files.os, "replace", bring)
        monkeypatch.setattr(FileCache, "_keep_manifest", lambda *_: None)
        folder = FileCache(manifest, source).require(NAMES)
        assert {name: (folder / name).read_bytes() for name in NAMES} == source.files
