"""Meta's EnCodec behind the codec interface, on untrained weights: the trained ones need a network."""

from __future__ import annotations

import sys
from pathlib import Path
from urllib.error import URLError

import pytest
import torch

from timbrel_training.codec.encodec import CHECKPOINT, CodecWeightsError, EncodecCodec, import_encodec
from timbrel_training.codec.interface import encode_note

torch.set_num_threads(1)


@pytest.fixture(scope="module")
def weights() -> dict[str, torch.Tensor]:
    """Random weights whose codebooks differ, as trained ones do."""
    torch.manual_seed(1)
    state = EncodecCodec().model.state_dict()
    return {name: torch.randn_like(t) if name.endswith("embed") else t for name, t in state.items()}


@pytest.fixture(scope="module")
def codec(weights: dict[str, torch.Tensor], tmp_path_factory: pytest.TempPathFactory) -> EncodecCodec:
    folder = tmp_path_factory.mktemp("weights")
    torch.save(weights, folder / CHECKPOINT)
    return EncodecCodec.pretrained(folder, n_codebooks=4)


def test_a_local_file_and_its_folder_give_the_same_codec(
    codec: EncodecCodec, weights: dict[str, torch.Tensor], tmp_path: Path
) -> None:
    torch.save(weights, tmp_path / "any_name.th")
    other = EncodecCodec.pretrained(tmp_path / "any_name.th", n_codebooks=4)
    audio = torch.rand(2000, generator=torch.Generator().manual_seed(2)) - 0.5
    assert torch.equal(encode_note(codec, audio, None), encode_note(other, audio, 60.0))


def test_shapes_are_those_of_the_interface(codec: EncodecCodec) -> None:
    audio = torch.rand(2, 1000) - 0.5  # 3.1 frames
    codes = codec.encode(audio)
    assert codes.shape == (2, codec.n_frames(1000), 4) == (2, 4, 4)
    assert codes.dtype == torch.int64 and int(codes.max()) < codec.codebook_size
    assert codec.decode(codes).shape == (2, 4 * codec.hop_length)
    assert codec.silence().shape == (4,)
    assert codec.frame_rate == 75.0


def test_codes_agree_with_the_package(codec: EncodecCodec) -> None:
    audio = torch.rand(1, 3200) - 0.5
    codec.model.set_target_bandwidth(3.0)  # 4 codebooks
    [(codes, _)] = codec.model.encode(audio[:, None])
    assert torch.equal(codec.encode(audio), codes.transpose(1, 2))
    torch.testing.assert_close(codec.decode(codec.encode(audio)), codec.model.decode([(codes, None)])[:, 0])


def test_missing_weights_are_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(CodecWeightsError, match=r"no such file; EnCodec's weights are published at https"):
        EncodecCodec.pretrained(tmp_path)


def test_damaged_weights_are_one_clear_line(weights: dict[str, torch.Tensor], tmp_path: Path) -> None:
    (tmp_path / "cut.th").write_bytes(b"PK\x03\x04 not much")
    with pytest.raises(CodecWeightsError, match="not a PyTorch checkpoint"):
        EncodecCodec.pretrained(tmp_path / "cut.th")
    torch.save({"foreign": torch.zeros(1)}, tmp_path / "foreign.th")
    with pytest.raises(CodecWeightsError, match="not the weights of EnCodec") as error:
        EncodecCodec.pretrained(tmp_path / "foreign.th")
    assert "\n" not in str(error.value)


def test_no_network_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise URLError("Temporary failure in name resolution")

    monkeypatch.setattr(torch.hub, "load_state_dict_from_url", fail)
    with pytest.raises(CodecWeightsError, match=r"could not be downloaded from .* give its path"):
        EncodecCodec.pretrained()


def test_codebook_count_is_checked() -> None:
    with pytest.raises(ValueError, match="1 to 32 codebooks, asked for 33"):
        EncodecCodec(33)


def test_the_stand_in_does_not_outlive_the_import() -> None:
    assert import_encodec().EncodecModel is not None
    assert type(sys.modules.get("torchaudio")).__name__ != "TorchaudioStandIn"
