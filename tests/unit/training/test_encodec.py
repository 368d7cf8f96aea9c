"""EnCodec behind the codec interface: Meta's form on random weights, and small ones that are trained."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.error import URLError

import pytest
import torch
from simple_notes import SyntheticSource
from torch import Tensor

from timbrel.cli import main
from timbrel_training.codec.encodec import EncodecCodec, EncodecConfig, EncodecSizes, make_codec
from timbrel_training.codec.encodec.package import building, import_encodec
from timbrel_training.codec.encodec.pretrained import CHECKPOINT, HASH, CodecWeightsError, load_meta
from timbrel_training.codec.encodec.train import EncodecTraining, balanced_gradient, reconstruction_errors
from timbrel_training.codec.interface import encode_note, file_hash
from timbrel_training.codec.registry import load_codec
from timbrel_training.errors import CheckpointError, ConfigError
from timbrel_training.loop import LoopConfig
from timbrel_training.notes.dataset import NoteDataset
from timbrel_training.notes.render import render_dataset

torch.set_num_threads(1)

SMALL = EncodecConfig(
    weights="none",
    sizes=EncodecSizes(n_filters=2, dimension=8, n_lstm_layers=1, codebook_size=16),
    loop=LoopConfig(n_steps=6, n_warmup=1, validate_every=3, checkpoint_every=2, ema_decay=0.9),
    batch_size=2,
    seconds=0.1,
    discriminator_filters=2,
)


@pytest.fixture(scope="module")
def package() -> torch.nn.Module:
    """The package's own model, its weights random and its codebooks different, as trained ones are."""
    torch.manual_seed(1)
    with building():
        model: torch.nn.Module = import_encodec().EncodecModel.encodec_model_24khz(pretrained=False)
    state = model.state_dict()
    model.load_state_dict(
        {name: torch.randn_like(t) if name.endswith("embed") else t for name, t in state.items()}
    )
    return model.requires_grad_(False)


@pytest.fixture(scope="module")
def file(package: torch.nn.Module, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("weights") / CHECKPOINT
    torch.save(package.state_dict(), path)
    return path


@pytest.fixture(scope="module")
def notes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("notes") / "notes"
    render_dataset(
        SyntheticSource(pitches=range(60, 62), n_draws=2, sample_rate=24_000, max_held=0.3), path, jobs=1
    )
    return path


def test_codes_and_audio_are_the_packages(package: torch.nn.Module, file: Path) -> None:
    codec, _ = load_meta(file, n_codebooks=4)
    audio = torch.rand(2, 3200) - 0.5
    package.set_target_bandwidth(3.0)
    [(codes, _)] = package.encode(audio[:, None])
    assert torch.equal(codec.encode(audio), codes.transpose(1, 2))
    assert codec.encode(audio).shape == (2, codec.n_frames(3200), codec.n_codebooks) == (2, 10, 4)
    wanted = package.decode([(codes, None)])[:, 0]
    torch.testing.assert_close(codec.decode(codec.encode(audio)), wanted, atol=1e-6, rtol=0)
    assert codec.silence().shape == (4,) and (codec.frame_rate, codec.delay_samples) == (75.0, 6 * 320)


def test_weights_from_a_file_leave_a_folder_that_says_what_they_are(
    file: Path, notes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["train", "codec", "--design", "encodec", "--set", "codec.bandwidth=1.5", "--device", "cpu"]
    assert (
        main([*words, "--weights", str(file), "--notes", str(notes), "--out", str(tmp_path / "codec")]) == 0
    )
    about = json.loads((tmp_path / "codec" / "codec.json").read_text())
    (source,) = about["sources"]
    assert file_hash(file) in source["name"] and source["licence"] == "unknown"  # since they are not Meta's
    codec, again = load_codec(tmp_path / "codec"), load_meta(file.parent, n_codebooks=2)[0]
    audio = torch.rand(2000, generator=torch.Generator().manual_seed(2)) - 0.5
    assert torch.equal(encode_note(codec, audio, None), encode_note(again, audio, 60.0))


def cut(state: dict[str, Tensor], path: Path) -> None:
    torch.save(state, path)
    path.write_bytes(path.read_bytes()[:-1000])


def with_fewer_codebooks(state: dict[str, Tensor], path: Path) -> None:
    torch.save({name: each for name, each in state.items() if ".layers.31." not in name}, path)


def of_another_model(state: dict[str, Tensor], path: Path) -> None:
    torch.save({name.replace("weight_g", "weight"): each for name, each in state.items()}, path)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (cut, "not a PyTorch checkpoint, or truncated"),
        (with_fewer_codebooks, "has 31 codebooks, EnCodec's 24 kHz model has 32"),
        (of_another_model, "not the weights of EnCodec's 24 kHz model"),
        (lambda _, path: torch.save({"best": 3}, path), "not a state dict"),
        (
            lambda _, path: torch.save({"a": torch.zeros(1)}, path),
            "not the weights of EnCodec's 24 kHz model",
        ),
        (lambda *_: None, "no such file; EnCodec's weights are published at https"),
    ],
)
def test_other_weights_are_one_line_and_leave_nothing(
    spoil: Callable[[dict[str, Tensor], Path], None],
    message: str,
    package: torch.nn.Module,
    notes: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file, out = tmp_path / "weights.th", tmp_path / "codec"
    spoil(package.state_dict(), file)
    words = ["--design", "encodec", "--weights", str(file), "--notes", str(notes), "--out", str(out)]
    assert main(["train", "codec", *words]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1 and not out.exists()


def test_a_download_is_told_and_no_network_is_one_clear_line(
    notes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise URLError("Temporary failure in name resolution")

    monkeypatch.setattr(torch.hub, "download_url_to_file", fail)
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    with pytest.raises(CodecWeightsError, match=r"could not be downloaded from .*--weights FILE"):
        make_codec(EncodecConfig(), NoteDataset(notes), tmp_path / "codec")
    assert not (tmp_path / "codec").exists()
    assert f"weights, some 90 MB, to {tmp_path}" in capsys.readouterr().out


def test_a_run_that_was_interrupted_ends_with_the_same_codec(notes: Path, tmp_path: Path) -> None:
    dataset = NoteDataset(notes)
    config = replace(SMALL, loop=replace(SMALL.loop, n_steps=4, validate_every=2))
    whole = make_codec(config, dataset, tmp_path / "whole")
    assert whole is not None and whole.delay_samples == 0
    short = replace(config, loop=replace(config.loop, max_minutes=1e-6))
    sittings = [make_codec(short, dataset, tmp_path / "parts") for _ in range(4)]
    parts = sittings[-1]
    assert sittings[:3] == [None] * 3 and parts is not None
    for (name, one), other in zip(whole.state_dict().items(), parts.state_dict().values(), strict=True):
        assert torch.equal(one, other), name
    first = load_codec(tmp_path / "parts")
    assert isinstance(first, EncodecCodec) and first.config == SMALL.sizes
    with pytest.raises(CheckpointError, match="made by another config"):
        make_codec(replace(config, batch_size=3), dataset, tmp_path / "parts")


def test_the_discriminator_joins_once_the_codec_has_learnt(
    notes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts: list[set[str]] = []
    loss = EncodecTraining.loss

    def noted(*given: Any, **named: Any) -> tuple[Tensor, dict[str, Tensor]]:
        found = loss(*given, **named)
        parts.append(set(found[1]))
        return found

    monkeypatch.setattr(EncodecTraining, "loss", noted)
    make_codec(replace(SMALL, discriminator_start=0.6), NoteDataset(notes), tmp_path)
    early = {"waveform", "spectral", "commitment"}
    assert parts == [early] * 4 + [early | {"adversarial", "features", "discriminator"}] * 2


@pytest.mark.slow
def test_training_gives_each_note_back_and_not_the_mean_of_all(notes: Path, tmp_path: Path) -> None:
    config = replace(
        SMALL,
        sizes=EncodecSizes(ratios=(8, 5), n_filters=4, dimension=16, n_lstm_layers=0, codebook_size=16),
        loop=replace(SMALL.loop, n_steps=120, n_warmup=10, learning_rate=3e-3, validate_every=60),
        batch_size=4,
    )
    dataset = NoteDataset(notes)
    codec = make_codec(config, dataset, tmp_path)
    assert codec is not None
    low, high = (
        torch.from_numpy(dataset.audio(int((dataset.pitch == pitch).argmax()), 0, 4800)) for pitch in (60, 61)
    )
    for own, other in ((low, high), (high, low)):
        heard = codec.decode(codec.encode(own[None]))
        error, of_silence, of_the_other = (
            reconstruction_errors(one, against[None], 24_000)["spectral"]
            for one, against in ((heard, own), (torch.zeros_like(heard), own), (heard, other))
        )
        assert error < 0.6 * of_silence and error < 0.6 * of_the_other


def test_notes_at_another_rate_are_refused(notes: Path, tmp_path: Path) -> None:
    config = replace(SMALL, sizes=replace(SMALL.sizes, sample_rate=48_000))
    with pytest.raises(ConfigError, match="at 24000 Hz, but this codec works at 48000 Hz"):
        make_codec(config, NoteDataset(notes), tmp_path / "codec")


def test_the_stand_in_does_not_outlive_the_import() -> None:
    assert import_encodec().EncodecModel is not None
    assert type(sys.modules.get("torchaudio")).__name__ != "TorchaudioStandIn"


@pytest.mark.acceptance
def test_metas_own_weights() -> None:
    """Needs their file: TIMBREL_ENCODEC_WEIGHTS=/path/to/encodec_24khz-d7cc33bc.th."""
    if not (given := os.environ.get("TIMBREL_ENCODEC_WEIGHTS")):
        pytest.skip("TIMBREL_ENCODEC_WEIGHTS names no file of Meta's weights")
    codec, (source,) = load_meta(Path(given), n_codebooks=8)
    assert HASH in source["name"] and source["licence"] == "CC-BY-NC-4.0"
    seconds = torch.arange(24_000) / 24_000
    tone = sum(0.1 * torch.sin(2 * torch.pi * 220 * k * seconds) / k for k in (1, 2, 3, 4))
    assert isinstance(tone, Tensor)
    heard = codec.decode(codec.encode(tone[None]))[0]
    assert float((heard - tone)[2000:-2000].square().mean() / tone.square().mean()) < 0.25


def test_what_every_codebook_leaves_over_pulls_the_encoder() -> None:
    """And what is heard does once, whatever the number of codebooks."""
    torch.manual_seed(0)
    training = EncodecTraining(SMALL).train()
    latents: list[torch.Tensor] = []
    errors: list[torch.Tensor] = []
    training.encoder.register_forward_hook(lambda *given: latents.append(given[-1]))
    for layer in training.quantizer.vq.layers:
        layer.register_forward_hook(lambda *given: errors.append(given[-1][-1].mean()))
    training(torch.randn(2, 4800))
    assert len(errors) > 1
    for error in errors:
        (pull,) = torch.autograd.grad(error, latents[0], retain_graph=True)
        assert pull.abs().max() > 0


def test_before_it_learns_its_layers_pass_on_what_differs_between_sounds() -> None:
    """As they are made they would not: what they give out is their biases, whatever comes in."""
    torch.manual_seed(0)
    training = EncodecTraining(SMALL)
    seconds = torch.arange(4800) / 24_000
    pitches = torch.tensor([220, 523, 1047, 2093])
    sounds = 0.02 * torch.sin(2 * torch.pi * pitches[:, None] * seconds)

    def share_between() -> float:
        latents = training.encoder(sounds[:, None])
        return float(latents.mean(dim=2).std(dim=0).mean() / latents.std())

    with torch.no_grad():
        before = share_between()
        training.fit_scales(sounds)
        after, heard = share_between(), training(sounds)[0]
    assert before < 0.05 and after > 0.2
    assert 0.5 < heard.std() / sounds.std() < 2
    assert training.discriminator is not None
    logits, _ = training.discriminator(sounds[:, None])
    assert all(logit.std() > 0.1 for logit in logits)


def test_silence_scales_nothing() -> None:
    torch.manual_seed(0)
    training = EncodecTraining(SMALL)
    training.fit_scales(torch.zeros(2, 4800))
    assert all(each.isfinite().all() and each.abs().max() < 100 for each in training.parameters())
    with torch.no_grad():
        heard, _ = training(0.02 * torch.randn(2, 4800))
    assert heard.isfinite().all() and heard.std() > 0


def test_each_error_pulls_by_its_share_however_steep_it_is() -> None:
    heard = torch.randn(2, 100, requires_grad=True)
    errors = {"waveform": 1e-6 * heard[0].square().mean(), "spectral": 1e6 * heard[1].square().mean()}
    pull = balanced_gradient(errors, heard)
    assert float(pull[0].norm() / pull[1].norm()) == pytest.approx(0.1, rel=1e-4)


@pytest.mark.parametrize("n_excerpts", [1, 4, 64])
def test_an_excerpt_is_pulled_as_hard_however_many_there_are(n_excerpts: int) -> None:
    """Pulled the less, the more there are, all came to sound alike."""
    heard = torch.randn(n_excerpts, 100, requires_grad=True)
    pull = balanced_gradient({"spectral": heard.square().mean()}, heard)
    assert float(pull.norm(dim=1).mean()) == pytest.approx(1.0, rel=1e-4)
