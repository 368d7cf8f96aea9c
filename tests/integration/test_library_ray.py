"""`timbrel library --engine ray`: the same plan and the same codes, in shards, on a disk and in a bucket."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from requirements_gate import require_module

import timbrel
from timbrel.cli import main
from timbrel.library import LibraryJob, ModelIdentity, OtherJobError, SamplingSettings, build_library
from timbrel.library.finish.distributed import ShardWorker, build_shards, ray_session
from timbrel.library.finish.manifest import ManifestRow, read_rows
from timbrel.library.plan.notes import codes_hash
from timbrel.library.plan.voice import NamedPoint, name_voices

BUCKET = "notes"


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    """An S3 server on this machine with one bucket; the environment names it to all processes."""
    for module in ("moto", "s3fs", "boto3"):
        require_module(module, "dev")
    import boto3
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (
            ("AWS_ENDPOINT_URL", f"http://{host}:{port}"),
            ("AWS_ACCESS_KEY_ID", "test"),
            ("AWS_SECRET_ACCESS_KEY", "test"),
            ("AWS_DEFAULT_REGION", "us-east-1"),
        ):
            patch.setenv(name, value)
        boto3.client("s3").create_bucket(Bucket=BUCKET)
        yield f"s3://{BUCKET}"
    server.stop()


@pytest.fixture(scope="module")
def ray(bucket: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One Ray for all tests here: it takes its time to start. Its workers know the bucket's server."""
    for module in ("ray", "fsspec", "pyarrow"):
        require_module(module, "scale")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIMBREL_CACHE", str(tmp_path_factory.mktemp("cache")))
        with ray_session(2) as module:
            yield module


@pytest.fixture(scope="module")
def job(ray: Any, server_address: str) -> LibraryJob:
    """30 notes, drawn so hot that one is off its pitch and needs a second attempt."""
    with timbrel.Client(server_address) as client:
        model, known = client.model(), client.timbre_map()
    return LibraryJob(
        writer=ModelIdentity.of(model),
        voices=name_voices([NamedPoint.find(name, known) for name in ("Grand Piano", "Trumpet")], known),
        pitches=tuple(range(36, 66, 2)),
        velocities=(1,),
        round_robins=1,
        seconds=0.6,
        sampling=SamplingSettings(temperature=2.0, top_k=256, top_p=1.0),
        tries=2,
        seed=5,
    )


@pytest.fixture(scope="module")
def rows(job: LibraryJob, server_address: str, tmp_path_factory: pytest.TempPathFactory) -> list[ManifestRow]:
    """The same job in one process."""
    folder = tmp_path_factory.mktemp("in-process") / "lib"
    with timbrel.Client(server_address) as client:
        build_library(client, job, folder)
    return list(read_rows(folder / "manifest.jsonl"))


SAME = ("note", "note_str", "instrument_str", "pitch", "seed", "attempts", "key", "codes_sha256", "n_frames")
"""What a shard says of a note, as the manifest does."""


@pytest.mark.slow
def test_parquet_on_disk_holds_the_codes_of_an_in_process_run(
    job: LibraryJob, rows: list[ManifestRow], tiny_bundle: Path, tmp_path: Path
) -> None:
    from pyarrow import parquet

    place = str(tmp_path / "shards")
    options = {"bundle": str(tiny_bundle), "shard_notes": 8, "n_workers": 2}
    made = build_shards(job, place, **options)
    assert [shard.n_notes for shard in made.shards] == [8, 8, 8, 6] and made.n_made == 4
    assert made.n_rendered == sum(row.attempts for row in rows) > 30
    table = parquet.read_table([f"{place}/{shard.name}" for shard in made.shards]).to_pylist()
    assert [[row[name] for name in SAME] for row in table] == [
        [getattr(row, name) for name in SAME] for row in rows
    ]
    assert all(codes_hash(np.array(row["codes"], dtype=np.uint16)) == row["codes_sha256"] for row in table)
    assert [row["pitch_measured"] for row in table] == [row.pitch_measured for row in rows]

    # A shard without its receipt is not there: it is made again, the others are not, and it is the same.
    (tmp_path / "shards" / made.shards[2].name.replace(".parquet", ".json")).unlink()
    (tmp_path / "shards" / made.shards[2].name).write_bytes(b"half of it")
    # Nor is one whose file is gone or cut short.
    (tmp_path / "shards" / made.shards[0].name).unlink()
    (tmp_path / "shards" / made.shards[1].name).write_bytes(b"half of it")
    again = build_shards(job, place, **options)
    assert again.n_made == 3 and again.shards == made.shards
    assert build_shards(job, place, **options).n_made == 0
    assert json.loads((tmp_path / "shards" / "index.json").read_text())["n_notes"] == 30

    with pytest.raises(OtherJobError, match=r"it differs in seed\b"):
        build_shards(replace(job, seed=3), place, **options)
    with pytest.raises(OtherJobError, match=r"it differs in shard_notes\b"):
        build_shards(job, place, **{**options, "shard_notes": 9})


@pytest.mark.slow
def test_webdataset_in_a_bucket_holds_them_too(
    job: LibraryJob, rows: list[ManifestRow], bucket: str, tiny_bundle: Path, tmp_path: Path
) -> None:
    require_module("webdataset", "dev")
    import s3fs
    import webdataset

    made = build_shards(
        job,
        f"{bucket}/winds",
        bundle=str(tiny_bundle),
        shard_format="webdataset",
        shard_notes=16,
        n_workers=1,
    )
    s3fs.S3FileSystem().get(f"{BUCKET}/winds/", str(tmp_path / "winds"), recursive=True)
    files = [str(tmp_path / "winds" / shard.name) for shard in made.shards]
    notes = list(webdataset.WebDataset(files, shardshuffle=False))
    assert [json.loads(note["json"])["key"] for note in notes] == [row.key for row in rows]
    hashes = [codes_hash(np.load(io.BytesIO(note["codes.npy"]))) for note in notes]
    assert hashes == [row.codes_sha256 for row in rows]


@pytest.mark.slow
def test_workers_in_other_folders_write_to_the_one_that_is_meant(
    job: LibraryJob, tiny_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of a cluster that runs already do not share the folder that the command is given in."""
    monkeypatch.chdir(tmp_path)
    few = replace(job, pitches=(60,))
    made = build_shards(few, "shards", bundle=str(tiny_bundle), n_workers=1)
    assert (tmp_path / "shards" / made.shards[0].name).stat().st_size == made.shards[0].n_bytes
    (tmp_path / "full" / ".notes-000000-of-000001.parquet.tmp").mkdir(parents=True)
    with pytest.raises(timbrel.TimbrelError, match=r"a worker failed: .*parquet cannot be written: "):
        build_shards(few, "full", bundle=str(tiny_bundle), n_workers=1)


@pytest.mark.acceptance
def test_a_worker_that_cannot_work_is_one_line(job: LibraryJob, tmp_path: Path) -> None:
    """The bundle that the workers have is not the job's."""
    with pytest.raises(
        timbrel.TimbrelError, match="all servers of a job must write the same codes"
    ) as caught:
        build_shards(job, str(tmp_path / "shards"), bundle=None, n_workers=1)
    assert "\n" not in str(caught.value)


def test_servers_of_workers_speak_no_tls_whatever_others_do(
    server_address: str, tiny_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    require_module("fsspec", "scale")
    with timbrel.Client(server_address) as client:
        model, known = client.model(), client.timbre_map()
    job = LibraryJob(
        writer=ModelIdentity.of(model),
        voices=name_voices([NamedPoint.find("Trumpet", known)], known),
        pitches=(60,),
        velocities=(100,),
        round_robins=1,
        seconds=0.5,
        sampling=SamplingSettings(temperature=0.0, top_k=1, top_p=1.0),
    )
    monkeypatch.setenv("TIMBREL_CA", str(tmp_path / "nowhere.pem"))
    monkeypatch.setenv("TIMBREL_CACHE", str(tmp_path / "cache"))
    ShardWorker(job, str(tmp_path / "shards"), str(tiny_bundle))


def test_nor_does_the_one_that_is_asked_what_there_is(
    tiny_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TIMBREL_CA", str(tmp_path / "nowhere.pem"))
    arguments = ["--timbre", "Nobody", "--bundle", str(tiny_bundle), "--out", str(tmp_path / "shards")]
    assert main(["library", "--engine", "ray", *arguments]) == 2
    assert "no instrument 'Nobody'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--server", "localhost:1"], "server: workers have servers of their own"),
        (["--sf2"], "sf2: is made of finished samples"),
        (["--pitches", "60-50"], "pitches: '60-50' runs downwards"),
    ],
)
def test_what_makes_no_sense_is_one_line(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    place = tmp_path / "shards"
    assert main(["library", "--timbre", "Violin", *arguments, "--engine", "ray", "--out", str(place)]) == 2
    error = capsys.readouterr().err
    assert complaint in error and error.count("\n") == 1 and not place.exists()
