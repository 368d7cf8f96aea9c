"""The codec's sound source as an ONNX graph: the same audio as PyTorch's, for ten minutes too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime as ort
import pytest
import torch
from torch import Tensor, nn

from timbrel_export.onnx_export import export_program, round_to_half, save_graph
from timbrel_training.codec.timbrel_notes.sound_source import (
    SoundSource,
    SourceControls,
    SourceHeader,
    SourceState,
)

N_POINTS, N_BANDS, N_GAINS = 5, 256, 16
OPSET = 24
CONTROLS = ["frequency", "amplitude", "offset", "noise_gains", "cents", "level_db"]


class HeaderGraph(nn.Module):
    def __init__(self, source: SoundSource) -> None:
        super().__init__()
        self.source = source

    def forward(self, seed: Tensor, bands: Tensor) -> tuple[Tensor, Tensor]:
        about = self.source.header(seed, bands)
        return about.start, about.spectrum


class SourceGraph(nn.Module):
    def __init__(self, source: SoundSource) -> None:
        super().__init__()
        self.source = source

    def forward(
        self, header: list[Tensor], controls: list[Tensor], state: list[Tensor]
    ) -> tuple[Tensor, ...]:
        audio, after = self.source(SourceHeader(*header), SourceControls(*controls), SourceState(*state))
        return audio, *after.by_name().values()


class Graphs:
    """Both graphs of a source, run by onnxruntime on one thread."""

    def __init__(self, source: SoundSource, folder: Path) -> None:
        self.names = list(source.initial_state(1).by_name())
        batch, frames = torch.export.Dim("batch"), torch.export.Dim("frames")
        about, controls = draw(source, torch.tensor([1, 2]), 3)
        state = list(source.initial_state(2).by_name().values())
        framed, points = {0: batch, 1: frames}, {0: batch, 1: N_POINTS * frames}
        header = export_program(
            HeaderGraph(source),
            (about.seed, torch.rand(2, N_BANDS)),
            input_names=["seed", "bands"],
            output_names=["start", "spectrum"],
            dynamic_shapes=({0: batch}, {0: batch}),
            opset_version=OPSET,
        )
        program = export_program(
            SourceGraph(source),
            (list(vars(about).values()), list(vars(controls).values()), state),
            input_names=["seed", "start", "spectrum", *CONTROLS, *self.names],
            output_names=["audio", *(f"{name}_out" for name in self.names)],
            dynamic_shapes=([{0: batch}] * 3, [points] * 4 + [framed] * 2, [{0: batch}] * len(state)),
            opset_version=OPSET,
        )
        save_graph(header, folder / "header.onnx")
        save_graph(program, folder / "source.onnx")
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        self.header, self.source = (
            ort.InferenceSession(folder / name, options, providers=["CPUExecutionProvider"])
            for name in ("header.onnx", "source.onnx")
        )

    def run(self, about: SourceHeader, controls: SourceControls, state: list[Any]) -> tuple[Any, list[Any]]:
        given = [*vars(about).values(), *vars(controls).values()]
        feeds = dict(zip(["seed", "start", "spectrum", *CONTROLS], (x.numpy() for x in given), strict=True))
        audio, *after = self.source.run(None, feeds | dict(zip(self.names, state, strict=True)))
        return audio, after


def draw(source: SoundSource, seed: Tensor, n_frames: int) -> tuple[SourceHeader, SourceControls]:
    """A header and controls of which everything moves."""
    n_partials = source.number.shape[1]
    shape = len(seed), N_POINTS * n_frames, n_partials
    controls = SourceControls(
        frequency=torch.linspace(40.0, 26_000.0, n_partials) * (1 + 0.01 * torch.rand(shape)),
        amplitude=torch.rand(shape) / n_partials,
        offset=torch.rand(shape),
        noise_gains=0.1 * torch.rand(len(seed), shape[1], N_GAINS),
        cents=300 * torch.randn(len(seed), n_frames),
        level_db=3 * torch.randn(len(seed), n_frames),
    )
    return source.header(seed, torch.rand(len(seed), N_BANDS)), controls


def start(source: SoundSource, n_notes: int) -> list[npt.NDArray[Any]]:
    return [tensor.numpy() for tensor in source.initial_state(n_notes).by_name().values()]


@pytest.fixture(scope="module", autouse=True)
def seeded_without_gradients() -> object:
    torch.manual_seed(0)
    with torch.no_grad():
        yield


@pytest.fixture(scope="module")
def source() -> SoundSource:
    source = SoundSource(48_000, 48, N_BANDS, N_GAINS).eval()
    round_to_half(source.noise)
    return source


@pytest.fixture(scope="module")
def graphs(source: SoundSource, tmp_path_factory: pytest.TempPathFactory) -> Graphs:
    return Graphs(source, tmp_path_factory.mktemp("graphs"))


def test_the_graph_plays_what_pytorch_plays(source: SoundSource, graphs: Graphs) -> None:
    """Ten seconds of two notes, whole in PyTorch, in chunks of all sizes in the graph."""
    seed, n_frames = torch.tensor([12345, -(2**63)]), 375
    about, controls = draw(source, seed, n_frames)
    drawn, spectrum = graphs.header.run(None, {"seed": seed.numpy(), "bands": np.ones((2, N_BANDS), "f")})
    plain = source.header(seed, torch.ones(2, N_BANDS))
    assert np.array_equal(drawn, plain.start.numpy())
    np.testing.assert_allclose(spectrum, plain.spectrum.numpy(), rtol=1e-6)
    whole, _ = source(about, controls, source.initial_state(2))
    state, done = start(source, 2), 0
    for length in (1, 2, 1, 40, 7, 100, 224):
        cut = {
            name: value[:, done * k : (done + length) * k]
            for (name, value), k in zip(vars(controls).items(), (5, 5, 5, 5, 1, 1), strict=True)
        }
        audio, state = graphs.run(about, SourceControls(**cut), state)
        expected = whole[:, done * source.hop : (done + length) * source.hop].numpy()
        np.testing.assert_allclose(audio, expected, atol=1e-4, rtol=0)
        done += length
    assert done == n_frames


def test_the_two_do_not_drift_apart(source: SoundSource, graphs: Graphs) -> None:
    """A minute: phases differ by so little that ten would not be heard either."""
    about, controls = draw(source, torch.tensor([1]), 250)
    controls.amplitude[:, :, 4:] = 0
    plain_state, state = source.initial_state(1), start(source, 1)
    for _ in range(9):
        plain, plain_state = source(about, controls, plain_state)
        audio, state = graphs.run(about, controls, state)
        np.testing.assert_allclose(audio, plain.numpy(), atol=1e-5, rtol=0)
    phases = state[graphs.names.index("phase")] - plain_state.phase.numpy()
    assert np.abs(phases - np.round(phases)).max() < 1e-8
