"""Where shards go: a folder of this machine or a bucket, by fsspec."""

from __future__ import annotations

import errno
import json
from typing import Any

from timbrel.errors import MissingExtraError, TimbrelError
from timbrel.library.folder import OtherJobError, differences
from timbrel.library.job import LibraryJob
from timbrel.library.key import job_key
from timbrel.library.scale.shard import Receipt, Shard

JOB_FILE = "job.json"
INDEX_FILE = "index.json"


class DepotError(TimbrelError):
    """The place cannot be read or written."""


class Depot:
    """One job's files."""

    def __init__(self, url: str) -> None:
        """
        Args:
            url: a folder, or for example s3://bucket/prefix.

        Raises:
            MissingExtraError: fsspec, or what it needs for this kind of place, is not installed.
            DepotError: there is no such kind of place.
        """
        try:
            from fsspec.core import url_to_fs
        except ImportError as error:
            raise MissingExtraError("writing shards", "scale") from error
        try:
            self._files, self._root = url_to_fs(url)
        except ImportError as error:
            raise DepotError(f"{url} cannot be written: {_one_line(error)}") from None
        except ValueError as error:
            raise DepotError(f"{url} is no place that fsspec knows: {_one_line(error)}") from None
        self.url = url

    def claim(self, job: LibraryJob, layout: dict[str, Any]) -> None:
        """Makes the place this job's, or finds that it is already.

        Args:
            layout: how the job is cut into shards.

        Raises:
            OtherJobError: it is another job's; the message says in what they differ.
        """
        described: dict[str, Any] = {**json.loads(json.dumps(job.to_json())), **layout}
        wanted = {"key": job_key(job), "job": described}
        found = self._read(JOB_FILE)
        if found is None:
            self._files.makedirs(self._root, exist_ok=True)
            self.write(JOB_FILE, (json.dumps(wanted, indent=1) + "\n").encode())
            return
        try:
            there = dict(json.loads(found)["job"])
        except (ValueError, KeyError, TypeError):
            raise OtherJobError(f"{self.url}/{JOB_FILE} is damaged; choose another place") from None
        if there != described:
            raise OtherJobError(
                f"{self.url} holds another job's shards (it differs in "
                f"{', '.join(differences(there, described))}); choose another place, or give the same "
                "options to continue it"
            )

    def receipt(self, shard: Shard) -> Receipt | None:
        """Of a shard that is done; None of one that is not."""
        content = self._read(shard.receipt)
        try:
            return None if content is None else Receipt.from_bytes(content)
        except ValueError:
            return None

    def keep(self, shard: Shard, content: bytes, receipt: Receipt) -> None:
        """Writes a shard and then its receipt: without one, it is not there."""
        self.write(shard.name, content)
        self.write(shard.receipt, receipt.to_bytes())

    def write(self, name: str, content: bytes) -> None:
        """A whole file or none. Objects of a bucket are so by themselves; local files are renamed.

        Raises:
            DepotError: it cannot be written.
        """
        path = f"{self._root}/{name}"
        local = "file" in _protocols(self._files)
        temporary = f"{self._root}/.{name}.tmp" if local else path
        try:
            self._files.pipe_file(temporary, content)
            if local:
                self._files.mv(temporary, path)
        except OSError as error:
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            reason = "no space is left" if full else _one_line(error)
            raise DepotError(
                f"{self.url}/{name} cannot be written: {reason}; shards that are done stay"
            ) from None

    def _read(self, name: str) -> bytes | None:
        try:
            content: bytes = self._files.cat_file(f"{self._root}/{name}")
        except FileNotFoundError:
            return None
        except OSError as error:
            raise DepotError(f"{self.url}/{name} cannot be read: {_one_line(error)}") from None
        return content


def _protocols(files: Any) -> tuple[str, ...]:
    return (files.protocol,) if isinstance(files.protocol, str) else tuple(files.protocol)


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())
