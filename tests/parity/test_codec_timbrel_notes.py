"""The decoder of timbrel-notes as an ONNX graph: the same audio as PyTorch's.

`make test` takes the graph that ships, which holds today's code to it; `make acceptance` exports one anew,
too, which takes longer than all the rest.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime as ort
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from timbrel_bundle.graph_header import parse_graph_header
from timbrel_bundle.layout import CODEC_DECODER, CODEC_WEIGHTS
from timbrel_bundle.weights import load_weights, source_of, to_ort_values
from timbrel_export.codec_graphs import describe_codec, export_codec
from timbrel_export.onnx_export import round_to_half
from timbrel_training.codec import registry
from timbrel_training.codec.interface import Expression
from timbrel_training.codec.timbrel_notes.codec import N_FINE, N_ROWS, TimbrelNotes, TimbrelNotesConfig
from timbrel_training.codec.timbrel_notes.header import HeaderConfig
from timbrel_training.codec.timbrel_notes.phase_alignment import ALIGNED
from timbrel_training.errors import CheckpointError

CONFIG = TimbrelNotesConfig(n_templates=3, header=HeaderConfig(n_codes=6, width=16, n_blocks=1, rank=2))
HOP = CONFIG.hop_length
ROOT = Path(__file__).resolve().parents[2]
DEFAULT_BUNDLE = ROOT / "server" / "bundles" / "default"


class Graph:
    """A codec's decoder as a bundle has it, run by onnxruntime on one thread."""

    def __init__(self, codec: TimbrelNotes, folder: Path) -> None:
        self.spec = describe_codec(codec)
        self.names = [state.name for state in self.spec.decoder_state]
        graph = folder / CODEC_DECODER
        external = parse_graph_header(graph.read_bytes()).external_weights
        # onnxruntime reads these where they are, as long as the session lives.
        self.values = to_ort_values(load_weights(folder / CODEC_WEIGHTS, external))
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        options.add_external_initializers([weight.name for weight in external], self.values)
        self.session = ort.InferenceSession(graph, options, providers=["CPUExecutionProvider"])

    def run(self, codes: Tensor, expression: Expression, state: list[Any]) -> tuple[Any, list[Any]]:
        given = dict(zip(("codes", "seed", "cents", "level_db"), (codes, *expression), strict=True))
        feeds = {name: tensor.numpy() for name, tensor in given.items()}
        audio, *after = self.session.run(None, feeds | dict(zip(self.names, state, strict=True)))
        return audio, after


def draw(codec: TimbrelNotes, n_notes: int, n_frames: int) -> tuple[Tensor, Expression]:
    """Notes of a header that changes once, whose fundamental, level and bend all move."""
    torch.manual_seed(0)
    config = codec.config
    header = torch.randint(0, 1000, (n_notes, n_frames, config.n_header_books))
    header[:, N_ROWS - 1, -2:] = torch.tensor([480, 2])  # loudness: 10 dB; template
    header[-1, N_ROWS - 1, -1] += config.n_templates * ALIGNED
    hold = config.codebook_size - 1
    header[:, N_ROWS:, -1] = header[:, 2 * N_ROWS :] = hold
    fundamental = 300 + torch.randint(0, 4, (n_notes, n_frames, 1))
    phase = N_FINE * (torch.arange(n_frames) >= n_frames - 5).long()[None, :, None] * 2
    codes = torch.cat([fundamental, phase.expand(n_notes, -1, -1) + fundamental % N_FINE, header], dim=2)
    bend, level = 200 * torch.randn(n_notes, n_frames), 3 * torch.randn(n_notes, n_frames)
    return codes, Expression(torch.arange(n_notes) - 2**40, bend, level)


def start(codec: TimbrelNotes, n_notes: int) -> list[npt.NDArray[Any]]:
    return [tensor.numpy() for tensor in codec.initial_state(n_notes).values()]


@pytest.fixture(scope="module", autouse=True)
def seeded_without_gradients() -> object:
    torch.manual_seed(0)
    with torch.no_grad():
        yield


@pytest.fixture(scope="module", params=["shipped", pytest.param("anew", marks=pytest.mark.acceptance)])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a codec's decoder and its weights."""
    if request.param == "shipped":
        return DEFAULT_BUNDLE
    codec = TimbrelNotes(CONFIG).eval()
    codec.header.mean.fill_(-30.0)
    torch.nn.init.normal_(codec.header.decoder[-1].courses.weight, std=0.1)  # zero, before it has learnt
    codec.templates.set(2, (np.random.default_rng(0).normal(size=(90, 64, 2)) / 8).astype(np.float16))
    round_to_half(codec)
    exported = tmp_path_factory.mktemp("exported")
    export_codec(codec, exported)
    assert {path.name for path in exported.iterdir()} == {CODEC_DECODER, CODEC_WEIGHTS}
    again = registry.codec_in_bundle(exported / CODEC_WEIGHTS)
    assert isinstance(again, TimbrelNotes) and again.config == CONFIG
    for (name, one), other in zip(codec.state_dict().items(), again.state_dict().values(), strict=True):
        assert torch.equal(one, other), name
    return exported


@pytest.fixture(scope="module")
def codec(folder: Path) -> TimbrelNotes:
    """The codec in PyTorch, made of those weights."""
    codec = registry.codec_in_bundle(folder / CODEC_WEIGHTS)
    assert isinstance(codec, TimbrelNotes)
    return codec.eval()


@pytest.fixture(scope="module")
def graph(codec: TimbrelNotes, folder: Path) -> Graph:
    return Graph(codec, folder)


def test_the_graph_plays_what_pytorch_plays(codec: TimbrelNotes, graph: Graph) -> None:
    """Two notes of eight seconds, whole in PyTorch, in chunks of all sizes in the graph."""
    codes, expression = draw(codec, 2, 300)
    whole, _ = codec.decode_chunk(codes, expression, codec.initial_state(2))
    peak = float(whole.abs().max())
    state, done = start(codec, 2), 0
    for length in (1, 2, 1, 1, 1, 40, 7, 100, 147):
        part = slice(done, done + length)
        seed, cents, level = expression
        audio, state = graph.run(codes[:, part], Expression(seed, cents[:, part], level[:, part]), state)
        expected = whole[:, done * HOP : (done + length) * HOP].numpy()
        # The header's network rounds its cents otherwise: a high partial is 1e-4 cycles off in the end.
        np.testing.assert_allclose(audio, expected, atol=5e-4 * peak, rtol=0)
        done += length
    assert done == 300 and peak > 0


def test_the_graph_points_at_the_codecs_weights(codec: TimbrelNotes, graph: Graph, folder: Path) -> None:
    assert (graph.spec.id, graph.spec.lead_frames) == ("timbrel-notes-2", N_ROWS)
    content = (folder / CODEC_DECODER).read_bytes()
    stated = {weight.name for weight in parse_graph_header(content).external_weights}
    assert set() < {source_of(name) for name in stated} < set(codec.state_dict())
    assert str(ROOT).encode() not in content


def test_weights_that_are_no_codec_are_refused(folder: Path, graph: Graph, tmp_path: Path) -> None:
    whole = (folder / CODEC_WEIGHTS).read_bytes()
    for content in (whole[:-100], whole.replace(b"timbrel-notes-2", b"timbrel-notes-3"), b""):
        (tmp_path / CODEC_WEIGHTS).write_bytes(content)
        with pytest.raises(CheckpointError, match=r"codec\.safetensors: holds no codec that this timbrel"):
            registry.codec_in_bundle(tmp_path / CODEC_WEIGHTS)
    tensors = load_file(folder / CODEC_WEIGHTS)
    with safe_open(folder / CODEC_WEIGHTS, framework="pt") as file:
        about = file.metadata()
    tensors["header.mean"] = torch.full_like(tensors["header.mean"], torch.nan)
    save_file(tensors, tmp_path / CODEC_WEIGHTS, metadata=about)
    with pytest.raises(CheckpointError, match=r"the weight header\.mean is not finite"):
        registry.codec_in_bundle(tmp_path / CODEC_WEIGHTS)
    with pytest.raises(CheckpointError, match="cannot be read"):
        registry.codec_in_bundle(tmp_path / "none.safetensors")


def test_the_two_do_not_drift_apart(codec: TimbrelNotes, graph: Graph) -> None:
    """Half a minute: frequencies differ by less than a thousandth of a cent, as exactly as float32 holds the
    high partials of a stiff string."""
    codes, expression = draw(codec, 1, 200)
    codes[:, :, 1] %= N_FINE  # the key stays down
    plain_state, state = codec.initial_state(1), start(codec, 1)
    for _ in range(6):
        plain, plain_state = codec.decode_chunk(codes, expression, plain_state)
        audio, state = graph.run(codes, expression, state)
        np.testing.assert_allclose(audio, plain.numpy(), atol=3e-3 * float(plain.abs().max()), rtol=0)
    phases = state[graph.names.index("phase")] - plain_state["phase"].numpy()
    cycles = 6 * 200 * HOP / codec.sample_rate * plain_state["last_frequency"].numpy()
    assert np.all(np.abs(phases - np.round(phases)) < 2e-3 + 3e-7 * cycles)
