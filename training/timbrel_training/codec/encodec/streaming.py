"""The package's decoder on a stream: each layer keeps what its next frames need of those before.

A convolution keeps the end of its input, a transposed one its last frame, an LSTM its state. Where a
convolution pads the start of a note by reflection, the first one needs the note's first frames before it can
give any: so many are held back, and until the first one leaves the first convolution no later layer may
learn of what comes out of it. Behind it, a frame is at least as long as any padding, so that the note's
first one holds all that is mirrored (`EncodecSizes` sees to that).
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from timbrel_training.codec.encodec.package import seanet

SHUT = -1e4
"""An LSTM's input gate is shut by it."""


def padding_of(layer: nn.Module) -> int:
    """Samples that a causal convolution of the package is padded with on the left."""
    inner = layer.get_submodule("conv.conv")
    assert isinstance(inner, nn.Conv1d)
    return (inner.kernel_size[0] - 1) * inner.dilation[0]


def initial_contexts(
    decoder: nn.Module, n_held: int, n_batch: int, device: torch.device
) -> dict[str, Tensor]:
    """Returns the zeros that layers keep before a note begins, [n_batch, channels, samples] by name."""
    return {name: torch.zeros(n_batch, *shape, device=device) for name, shape in _contexts(decoder, n_held)}


def _contexts(decoder: nn.Module, n_held: int) -> Iterator[tuple[str, tuple[int, int]]]:
    for name, layer in decoder.named_modules():
        if isinstance(layer, seanet.SConv1d):
            if n_samples := padding_of(layer) + n_held:
                yield name, (layer.conv.conv.in_channels, n_samples)
            n_held = 0  # only the first one does
        elif isinstance(layer, seanet.SConvTranspose1d):
            yield name, (layer.convtr.convtr.in_channels, 1)
        elif isinstance(layer, seanet.SLSTM):
            for part in ("hidden", "cell"):
                yield f"{name}.{part}", (layer.lstm.num_layers, layer.lstm.hidden_size)


class DecoderChunk:
    """T frames on their way through the decoder: `n_before` int64 [B] frames of the notes came before,
    `n_held` are held back, and `before` is what the layers kept, by name."""

    def __init__(self, before: dict[str, Tensor], n_held: int, n_frames: int, n_before: Tensor) -> None:
        self.before = before
        self.n_held = n_held
        self.rate = 1
        """Samples a frame, so far."""
        self.n_to_start = n_held - n_before
        """[B], frames from here to that in which the note begins."""
        self.begins = (self.n_to_start >= 0) & (self.n_to_start < n_frames)
        frame = torch.arange(n_frames, device=n_before.device)
        self.sounds = frame >= self.n_to_start[:, None]  # [B, T]
        self.after: dict[str, Tensor] = {}
        """What the layers keep."""

    def run(self, layer: nn.Module, x: Tensor, name: str) -> Tensor:
        """Returns what a layer of the decoder gives for x [B, C, T * rate]."""
        if isinstance(layer, seanet.SConv1d):
            return self._convolve(layer, x, name)
        if isinstance(layer, seanet.SConvTranspose1d):
            return self._upsample(layer.convtr.convtr, x, name)
        if isinstance(layer, seanet.SLSTM):
            return self._remember(layer.lstm, x, name) + x
        if isinstance(layer, seanet.SEANetResnetBlock):
            shortcut = self.run(layer.shortcut, x, f"{name}.shortcut")
            return shortcut + self.run(layer.block, x, f"{name}.block")
        if isinstance(layer, nn.Sequential):
            for child, each in layer.named_children():
                x = self.run(each, x, f"{name}.{child}")
            return x
        return layer(x)  # an activation

    def _convolve(self, layer: nn.Module, x: Tensor, name: str) -> Tensor:
        padding, inner = padding_of(layer), layer.get_submodule("conv.conv")
        if name not in self.before:
            return inner(x)
        extended = torch.cat([self.before[name], x], dim=2)
        if self.n_held:
            extended = self._reflect(extended, padding)
        self.after[name] = extended[:, :, x.shape[2] :]
        return inner(extended[:, :, : padding + x.shape[2]])

    def _reflect(self, x: Tensor, padding: int) -> Tensor:
        """Returns x, the samples before a note that begins in it replaced by its first ones, mirrored."""
        steps = self.begins[:, None] * torch.arange(1, padding + 1, device=x.device)
        # Where none begins, all of these are 0, and x[0] takes its own place.
        start = (self.begins * (padding + self.n_to_start * self.rate))[:, None]
        source, target = ((start + by)[:, None].expand(-1, x.shape[1], -1) for by in (steps, -steps))
        return x.scatter(2, target, x.gather(2, source))

    def _upsample(self, inner: nn.ConvTranspose1d, x: Tensor, name: str) -> Tensor:
        if self.n_held:
            x = x * self.sounds.repeat_interleave(self.rate, dim=1)[:, None]
        extended = torch.cat([self.before[name], x], dim=2)
        self.after[name] = extended[:, :, x.shape[2] :]
        ratio = inner.stride[0]
        self.rate *= ratio
        return inner(extended)[:, :, ratio:-ratio]

    def _remember(self, lstm: nn.LSTM, x: Tensor, name: str) -> Tensor:
        """Returns what the LSTM gives; until the note begins its input gates are shut, its state zero."""
        x = x.permute(2, 0, 1)
        hidden, cell = (self.before[f"{name}.{part}"] for part in ("hidden", "cell"))
        shut = ~self.sounds.t()[:, :, None]  # [T, B, 1]
        states = []
        for layer in range(lstm.num_layers):
            weights = [
                getattr(lstm, f"{part}_l{layer}") for part in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
            ]
            if self.n_held:  # a further input, that of the gate
                gate = (torch.arange(len(weights[0]), device=x.device) < lstm.hidden_size) * SHUT
                x, weights[0] = (
                    torch.cat([x, shut.to(x)], dim=2),
                    torch.cat([weights[0], gate[:, None]], dim=1),
                )
            x, *state = _lstm(x, hidden[None, :, layer], cell[None, :, layer], *weights)
            states.append(state)
        for part, tensors in zip(("hidden", "cell"), zip(*states, strict=True), strict=True):
            self.after[f"{name}.{part}"] = torch.cat(tensors).transpose(0, 1)
        return x.permute(1, 2, 0)


def _lstm(
    x: Tensor,
    hidden: Tensor,
    cell: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias_ih: Tensor,
    bias_hh: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """One layer: x [T, B, C], hidden and cell [1, B, H] -> [T, B, H] and the state after.

    In a graph it is ONNX's operator, whose gates come in another order.
    """
    if not torch.compiler.is_exporting():
        weights = [weight_ih, weight_hh, bias_ih, bias_hh]
        y, hidden, cell = torch.lstm(x, [hidden, cell], weights, True, 1, 0.0, False, False, False)
        return y, hidden, cell

    def reordered(weight: Tensor) -> Tensor:
        first, second, third, fourth = weight.chunk(4)
        return torch.cat([first, fourth, second, third])[None]

    bias = torch.cat([reordered(bias_ih), reordered(bias_hh)], dim=1)
    n_hidden = weight_hh.shape[1]
    y, hidden, cell = torch.onnx.ops.symbolic_multi_out(
        "LSTM",
        [x, reordered(weight_ih), reordered(weight_hh), bias, None, hidden, cell],
        {"hidden_size": n_hidden},
        dtypes=[x.dtype] * 3,
        shapes=[(x.shape[0], 1, x.shape[1], n_hidden), hidden.shape, cell.shape],
    )
    return y[:, 0], hidden, cell
