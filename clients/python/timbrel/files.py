"""The files of a bundle that a client needs, fetched once and kept in the user's cache folder."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from timbrel.errors import BundleMismatchError, DeadlineExceededError, within_allowed
from timbrel.progress import bar
from timbrel_bundle.errors import BundleError
from timbrel_bundle.file_lock import try_lock
from timbrel_bundle.files import sha256_file
from timbrel_bundle.layout import MANIFEST
from timbrel_bundle.manifest import load_manifest, save_manifest
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb

CACHE_VARIABLE = "TIMBREL_CACHE"
"""Environment variable that names the cache folder itself."""

MOST_BYTES = 2**29
"""A file that is said to be larger is not fetched: codecs take some megabytes, EnCodec's some sixty."""

TURN_SECONDS = 0.05
"""How often it is asked whether another process has let go of a file."""

ON_WINDOWS = os.name == "nt"
"""There no file is renamed that is open, so that processes share no unfinished ones, and none is resumed."""

READING_SECONDS = 2.0
"""For how long a manifest that cannot be replaced is taken for one that another process is reading."""

Fetch = Callable[[str, int], Iterator[pb.GetFileResponse]]
"""Starts a transfer: (file name, bytes to skip) -> replies."""


def cache_folder() -> Path:
    """TIMBREL_CACHE, else timbrel in XDG_CACHE_HOME, else ~/.cache/timbrel. Raises OSError where there is
    none of these."""
    if own := os.environ.get(CACHE_VARIABLE):
        return Path(own)
    if shared := os.environ.get("XDG_CACHE_HOME"):
        return Path(shared) / "timbrel"
    try:
        return Path.home() / ".cache" / "timbrel"
    except RuntimeError:
        fault = "there is no home folder to keep the bundle's files in"
        raise OSError(f"{fault}: set {CACHE_VARIABLE} to a folder") from None


class FileCache:
    """The fetched part of one bundle: a folder named by the bundle's hash, which opens as a bundle.

    The manifest must have been checked: its hash names a folder here.

    A file appears under its name only when it is whole and its SHA-256 is the manifest's. A transfer that
    broke off is continued by the next.
    """

    def __init__(
        self,
        manifest: pb.Manifest,
        fetch: Fetch,
        *,
        timeout: float | None = None,
        show_progress: bool = False,
    ) -> None:
        """`timeout` is the seconds allowed for waiting until another process has fetched a file."""
        # Absolute: notes are decoded later, wherever their program has gone by then.
        self.folder = cache_folder().absolute() / "bundles" / manifest.bundle_hash
        self._manifest = manifest
        self._fetch = fetch
        self._timeout = timeout
        self._show_progress = show_progress

    def require(self, names: Iterable[str]) -> Path:
        """Fetches those of the files that are not here yet, and returns the folder. Raises
        BundleMismatchError: the bundle has no such file or one beyond MOST_BYTES, or what arrived is not what
        the manifest states; DeadlineExceededError: another process fetches one, and does not come to an end;
        OSError: the cache folder cannot be written."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            for name in names:
                self._require(self._describe(name))
            self._keep_manifest(self.folder / MANIFEST)
        except OSError as error:
            fault = f"{self.folder}: the bundle's files cannot be kept here ({error.strerror or error})"
            remedy = f"set {CACHE_VARIABLE} to a folder that can be written to"
            if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                remedy = f"make room, or set {CACHE_VARIABLE} to a folder on another disk"
            raise OSError(f"{fault}: {remedy}") from error
        return self.folder

    def _keep_manifest(self, path: Path) -> None:
        """The hash names the files alone: what another server said of them beside is not to be believed."""
        manifest = pb.Manifest()
        manifest.CopyFrom(self._manifest)
        manifest.DiscardUnknownFields()  # of a later version, which the file does not hold
        since = time.monotonic()
        while _kept_manifest(path) != manifest:
            try:
                return save_manifest(manifest, path)
            except PermissionError:  # Windows replaces nothing that another has open: it soon has read it
                if time.monotonic() - since >= READING_SECONDS:
                    raise
                time.sleep(TURN_SECONDS)

    def _describe(self, name: str) -> pb.BundleFile:
        for file in self._manifest.files:
            if file.name == name and file.size > MOST_BYTES:
                raise BundleMismatchError(f"{name} has {file.size} bytes, up to {MOST_BYTES} are fetched")
            if file.name == name:
                return file
        raise BundleMismatchError(f"the server's bundle has no {name}")

    def _require(self, file: pb.BundleFile) -> None:
        path = self.folder / file.name
        if _is_whole(path, file):
            return
        with _open_part(path, self._timeout) as part:
            # Another process may have finished while this one waited for its turn.
            if _is_whole(path, file):
                return
            self._transfer(file, part)
            if not _is_whole(Path(part.name), file):
                # What an earlier transfer left may have been wrong: once more, from the start.
                part.truncate(0)
                self._transfer(file, part)
            if not _is_whole(Path(part.name), file):
                part.truncate(0)
                raise BundleMismatchError(f"{file.name} arrived damaged: its SHA-256 is not the manifest's")
            if ON_WINDOWS:
                part.close()
            try:
                os.replace(part.name, path)
            except PermissionError:  # Windows replaces no open file: another process may have fetched it
                if not _is_whole(path, file):
                    raise

    def _transfer(self, file: pb.BundleFile, part: BinaryIO) -> None:
        """Appends to the part what it lacks."""
        start = part.seek(0, os.SEEK_END)
        if start > file.size:
            start = part.truncate(0)
            part.seek(0)
        if start == file.size:
            return
        with bar(file.name, file.size, "B", shown=self._show_progress, initial=start) as progress:
            for reply in self._fetch(file.name, start):
                if part.tell() + len(reply.data) > file.size:
                    raise BundleMismatchError(f"the server sent more of {file.name} than the manifest states")
                part.write(reply.data)
                progress.update(len(reply.data))
        part.flush()


def _kept_manifest(path: Path) -> pb.Manifest | None:
    try:
        return load_manifest(path)
    except BundleError:
        return None


def _is_whole(path: Path, file: pb.BundleFile) -> bool:
    try:
        return path.stat().st_size == file.size and sha256_file(path) == file.sha256
    except FileNotFoundError:
        return False


@contextlib.contextmanager
def _open_part(path: Path, timeout: float | None) -> Iterator[BinaryIO]:
    """The unfinished file beside `path`, this process's alone while it is open. What it holds is kept, where
    files are locked."""
    if not ON_WINDOWS:
        shared = path.with_name(f"{path.name}.part")
        with open(shared, "ab", opener=_open_no_link) as file:
            if _lock(file, timeout):
                yield file
                return
        shared.unlink(missing_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}-{secrets.token_hex(4)}.part")
    try:
        with part.open("wb") as file:
            yield file
    finally:
        part.unlink(missing_ok=True)


def _open_no_link(path: str, flags: int) -> int:
    """Opens a file that is no link: in a shared cache another's might lead anywhere."""
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0), 0o666)


def _lock(file: BinaryIO, timeout: float | None) -> bool:
    """Waits until no other process has the file: one that was stopped might have it for ever. Returns False
    where it is on a file system that locks no files, as some network's."""
    since = time.monotonic()
    while True:
        try:
            if try_lock(file):
                return True
        except OSError:
            return False
        if timeout is not None and time.monotonic() - since >= timeout:
            raise DeadlineExceededError(
                f"another process has not fetched {file.name}{within_allowed(timeout)} here;"
                " let it go on, or end it"
            )
        time.sleep(TURN_SECONDS)
