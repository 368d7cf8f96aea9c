"""A library's folder from somebody who means harm: it is checked, and gone on with, without harm done."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from timbrel.cli import main
from timbrel_bundle.errors import UNPRINTABLE
from timbrel_bundle.files import sha256_file

pytestmark = pytest.mark.usefixtures("codecs_loaded_once")

Run = Callable[..., tuple[int, str, str]]

JOB = ["--timbre", "Violin", "--pitches", "60-61", "--velocities", "90", "--seconds", "0.3", "--tries", "1"]
NESTED = "[" * 50_000
ESCAPE = "\x1b]0;owned\x07\x1b[2J"


@pytest.fixture(scope="module")
def sound(server_address: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library that nothing is wrong with; not to be written to."""
    folder = tmp_path_factory.mktemp("sound") / "library"
    assert main(["library", *JOB, "--server", server_address, "--out", str(folder), "--json"]) == 0
    return folder


@pytest.fixture
def library(sound: Path, tmp_path: Path) -> Path:
    shutil.copytree(sound, tmp_path / "library")
    return tmp_path / "library"


@pytest.fixture
def go_on(run: Run, server_address: str, library: Path) -> Callable[[], tuple[int, str, str]]:
    """Runs the library's own job again."""
    return lambda: run("library", *JOB, "--server", server_address, "--out", str(library), "--json")


def rows(library: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (library / "manifest.jsonl").read_text().splitlines()]


def respell(library: Path, **fields: Any) -> dict[str, Any]:
    """Changes fields of the manifest's first row; the row as it was."""
    first, *others = rows(library)
    lines = [json.dumps(each) + "\n" for each in ({**first, **fields}, *others)]
    (library / "manifest.jsonl").write_text("".join(lines))
    return first


def replace_in(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_nothing_is_wrong_with_the_sound_one(run: Run, library: Path) -> None:
    status, out, error = run("verify", str(library), "--out-of-tune", "1")
    assert status == 0, (out, error)


@pytest.mark.parametrize("by", ["../outside.wav", "absolute", "link"])
def test_verify_opens_nothing_outside_of_the_folder(run: Run, library: Path, tmp_path: Path, by: str) -> None:
    outside = tmp_path / "outside.wav"
    shutil.copy(library / rows(library)[0]["file"], outside)
    named = {"absolute": str(outside), "link": "samples/link.wav"}.get(by, by)
    if by == "link":
        (library / named).symlink_to(outside)
    first = respell(library, file=named)
    replace_in(library / "Violin.sfz", first["file"], named)
    replace_in(library / "Violin.dspreset", first["file"], named)
    os.mkfifo(library / "samples" / "pipe.wav")
    status, out, _ = run("verify", str(library), "--out-of-tune", "1", "--json")
    assert status == 1
    faults = [(each["file"], each["kind"]) for each in json.loads(out)["faults"]]
    assert (named, "missing") in faults
    assert {("Violin.sfz", "reference"), ("Violin.dspreset", "reference")} <= set(faults)


def test_verify_follows_no_link_out_of_the_folder(run: Run, library: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "line").write_text("secret of another")
    shutil.copy(library / "Violin.sfz", library / "Linked.sfz")
    names = ("Violin.sfz", "Linked.dspreset", "tuning.json")
    for name in names:
        (library / name).unlink(missing_ok=True)
        (library / name).symlink_to(tmp_path / "secret" / "line")
    shutil.move(library / ".timbrel" / "codes", tmp_path / "secret" / "codes")
    (library / ".timbrel" / "codes").symlink_to(tmp_path / "secret" / "codes")
    status, out, error = run("verify", str(library), "--out-of-tune", "1", "--json")
    assert status == 1 and "secret" not in out + error
    faults = [(each["file"], each["description"]) for each in json.loads(out)["faults"]]
    for name in names:
        assert any(file == name and "within the folder" in description for file, description in faults), name
    assert sum("the codes of" in description for _, description in faults) == len(rows(library))
    shutil.move(library / "manifest.jsonl", tmp_path / "secret" / "manifest.jsonl")
    (library / "manifest.jsonl").symlink_to(tmp_path / "secret" / "manifest.jsonl")
    status, _, error = run("verify", str(library))
    assert status == 2 and "has no manifest.jsonl" in error


@pytest.mark.parametrize("trigger", ["first", "release"])
def test_an_instrument_that_no_key_sounds_is_a_fault(run: Run, library: Path, trigger: str) -> None:
    lines = (library / "manifest.jsonl").read_text().splitlines()
    loopless = {"loop_mode": "no_loop", "loop_start": None, "loop_end": None, "release_start": 5}
    lines = [json.dumps({**json.loads(line), **loopless}) + "\n" for line in lines]
    (library / "manifest.jsonl").write_text("".join(lines))
    sfz = library / "Violin.sfz"
    text = re.sub(r"(?m)^(loop_(start|end)|trigger|offset)=.*\n", "", sfz.read_text())
    mode = "one_shot\noffset=5" if trigger == "release" else "no_loop"
    text = re.sub(r"(?m)^loop_mode=.*$", f"loop_mode={mode}\ntrigger={trigger}", text)
    sfz.write_text(text)
    status, out, _ = run("verify", str(library), "--out-of-tune", "1", "--json")
    assert status == 1
    faults = [each["description"] for each in json.loads(out)["faults"] if each["file"] == "Violin.sfz"]
    assert "has no region that sounds when a key goes down" in faults


def test_a_file_that_unpacks_to_hours_is_not_unpacked(run: Run, library: Path) -> None:
    """Whether the manifest tells the truth or not."""
    bomb = library / "samples" / "bomb.flac"
    with soundfile.SoundFile(bomb, "w", 48_000, 1) as file:
        for _ in range(70):
            file.write(np.zeros(2**20, dtype=np.float32))
    honest = {"file": "samples/bomb.flac", "sha256": sha256_file(bomb), "sample_rate": 48_000}
    respell(library, **honest)
    started = time.process_time()
    status, out, _ = run("verify", str(library))
    assert status == 1
    assert "says that it holds 73400320 samples" in out
    assert time.process_time() - started < 30.0
    respell(library, **honest, n_samples=70 * 2**20)
    assert "n_samples 73400320" in run("verify", str(library))[1]


def test_what_verify_says_does_not_act_on_the_terminal(run: Run, library: Path) -> None:
    shutil.copy(library / "Violin.sfz", library / f"{ESCAPE}.sfz")
    with (library / "Violin.sfz").open("a") as file:
        file.write(f"<region>\nsample={ESCAPE}\n")
    replace_in(library / "Violin.dspreset", "samples/", ESCAPE.replace("\x1b", "&#155;").replace("\x07", ""))
    status, out, error = run("verify", str(library))
    assert status == 1
    assert not any(UNPRINTABLE.search(line) for line in (out + error).split("\n"))
    respell(library, file=ESCAPE)
    status, out, _ = run("verify", str(library), "--json")
    assert status == 1 and "has file" in json.loads(out)["faults"][0]["description"]


@pytest.mark.parametrize(
    "line",
    [
        *("#include <../../secret=.sfz>", "default_path=../../", "<control>\ndefault_path=/", "/* x=1"),
        *("<global>\nfil999999999_type=lpf_2p", "<global>\nlfo99999999_freq=1"),
    ],
)
def test_a_sampler_is_given_no_instrument_that_leads_elsewhere(run: Run, library: Path, line: str) -> None:
    path = library / "Violin.sfz"
    path.write_text(f"{line}\n{path.read_text()}")
    status, out, _ = run("verify", str(library), "--out-of-tune", "1", "--json")
    assert status == 1
    report = json.loads(out)
    assert report["scales"] == []
    assert any(each["file"] == "Violin.sfz" and each["kind"] == "text" for each in report["faults"])


@pytest.mark.parametrize(
    "text", [NESTED, '{"note": ' * 20_000, "", "\x00", "1e999", '{"note": 1' + "0" * 5000]
)
def test_a_manifest_that_is_none_is_a_fault(run: Run, library: Path, text: str) -> None:
    (library / "manifest.jsonl").write_text(text)
    status, _, error = run("verify", str(library))
    assert status == 1 and error == ""


LINKS = ["samples", "samples/Violin", ".timbrel", ".timbrel/codes", ".timbrel/finished"]


@pytest.mark.parametrize("name", LINKS)
def test_nothing_is_written_through_a_link_to_a_folder(
    go_on: Callable[[], tuple[int, str, str]], library: Path, tmp_path: Path, name: str
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    shutil.rmtree(library / name)
    (library / name).symlink_to(outside)
    status, _, error = go_on()
    assert status == 2
    assert "neither a file nor a folder" in error and str(library / name) in error
    assert list(outside.iterdir()) == []


@pytest.mark.parametrize("name", [".timbrel/lock", ".timbrel/measured.log"])
@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_nothing_is_written_through_a_link_to_a_file(
    go_on: Callable[[], tuple[int, str, str]], library: Path, tmp_path: Path, name: str, kind: str
) -> None:
    precious = tmp_path / "precious"
    precious.write_text("mine")
    (library / name).unlink()
    if kind == "link":
        (library / name).symlink_to(precious)
    else:
        os.mkfifo(library / name)
    shutil.rmtree(library / ".timbrel" / "codes")  # so that there is something to do
    status, _, error = go_on()
    assert (status, precious.read_text()) == (2, "mine")
    assert "neither a file nor a folder" in error


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_the_job_is_read_through_no_link_and_no_pipe(
    run: Run, server_address: str, library: Path, tmp_path: Path, kind: str
) -> None:
    """Without --seconds it says for how long keys are held, and is read before all else."""
    job = library / ".timbrel" / "job.json"
    if kind == "link":
        job.replace(tmp_path / "another's")
        job.symlink_to(tmp_path / "another's")
    else:
        job.unlink()
        os.mkfifo(job)
    options = [*JOB[: JOB.index("--seconds")], "--server", server_address, "--out", str(library)]
    status, _, error = run("library", *options)
    assert status == 2 and "neither a file nor a folder" in error and error.count("\n") == 1


@pytest.mark.parametrize(
    "content",
    [NESTED, '{"key": ' + NESTED, json.dumps({"key": 1, "job": {ESCAPE * 1000: 1}}), "null", "\ufffe"],
)
def test_a_job_that_is_none_is_one_line(
    go_on: Callable[[], tuple[int, str, str]], library: Path, content: str
) -> None:
    (library / ".timbrel" / "job.json").write_text(
        content, encoding="utf-16" if content == "\ufffe" else None
    )
    status, out, error = go_on()
    assert (status, out) == (2, "")
    assert error.startswith("timbrel: ") and error.count("\n") == 1 and len(error) < 1000
    assert not UNPRINTABLE.search(error[:-1])


def array_header(shape: str) -> bytes:
    """The beginning of an .npy file whose array claims a shape."""
    header = f"{{'descr': '<u2', 'fortran_order': False, 'shape': {shape}, }}".encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header


def huge_npz(path: Path, shape: str, member: bytes = b"") -> None:
    """An .npz whose codes claim a shape, with some bytes of them, well packed."""
    array = array_header(shape) + member
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("codes.npy", array)
        archive.writestr("truncated.npy", array)


NOTES: dict[str, Callable[[Path], object]] = {
    "huge shape": lambda path: huge_npz(path, f"({2**40}, 3)"),
    "overflowing shape": lambda path: huge_npz(path, f"({2**70}, {2**70})"),
    "negative shape": lambda path: huge_npz(path, "(-1, 3)"),
    "packed": lambda path: huge_npz(path, f"({2**24}, 1)", bytes(2**25)),
    "deep header": lambda path: huge_npz(path, "(" * 90),
    "an array of a terabyte": lambda path: (
        path.write_bytes(array_header(f"({2**39},)")),
        os.truncate(path, 2**40),
    ),
    "noise": lambda path: path.write_bytes(b"PK\x03\x04" + bytes(range(256))),
}


@pytest.mark.parametrize("case", NOTES)
def test_a_note_that_is_none_is_rendered_again(
    go_on: Callable[[], tuple[int, str, str]], library: Path, sound: Path, case: str
) -> None:
    """The log, too, says nothing that a measurement could be."""
    victim, *_ = sorted((library / ".timbrel" / "codes").rglob("*.npz"))
    NOTES[case](victim)
    log = library / ".timbrel" / "measured.log"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    spoilt = [
        NESTED,
        json.dumps({**lines[0], "key": [1]}),
        json.dumps({**lines[0], "measurement": {**lines[0]["measurement"], "pitch": "sixty"}}),
        json.dumps({**lines[0], "measurement": {**lines[0]["measurement"], "loudness": 10**400}}),
        json.dumps({**lines[0], "measurement": {**lines[0]["measurement"], "true_peak": float("nan")}}),
    ]
    log.write_text("\n".join(spoilt) + "\n")
    shutil.rmtree(library / ".timbrel" / "finished")
    status, _, error = go_on()
    while status == 2 and "run the same command to render them again" in error:
        status, _, error = go_on()
    assert status == 0, error
    assert sha256_file(library / rows(library)[0]["file"]) == rows(sound)[0]["sha256"]


def test_a_sample_that_is_named_twice_is_a_fault(run: Run, library: Path) -> None:
    """Otherwise one file would be measured as often as somebody likes."""
    first, *_ = rows(library)
    (library / "manifest.jsonl").write_text((json.dumps(first) + "\n") * 1000)
    assert "names a sample twice" in run("verify", str(library))[1]
