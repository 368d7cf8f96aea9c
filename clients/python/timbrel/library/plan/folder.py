"""A library's folder: what lies where, whose it is, and how files get into it."""

from __future__ import annotations

import errno
import json
import math
import os
import socket
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

from timbrel.errors import TimbrelError
from timbrel.library.plan.job import LibraryJob
from timbrel.library.plan.notes import SAMPLES, job_key
from timbrel.library.plan.voice import Hold
from timbrel.scala import KeyCents
from timbrel_bundle.file_lock import try_lock
from timbrel_bundle.files import atomic_path, atomic_write, parse_json

WORK = ".timbrel"
"""Folder, within a library, of what only timbrel needs: raw codes, measurements, the lock."""

MANIFEST = "manifest.jsonl"
TABLE = "manifest.parquet"
DOCUMENTS = ("LICENSE", "README.md")
MAX_TUNING_BYTES = 2**16

LEFT_BY_SYSTEMS = (".DS_Store", "Thumbs.db", "desktop.ini")
"""What macOS and Windows leave in a folder that somebody has looked into: it is empty all the same."""

NO_LOCKS = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOLCK)
"""Errors of file systems that lock no files: two jobs on one folder are not noticed there. ENOTSUP, which is
another number than EOPNOTSUPP on a Mac, is what it says of a network share."""


class OtherJobError(TimbrelError):
    """The folder holds something else than the library that is to be written."""


class LockedError(TimbrelError):
    """Another process is at work in the folder."""


class DiskFullError(TimbrelError):
    """There is no room for more; what was done is kept."""


class LibraryFolder:
    """The paths of a library."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.work = path / WORK
        self.job_file = self.work / "job.json"
        self.codes = self.work / "codes"
        self.measured = self.work / "measured.log"
        self.finished = self.work / "finished"
        self.manifest = path / MANIFEST
        self.table = path / TABLE
        self.tuning = path / "tuning.json"

    def check(self) -> None:
        """Refuses a folder that timbrel did not begin: worth asking before any work. Raises OtherJobError: it
        is a file, or holds files that are not a library's."""
        if self.path.exists() and not self.path.is_dir():
            raise OtherJobError(f"{self.path} is a file; --out needs a folder")
        if not self.path.is_dir() or self.work.is_dir():
            return
        if any(each.name not in LEFT_BY_SYSTEMS for each in self.path.iterdir()):
            raise OtherJobError(
                f"{self.path} holds a library without its folder {WORK}, by which it is continued; copy "
                "that too, or choose an empty or a new folder"
                if self.manifest.exists()
                else f"{self.path} holds files that are no timbrel library; choose an empty or a new folder"
            )

    def find(self, name: str) -> Path | None:
        """The file of the library that has this path within it; None where it is none, or lies elsewhere."""
        try:
            path = (self.path / name).resolve(strict=True)
            is_ours = path.is_relative_to(self.path.resolve()) and path.is_file()
        except (OSError, ValueError, RuntimeError):  # also of names that cannot be, or a ring of links
            return None
        return path if is_ours else None

    def check_writable(self) -> None:
        """Refuses to go on in folders through which other places would be written to, or read for ever.
        Raises OtherJobError: below `work` or the samples' folder is a link, a pipe or a device."""
        for top in (self.work, self.path / SAMPLES):
            for entry in _entries(top):
                if not stat.S_ISDIR(mode := entry.lstat().st_mode) and not stat.S_ISREG(mode):
                    raise OtherJobError(
                        f"{entry} is neither a file nor a folder: timbrel makes no links in a library, and "
                        "follows none; choose another folder"
                    )

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Makes the folder if need be, and keeps other processes out while the `with` block writes to it.

        The system lets go of the lock when the process ends, however it ends. Raises OtherJobError: as
        `check` and `check_writable` do; LockedError: another process holds it, and the message says which;
        DiskFullError: no space was left during the block.
        """
        self.check()
        self.check_writable()
        try:
            self.work.mkdir(parents=True, exist_ok=True)
            with (self.work / "lock").open("a+", encoding="utf-8") as file:
                self._lock(file)
                file.truncate(0)
                file.write(f"process {os.getpid()} on {socket.gethostname()}\n")
                file.flush()
                yield
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            raise DiskFullError(
                f"no space is left on the disk of {self.path}; what was rendered is kept: make room and run "
                "the same command again to continue"
            ) from error

    def _lock(self, file: TextIO) -> None:
        try:
            is_ours = try_lock(file)
        except OSError as error:
            if error.errno in NO_LOCKS:
                return
            raise
        if not is_ours:
            file.seek(0)
            holder = file.read().strip() or "another process"
            raise LockedError(f"{self.path} is in use by {holder}; wait for it, or choose another folder")

    def claim(self, job: LibraryJob) -> None:
        """Makes the folder this job's, or finds that it is already; raises OtherJobError if it is another's.

        The lock must be held.
        """
        wanted = {"key": job_key(job), "job": json.loads(json.dumps(job.to_dict()))}
        if self.job_file.exists():
            found = self.read_job()
            if found["key"] != wanted["key"]:
                differing = ", ".join(dict.fromkeys(differences(found["job"], wanted["job"]))) or "format"
                same_writer = found["job"].get("writer") == wanted["job"]["writer"]
                served = "have its bundle served as it was then (--bundle, --server)"
                remedy = "give the same options" if same_writer else served
                raise OtherJobError(
                    f"{self.path} holds another job's library (it differs in {differing}); "
                    f"choose another folder, or {remedy} to continue it; to begin anew in this one, remove "
                    f"all that is in it, the hidden {WORK} too"
                )
        else:
            atomic_write(self.job_file, json.dumps(wanted, indent=1) + "\n")
        for folder in (self.codes, self.finished):
            folder.mkdir(exist_ok=True)

    def tune(self, tuning: KeyCents | None, slugs: Collection[str]) -> None:
        """Writes down how these instruments are to be tuned. Where they were tuned otherwise, their .sf2
        files and their chords go: who does not ask for them again would keep those of the other tuning.

        The lock must be held.
        """
        wanted = None if tuning is None else f"{json.dumps(list(tuning))}\n".encode()
        found = None
        if self.tuning.is_file() and not self.tuning.is_symlink():
            with self.tuning.open("rb") as file:
                found = file.read(MAX_TUNING_BYTES)
        if found == wanted:
            return
        self.drop_extras(slugs)
        if wanted is None:
            self.tuning.unlink(missing_ok=True)
        else:
            atomic_write(self.tuning, wanted)

    def drop_extras(self, slugs: Collection[str]) -> None:
        """Removes the .sf2 files of these instruments, and their chords. The lock must be held."""
        for path in self.extras(slugs):
            path.unlink()

    def extras(self, slugs: Collection[str]) -> list[Path]:
        """The .sf2 files of these instruments, and their chords, by name."""
        found = []
        for path in sorted(self.path.iterdir()):
            slug, chord, _ = path.stem.partition("_")  # which no slug holds
            if slug in slugs and path.suffix in ((".sfz", ".dspreset") if chord else (".sf2",)):
                found.append(path)
        return found

    def sweep(self) -> None:
        """Removes what a killed run was writing. The lock must be held."""
        for name in (WORK, SAMPLES):
            for unfinished in (self.path / name).rglob(".*.tmp"):
                unfinished.unlink(missing_ok=True)
        for unfinished in self.path.glob(".*.tmp"):
            unfinished.unlink(missing_ok=True)

    def as_begun(self, job: LibraryJob) -> LibraryJob | None:
        """The job, its keys held as those of the job that was begun here; None if none was. The lock must be
        held. Raises OtherJobError: the file that says so is damaged."""
        if not self.job_file.exists():
            return None
        begun = self.read_job()["job"]
        seconds = begun.get("seconds")
        try:
            holds = {voice["slug"]: Hold(**voice["hold"]) for voice in begun["voices"] if "hold" in voice}
        except (KeyError, TypeError):  # another job than any of this version
            holds = {}
        known = {slug: hold for slug, hold in holds.items() if _is_sound(hold)}
        voices = tuple(replace(voice, hold=known.get(voice.slug)) for voice in job.voices)
        return replace(job, seconds=seconds if _is_finite(seconds) else job.seconds, voices=voices)

    def read_job(self) -> dict[str, Any]:
        try:
            found = parse_json(self.job_file.read_bytes())
        except ValueError:
            found = None
        if not isinstance(found, dict) or not isinstance(found.get("job"), dict) or "key" not in found:
            raise OtherJobError(
                f"{self.job_file} is damaged; delete it, and the command that began the library goes on with "
                "its notes, or choose another folder"
            )
        return found


def _entries(path: Path) -> Iterator[Path]:
    """A folder and all that is in it, links not followed; nothing where it is not there."""
    if path.exists() or path.is_symlink():
        yield path
    if path.is_dir() and not path.is_symlink():
        for folder, folders, files in os.walk(path):
            yield from (Path(folder, name) for name in (*folders, *files))


def differences(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> Iterator[str]:
    """Names what differs between two jobs as JSON."""
    for name in sorted(found.keys() | wanted.keys()):
        one, other = found.get(name), wanted.get(name)
        if isinstance(one, dict) and isinstance(other, dict):
            yield from differences(one, other)
        elif one != other:
            is_of_holds = name == "voices" and _without_holds(one) == _without_holds(other)
            yield "seconds" if is_of_holds else "timbres" if name == "voices" else name[:60]


def _is_sound(hold: Hold) -> bool:
    """Whether all that a file says of a hold is numbers."""
    return _is_finite(hold.seconds) and (hold.release_seconds is None or _is_finite(hold.release_seconds))


def _is_finite(value: Any) -> bool:
    """Whether what a file says is a finite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _without_holds(voices: Any) -> list[Any]:
    some = voices if isinstance(voices, list) else [voices]
    return [{**voice, "hold": None} if isinstance(voice, dict) else voice for voice in some]


def write_later(path: Path, content: bytes) -> None:
    """Writes a file by renaming a temporary one, and makes its folder if need be.

    Once this returns, no kill takes the file away. A power cut may, until `sync` or the system itself has
    brought it to the disk: waiting for that with every file would take longer than making it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_path(path) as temporary:
        temporary.write_bytes(content)


def sync(paths: Iterable[Path]) -> None:
    """Returns once these files are on the disk."""
    for path in paths:
        with path.open("rb+") as file:
            os.fsync(file.fileno())
