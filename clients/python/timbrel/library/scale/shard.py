"""Shards: a thousand notes or so, as one Parquet or WebDataset file, and a receipt for what is in it."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

ShardFormat = Literal["parquet", "webdataset"]
SHARD_FORMATS: tuple[ShardFormat, ...] = ("parquet", "webdataset")

_ENDINGS = {"parquet": "parquet", "webdataset": "tar"}

Row = dict[str, Any]
"""One note: the manifest's facts, and its codes as uint16 [frames, codebooks]."""


@dataclass(frozen=True)
class Shard:
    """A stretch of the plan."""

    number: int
    """From 0."""

    n_shards: int
    first: int
    """Number of its first note within the plan."""

    stop: int
    """And of the first that is not in it."""

    format: ShardFormat

    @property
    def name(self) -> str:
        """Of its file."""
        return f"{self._stem}.{_ENDINGS[self.format]}"

    @property
    def receipt(self) -> str:
        """Of the file that says that it is done, and what is in it: written last."""
        return f"{self._stem}.json"

    @property
    def _stem(self) -> str:
        return f"notes-{self.number:06d}-of-{self.n_shards:06d}"


@dataclass(frozen=True)
class Receipt:
    """What is in a shard that is done."""

    name: str
    n_notes: int
    n_rendered: int
    """Further attempts included."""

    n_out_of_tune: int
    n_bytes: int
    sha256: str
    """Of the file: equal jobs make equal ones."""

    codes_sha256: str
    """Over the hashes of its notes' codes, in order."""

    def to_bytes(self) -> bytes:
        return (json.dumps(asdict(self), indent=1) + "\n").encode()

    @classmethod
    def from_bytes(cls, content: bytes) -> Receipt:
        """Raises ValueError where it is no receipt."""
        try:
            return cls(**json.loads(content))
        except TypeError as error:
            raise ValueError(f"is no receipt ({error})") from None


def plan_shards(n_notes: int, notes_each: int, shard_format: ShardFormat) -> list[Shard]:
    """Consecutive stretches of the plan; the last may be shorter."""
    n_shards = -(-n_notes // notes_each)
    return [
        Shard(
            number,
            n_shards,
            number * notes_each,
            min(n_notes, (number + 1) * notes_each),
            shard_format,
        )
        for number in range(n_shards)
    ]


def shard_bytes(rows: Sequence[Row], shard_format: ShardFormat) -> bytes:
    """The whole file. Equal rows make equal bytes."""
    return _tar(rows) if shard_format == "webdataset" else _parquet(rows)


def receipt_of(shard: Shard, rows: Sequence[Row], content: bytes, n_rendered: int) -> Receipt:
    return Receipt(
        name=shard.name,
        n_notes=len(rows),
        n_rendered=n_rendered,
        n_out_of_tune=sum(not row["in_tune"] for row in rows),
        n_bytes=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
        codes_sha256=hashlib.sha256("".join(row["codes_sha256"] for row in rows).encode()).hexdigest(),
    )


def _tar(rows: Sequence[Row]) -> bytes:
    """NUMBER.json and NUMBER.codes.npy of each note, as WebDataset reads them."""
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
    """One row a note; `codes` is a list of frames, each a list of uint16."""
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
    sink = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(plain, schema=schema), sink, compression="zstd")
    content: bytes = sink.getvalue().to_pybytes()
    return content


_MAY_BE_NONE = ("pitch_measured", "pitch_measured_other")
