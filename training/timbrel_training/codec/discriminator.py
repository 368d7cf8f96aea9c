"""A discriminator on spectra at several resolutions, and the losses of both sides.

After the multi-scale STFT discriminator of EnCodec (Défossez et al., 2022), with the hinge loss and relative
feature matching used there; smaller, and on a random piece of each segment, so that a CPU can train it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.utils.parametrizations import weight_norm

from timbrel_training.errors import ConfigError
from timbrel_training.settings import check_at_least

LOUDNESS_POWER = 0.3
"""Magnitudes are raised to this power: otherwise only the loudest partials would be seen."""
SLOPE = 0.2
"""The leaky rectifier's slope below 0."""
DILATIONS = (1, 2, 4)
"""Dilations in frames of the layers behind the first."""

MIN_WINDOW = 64
"""Samples: four layers quarter or halve the bins."""
MIN_SECONDS = 0.1
"""Shortest piece to judge: more than half the longest window."""

Judgement = tuple[Tensor, list[Tensor]]
"""Scores [B, 1, frames, bins], positive for what is taken to be real, and the features of each layer."""


@dataclass(frozen=True)
class DiscriminatorConfig:
    """The discriminator's sizes, and the weights of the codec's two losses."""

    windows: tuple[int, ...] = (2048, 1024, 512)
    """Samples of each resolution's window; the hop is a quarter of it."""
    channels: int = 16
    """Channels of every layer; EnCodec has 32."""
    phases: bool = True
    """True lets it see complex spectra. Without, it judges magnitudes alone, as UnivNet's does (Jang et al.,
    2021): for a codec whose sources have phases of their own, which no training could make equal."""
    piece_seconds: float = 0.4
    """Length of the piece of each segment that is judged."""
    adversarial_weight: float = 0.05
    """Weight of the codec's wish to be taken for real, beside a spectral loss in nepers."""
    matching_weight: float = 0.2
    """Weight of the relative difference of features."""

    def __post_init__(self) -> None:
        check_at_least(self, channels=1, piece_seconds=MIN_SECONDS, adversarial_weight=0, matching_weight=0)
        if not self.windows or min(self.windows) < MIN_WINDOW:
            raise ConfigError(
                f"windows: {list(self.windows)}, expected some of at least {MIN_WINDOW} samples"
            )


class ScaleDiscriminator(nn.Module):
    """Judges audio [B, S] at one resolution."""

    window: Tensor  # [size]

    def __init__(self, size: int, channels: int, phases: bool = True) -> None:
        super().__init__()
        self.size = size
        self.phases = phases
        self.register_buffer("window", torch.hann_window(size), persistent=False)
        self.inlet = weight_norm(nn.Conv2d(1 + phases, channels, (3, 9), stride=(1, 4), padding=(1, 4)))
        self.layers = nn.ModuleList(
            weight_norm(
                nn.Conv2d(
                    channels, channels, (3, 9), stride=(1, 2), dilation=(dilation, 1), padding=(dilation, 4)
                )
            )
            for dilation in DILATIONS
        )
        self.outlet = weight_norm(nn.Conv2d(channels, 1, (3, 3), padding=(1, 1)))

    def forward(self, audio: Tensor) -> Judgement:
        x = self._spectrum(audio)
        features = []
        for layer in (self.inlet, *self.layers):
            x = nn.functional.leaky_relu(layer(x), SLOPE)
            features.append(x)
        return self.outlet(x), features

    def _spectrum(self, audio: Tensor) -> Tensor:
        """Returns real and imaginary parts [B, 2, frames, bins], the magnitude compressed; or that alone."""
        spectrum = torch.stft(
            audio, self.size, self.size // 4, window=self.window, normalized=True, return_complex=True
        )
        parts = torch.view_as_real(spectrum).permute(0, 3, 2, 1)
        power = parts.square().sum(dim=1, keepdim=True) + 1e-8
        if not self.phases:
            return power ** (LOUDNESS_POWER / 2.0)
        return parts * power ** ((LOUDNESS_POWER - 1.0) / 2.0)


class Discriminator(nn.Module):
    """Judges audio [B, S] at every resolution."""

    def __init__(self, config: DiscriminatorConfig, sample_rate: int) -> None:
        super().__init__()
        self.config = config
        self.n_samples = round(config.piece_seconds * sample_rate)
        self.scales = nn.ModuleList(
            ScaleDiscriminator(size, config.channels, config.phases) for size in config.windows
        )

    def forward(self, audio: Tensor) -> list[Judgement]:
        return [scale(audio) for scale in self.scales]

    def losses(self, output: Tensor, target: Tensor) -> dict[str, Tensor]:
        """Returns its own loss and the codec's two, all to be minimised in one step.

        Gradients keep apart: its own loss sees the output detached, the codec's see its weights detached.

        Args:
            output: float32 [B, S], from the codec.
            target: float32 [B, S].

        Returns:
            Scalars `discriminator`, `adversarial` and `matching`.
        """
        output, target = self._piece(output, target)
        frozen = {name: weight.detach() for name, weight in self.named_parameters()}
        real = self(target)
        caught: list[Judgement] = self(output.detach())
        tried: list[Judgement] = functional_call(self, frozen, (output,))
        own = [
            _hinge(real_score) + _hinge(-score)
            for (real_score, _), (score, _) in zip(real, caught, strict=True)
        ]
        adversarial = [_hinge(score) for score, _ in tried]
        matching = [
            (made - given.detach()).abs().mean() / (given.detach().abs().mean() + 1e-6)
            for (_, made_all), (_, given_all) in zip(tried, real, strict=True)
            for made, given in zip(made_all, given_all, strict=True)
        ]
        return {
            "discriminator": torch.stack(own).mean(),
            "adversarial": torch.stack(adversarial).mean(),
            "matching": torch.stack(matching).mean(),
        }

    def weighted(self, losses: dict[str, Tensor]) -> Tensor:
        """Returns the weighted sum of `losses` that a training step minimises: a scalar."""
        return (
            losses["discriminator"]
            + self.config.adversarial_weight * losses["adversarial"]
            + self.config.matching_weight * losses["matching"]
        )

    def _piece(self, output: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the same random piece of both.

        Raises:
            ConfigError: it is too short for the longest window.
        """
        n_samples, longest = min(output.shape[1], self.n_samples), max(self.config.windows)
        if n_samples <= longest // 2:
            raise ConfigError(
                f"windows: {longest}, expected less than {2 * n_samples} samples, twice the judged piece; "
                "shorten them, or raise piece_seconds and segment_frames"
            )
        spare = output.shape[1] - self.n_samples
        start = int(torch.randint(spare + 1, ())) if spare > 0 else 0
        end = start + self.n_samples
        return output[:, start:end], target[:, start:end]


def _hinge(score: Tensor) -> Tensor:
    """Returns how far scores are from being surely positive."""
    return nn.functional.relu(1.0 - score.float()).mean()
