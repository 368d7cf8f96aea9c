"""A library's folder: what lies where, and whose it is."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from timbrel.errors import TimbrelError
from timbrel.library.job import LibraryJob
from timbrel.library.key import job_key
from timbrel.library.lock import FolderLock
from timbrel.library.plan import SAMPLES
from timbrel_bundle.files import atomic_write

WORK = ".timbrel"
"""Folder, within a library, of what only timbrel needs: raw codes, measurements, the lock."""

MANIFEST = "manifest.jsonl"
TABLE = "manifest.parquet"


class OtherJobError(TimbrelError):
    """The folder holds something else than the library that is to be written."""


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

    def check(self) -> None:
        """Refuses a folder that timbrel did not begin: worth asking before any work.

        Raises:
            OtherJobError: it is a file, or holds files that are not a library's.
        """
        if self.path.exists() and not self.path.is_dir():
            raise OtherJobError(f"{self.path} is a file; --out needs a folder")
        if self.path.is_dir() and not self.work.is_dir() and any(self.path.iterdir()):
            raise OtherJobError(
                f"{self.path} holds files that are no timbrel library; choose an empty or a new folder"
            )

    def lock(self) -> FolderLock:
        """Makes the folder if need be. The lock is to be held while anything is written."""
        self.check()
        self.work.mkdir(parents=True, exist_ok=True)
        return FolderLock(self.work / "lock", self.path)

    def claim(self, job: LibraryJob) -> None:
        """Makes the folder this job's, or finds that it is already. The lock must be held.

        Raises:
            OtherJobError: it is another job's; the message says in what they differ.
        """
        wanted = {"key": job_key(job), "job": json.loads(json.dumps(job.to_json()))}
        if self.job_file.exists():
            found = self._read_job()
            if found["key"] != wanted["key"]:
                differing = ", ".join(differences(found["job"], wanted["job"])) or "format"
                raise OtherJobError(
                    f"{self.path} holds another job's library (it differs in {differing}); "
                    "choose another folder, or give the same options to continue it"
                )
        else:
            atomic_write(self.job_file, json.dumps(wanted, indent=1) + "\n")
        for folder in (self.codes, self.finished):
            folder.mkdir(exist_ok=True)

    def sweep(self) -> None:
        """Removes what a killed run was writing. The lock must be held."""
        for name in (WORK, SAMPLES):
            for unfinished in (self.path / name).rglob(".*.tmp"):
                unfinished.unlink(missing_ok=True)
        for unfinished in self.path.glob(".*.tmp"):
            unfinished.unlink(missing_ok=True)

    def _read_job(self) -> dict[str, Any]:
        try:
            found = json.loads(self.job_file.read_text(encoding="utf-8"))
        except ValueError:
            found = None
        if not isinstance(found, dict) or not isinstance(found.get("job"), dict) or "key" not in found:
            raise OtherJobError(f"{self.job_file} is damaged; choose another folder")
        return found


def differences(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> Iterator[str]:
    """Names of what differs."""
    for name in sorted(found.keys() | wanted.keys()):
        one, other = found.get(name), wanted.get(name)
        if isinstance(one, dict) and isinstance(other, dict):
            yield from differences(one, other)
        elif one != other:
            yield "timbres" if name == "voices" else name
