"""Shards: a thousand notes or so, as one Parquet or WebDataset file, and a receipt for what is in it.

They go to a folder of this machine or to a bucket, by fsspec.
"""

from __future__ import annotations

import errno
import hashlib
import io
import json
import tarfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from timbrel.errors import MissingExtraError, TimbrelError
from timbrel.library.plan.folder import OtherJobError, differences
from timbrel.library.plan.job import LibraryJob
from timbrel.library.plan.notes import job_key
from timbrel_bundle.files import parse_json

SHARD_FORMATS = {"parquet": "parquet", "webdataset": "tar"}
"""Format -> ending of the files; the first is the default."""

DEFAULT_FORMAT = next(iter(SHARD_FORMATS))
DEFAULT_NOTES = 1000

JOB_FILE = "job.json"
INDEX_FILE = "index.json"

_MAY_BE_NONE = ("pitch_measured", "pitch_measured_other")

Row = dict[str, Any]
"""One note: the manifest's facts, and its codes as uint16 [frames, codebooks]."""


class ShardStoreError(TimbrelError):
    """The place of the shards cannot be read or written."""


@dataclass(frozen=True)
class Shard:
    """A stretch of the plan, as one file."""

    number: int
    """Counted from 0."""

    n_shards: int
    first: int
    """Number of its first note within the plan."""

    stop: int
    """Number of the first note behind it."""

    format: str

    @property
    def name(self) -> str:
        """Name of its file."""
        return f"{self._stem}.{SHARD_FORMATS[self.format]}"

    @property
    def receipt(self) -> str:
        """Name of the file that says that it is done, and what is in it: written last."""
        return f"{self._stem}.json"

    @property
    def _stem(self) -> str:
        return f"notes-{self.number:06d}-of-{self.n_shards:06d}"


@dataclass(frozen=True)
class ShardReceipt:
    """The account of a shard that is done."""

    name: str
    n_notes: int
    n_rendered: int
    """Notes that a server was asked for, further attempts included."""

    n_out_of_tune: int
    n_bytes: int
    sha256: str
    """Hash of the file: equal jobs make equal ones."""

    codes_sha256: str
    """Hash over the hashes of its notes' codes, in order."""


def plan_shards(n_notes: int, notes_each: int, shard_format: str) -> list[Shard]:
    """Cuts the plan into consecutive stretches; the last may be shorter."""
    n_shards = -(-n_notes // notes_each)
    return [
        Shard(number, n_shards, number * notes_each, min(n_notes, (number + 1) * notes_each), shard_format)
        for number in range(n_shards)
    ]


def shard_bytes(rows: Sequence[Row], shard_format: str) -> bytes:
    """Writes a whole file. Equal rows make equal bytes."""
    return _tar(rows) if shard_format == "webdataset" else _parquet(rows)


def receipt_of(shard: Shard, rows: Sequence[Row], content: bytes, n_rendered: int) -> ShardReceipt:
    """Accounts for a shard that holds these rows, as this file."""
    return ShardReceipt(
        name=shard.name,
        n_notes=len(rows),
        n_rendered=n_rendered,
        n_out_of_tune=sum(not row["in_tune"] for row in rows),
        n_bytes=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
        codes_sha256=hashlib.sha256("".join(row["codes_sha256"] for row in rows).encode()).hexdigest(),
    )


def _tar(rows: Sequence[Row]) -> bytes:
    """Packs NUMBER.json and NUMBER.codes.npy of each note, as WebDataset reads them."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for row in rows:
            facts = {name: value for name, value in row.items() if name != "codes"}
            codes = io.BytesIO()
            np.save(codes, row["codes"], allow_pickle=False)
            _add(tar, f"{row['note']:012d}.json", json.dumps(facts, ensure_ascii=False).encode())
            _add(tar, f"{row['note']:012d}.codes.npy", codes.getvalue())
    return content.getvalue()


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)  # of no owner, from 1970: equal notes make equal files
    entry.size = len(content)
    tar.addfile(entry, io.BytesIO(content))


def _parquet(rows: Sequence[Row]) -> bytes:
    """Writes one row a note; `codes` is a list of frames, each a list of uint16."""
    import pyarrow
    import pyarrow.parquet

    types = {bool: pyarrow.bool_(), int: pyarrow.int64(), float: pyarrow.float64(), str: pyarrow.string()}
    fields = [
        (name, types[float if name in _MAY_BE_NONE else type(value)])
        for name, value in rows[0].items()
        if name != "codes"
    ]
    schema = pyarrow.schema([*fields, ("codes", pyarrow.list_(pyarrow.list_(pyarrow.uint16())))])
    plain = [{**row, "codes": row["codes"].tolist()} for row in rows]
    content = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(plain, schema=schema), content, compression="zstd")
    return content.getvalue()


class ShardStore:
    """The place of one job's shards: a folder, or a bucket."""

    def __init__(self, url: str) -> None:
        """Opens a folder, or for example s3://bucket/prefix. Raises MissingExtraError: fsspec is not
        installed; ShardStoreError: there is no such kind of place, or what it needs is not there."""
        try:
            from fsspec.core import url_to_fs
            from fsspec.implementations.local import LocalFileSystem
        except ImportError as error:
            raise MissingExtraError("writing shards", "scale") from error
        try:
            self._files, self._root = url_to_fs(url)
        except ValueError as error:
            raise ShardStoreError(f"{url} is no place that fsspec knows: {_one_line(error)}") from None
        except Exception as error:  # of a library that is missing, or of its own
            raise ShardStoreError(f"{url} cannot be written: {_one_line(error)}") from None
        self._is_local = isinstance(self._files, LocalFileSystem)
        self.url = url
        self.location = self._root if self._is_local else url
        """The same place, from whatever folder: workers have others."""

    def claim(self, job: LibraryJob, layout: dict[str, Any]) -> None:
        """Makes the place this job's, cut into shards as `layout` says, or finds that it is already. Raises
        OtherJobError: it is another job's; the message says in what they differ; ShardStoreError: it cannot
        be read or written."""
        described: dict[str, Any] = {**json.loads(json.dumps(job.to_dict())), **layout}
        wanted = {"key": job_key(job), "job": described}
        found = self._ask(self._files.cat_file, JOB_FILE)
        if found is None:
            with self._one_line_errors(JOB_FILE, "written"):
                self._files.makedirs(self._root, exist_ok=True)
            self.write_json(JOB_FILE, wanted)
            return
        try:
            there = dict(parse_json(found)["job"])
        except (ValueError, KeyError, TypeError):
            raise OtherJobError(f"{self.url}/{JOB_FILE} is damaged; choose another place") from None
        if there != described:
            raise OtherJobError(
                f"{self.url} holds another job's shards (it differs in "
                f"{', '.join(differences(there, described))}); choose another place, or give the same "
                "options to continue it"
            )

    def receipt(self, shard: Shard) -> ShardReceipt | None:
        """Reads the receipt of a shard; None where it is not done, or its file is gone or cut short. Raises
        ShardStoreError: the place cannot be read."""
        content = self._ask(self._files.cat_file, shard.receipt)
        try:
            found = None if content is None else ShardReceipt(**parse_json(content))
        except (TypeError, ValueError):
            return None
        facts = None if found is None else self._ask(self._files.info, shard.name)
        return None if found is None or facts is None or facts["size"] != found.n_bytes else found

    def commit(self, shard: Shard, content: bytes, receipt: ShardReceipt) -> None:
        """Writes a shard and then its receipt: without one, it counts as not there."""
        self.write(shard.name, content)
        self.write_json(shard.receipt, asdict(receipt))

    def write_json(self, name: str, facts: dict[str, Any]) -> None:
        """Writes a whole file or none; raises as `write` does."""
        self.write(name, (json.dumps(facts, indent=1) + "\n").encode())

    def write(self, name: str, content: bytes) -> None:
        """Writes a whole file or none. Objects of a bucket are so by themselves; local files are renamed.
        Raises ShardStoreError: it cannot be written."""
        path = f"{self._root}/{name}"
        temporary = f"{self._root}/.{name}.tmp" if self._is_local else path
        with self._one_line_errors(name, "written"):
            if self._is_local:
                Path(temporary).unlink(missing_ok=True)  # left by a kill, or a link to somewhere else
            self._files.pipe_file(temporary, content)
            if self._is_local:
                self._files.mv(temporary, path)

    def _ask(self, ask: Callable[[str], Any], name: str) -> Any:
        """Asks for the content of a file, or for facts about it; None where it is not there."""
        with self._one_line_errors(name, "read"):
            try:
                return ask(f"{self._root}/{name}")
            except FileNotFoundError:
                return None

    @contextmanager
    def _one_line_errors(self, name: str, verb: str) -> Iterator[None]:
        """Raises ShardStoreError in place of all that goes wrong. Where there are no credentials, or no
        network, what buckets' libraries raise is no OSError."""
        try:
            yield
        except Exception as error:
            full = getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT)
            reason = "no space is left" if full else _one_line(error)
            raise ShardStoreError(
                f"{self.url}/{name} cannot be {verb}: {reason}; shards that are done stay"
            ) from None


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())
