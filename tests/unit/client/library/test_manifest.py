"""The manifest of a library, its summary, and what is left out where a program is missing."""

from __future__ import annotations

import json
import sys
from dataclasses import fields, replace
from pathlib import Path

import pytest
from requirements_gate import require_module

import timbrel.library.finish.manifest as manifest
from timbrel.library import LibraryJob
from timbrel.library.finish.manifest import (
    ManifestRow,
    is_table_of,
    nsynth_family,
    read_rows,
    write_rows,
    write_table,
)
from timbrel.library.finish.shards import Shard, ShardStore, ShardStoreError
from timbrel.library.finish.summary import summarise
from timbrel_bundle.request_fields import SAMPLING_FIELDS, SamplingSettings

NSYNTH_FIELDS = (
    *("note", "note_str", "instrument", "instrument_str", "pitch", "velocity", "sample_rate"),
    *("instrument_family", "instrument_family_str", "instrument_source", "instrument_source_str"),
)

VALUES = {
    "SamplingSettings": SamplingSettings(0.5, 1, 0.5),
    "int": 1,
    "float": 0.5,
    "str": "a",
    "bool": True,
    "int | None": None,
    "float | None": None,
}


@pytest.fixture
def row() -> ManifestRow:
    values = {each.name: VALUES[str(each.type)] for each in fields(ManifestRow)}
    return ManifestRow(**{**values, "sample_rate": 48_000, "key": "abc"})  # type: ignore[arg-type]


def test_rows_come_back_and_lead_with_nsynths_fields(tmp_path: Path, row: ManifestRow) -> None:
    rows = [row, replace(row, note=2, instrument_str="Übung", loop_start=3, pitch_measured=60.25)]
    write_rows(tmp_path / "manifest.jsonl", rows)
    assert list(read_rows(tmp_path / "manifest.jsonl")) == rows
    first = json.loads((tmp_path / "manifest.jsonl").read_text(encoding="utf-8").splitlines()[0])
    assert tuple(first)[: len(NSYNTH_FIELDS)] == NSYNTH_FIELDS


@pytest.mark.parametrize("line", ["{", "[]", '{"note": 1}', "null"])
def test_a_damaged_line_is_named(tmp_path: Path, row: ManifestRow, line: str) -> None:
    path = tmp_path / "manifest.jsonl"
    path.write_text(row.to_json() + "\n" + line + "\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"manifest\.jsonl: line 2 "):
        list(read_rows(path))


@pytest.mark.parametrize(
    ("name", "value"),
    [("held_seconds", "x"), ("held_seconds", float("nan")), ("pitch", 60.5), ("pitch", True), ("file", None)],
)
def test_a_field_of_another_type_is_named(tmp_path: Path, row: ManifestRow, name: str, value: object) -> None:
    path = tmp_path / "manifest.jsonl"
    path.write_text(json.dumps(json.loads(row.to_json()) | {name: value}) + "\n", encoding="utf-8")
    with pytest.raises(ValueError, match=f"line 1 has {name} .*, expected"):
        list(read_rows(path))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("pitch", 10**400),
        ("seed", 2**64),
        ("x", 10**400),
        ("pitch", 128),
        ("sample_rate", 0),
        ("n_samples", 2**40),
        ("key", "../../../secret"),
        ("file", "\x1b[2J.wav"),
        ("instrument_str", "x" * 5000),
    ],
)
def test_a_value_that_cannot_be_is_named(tmp_path: Path, row: ManifestRow, name: str, value: object) -> None:
    path = tmp_path / "manifest.jsonl"
    path.write_text(json.dumps(json.loads(row.to_json()) | {name: value}) + "\n", encoding="utf-8")
    with pytest.raises(ValueError, match=rf"line 1 has (the )?{name} ") as error:
        list(read_rows(path))
    assert str(error.value).isprintable() and len(str(error.value)) < 1000


@pytest.mark.parametrize("line", ["[" * 50_000, "[" * 200_000, '{"note": ' * 5_000])
def test_a_line_nested_too_deeply_is_named(tmp_path: Path, line: str) -> None:
    (tmp_path / "manifest.jsonl").write_text(line, encoding="utf-8")
    with pytest.raises(ValueError, match="line 1 "):
        list(read_rows(tmp_path / "manifest.jsonl"))


def test_a_row_from_before_there_was_a_sampling_parameter_is_read(
    row: ManifestRow, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = tuple(replace(each, off=256 if each.name == "top_k" else None) for each in SAMPLING_FIELDS)
    monkeypatch.setattr(manifest, "SAMPLING_FIELDS", later)
    values = json.loads(row.to_json())
    del values["top_k"]
    assert ManifestRow.from_json(json.dumps(values)).sampling == SamplingSettings(0.5, 256, 0.5)


def test_the_table_has_the_same_columns_with_and_without_loops(tmp_path: Path, row: ManifestRow) -> None:
    require_module("pyarrow", "scale")
    from pyarrow import parquet

    assert write_table(tmp_path / "one.parquet", [row])
    assert write_table(tmp_path / "other.parquet", [replace(row, loop_start=1, pitch_measured=60.5)])
    one, other = (parquet.read_schema(tmp_path / f"{name}.parquet") for name in ("one", "other"))
    assert one == other and str(one.field("loop_start").type) == "int64"


def test_without_pyarrow_there_is_no_table(
    tmp_path: Path, row: ManifestRow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "m.parquet").write_bytes(b"of a run before, by another tracker")
    assert not write_table(tmp_path / "m.parquet", [row])
    assert not (tmp_path / "m.parquet").exists()


def test_a_table_is_told_from_that_of_other_rows(tmp_path: Path, row: ManifestRow) -> None:
    require_module("pyarrow", "scale")
    import pyarrow

    path, rows = tmp_path / "m.parquet", [row, replace(row, seed=2)]
    write_table(path, rows)
    assert is_table_of(path, rows) is True
    assert is_table_of(path, [row, replace(row, seed=3)]) is False
    whole = path.read_bytes()
    for damaged in (b"", whole[: len(whole) // 2], whole.replace(b"PAR1", b"PAR0")):
        path.write_bytes(damaged)
        assert is_table_of(path, rows) is False
    assert whole.count(pyarrow.cpp_version.encode()) == 1
    path.write_bytes(whole.replace(pyarrow.cpp_version.encode(), b"9.9.9"))
    assert is_table_of(path, rows) is None, "another version's bytes are others"


def test_families_in_nsynths_words() -> None:
    assert nsynth_family("Strings") == (8, "string")
    assert nsynth_family("Chromatic Percussion")[0] == 5
    assert nsynth_family("Synth Pad") == (-1, "synth_pad")
    assert nsynth_family("") == (-1, "unknown")


def test_a_summary_counts(row: ManifestRow) -> None:
    rows = [
        replace(row, file="a", tune_cents=0, attempts=1, pitch_measured=60.0),
        replace(row, file="b", tune_cents=-7, attempts=1, pitch_measured=60.07, loop_start=1),
        replace(row, file="c", tune_cents=0, attempts=3, pitch_measured=72.0, in_tune=False),
        replace(row, file="d", tune_cents=0, attempts=1, in_tune=False),
    ]
    summary = summarise("lib", rows, 2, 10.0, 4.0, ["left out"])
    assert (summary.n_notes, summary.n_tuned, summary.n_again, summary.n_looped) == (4, 1, 1, 1)
    assert (summary.out_of_tune, summary.n_unpitched, summary.notes_per_second) == (("c",), 1, 0.5)
    text = summary.to_text()
    assert "1 out of tune after every attempt: c" in text and text.endswith("left out")
    assert json.loads(json.dumps(summary.to_json()))["notes_per_second"] == 0.5


def test_shards_are_not_written_through_a_link(tmp_path: Path) -> None:
    require_module("fsspec", "scale")
    (tmp_path / "precious").write_text("mine")
    (tmp_path / ".a.parquet.tmp").symlink_to(tmp_path / "precious")
    ShardStore(str(tmp_path)).write("a.parquet", b"sound")
    assert (tmp_path / "precious").read_text() == "mine"
    assert not (tmp_path / "a.parquet").is_symlink()


def test_a_bucket_that_cannot_be_reached_is_one_line(
    tmp_path: Path, job: LibraryJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by whoever has no credentials yet: botocore's error is none of the system's."""
    require_module("s3fs", "dev")
    import s3fs

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    s3fs.S3FileSystem.clear_instance_cache()  # others of this process had some
    try:
        store = ShardStore("s3://bucket/notes")
        for ask in (
            lambda: store.claim(job, {}),
            lambda: store.receipt(Shard(0, 1, 0, 1, "parquet")),
            lambda: store.write("a.parquet", b"sound"),
        ):
            with pytest.raises(ShardStoreError, match=r"s3://bucket/notes/.*credentials") as caught:
                ask()
            assert "\n" not in str(caught.value)
    finally:
        s3fs.S3FileSystem.clear_instance_cache()
