"""A bundle's codec codes notes: made again of its weights, or refused in one line."""

from __future__ import annotations

import importlib.util
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from data.make_tiny_bundle import sample_note
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from timbrel.cli import main
from timbrel_bundle.bundle import Bundle
from timbrel_bundle.codec import CodecDecoder
from timbrel_bundle.layout import CODEC_WEIGHTS, MANIFEST
from timbrel_bundle.manifest import load_manifest, save_manifest
from timbrel_export.bundle_folder import bundle_path
from timbrel_posttraining.bundles import NoteCoder
from timbrel_posttraining.evaluate.measure.likeness import likeness
from timbrel_posttraining.finetune.base import Base
from timbrel_posttraining.finetune.samples import open_samples
from timbrel_training.codec.interface import KnownNote
from timbrel_training.errors import CheckpointError
from timbrel_training.notes.config import NotesConfig, SourceConfig
from timbrel_training.notes.note import SourceError
from timbrel_training.notes.sources import open_source

RATE = 48_000


def test_what_a_bundle_plays_is_coded_as_it_was(tiny_bundle: Path) -> None:
    bundle = Bundle.open(tiny_bundle)
    note = sample_note(np.random.default_rng(1), 44)
    audio = CodecDecoder(bundle, n_threads=1).decode(note.codes)
    coder = NoteCoder(bundle)
    codes = coder.encode(audio, RATE, float(note.pitch), 40 / 37.5)
    assert codes.dtype == np.uint16 and codes.shape == note.codes.shape
    assert np.abs(codes[:, 0].astype(int) - note.codes[:, 0]).max() <= 1  # twelfths of a semitone
    assert np.array_equal(codes[:, 1] // 4 > 0, note.codes[:, 1] // 4 > 0)  # the key goes up in this frame
    assert abs(int(codes[2, 2]) - int(note.codes[2, 2])) <= 6  # its loudness, half dB
    again = coder.encode(np.repeat(audio, 2), 2 * RATE, float(note.pitch), 40 / 37.5)
    assert np.abs(again[:, 0].astype(int) - codes[:, 0]).max() <= 1


@pytest.fixture(scope="module")
def example() -> Any:
    """The script of the training README, whose reed no instrument of the codec is like."""
    path = Path(__file__).parents[3] / "training" / "examples" / "make_samples.py"
    spec = importlib.util.spec_from_file_location("make_samples", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def shipped() -> Bundle:
    """The bundle that ships."""
    return Bundle.open(bundle_path("default"))


@pytest.fixture(scope="module")
def decoder(shipped: Bundle) -> CodecDecoder:
    """Its codec."""
    return CodecDecoder(shipped, n_threads=1)


def error_db(
    note: NDArray[np.float32], codes: NDArray[np.uint16], pitch: int, decoder: CodecDecoder
) -> float:
    """How far a note is from itself through a codec."""
    audio = decoder.decode(codes)
    count = min(len(audio), len(note))
    return likeness(note[:count], audio[:count], RATE, pitch).log_mel_db


@pytest.mark.parametrize("pitch", [52, 80])
def test_codes_that_were_searched_are_truer_to_a_sound_that_no_instrument_of_the_codec_makes(
    pitch: int, example: Any, shipped: Bundle, decoder: CodecDecoder
) -> None:
    """Its encoder alone takes a frequency-modulated reed for something else."""
    reed = example.fm_note(pitch, 100, RATE)
    found = []
    for search_steps in (0, 100):
        codes = NoteCoder(shipped, search_steps).encode(reed, RATE, float(pitch), example.HELD_SECONDS)
        found.append(error_db(reed, codes, pitch, decoder))
    assert found[1] < min(3.7, found[0] - 1.0), found


def test_notes_of_one_instrument_that_are_coded_together_have_codes_alike(
    example: Any, shipped: Bundle, decoder: CodecDecoder
) -> None:
    pitches, coder = range(57, 60), NoteCoder(shipped, 100)
    reeds = [example.fm_note(pitch, 100, RATE) for pitch in pitches]
    held = example.HELD_SECONDS
    given = list(zip(reeds, pitches, strict=True))
    alone = [coder.encode(reed, RATE, float(pitch), held) for reed, pitch in given]
    together = coder.encode_alike(
        [KnownNote(torch.from_numpy(reed), float(pitch), 100, held) for reed, pitch in given]
    )
    shares, errors = [], []
    for codes in (alone, together):
        headers = [each[:4, 2:] for each in codes]
        shares.append(np.mean([(one == other).mean() for one, other in itertools.pairwise(headers)]))
        errors.append(np.mean([error_db(*each, decoder) for each in zip(reeds, codes, pitches, strict=True)]))
    assert [each.shape for each in together] == [each.shape for each in alone]
    assert shares[1] > shares[0] + 0.2 and errors[1] < errors[0] + 0.5, (shares, errors)
    [single] = coder.encode_alike([KnownNote(torch.from_numpy(reeds[0]), 57.0, 100, held)])
    assert np.array_equal(single, alone[0])


def test_a_codec_that_is_not_known_here_names_who_reads_it(tiny_bundle: Path, tmp_path: Path) -> None:
    """Bundles of the first codec hold its weights and no config."""
    manifest = load_manifest(tiny_bundle / MANIFEST)
    manifest.git_revision = "45c80a37"
    save_manifest(manifest, tmp_path / MANIFEST)
    save_file(load_file(tiny_bundle / CODEC_WEIGHTS), tmp_path / CODEC_WEIGHTS)
    with pytest.raises(CheckpointError, match=r"codec that this timbrel can make again.* revision 45c80a37"):
        NoteCoder(Bundle.open(tmp_path, verify=False))


def test_the_bundle_that_ships_has_a_name_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shipped = bundle_path("default")
    assert Bundle.open(shipped).path == shipped and bundle_path("mine") == Path("mine")
    out = ["--out", str(tmp_path / "out")]
    for stage, given, fault in (
        ("evaluate", ["--notes", str(tmp_path), *out], f"{tmp_path}"),
        ("card", ["--evaluation", str(tmp_path)], "holds no finished evaluation"),
        ("hearing", ["--notes", str(tmp_path), "--timbre", str(tmp_path), *out], f"{tmp_path}"),
    ):
        assert main(["train", stage, "--bundle", "default", *given]) == 2
        assert fault in (error := capsys.readouterr().err) and "default: there is no such" not in error
    assert main(["export", "--bundle", "default", "--timbre", str(tmp_path), *out]) == 2
    assert f"{tmp_path}" in (error := capsys.readouterr().err) and "default: there is no such" not in error
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    for stage, option in (("card", "--bundle"), ("finetune", "--from-bundle")):
        given = ["--evaluation", str(tmp_path)] if stage == "card" else ["--source", "folder:here", *out]
        assert main(["train", stage, option, "default", *given]) == 2
        assert f"name one with {option} DIR" in capsys.readouterr().err


@pytest.mark.parametrize("stage", ["evaluate", "hearing"])
def test_less_than_one_process_is_refused(stage: str, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--bundle", "default", "--notes", "notes", "--timbre", "timbre", "--out", "out", "--jobs", "0"]
    with pytest.raises(SystemExit):
        main(["train", stage, *given])
    assert "--jobs: must be a whole number from 1, got '0'" in capsys.readouterr().err


def test_samples_may_lie_at_home(tiny_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(SourceError, match=f"{tmp_path}/none: no such folder"):
        open_samples("folder:~/none", "MIT", Base.open(tiny_bundle))
    for kind in ("folder", "soundfont", "nsynth", "sfz"):
        with pytest.raises(SourceError, match=f"{tmp_path}/none"):
            list(open_source(SourceConfig(f"{kind}:~/none"), NotesConfig()))
