"""`timbrel library` and `timbrel verify` as a user types them, with a real server of the tiny bundle."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import soundfile
from cut_proxy import CutProxy
from requirements_gate import require_module, require_sfizz, require_system
from server_process import ServerProcess, server_environment
from waiting import wait_for

import timbrel
from timbrel.library import (
    BuildOptions,
    LibraryJob,
    ModelIdentity,
    SamplingSettings,
    build_library,
    verify_library,
)
from timbrel.library.finish import finisher
from timbrel.library.finish.instrument_files import Region
from timbrel.library.finish.manifest import COLUMNS, ManifestRow, read_rows, write_rows, write_table
from timbrel.library.finish.sample_files import wav_bytes
from timbrel.library.plan.folder import LibraryFolder
from timbrel.library.plan.voice import NamedPoint, name_voices
from timbrel.library.render import source, store
from timbrel.library.render.source import ClientSource
from timbrel.library.render.worker_pool import Urgency, WorkerPool
from timbrel.library.verify.samplers import FluidSynth, Sfizz
from timbrel.library.verify.scale_check import level
from timbrel.pitch import frequency
from timbrel_bundle.files import sha256_file
from timbrel_bundle.yin import Yin

pytestmark = pytest.mark.usefixtures("codecs_loaded_once")

PITCHES = "69-96:9"
SMALL = [
    *("--timbre", "Violin", "--pitches", PITCHES, "--velocities", "20,120"),
    *("--seconds", "1.2", "--seed", "2"),
]
NEUTRAL_THIRDS = {76: -488.0, 77: -140.0, 78: 10.0, 79: 360.0, 80: 712.0, 81: 1060.0, 82: 1210.0}
"""Key -> cents above F#5."""

Run = Callable[..., tuple[int, str, str]]
StartServer = Callable[..., ServerProcess]


@pytest.fixture(autouse=True)
def environment(server_address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server is named by the environment, the cache and the working folder are the test's own."""
    monkeypatch.setenv("TIMBREL_SERVER", server_address)
    monkeypatch.setenv("TIMBREL_CACHE", str(tmp_path / "cache"))
    for name in ("TIMBREL_TOKEN", "TIMBREL_BUNDLE", "TIMBREL_TRACEBACK"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


def build_small(folder: Path, **variables: str) -> Path:
    program = str(Path(sys.executable).with_name("timbrel"))
    command = [program, "library", *SMALL, "--out", str(folder / "lib")]
    environment = server_environment(TIMBREL_CACHE=str(folder / "cache"), **variables)
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
    return folder / "lib"


@pytest.fixture(scope="module")
def built(server_address: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small library that passes its check. Copy it to change it."""
    return build_small(tmp_path_factory.mktemp("built"), TIMBREL_SERVER=server_address)


@pytest.fixture(scope="module")
def built_with_loops(served: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same of the bundle that ships, whose violin lasts: it passes, too. Copy it to change it."""
    folder = build_small(tmp_path_factory.mktemp("looped"), TIMBREL_SERVER=served)
    assert all(row.loop_start is not None for row in rows_of(folder)[:2]), "what is damaged has a loop"
    assert verify_library(folder).passed
    return folder


@pytest.fixture
def library(built: Path, tmp_path: Path) -> Path:
    """A copy of the small library, to be damaged."""
    return Path(shutil.copytree(built, tmp_path / "lib"))


@pytest.fixture
def looped(built_with_loops: Path, tmp_path: Path) -> Path:
    """A copy of that with loops, to be damaged."""
    return Path(shutil.copytree(built_with_loops, tmp_path / "looped"))


def rows_of(folder: Path) -> list[ManifestRow]:
    return list(read_rows(folder / "manifest.jsonl"))


def sounds_of(folder: Path) -> dict[str, str]:
    """File -> hash of every file that a sampler needs."""
    files = [
        path for path in folder.rglob("*") if path.suffix in (".wav", ".flac", ".sfz", ".dspreset", ".jsonl")
    ]
    return {path.relative_to(folder).as_posix(): sha256_file(path) for path in files}


def test_a_library_is_complete_and_passes(built: Path, run: Run) -> None:
    require_sfizz("dev")
    rows = rows_of(built)
    assert len(rows) == 8 and {row.file for row in rows} == {
        path.relative_to(built).as_posix() for path in (built / "samples").rglob("*.wav")
    }
    for name in ("Violin.sfz", "Violin.dspreset", "manifest.parquet", "LICENSE", "README.md"):
        assert (built / name).is_file()
    readme = (built / "README.md").read_text()
    assert "24000 Hz" in readme and "`.timbrel/`" in readme
    measured = {name for name in COLUMNS if re.search("_db$|_lufs$|^pitch_|^loop_[^m]|^release_", name)}
    assert measured <= set(re.findall(r"`(\w+)`", readme)), "the fields of the manifest are explained"
    assert {row.bandwidth_hz for row in rows} == {24_000.0}
    info = soundfile.info(built / rows[0].file)
    assert (info.samplerate, info.subtype, info.channels) == (48_000, "PCM_24", 1)
    status, out, error = run("verify", str(built))
    assert (status, error) == (0, "") and "passed" in out and "sfizz played 4 keys" in out


def test_levels_between_velocities_are_the_models_own(built: Path, server_address: str) -> None:
    """One gain a library: the distance between two files is that of the notes themselves."""
    rows = rows_of(built)
    assert len({row.gain_db for row in rows}) == 1
    assert max(row.peak_db for row in rows) <= -0.9
    with timbrel.Client(server_address) as client:
        raw = [
            client.generate((row.x, row.y), row.pitch, row.velocity, row.held_seconds, row.seed).audio
            for row in rows
        ]
    for row, audio in zip(rows, raw, strict=True):
        expected = 20 * np.log10(np.abs(audio).max()) + row.gain_db
        assert row.peak_db == pytest.approx(expected, abs=1.5)


def test_json_reports(built: Path, run: Run) -> None:
    require_sfizz("dev")
    status, out, _ = run("verify", str(built), "--json")
    report = json.loads(out)
    assert status == 0 and report["passed"] and report["faults"] == [] and report["n_files"] == 8
    assert report["scales"][0]["n_judged"] >= 3 and report["scales"][0]["worst_cents"] <= 5.0


def test_the_manifest_table_holds_the_same(built: Path) -> None:
    require_module("pyarrow", "scale")
    from pyarrow import parquet

    table = parquet.read_table(built / "manifest.parquet").to_pylist()
    assert table == [json.loads(line) for line in (built / "manifest.jsonl").read_text().splitlines()]


def test_flac_at_another_rate_and_round_robins(run: Run) -> None:
    status, out, _ = run(
        *("library", "--timbre", "Violin", "--path=-0.6,0.3:Violin:2", "--pitches", "C5,E5"),
        *("--velocities", "90"),
        *("--seconds", "0.5", "--round-robins", "2", "--format", "flac", "--sample-rate", "44100"),
        *("--out", "lib", "--json"),
    )
    summary = json.loads(out)
    assert status == 0 and (summary["n_notes"], summary["n_instruments"]) == (8, 2)
    rows = rows_of(Path("lib"))
    assert len({row.codes_sha256 for row in rows}) == 8
    assert soundfile.info(Path("lib") / rows[0].file).samplerate == 44_100
    assert sorted(path.name for path in Path("lib").glob("*.sfz")) == [
        "Violin.sfz",
        "x-0.600y0.300.sfz",
    ]
    assert (rows[0].instrument_str, rows[-1].nearest_instrument) == ("Violin", "Grand Piano")
    status, out, _ = run("verify", "lib", "--out-of-tune", "1")
    assert status == 0, out


def test_a_library_of_one_sample_is_counted_so(run: Run) -> None:
    one = ["--timbre", "Violin", "--pitches", "69", "--velocities", "120", "--seconds", "1.2", "--seed", "2"]
    status, out, _ = run("library", *one, "--out", "lib")
    checked = run("verify", "lib", "--out-of-tune", "1")[1]
    readme = Path("lib/README.md").read_text()
    assert status == 0 and "1 instrument, 1 sample" in readme
    assert re.findall(r"\b1 (?:instruments|samples|notes|keys)\b", out + checked + readme) == []


def test_a_frozen_program_without_timbrels_metadata_makes_libraries(
    server_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_metadata(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(finisher, "version", no_metadata)
    finisher.software_version.cache_clear()
    with timbrel.Client(server_address) as client:
        voices = name_voices([NamedPoint("Violin", (0.1, 0.2))], client.timbre_map())
        writer = ModelIdentity.of(client.model())
        build_library(client, LibraryJob(writer, voices, (69,), (100,), 1, 0.3, SamplingSettings()), "one")
    finisher.software_version.cache_clear()
    assert "rendered by timbrel unknown with bundle" in next(Path("one").glob("*.sfz")).read_text("utf-8")


def test_a_second_run_renders_nothing_and_changes_nothing(library: Path, run: Run) -> None:
    before = sounds_of(library)
    status, out, _ = run("library", *SMALL, "--out", str(library), "--json")
    assert status == 0 and json.loads(out)["n_rendered"] == 0
    assert sounds_of(library) == before


def fall(sound: npt.NDArray[np.float32], seconds: float) -> float:
    """By how many dB a sound has risen since 0.3 s from its begin."""
    now, before = (round(48_000 * begin) for begin in (seconds, 0.3))
    return level(sound[now : now + 2400], 48_000) - level(sound[before : before + 2400], 48_000)


def test_keys_are_held_until_what_dies_away_has(
    served: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    require_sfizz("dev")
    monkeypatch.setenv("TIMBREL_SERVER", served)
    voices = ["--timbre", "Violin", "--timbre", "Acoustic Grand Piano"]
    command = ["library", *voices, "--pitches", "60", "--velocities", "100", "--out", "lib"]
    assert run(*command)[0] == 0
    violin, piano = rows_of(Path("lib"))
    assert violin.held_seconds == 3.0 and violin.loop_start is not None
    assert 4.0 < piano.held_seconds <= 10.0 and piano.loop_start is None
    assert f"Keys held 3 to {piano.held_seconds:g} s" in Path("lib/README.md").read_text()
    with Sfizz(Path("lib/Acoustic-Grand-Piano.sfz"), 48_000) as sampler:
        played = sampler.play(60, 100, 4.0)
        tapped = np.mean(sampler._synth.render_note(60, 100, 0.4, 1.0), axis=0)
    assert -60.0 < level(played[3 * 48_000 : 4 * 48_000], 48_000) < level(played[:48_000], 48_000) - 20.0
    with timbrel.Client() as client:
        own = client.generate("Acoustic Grand Piano", 60, 100, 0.4, seed=1).audio
    for seconds in (0.45, 0.5, 0.6):
        there, own_there = (fall(sound, seconds) for sound in (tapped, own))
        assert there == pytest.approx(own_there, abs=5.0), "what is let go ends as the bundle ends it"
    before = sounds_of(Path("lib"))
    status, out, _ = run(*command, "--json")
    assert status == 0 and json.loads(out)["n_rendered"] == 0 and sounds_of(Path("lib")) == before
    status, _, error = run(*command, "--seconds", "2")
    assert status == 2 and "(it differs in seconds)" in error and error.count("\n") == 1


def test_a_library_begun_when_all_keys_were_held_alike_goes_on_so(server_address: str, run: Run) -> None:
    command = ["library", "--timbre", "Violin", "--pitches", "60", "--velocities", "100", "--out", "lib"]
    assert run(*command, "--seconds", "2")[0] == 0
    status, out, _ = run(*command, "--json")
    assert status == 0 and json.loads(out)["n_rendered"] == 0
    damaged = json.loads(Path("lib/.timbrel/job.json").read_text())
    holds = [{"seconds": seconds, "release_seconds": 0.1} for seconds in ("2", [], None, 1e999, float("nan"))]
    with timbrel.Client(server_address) as client:
        job = small_job(client)
    for hold in ("long", {"seconds": 2.0}, *holds):
        damaged["job"]["voices"] = [{"slug": "Violin", "hold": hold}]
        Path("lib/.timbrel/job.json").write_text(json.dumps(damaged))
        begun = LibraryFolder(Path("lib")).as_begun(job)
        assert begun is not None and begun.voices[0].hold is None
    assert run(*command)[0] == 0, "its key says what job it is"


@contextmanager
def room_for(n_files: int, module: ModuleType) -> Iterator[None]:
    """The disk is full once a module has written so many files; it may do so in several threads."""
    real, written = module.write_later, []

    def write(path: Path, content: bytes) -> None:
        if len(written) >= n_files:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        real(path, content)
        written.append(path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "write_later", write)
        yield


def test_no_note_that_was_listened_to_is_rendered_again(run: Run) -> None:
    command = ["library", "--timbre", "Violin", "--pitches", "60-72:3", "--velocities", "100", "--out", "lib"]
    with room_for(2, store):
        assert run(*command)[0] == 2
    assert not Path("lib/.timbrel/job.json").exists(), "how its keys are held is not known yet"
    status, out, _ = run(*command, "--json")
    assert status == 0 and json.loads(out)["n_rendered"] == 5 + 3 - 2, "three, too, of which the end is heard"
    assert {row.held_seconds for row in rows_of(Path("lib"))} == {2.4}, "the tiny bundle holds no longer"


def test_what_was_deleted_comes_back(library: Path, run: Run) -> None:
    before = sounds_of(library)
    shutil.rmtree(library / "samples")
    (library / "Violin.sfz").unlink()
    key = rows_of(library)[3].key
    next(library.rglob(f"{key}.npz")).unlink()
    status, out, _ = run("library", *SMALL, "--out", str(library), "--json")
    assert status == 0 and json.loads(out)["n_rendered"] == 1
    assert sounds_of(library) == before


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (
            ["--timbre", "Violine"],
            "timbre: no instrument 'Violine' on the timbre map; did you mean 'Violin'?",
        ),
        (["--timbre", "Violin", "--pitches", "60-50"], "pitches: '60-50' runs downwards"),
        (["--timbre", "Violin", "--pitches", "C9x"], "pitches: 'C9x' is not understood"),
        (
            ["--timbre", "Violin", "--pitches", "20,60"],
            "pitches: 20 is out of range; the bundle plays 36 to 96",
        ),
        (["--timbre", "Violin", "--velocities", "0"], "velocities: 0 is out of range"),
        (["--timbre", "Violin", "--seconds", "99"], "seconds: 99 is out of range"),
        (["--timbre", "0.9,0.9"], "timbre: (0.9, 0.9) lies outside of the unit disc"),
        (["--path", "Flute:Violin:many"], "path: 'many' is not a number of steps"),
        (
            ["--path", "Flute"],
            "path: 'Flute' is not understood; write A:B:STEPS, for example",
        ),
        (["--timbre", "Violin", "--seed", "-1"], "seed: -1 is out of range"),
        (
            ["--timbre", "Violin", "--seed", str(2**63 - 2)],
            f"seed: {2**63 - 2} is out of range; with so many takes and attempts 0 to {2**63 - 3} is allowed",
        ),
        (["--timbre", "Violin", "--temperature", "9"], "sampling.temperature: 9 is not allowed"),
        (
            ["--timbre", "Violin", "--format", "flac", "--sample-rate", "100001"],
            "format: flac files do not hold sound at 100001 Hz",
        ),
        (["--timbre", "Violin", "--round-robins", str(10**17)], "round_robins: 1e+17 is out of range"),
        (["--timbre", "Violin", "--engine", "ray", "--format", "flac"], "format: is of finished samples"),
        (["--timbre", "Violin", "--engine", "ray", "--no-loops"], "no_loops: is of finished samples"),
        (["--timbre", "Violin", "--engine", "ray", "--cents", "5"], "cents: are for instrument files"),
        (["--timbre", "Violin", "--engine", "ray", "--timeout", "9"], "timeout: is for servers, of which"),
        (["--timbre", "Violin", "--engine", "ray", "--patience", "9"], "patience: is for servers, of which"),
        (["--timbre", "Violin", "--shard-notes", "9"], "shard_notes: is for shards; add --engine ray"),
        (["--timbre", "Violin", "--shards", "webdataset"], "shards: is for shards; add --engine ray"),
        (["--timbre", "Violin", "--server", "a:b:c"], "server: expected HOST:PORT"),
        (["--timbre", "Violin", "--server", "a,"], "server: expected HOST:PORT"),
        (["--timbre", "Violin", "--patience", "nan"], "patience: must be 0 seconds or more, got nan"),
        (["--timbre", "Violin", "--patience", "-1"], "patience: must be 0 seconds or more, got -1"),
        (["--grid", "0"], "grid: 0 points across is not allowed"),
        ([], "timbre: none is given"),
    ],
)
def test_bad_input_is_one_line_and_leaves_no_folder(run: Run, arguments: list[str], complaint: str) -> None:
    status, out, error = run("library", *arguments, "--out", "lib")
    assert (status, out) == (2, "")
    assert complaint in error and error.count("\n") == 1 and error.startswith("timbrel: ")
    assert not Path("lib").exists()


def test_a_library_whose_sampling_is_the_servers_passes_its_check(server_address: str) -> None:
    with timbrel.Client(server_address) as client:
        model, job = client.model(), replace(small_job(client, pitches=(60,)), sampling=SamplingSettings())
        build_library(client, job, "lib")
    assert rows_of(Path("lib"))[0].sampling == SamplingSettings.of(model.default_sampling)
    assert verify_library("lib").passed


def test_a_bucket_takes_shards_alone(run: Run) -> None:
    status, out, error = run("library", *SMALL, "--out", "s3://bucket/notes")
    assert (status, out) == (2, "") and "can hold shards alone; add --engine ray" in error
    assert error.count("\n") == 1 and not Path("s3:").exists()


def test_another_jobs_folder_is_left_alone(library: Path, run: Run) -> None:
    before = sounds_of(library)
    status, _, error = run("library", "--timbre", "Flute", "--out", str(library))
    assert status == 2 and "holds another job's library (it differs in pitches" in error
    assert error.count("\n") == 1 and sounds_of(library) == before


def test_other_peoples_files_are_left_alone(run: Run) -> None:
    Path("home").mkdir()
    Path("home/thesis.txt").write_text("years")
    status, _, error = run("library", *SMALL, "--out", "home")
    assert status == 2 and "holds files that are no timbrel library" in error and error.count("\n") == 1
    assert os.listdir("home") == ["thesis.txt"]


def test_two_jobs_on_one_folder(library: Path, run: Run) -> None:
    with LibraryFolder(library).lock():
        status, _, error = run("library", *SMALL, "--out", str(library))
    assert status == 2 and "is in use by process" in error and error.count("\n") == 1


def test_a_full_disk_is_told_and_nothing_is_lost(run: Run) -> None:
    with room_for(3, store):
        status, out, error = run("library", *SMALL, "--out", "lib")
    assert (status, out) == (2, "") and error.count("\n") == 1
    assert "no space is left on the disk of lib; what was rendered is kept" in error
    status, out, _ = run("library", *SMALL, "--out", "lib", "--json")
    assert status == 0 and json.loads(out)["n_rendered"] == 8 - 3
    assert run("verify", "lib")[0] == 0


def test_a_disk_that_fills_up_while_finishing_is_told(run: Run) -> None:
    with room_for(3, finisher):
        status, out, error = run("library", *SMALL, "--out", "lib")
    assert (status, out) == (2, "") and error.count("\n") == 1
    assert "no space is left on the disk of lib; what was rendered is kept" in error
    assert not list(Path("lib").glob("*.sfz"))
    status, out, _ = run("library", *SMALL, "--out", "lib", "--json")
    assert status == 0 and json.loads(out)["n_rendered"] == 0
    assert run("verify", "lib")[0] == 0


def test_chords_and_a_soundfont_are_added_to_a_library_and_played(library: Path, run: Run) -> None:
    require_system("fluidsynth")
    require_module("fluidsynth", "train")
    (library / "precious").write_text("mine")
    (library / "Violin.sf2").symlink_to(library / "precious")
    added = ["--sf2", "--chords", "min,0-5-10"]
    status, out, _ = run("library", *SMALL, "--out", str(library), *added, "--json")
    assert status == 0 and json.loads(out)["n_rendered"] == 0
    assert (library / "precious").read_text() == "mine"
    assert {path.name for path in library.glob("*.dspreset")} == {
        *("Violin.dspreset", "Violin_min.dspreset", "Violin_0-5-10.dspreset")
    }
    status, out, _ = run("verify", str(library))
    assert status == 0, out
    assert "Violin.sf2: FluidSynth played 4 keys" in out and "Violin_min.sfz: sfizz played its chords" in out


def test_a_soundfont_is_not_said_to_have_chords_of_a_later_run(library: Path, run: Run) -> None:
    for added in (["--sf2"], ["--chords", "maj"]):
        assert run("library", *SMALL, "--out", str(library), *added)[0] == 0
    assert b"Violin maj" not in (library / "Violin.sf2").read_bytes()
    assert "presets of the chords, too, that were asked for with it" in (library / "README.md").read_text()


def test_chords_and_soundfonts_of_other_samples_go(library: Path, run: Run) -> None:
    """Samples that were measured otherwise, by other trackers say, are tuned and levelled otherwise."""
    assert run("library", *SMALL, "--out", str(library), "--chords", "maj", "--sf2")[0] == 0
    extras = [library / name for name in ("Violin_maj.sfz", "Violin_maj.dspreset", "Violin.sf2")]
    (library / rows_of(library)[0].file).unlink()  # it comes back as it was
    assert run("library", *SMALL, "--out", str(library))[0] == 0 and all(each.exists() for each in extras)
    kept = library / ".timbrel/finished/Violin.jsonl"
    first, *others = read_rows(kept)
    write_rows(kept, [replace(first, trackers="yin+ear", tune_cents=first.tune_cents + 7), *others])
    assert run("library", *SMALL, "--out", str(library))[0] == 0
    assert not any(each.exists() for each in extras) and verify_library(library, scale=False).passed


def test_a_chord_sounds_as_its_keys_do_together(library: Path, run: Run) -> None:
    require_sfizz("dev")
    assert run("library", *SMALL, "--out", str(library), "--chords", "0-9")[0] == 0
    with Sfizz(library / "Violin.sfz", 48_000) as plain, Sfizz(library / "Violin_0-9.sfz", 48_000) as chords:
        keys = plain.play(69, 100, 0.5) + plain.play(78, 100, 0.5)
        chord = chords.play(69, 100, 0.5)
    assert np.corrcoef(chord, keys)[0, 1] > 0.999


def test_level_over_velocity_is_the_same_in_both_samplers(library: Path, run: Run) -> None:
    require_system("fluidsynth")
    require_module("fluidsynth", "train")
    require_sfizz("dev")
    assert run("library", *SMALL, "--out", str(library), "--sf2")[0] == 0
    velocities = (1, 2, 20, 40, 69, 70, 71, 72, 120, 126, 127)
    with Sfizz(library / "Violin.sfz", 48_000) as one, FluidSynth(library / "Violin.sf2", 48_000) as other:
        played = [
            [level(sampler.play(78, velocity, 1.0), 48_000) for velocity in velocities]
            for sampler in (one, other)
        ]
    assert played[0] == pytest.approx(played[1], abs=0.7)  # FluidSynth 2.6; 0.5 up to 2.3
    assert all(levels == sorted(levels) for levels in played)


def test_a_library_is_tuned_as_a_whole_and_key_by_key(library: Path, run: Run) -> None:
    """In both samplers; then it is as it was again."""
    require_system("fluidsynth")
    require_module("fluidsynth", "train")
    require_sfizz("dev")
    Path("thirds.scl").write_text("!\nneutral thirds\n 4\n!\n 350.\n 702.\n 1050.\n 2/1\n")
    Path("from_78.kbm").write_text("0\n70\n127\n78\n78\n739.989\n0\n")
    base = ["library", *SMALL, "--sf2", "--chords", "5", "--out", "lib"]
    before = sounds_of(library)
    for tuning, wanted in (
        (["--cents", "-31"], {78: -31.0, 80: 169.0}),
        (["--tuning", "thirds.scl", "--keyboard-map", "from_78.kbm", "--cents", "10"], NEUTRAL_THIRDS),
    ):
        status, _, error = run(*base, *tuning)
        assert status == 0, error
        status, out, error = run("verify", "lib")
        assert status == 0, out + error
        assert "out of tune" not in out
        for make, ending in ((Sfizz, ".sfz"), (FluidSynth, ".sf2")):
            with make((library / "Violin").with_suffix(ending), 48_000) as sampler:
                for key, cents in wanted.items():
                    heard = Yin().measure(sampler.play(key, 120, 1.0), 48_000)
                    assert heard is not None and 100 * (heard - 78) == pytest.approx(cents, abs=20.0), key
                assert not np.abs(sampler.play(69, 120, 0.3)).any() or tuning[0] == "--cents"
    text = (library / "Violin.sfz").read_text()
    (library / "Violin.sfz").write_text(re.sub(r"tune=-?\d+", "tune=77", text, count=1))
    status, out, _ = run("verify", "lib")
    assert status == 1 and "the manifest says another" in out
    for path in [*library.glob("*.sfz"), *library.glob("*.dspreset")]:
        path.unlink()
    status, out, _ = run("verify", "lib")
    assert status == 1 and "Violin.sfz: the file is missing" in out
    (library / "tuning.json").write_text("[1]")
    assert "tuning.json: is no list of 128 numbers" in run("verify", "lib")[1]
    status, out, _ = run("library", *SMALL, "--out", "lib")
    assert status == 0 and "removed, since the tuning" in out and "Violin.sf2" in out
    assert before == sounds_of(library) and not (library / "tuning.json").exists()
    assert not list(library.glob("*.sf2")), "of another tuning"


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--cents", "5000"], "cents"),
        (["--cents", "nan"], "cents"),
        (["--tuning", "no.scl"], "no.scl: no such file"),
        (["--keyboard-map", "a.kbm"], "give one by --tuning"),
        (["--tuning", "high.scl", "--keyboard-map", "high.kbm"], "no key of it sounds"),
        (["--pitches", "60", "--chords", "0-36"], "no key has all tones of 0-36"),
    ],
)
def test_tunings_and_chords_that_leave_no_key_are_one_line(
    run: Run, options: list[str], complaint: str
) -> None:
    Path("high.scl").write_text("twelve\n 1\n 100.\n")
    Path("high.kbm").write_text("0\n120\n127\n60\n69\n440\n0\n")
    status, _, error = run("library", *SMALL, *options, "--out", "lib")
    assert status == 2 and complaint in error and error.count("\n") == 1
    assert not Path("lib").exists()


def test_verify_finds_no_fault_with_what_others_put_beside_a_library(library: Path) -> None:
    """A Mac's hidden files, and an .sfz that somebody wrote by hand."""
    for name in ("._Violin.sfz", "._Violin.dspreset", "samples/Violin/.DS_Store"):
        (library / name).write_bytes(b"\0\5\26\7")
    (library / "My Violin.sfz").write_text((library / "Violin.sfz").read_text())
    assert verify_library(library, scale=False).faults == ()


def test_verify_says_that_a_soundfont_was_not_played(
    library: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("library", *SMALL, "--out", str(library), "--sf2")[0] == 0
    monkeypatch.setitem(sys.modules, "fluidsynth", None)
    status, out, _ = run("verify", str(library))
    assert status == 0 and out.count("no .sf2 was played: FluidSynth is not installed") == 1


@pytest.mark.parametrize(
    ("chords", "complaint"),
    [
        ("Cmaj", "chords: 'Cmaj' is not understood; write maj, min, "),
        ("maj,", "chords: '' is not understood"),
        ("0-99", "chords: 0-99 is too large; 12 tones up to 36 semitones are allowed"),
        ("4-4", "chords: '4-4' is not understood"),
    ],
)
def test_chords_that_are_none_are_one_line(run: Run, chords: str, complaint: str) -> None:
    status, out, error = run("library", "--timbre", "Violin", "--chords", chords, "--out", "lib")
    assert (status, out, error.count("\n")) == (2, "", 1) and complaint in error
    assert not Path("lib").exists()


def small_job(client: timbrel.Client, **changes: Any) -> LibraryJob:
    model, known = client.model(), client.timbre_map()
    default = model.default_sampling
    job = LibraryJob(
        writer=ModelIdentity.of(model),
        voices=name_voices([NamedPoint.find("Violin", known), NamedPoint.find("Flute", known)], known),
        pitches=tuple(range(60, 90, 2)),
        velocities=(100,),
        round_robins=1,
        seconds=1.0,
        sampling=SamplingSettings(default.temperature, default.top_k, default.top_p),
        tries=1,
    )
    return replace(job, **changes)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"pitches": (72, 60)}, "pitches: 72, 60 do not rise"),
        ({"pitches": (60, 60)}, "pitches: 60, 60 do not rise"),
        ({"velocities": (120, 40)}, "velocities: 120, 40 do not rise"),
        ({"slugs": ("Violin", "violin")}, "timbre: two instruments have the slug 'violin'"),
        ({"slugs": ("Violin", "../Flute")}, "timbre: the slug '../Flute' is not of letters"),
        ({"slugs": ("Violin_1", "Flute")}, "timbre: the slug 'Violin_1' is not of letters"),
    ],
)
def test_jobs_that_would_be_written_wrongly_are_refused(
    server_address: str, changes: dict[str, Any], complaint: str
) -> None:
    with timbrel.Client(server_address) as client:
        job = small_job(client)
        slugs = changes.pop("slugs", ("Violin", "Flute"))
        voices = tuple(replace(voice, slug=slug) for voice, slug in zip(job.voices, slugs, strict=True))
        with pytest.raises(timbrel.InvalidRequestError, match=re.escape(complaint)):
            build_library(client, replace(job, voices=voices, **changes), "lib")
    assert not Path("lib").exists()


def test_an_instrument_is_finished_while_the_next_is_rendered(
    server_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    finished = Path("lib/.timbrel/finished/Violin.jsonl")
    pools: list[WorkerPool] = []
    enter = WorkerPool.__enter__
    monkeypatch.setattr(WorkerPool, "__enter__", lambda pool: pools.append(pool) or enter(pool))

    class Watched(ClientSource):
        """Holds back the second instrument's notes: the first until the first instrument's are measured, the
        second until that is finished."""

        def render(self, orders: Iterable[Any]) -> Generator[Any, None, None]:
            for number, reply in enumerate(super().render(orders)):
                if number == 2:  # the one thread that measures has done what it was given before
                    pools[0].submit(Urgency.MEASURE, list).result()
                if number == 3:
                    wait_for(finished.exists, "the first instrument to be finished")
                yield reply

    with timbrel.Client(server_address) as client:
        job = small_job(client, pitches=(60, 72))
        build_library(client, job, "lib", BuildOptions(n_threads=1), Watched(client, n_in_flight=1))
    assert [row.instrument_str for row in rows_of(Path("lib"))] == ["Violin"] * 2 + ["Flute"] * 2


def test_a_server_that_goes_away_is_waited_for(start_server: StartServer) -> None:
    server = start_server("--slots", "1")
    said: list[str] = []
    with CutProxy(server.address) as proxy, timbrel.Client(proxy.address, timeout=30) as client:
        job = small_job(client)

        def replace_server() -> None:
            wait_for(lambda: len(list(Path("lib").rglob("*.npz"))) >= 5, "five notes")
            server.process.kill()
            server.process.wait()
            proxy.target = start_server().address

        thread = threading.Thread(target=replace_server)
        thread.start()
        source = ClientSource(client, n_in_flight=3, tell=said.append)
        summary = build_library(client, job, "lib", BuildOptions(), source)
        thread.join()
    assert summary.n_rendered == summary.n_notes == 30
    assert len(list(Path("lib/samples").rglob("*.wav"))) == 30
    assert all("\n" not in line for line in said)


def is_prepared(client: timbrel.Client) -> bool:
    try:
        client.prepare()
    except timbrel.DeadlineExceededError:
        return False
    return True


@pytest.mark.parametrize("patience_seconds", [0.2, 0.0])
def test_a_server_that_stays_away_ends_the_job_in_one_line(
    start_server: StartServer, patience_seconds: float
) -> None:
    server = start_server("--slots", "1")
    with (
        timbrel.Client(server.address) as patient,
        timbrel.Client(server.address, timeout=1.5) as client,
    ):
        job = small_job(patient)
        wait_for(lambda: is_prepared(client), "a busy server to answer in time")
        server.process.kill()
        source = ClientSource(client, n_in_flight=3, patience_seconds=patience_seconds)
        with pytest.raises(timbrel.UnavailableError) as caught:
            build_library(client, job, "lib", BuildOptions(), source)
    said = str(caught.value)
    assert "\n" not in said
    assert said.endswith("gave up after 0.2 s") if patience_seconds else "gave up" not in said


def change_row(folder: Path, index: int, **changes: Any) -> None:
    rows = rows_of(folder)
    rows[index] = replace(rows[index], **changes)
    write_rows(folder / "manifest.jsonl", rows)
    write_table(folder / "manifest.parquet", rows)


def put_sound(folder: Path, index: int, audio: np.ndarray) -> None:
    """Another sound in a sample's place, which the manifest agrees with but for what is heard."""
    row = rows_of(folder)[index]
    loop = None if row.loop_start is None or row.loop_end is None else (row.loop_start, row.loop_end)
    content = wav_bytes(audio.astype(np.float32), row.sample_rate, Region("", row.pitch, loop=loop))
    (folder / row.file).write_bytes(content)
    change_row(folder, index, sha256=hashlib.sha256(content).hexdigest(), n_samples=len(audio))


def sound(folder: Path, index: int) -> np.ndarray:
    return np.asarray(soundfile.read(folder / rows_of(folder)[index].file, dtype="float32")[0])


def delete_sample(folder: Path) -> None:
    (folder / rows_of(folder)[0].file).unlink()


def cut_sample(folder: Path) -> None:
    path = folder / rows_of(folder)[0].file
    path.write_bytes(path.read_bytes()[:5000])


def alter_a_byte(folder: Path) -> None:
    path = folder / rows_of(folder)[0].file
    content = bytearray(path.read_bytes())
    content[-3000] ^= 1
    path.write_bytes(content)


def clip(folder: Path) -> None:
    put_sound(folder, 1, np.clip(20 * sound(folder, 1), -1, 1))


def test_the_softest_samples_are_no_silence(library: Path) -> None:
    put_sound(library, 1, sound(library, 1) * 10 ** (-70 / 20) / np.abs(sound(library, 1)).max())
    assert "silence" not in {fault.kind for fault in verify_library(library).faults}


def silence(folder: Path) -> None:
    put_sound(folder, 1, np.zeros_like(sound(folder, 1)))


def detune(folder: Path) -> None:
    """A steady tone some semitones away, whole periods of which fit into the loop."""
    row = rows_of(folder)[1]
    assert row.loop_start is not None and row.loop_end is not None
    length = row.loop_end + 1 - row.loop_start
    n_periods = round(length * frequency(row.pitch + 3) / row.sample_rate)
    time = np.arange(row.n_samples) * n_periods / length
    put_sound(folder, 1, 0.1 * np.sin(2 * np.pi * time) + 0.05 * np.sin(4 * np.pi * time))


def click(folder: Path) -> None:
    row, audio = rows_of(folder)[0], sound(folder, 0).copy()
    assert row.loop_end is not None
    audio[row.loop_end] += 0.5
    put_sound(folder, 0, audio)


def move_the_smpl_loop(folder: Path) -> None:
    row = rows_of(folder)[0]
    path = folder / row.file
    content = path.read_bytes()
    assert row.loop_end is not None
    moved = content.replace(struct.pack("<I", row.loop_end), struct.pack("<I", row.loop_end + 9), 1)
    path.write_bytes(moved)
    change_row(folder, 0, sha256=hashlib.sha256(moved).hexdigest())


def loop_beyond_the_end(folder: Path) -> None:
    change_row(folder, 0, loop_end=10_000_000)


def refer_elsewhere(folder: Path) -> None:
    path = folder / "Violin.sfz"
    path.write_text(path.read_text().replace("Violin_069_v020.wav", "Violin_070_v020.wav"))


def forget_the_loop_mode(folder: Path) -> None:
    path = folder / "Violin.sfz"
    path.write_text(path.read_text().replace("loop_mode=loop_continuous\n", ""))


def transpose_in_the_sfz(folder: Path) -> None:
    path = folder / "Violin.sfz"
    path.write_text(path.read_text().replace("<global>\n", "<global>\ntranspose=1\n"))


def fade_in_in_the_sfz(folder: Path) -> None:
    path = folder / "Violin.sfz"
    path.write_text(path.read_text().replace("<global>\n", "<global>\nampeg_attack=90\n"))


def refer_elsewhere_in_the_dspreset(folder: Path) -> None:
    path = folder / "Violin.dspreset"
    path.write_text(path.read_text().replace("Violin_069_v020.wav", "Violin_070_v020.wav"))


def move_the_loop_in_the_dspreset(folder: Path) -> None:
    path = folder / "Violin.dspreset"
    path.write_text(re.sub(r'loopEnd="\d+"', 'loopEnd="30000"', path.read_text()))


def leave_a_key_out(folder: Path) -> None:
    path = folder / "Violin.sfz"
    text = path.read_text()
    assert "lokey=74\n" in text
    path.write_text(text.replace("lokey=74\n", "lokey=75\n"))


def play_a_key_twice(folder: Path) -> None:
    path = folder / "Violin.sfz"
    path.write_text(path.read_text().replace("lokey=74\n", "lokey=73\n"))


def break_the_dspreset(folder: Path) -> None:
    (folder / "Violin.dspreset").write_text("<DecentSampler>")


def flatten_the_velocities(folder: Path) -> None:
    path = folder / "Violin.sfz"
    path.write_text(path.read_text().replace("amp_velcurve_30=", "amp_velcurve_30=1."))


def move_a_layer(folder: Path) -> None:
    """What each layer says of itself is right, but one is 6 dB louder."""
    path = folder / "Violin.sfz"
    text = path.read_text()
    head, tail = text.split("hivel=127\n", 1)
    path.write_text(
        head + "hivel=127\n" + re.sub(r"volume=(.*)", lambda m: f"volume={float(m[1]) + 6}", tail)
    )


def delete_the_sfz(folder: Path) -> None:
    (folder / "Violin.sfz").unlink()


def alter_codes(folder: Path) -> None:
    one, other = sorted(folder.rglob("*.npz"))[:2]
    one.write_bytes(other.read_bytes())


def damage_the_manifest(folder: Path) -> None:
    path = folder / "manifest.jsonl"
    path.write_text(path.read_text()[:-20])


def leave_an_older_table(folder: Path) -> None:
    rows = rows_of(folder)
    write_table(folder / "manifest.parquet", [*rows[:-1], replace(rows[-1], seed=7)])


def delete_the_licence(folder: Path) -> None:
    (folder / "LICENSE").unlink()


@pytest.mark.parametrize(
    ("damage", "kind"),
    [
        (delete_sample, "missing"),
        (cut_sample, "unreadable"),
        (alter_a_byte, "hash"),
        (clip, "clipping"),
        (silence, "silence"),
        (detune, "pitch"),
        (click, "loop"),
        (move_the_smpl_loop, "loop"),
        (loop_beyond_the_end, "loop"),
        (refer_elsewhere, "reference"),
        (forget_the_loop_mode, "text"),
        (transpose_in_the_sfz, "text"),
        (fade_in_in_the_sfz, "scale"),
        (flatten_the_velocities, "level"),
        (move_a_layer, "level"),
        (refer_elsewhere_in_the_dspreset, "reference"),
        (break_the_dspreset, "text"),
        (move_the_loop_in_the_dspreset, "text"),
        (leave_a_key_out, "text"),
        (play_a_key_twice, "text"),
        (delete_the_sfz, "reference"),
        (alter_codes, "hash"),
        (damage_the_manifest, "unreadable"),
        (leave_an_older_table, "text"),
        (delete_the_licence, "missing"),
    ],
)
def test_every_kind_of_damage_is_found(
    looped: Path, run: Run, damage: Callable[[Path], None], kind: str
) -> None:
    if kind in ("scale", "level"):
        require_sfizz("dev")
    damage(looped)
    status, out, _ = run("verify", str(looped), "--json")
    report = json.loads(out)
    assert status == 1 and not report["passed"]
    assert kind in {fault["kind"] for fault in report["faults"]}, report["faults"]
    assert all("\n" not in fault["description"] for fault in report["faults"])


def test_a_tolerated_share_may_be_out_of_tune(looped: Path, run: Run) -> None:
    detune(looped)
    assert run("verify", str(looped), "--no-scale")[0] == 1
    assert run("verify", str(looped), "--no-scale", "--out-of-tune", "0.2")[0] == 0


def test_no_library_is_another_status(run: Run) -> None:
    Path("empty").mkdir()
    for folder, complaint in (("nowhere", "there is no folder nowhere"), ("empty", "has no manifest.jsonl")):
        status, out, error = run("verify", folder)
        assert (status, out) == (2, "") and complaint in error and error.count("\n") == 1


@pytest.mark.parametrize("command", ["library", "verify"])
def test_help_teaches_by_example(run: Run, command: str) -> None:
    status, out, _ = run(command, "--help")
    assert status == 0 and "examples:" in out and f"timbrel {command} " in out


@pytest.mark.slow
@pytest.mark.parametrize("named", [True, False])
def test_a_server_is_not_away_while_it_writes_whole_notes(
    run: Run, tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch, named: bool
) -> None:
    """Many long notes at once may all end late; nobody brings back a private server that is given up."""
    monkeypatch.setattr(source, "SILENT_SECONDS", 0.001)
    server = () if named else ("--bundle", str(tiny_bundle))
    status, out, error = run("library", *SMALL, *server, "--out", "library", "--json")
    assert (status, json.loads(out or "{}").get("n_rendered")) == (0, 8), error


@pytest.mark.slow
def test_the_benchmark_compares_with_the_servers_saturation(tiny_bundle: Path) -> None:
    script = Path(__file__).resolve().parents[2] / "tests" / "benchmarks" / "library.py"
    options = ["--quick", "--bundle", str(tiny_bundle), "--notes", "32", "--window", "0.3", "--slots", "4"]
    done = subprocess.run([sys.executable, script, *options], check=True, stdout=subprocess.PIPE, text=True)
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["benchmark"] == "library"
    assert (
        found["library_over_server"] > 0 and found["phase_one_over_server"] > found["whole_over_server"] > 0
    )
