"""`timbrel train --from-bundle`: recordings and a bundle become a bundle that plays them too."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import soundfile
import torch
import without_posix
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from server_process import ServerProcess

import timbrel
from timbrel.cli import main
from timbrel_bundle.bundle import Bundle
from timbrel_bundle.manifest import bundle_hash, describe_file, save_manifest
from timbrel_export.errors import ExportError
from timbrel_posttraining.finetune import run

EXAMPLES = Path(__file__).parents[2] / "training" / "examples"
MAKE_SAMPLES = EXAMPLES / "make_samples.py"
PITCHES = (48, 60, 72)
OUTSIDE = (20, 24)
"""Pitches that the tiny bundle does not know."""

KILLED = """
import os, signal, sys
from timbrel.cli import main
from timbrel_training import loop

save = loop.save_checkpoint

def save_and_die(*given):
    save(*given)
    os.kill(os.getpid(), signal.SIGKILL)

loop.save_checkpoint = save_and_die
sys.exit(main(sys.argv[1:]))
"""
"""A `timbrel` that is killed with its first checkpoint: a signal from outside might come when all is done."""


def record(folder: Path, name: str = "reed", pitches: tuple[int, ...] = PITCHES) -> Path:
    """Some samples of the example's instrument in a folder."""
    spec = importlib.util.spec_from_file_location("make_samples", MAKE_SAMPLES)
    assert spec is not None and spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    folder.mkdir()
    for pitch in pitches:
        soundfile.write(folder / f"{name}_{pitch:03d}_v100.wav", example.fm_note(pitch, 100, 16_000), 16_000)
    return folder


def arguments(base: Path, samples: Path, out: Path, *more: str) -> list[str]:
    given = ["--from-bundle", base, "--source", f"folder:{samples}", "--out", out, "--config", "tiny"]
    return ["train", *map(str, given), "--licence", "CC0-1.0", *more]


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record(tmp_path_factory.mktemp("samples") / "reeds", pitches=(*OUTSIDE, *PITCHES))


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> None:
    """Two threads that share a busy core wait for one another most of the time."""
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def tuning(tiny_bundle: Path, samples: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The tiny bundle after learning the samples, and what was printed meanwhile. A run before had no more
    than begun its folder of unfinished work, as on a full disk."""
    out = tmp_path_factory.mktemp("tuned") / "mine"
    out.with_name("mine.partial").mkdir()
    with contextlib.redirect_stdout(io.StringIO()) as printed, pytest.MonkeyPatch.context() as patch:
        patch.setattr(shutil, "_use_fd_functions", False)
        patch.setattr(shutil, "_rmtree_impl", getattr(shutil, "_rmtree_unsafe", None), raising=False)  # 3.14
        patch.setattr(os, "unlink", without_posix.unlink_what_is_closed)
        assert main(arguments(tiny_bundle, samples, out)) == 0
    return out, printed.getvalue()


@pytest.fixture(scope="module")
def tuned(tuning: tuple[Path, str]) -> Path:
    return tuning[0]


def test_the_new_instrument_joins_the_map(tiny_bundle: Path, tuned: Path) -> None:
    old, new = Bundle.open(tiny_bundle), Bundle.open(tuned)
    new.require()
    assert list(new.timbre_map.points)[:-1] == list(old.timbre_map.points)
    reed = new.timbre_map.points[-1]
    assert (reed.instrument, reed.pitch_min, reed.pitch_max) == ("reed", 46, 74)
    assert reed.x**2 + reed.y**2 <= 1.0
    assert [path.name for path in tuned.parent.iterdir()] == ["mine"], "nothing unfinished is left behind"


def test_only_the_decoders_weights_change(tiny_bundle: Path, tuned: Path) -> None:
    old = {file.name: file.sha256 for file in Bundle.open(tiny_bundle).manifest.files}
    new = {file.name: file.sha256 for file in Bundle.open(tuned).manifest.files}
    changed = {"model.safetensors", "timbre_map.json", "timbre_references.json"}
    assert {name for name in old if old[name] != new[name]} == changed
    assert new.keys() == old.keys()


def test_a_sample_is_located_at_the_new_instrument(
    tuned: Path, samples: Path, start_server: Callable[..., ServerProcess]
) -> None:
    with timbrel.Client(start_server(bundle=tuned).address) as client:
        for file in sorted(samples.iterdir())[len(OUTSIDE) :]:
            location = client.locate(*soundfile.read(file, dtype="float32"))
            assert (location.nearest[0].name, location.near) == ("reed", True), file.name


def test_the_manifest_tells_where_it_comes_from(tiny_bundle: Path, tuned: Path) -> None:
    old, new = Bundle.open(tiny_bundle).manifest, Bundle.open(tuned).manifest
    assert new.name == "mine" and new.ranges == old.ranges and new.codec == old.codec
    *before, added = new.training.sources
    assert before == list(old.training.sources)
    assert (added.name, added.licence, added.n_instruments) == ("folder reeds", "CC0-1.0", 1)
    assert 0 < added.n_notes <= len(PITCHES)
    assert new.training.n_steps == old.training.n_steps + 20
    assert f"fine-tuned from tiny {old.bundle_hash[:12]}" in new.training.config
    assert new.parity.n_tokens > 0


def test_a_server_plays_old_and_new(tuned: Path, start_server: Callable[..., ServerProcess]) -> None:
    server = start_server(bundle=tuned)
    with timbrel.Client(server.address) as client:
        for instrument in ("reed", "Violin"):
            note = client.generate(instrument, pitch=60, seconds=0.5, seed=1)
            assert len(note.audio) > 0.3 * note.sample_rate


@pytest.mark.slow
def test_a_tuned_bundle_can_be_tuned_again(tuned: Path, tmp_path: Path) -> None:
    more = record(tmp_path / "more", "second reed", (60,))
    assert main(arguments(tuned, more, tmp_path / "again")) == 0
    names = [point.instrument for point in Bundle.open(tmp_path / "again").timbre_map.points]
    assert names[-2:] == ["reed", "second reed"]
    points = Bundle.open(tmp_path / "again").timbre_map.points
    gap = (points[-1].x - points[-2].x) ** 2 + (points[-1].y - points[-2].y) ** 2
    assert gap > 0.1**2, "the same sound under another name is put beside the first"


@pytest.mark.slow
def test_a_killed_run_goes_on_to_the_same_model(
    tiny_bundle: Path, samples: Path, tuned: Path, tmp_path: Path
) -> None:
    given = arguments(tiny_bundle, samples, tmp_path / "mine", "--set")
    given.append("finetune.training.loop.checkpoint_every=1")
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, *given],
        stderr=subprocess.DEVNULL,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
    )
    checkpoint = tmp_path / "mine.partial" / "checkpoint.pt"
    assert killed.returncode == -signal.SIGKILL and checkpoint.exists() and not (tmp_path / "mine").exists()
    assert main(given) == 0
    resumed, whole = (load_file(folder / "model.safetensors") for folder in (tmp_path / "mine", tuned))
    before = load_file(tiny_bundle / "model.safetensors")
    moved = max(float((whole[name] - before[name]).abs().max()) for name in before)
    for name, weights in whole.items():  # the processes may differ in threads, and so in the last bits
        assert float((resumed[name] - weights).abs().max()) < 0.05 * moved, name
    assert not checkpoint.parent.exists()


def test_unfinished_work_on_something_else_is_not_touched(
    tiny_bundle: Path, samples: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.partial").mkdir()
    (tmp_path / "mine.partial" / "plan.json").write_text("{}")
    assert main(arguments(tiny_bundle, samples, tmp_path / "mine")) == 2
    assert "mine.partial: unfinished work on another bundle" in capsys.readouterr().err


def test_a_run_that_is_taken_for_interrupted_is_left_alone(
    tiny_bundle: Path, samples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    asked = arguments(tiny_bundle, samples, tmp_path / "mine")
    code_samples = run.code_samples

    def begin_again(*given: Any) -> Any:
        monkeypatch.setattr(run, "code_samples", code_samples)
        assert main(asked) == 2
        assert "mine.partial: another process is at work there; wait for it" in capsys.readouterr().err
        raise ExportError("stopped")

    monkeypatch.setattr(run, "code_samples", begin_again)
    assert main(asked) == 2 and "stopped" in capsys.readouterr().err
    monkeypatch.setattr(run, "code_samples", begin_again)  # and the first has let go
    assert main(asked) == 2 and "stopped" in capsys.readouterr().err


def test_unfinished_work_of_an_earlier_timbrel_is_not_gone_on_with(
    tiny_bundle: Path, samples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """It coded other variants of the samples, to which none of the later ones' numbers would fit."""
    asked = arguments(tiny_bundle, samples, tmp_path / "mine")

    def stop(*_: object) -> None:
        raise ExportError("stopped")

    monkeypatch.setattr(run, "code_samples", stop)
    for version, told in ((run.VERSION - 1, "stopped"), (run.VERSION, ", or of another timbrel; remove")):
        monkeypatch.setattr(run, "VERSION", version)
        assert main(asked) == 2 and told in capsys.readouterr().err


def test_unfinished_work_of_another_seed_is_not_gone_on_with(
    tiny_bundle: Path, samples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """Rehearsal that was written at one seed's points would be taken for that of another's."""
    asked = arguments(tiny_bundle, samples, tmp_path / "mine", "--set", "finetune.training.loop.seed=5")

    def stop(*_: object) -> None:
        raise ExportError("stopped")

    monkeypatch.setattr(run, "code_samples", stop)
    for given, told in ((asked, "stopped"), (asked, "stopped"), (asked[:-2], "or other settings")):
        assert main(given) == 2 and told in capsys.readouterr().err


def test_what_the_bundle_does_not_know_is_left_out(tuning: tuple[Path, str]) -> None:
    assert "left out: 2 of pitch outside the bundle's 36 to 96: reed 20, reed 24\n" in tuning[1]


def other_model(tiny_bundle: Path, folder: Path, **said: str) -> Path:
    """A bundle whose weights say that they are of another model than its graphs."""
    shutil.copytree(tiny_bundle, folder)
    manifest = Bundle.open(folder).manifest
    weights = folder / "model.safetensors"
    with safe_open(weights, "np") as file:
        config = json.loads(file.metadata()["config"]) | said
    save_file(load_file(weights), weights, {"config": json.dumps(config)})
    for file in manifest.files:
        if file.name == weights.name:
            file.CopyFrom(describe_file(weights))
    manifest.bundle_hash = bundle_hash(manifest.files)
    save_manifest(manifest, folder / "manifest.json")
    return folder


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        ("no bundle", "holds no manifest.json"),
        ("no such bundle", "there is no such folder"),
        ("a graph is gone", "decoder_step_half.onnx: the file is missing"),
        ("no kind", "expected folder:DIR"),
        ("two sources", "--source folder:more: one folder is learnt at a time; put the other into it"),
        ("no samples", "no notes; expected .wav, .flac"),
        ("nameless", "no note in its name"),
        ("taken", "has an instrument 'Violin' already"),
        ("outside", "no sample is left to train on"),
        ("onto itself", "is the bundle to start from"),
        ("onto a folder", "exists and is no bundle"),
        ("licence", "--licence 'mine\\nall rights' has characters that cannot be printed"),
        ("name", "--name has 1001 characters, 1000 are the most"),
        ("other model", "its weights give another model here than in its graphs"),
        ("decoder-only model", "that this timbrel knows (conditioning is 'prefix'; it must be cross)"),
    ],
)
def test_mistakes_are_one_clear_line(
    mistake: str,
    message: str,
    tiny_bundle: Path,
    samples: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    base, out, source = tiny_bundle, tmp_path / "mine", samples
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "poem.txt").write_text("precious")
    if mistake == "no bundle":
        base = tmp_path / "folder"
    elif mistake == "no such bundle":
        base = tmp_path / "nowhere"
    elif mistake == "a graph is gone":
        base = shutil.copytree(tiny_bundle, tmp_path / "less")
        (base / "decoder_step_half.onnx").unlink()
    elif mistake == "no samples":
        source = tmp_path / "folder"
    elif mistake == "nameless":
        source = record(tmp_path / "nameless")
        (source / "reed_060_v100.wav").rename(source / "reed.wav")
    elif mistake == "taken":
        source = record(tmp_path / "violin", "violin")
    elif mistake == "outside":
        source = record(tmp_path / "low", "low", (20,))
    elif mistake == "onto itself":
        base = shutil.copytree(tiny_bundle, tmp_path / "mine")
    elif mistake == "onto a folder":
        out = tmp_path / "folder"
    elif mistake == "other model":
        base = other_model(tiny_bundle, tmp_path / "other", activation="relu")
    elif mistake == "decoder-only model":
        base = other_model(tiny_bundle, tmp_path / "other", conditioning="prefix")
    given = arguments(base, source, out)
    if mistake == "no kind":
        given[given.index(f"folder:{source}")] = str(source)
    given += {
        "licence": ["--licence", "mine\nall rights"],
        "name": ["--name", "x" * 1001],
        "two sources": ["--source", "folder:more"],
    }.get(mistake, [])
    assert main(given) == 2
    error = capsys.readouterr().err
    lines = [line for line in error.splitlines() if line.startswith("timbrel: ")]
    assert len(lines) == 1 and message in lines[0]
    assert (tmp_path / "folder" / "poem.txt").read_text() == "precious"
    assert mistake == "onto itself" or not (tmp_path / "mine").exists()
    assert mistake != "a graph is gone" or not (tmp_path / "mine.partial").exists(), "it is told at once"


def test_a_missing_option_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["train", "--from-bundle", "somewhere"])
    assert "required: --source, --out" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        main(["train"])
    assert "required: STAGE" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["make_samples.py", "make_piano.py"])
def test_an_example_without_a_folder_says_how_it_is_called(name: str) -> None:
    done = subprocess.run([sys.executable, EXAMPLES / name], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and done.stderr.startswith(f"usage: {name} [-h] folder\n")
