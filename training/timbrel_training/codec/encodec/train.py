"""The config section of EnCodec, and its training on a dataset's notes.

The training is the paper's (Défossez et al., "High Fidelity Neural Audio Compression", 2022) with these
reductions: the losses are balanced by each step's own gradients instead of their moving averages, all
codebooks are always in use, and the discriminator joins late, then learns at each step, beside the codec and
in the same one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from timbrel_training.checkpoint import save_weights
from timbrel_training.codec.encodec.codec import EncodecCodec, EncodecSizes, make_networks
from timbrel_training.codec.encodec.package import building, msstftd
from timbrel_training.codec.encodec.pretrained import download_weights, load_meta
from timbrel_training.codec.interface import WEIGHTS_NAME, check_sample_rate
from timbrel_training.codec.timbrel_notes.analysis import gather_matrix
from timbrel_training.errors import ConfigError, TrainingError
from timbrel_training.loop import Loop, LoopConfig, batch_seed, pick_device
from timbrel_training.notes.dataset import NoteDataset
from timbrel_training.notes.split import Split
from timbrel_training.optimization import FLOAT32
from timbrel_training.settings import check_at_least, check_shares

BANDWIDTHS = {1.5: 2, 3.0: 4, 6.0: 8, 12.0: 16, 24.0: 32}
"""Codebooks of Meta's model by kbit/s."""
META, NONE = "meta", "none"

SPECTRUM_SIZES = (64, 128, 256, 512, 1024, 2048)
"""Windows of the spectral loss, in samples, each moving by a quarter of its length."""
MEL_BANDS = 64
LOG_FLOOR = 3e-4
"""Of a band's amplitude."""
LOSS_WEIGHTS = {"waveform": 0.1, "spectral": 1.0, "adversarial": 3.0, "features": 3.0}
"""The paper's: the shares of what pulls the audio."""
DEAD_SHARE = 0.3
"""A code that is used by less than this share of a codebook's mean moves to where it is needed."""
SILENT_DEVIATION = 1e-6
"""What varies by less is no sound to scale a layer by."""
VALIDATION_EXCERPTS = 64


@dataclass(frozen=True)
class EncodecConfig:
    """The config section `codec`: whose weights, or which sizes and how they are trained."""

    weights: str = META
    """`meta` for a download of Meta's at 24 kHz, the file or folder that holds them, or `none`: they are
    trained here."""
    bandwidth: float = 3.0
    """Kbit/s of Meta's model: 1.5, 3, 6, 12 or 24 are 2, 4, 8, 16 or 32 codebooks."""
    sizes: EncodecSizes = field(default_factory=EncodecSizes)
    """Of one that is trained here."""
    loop: LoopConfig = field(
        default_factory=lambda: LoopConfig(learning_rate=3e-4, beta1=0.5, beta2=0.9, weight_decay=0.0)
    )
    """Steps, rates, checkpoints of its training."""
    batch_size: int = 16
    """Excerpts per step."""
    seconds: float = 1.0
    """Length of an excerpt."""
    discriminator_filters: int = 32
    """Channels of the discriminator; 0: none, and the codec learns from the spectral loss alone."""
    discriminator_start: float = 0.5
    """Share of the steps before the discriminator joins. Six sevenths of what pulls the audio are then to
    deceive it: from the start, it keeps the codec from learning what a note sounds like."""
    device: str = "auto"
    """`auto`, `cpu` or `cuda`."""

    def __post_init__(self) -> None:
        check_at_least(self, batch_size=1, seconds=0.1, discriminator_filters=0)
        check_shares(self, "discriminator_start")
        if self.weights != NONE and self.bandwidth not in BANDWIDTHS:
            offered = ", ".join(f"{each:g}" for each in BANDWIDTHS)
            raise ConfigError(f"codec.bandwidth: EnCodec has {offered} kbit/s, not {self.bandwidth:g}")
        if self.weights != NONE and self.sizes != EncodecSizes():
            raise ConfigError(
                f"codec.sizes: those of Meta's weights are given; train others by weights = '{NONE}'"
            )
        if round(self.seconds * self.sizes.sample_rate) < SPECTRUM_SIZES[-1]:
            raise ConfigError(
                f"codec.seconds: {self.seconds:g}, expected {SPECTRUM_SIZES[-1]} samples or more"
            )
        if self.loop.shards != 1 or self.loop.precision != FLOAT32:
            raise ConfigError(
                "codec.loop: EnCodec trains in one shard and float32, since it moves its codebooks"
            )


def make_codec(config: EncodecConfig, dataset: NoteDataset, out_dir: Path) -> EncodecCodec | None:
    """Makes the codec that the config asks for in `out_dir`, or goes on training it.

    Returns the finished codec, saved as codec.safetensors and codec.json; None where the sitting ended before
    the last step of its training. Raises CodecWeightsError: Meta's weights cannot be had, or the file holds
    others; TrainingError: the notes are at another sample rate; see also `Loop.run`.
    """
    check_sample_rate(dataset, config.sizes.sample_rate)
    if config.weights == NONE:
        return _train(config, dataset, out_dir)
    path = download_weights() if config.weights == META else Path(config.weights)
    codec, sources = load_meta(path, BANDWIDTHS[config.bandwidth])
    _save(codec, out_dir, {}, sources)
    return codec


class EncodecTraining(nn.Module):
    """The package's networks, and the discriminator that the decoder learns to deceive."""

    def __init__(self, config: EncodecConfig) -> None:
        super().__init__()
        self.sample_rate = config.sizes.sample_rate
        self.encoder, self.decoder, self.quantizer = make_networks(config.sizes, norm="weight_norm")
        self.discriminator: nn.Module | None = None
        if config.discriminator_filters:
            with building():
                self.discriminator = msstftd.MultiScaleSTFTDiscriminator(config.discriminator_filters)

    def forward(self, audio: Tensor) -> tuple[Tensor, Tensor]:
        """Returns audio [B, S] as it comes back, and how far the codes were from what they code."""
        residual = latents = self.encoder(audio[:, None])
        quantized, commitment = torch.zeros_like(residual), residual.new_zeros(())
        for layer in self.quantizer.vq.layers:
            if self.training:
                _revive(layer._codebook, residual.detach().transpose(1, 2).flatten(0, 1))
            coded, _, error = layer(residual)
            coded = coded.detach()  # else an error further on would pull the encoder nowhere
            quantized, residual, commitment = quantized + coded, residual - coded, commitment + error.mean()
        quantized = latents + (quantized - latents).detach()
        return self.decoder(quantized)[:, 0, : audio.shape[1]], commitment / self.quantizer.n_q

    def fit_scales(self, audio: Tensor) -> None:
        """Scales the layers by excerpts [B, S], so that what differs between them reaches the codes and audio
        is as loud as they are. Left as they are made, the layers say next to the same of any sound."""
        if audio.std() < SILENT_DEVIATION:
            return
        _fit_scales(self.decoder, _fit_scales(self.encoder, audio[:, None]), float(audio.std()))
        if self.discriminator is not None:
            _fit_scales(self.discriminator, audio[:, None])

    def loss(self, audio: Tensor, *, is_judged: bool = True) -> tuple[Tensor, dict[str, Tensor]]:
        """Returns what training minimises, for excerpts [B, S], and its parts.

        Args:
            is_judged: whether the discriminator has joined, if there is one.
        """
        heard, commitment = self(audio)
        errors = reconstruction_errors(heard, audio, self.sample_rate)
        beside = {"commitment": commitment}
        if self.discriminator is not None and is_judged:
            errors |= _deception(self.discriminator, audio, heard)
            beside["discriminator"] = _discrimination(self.discriminator, audio, heard.detach())
        pull = (heard * balanced_gradient(errors, heard)).sum()
        weighed = [LOSS_WEIGHTS[name] * error.detach() for name, error in errors.items()]
        return pull - pull.detach() + torch.stack([*weighed, *beside.values()]).sum(), errors | beside


def balanced_gradient(errors: Mapping[str, Tensor], heard: Tensor) -> Tensor:
    """Returns the errors' gradient at `heard` [B, S], each with its share of the whole however steep it is.

    Without it the waveform's error, a hundredth of the spectra's, would say nothing. Its length is 1 for an
    excerpt, in the mean. Were it 1 for all excerpts together, they would be pulled the less the more there
    are, until what keeps latents near their codes has them all alike.
    """
    total, pull = sum(LOSS_WEIGHTS[name] for name in errors), torch.zeros_like(heard)
    for name, error in errors.items():
        (gradient,) = torch.autograd.grad(error, heard, retain_graph=True)
        pull += LOSS_WEIGHTS[name] / total * gradient / gradient.norm(dim=1).mean().clamp(min=1e-12)
    return pull


@torch.no_grad()
def _fit_scales(network: nn.Module, given: Tensor, level: float = 1.0) -> Any:
    """Returns what the network makes of `given` [B, C, T], once each convolution has given out mean 0 and
    deviation 1, the last one `level` (Salimans and Kingma, "Weight Normalization", 2016, section 3)."""
    kinds = nn.Conv1d, nn.Conv2d, nn.ConvTranspose1d
    layers = [each for each in network.modules() if isinstance(each, kinds)]

    def fit(layer: Any, _: object, out: Tensor) -> Tensor:
        per_channel = [axis for axis in range(out.ndim) if axis != 1]
        mean = out.mean(dim=per_channel)
        # A transposed convolution has a length per channel that it is given, not per one that it gives.
        deviation = out.std() if isinstance(layer, nn.ConvTranspose1d) else out.std(dim=per_channel)
        scale = (level if layer is layers[-1] else 1.0) / deviation
        scale = torch.where(deviation > SILENT_DEVIATION, scale, torch.ones_like(scale))
        weight = getattr(layer, "weight_g", layer.weight)  # not all of the discriminator's have that norm
        weight.mul_(scale.reshape(-1, *[1] * (weight.ndim - 1)))
        layer.bias.copy_((layer.bias - mean) * scale)
        shape = -1, *[1] * (out.ndim - 2)
        return (out - mean.reshape(shape)) * scale.reshape(shape)

    hooks = [layer.register_forward_hook(fit) for layer in layers]
    fitted = network(given)
    for hook in hooks:
        hook.remove()
    return fitted


@torch.no_grad()
def _revive(codebook: Any, latents: Tensor) -> None:
    """Moves codes that are hardly used to some of the latents [N, C]; at first, all of them.

    The package's own attempt is undone by its next moving average, since it moves the code alone.
    """
    usual = codebook.cluster_size.mean().clamp(min=1.0)
    (dead,) = torch.where(codebook.cluster_size < DEAD_SHARE * usual)
    chosen = latents[torch.randint(len(latents), (len(dead),), device=latents.device)]
    codebook.embed[dead], codebook.embed_avg[dead] = chosen, chosen * usual
    codebook.cluster_size[dead] = usual


def reconstruction_errors(heard: Tensor, audio: Tensor, sample_rate: int) -> dict[str, Tensor]:
    """Returns the mean errors of audio [B, S]: of samples, and of mel bands over all resolutions."""
    spectral = torch.zeros((), device=audio.device)
    for size in SPECTRUM_SIZES:
        one, other = (_bands(each, size, sample_rate) for each in (heard, audio))
        logs = (one + LOG_FLOOR).log() - (other + LOG_FLOOR).log()
        linear = (one - other).abs().mean() / other.mean().clamp(min=LOG_FLOOR)
        # Squared: whoever does not know where the partials are would else fall silent, since most bands are.
        spectral = spectral + linear + logs.square().mean()
    return {"waveform": (heard - audio).abs().mean(), "spectral": spectral / len(SPECTRUM_SIZES)}


def _bands(audio: Tensor, size: int, sample_rate: int) -> Tensor:
    """Returns the amplitudes [B, T, bands] of mel bands in windows of `size` samples."""
    window = torch.hann_window(size, device=audio.device)
    spectrum = torch.stft(audio, size, size // 4, window=window, return_complex=True)
    power = (spectrum.real.square() + spectrum.imag.square()) * (2 / window.sum()) ** 2
    # The root of 0 has no gradient.
    return (power.transpose(1, 2) @ _filters(size, sample_rate).to(audio.device) + 1e-12).sqrt()


@cache
def _filters(size: int, sample_rate: int) -> Tensor:
    n_bins = size // 2 + 1
    return gather_matrix(min(MEL_BANDS, n_bins // 2), n_bins, sample_rate)


def _deception(discriminator: nn.Module, audio: Tensor, heard: Tensor) -> dict[str, Tensor]:
    """Returns how far audio [B, S] is from deceiving the discriminator."""
    deceived, features = discriminator(heard[:, None])
    with torch.no_grad():
        _, wanted = discriminator(audio[:, None])
    distances = [
        (one - other).abs().mean() / other.abs().mean().clamp(min=1e-6)
        for layers, others in zip(features, wanted, strict=True)
        for one, other in zip(layers, others, strict=True)
    ]
    return {
        "adversarial": torch.stack([functional.relu(1 - each).mean() for each in deceived]).mean(),
        "features": torch.stack(distances).mean(),
    }


def _discrimination(discriminator: nn.Module, audio: Tensor, heard: Tensor) -> Tensor:
    """Returns the discriminator's own loss."""
    hinge = functional.relu
    real, fake = (discriminator(each[:, None])[0] for each in (audio, heard))
    told = [(hinge(1 - a).mean() + hinge(1 + b).mean()) for a, b in zip(real, fake, strict=True)]
    return torch.stack(told).mean()


def _train(config: EncodecConfig, dataset: NoteDataset, out_dir: Path) -> EncodecCodec | None:
    device, seed = pick_device(config.device), config.loop.seed
    notes = dataset.of_split(Split.TRAIN)
    held_out = dataset.of_split(Split.HELD_OUT_CELL)
    if not len(notes):
        raise TrainingError(f"{dataset.path}: no notes to train on in this split; render more")
    torch.manual_seed(seed)
    trained = EncodecTraining(config).to(device)

    def batch(step: int) -> Tensor:
        random = np.random.default_rng(batch_seed(seed, step))
        return _excerpts(dataset, random.choice(notes, config.batch_size), config.seconds, random).to(device)

    trained.fit_scales(batch(0))
    random = np.random.default_rng(seed)
    chosen = random.permutation(held_out if len(held_out) else notes)[:VALIDATION_EXCERPTS]
    judged_on = _excerpts(dataset, chosen, config.seconds, random).to(device)

    def validate(model: nn.Module) -> dict[str, float]:
        errors = reconstruction_errors(model(judged_on)[0], judged_on, dataset.sample_rate)
        return {name: float(error) for name, error in errors.items()}

    def loss(audio: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        return trained.loss(audio, is_judged=loop.step >= config.discriminator_start * config.loop.n_steps)

    identity = {name: value for name, value in asdict(config).items() if name not in ("loop", "device")}
    loop = Loop(
        *(config.loop, trained, loss, batch, out_dir),
        validate=validate,
        identity=identity,
        later_identity={"notes": dataset.fingerprint},
        name="codec",
    )
    loop.run()
    if not loop.finished:
        return None
    codec = EncodecCodec(config.sizes)
    state = loop.ema.model.state_dict()
    codec.load_trained({name: each for name, each in state.items() if not name.startswith("discriminator.")})
    _save(codec, out_dir, loop.history[-1] if loop.history else {}, [])
    return codec


def _excerpts(
    dataset: NoteDataset, notes: NDArray[np.intp], seconds: float, random: np.random.Generator
) -> Tensor:
    """Returns an excerpt [B, S] of each note, half of them from its start, zeros behind its end."""
    n_samples = round(seconds * dataset.sample_rate)
    excerpts = torch.zeros(len(notes), n_samples)
    for row, note in zip(excerpts, notes.tolist(), strict=True):
        last = max(0, int(dataset.length[note]) - n_samples)
        start = 0 if random.random() < 0.5 else int(random.integers(last + 1))
        audio = torch.from_numpy(dataset.audio(note, start, n_samples))
        row[: len(audio)] = audio
    return excerpts


def _save(
    codec: EncodecCodec, out_dir: Path, figures: Mapping[str, float], sources: list[dict[str, str]]
) -> None:
    description: dict[str, Any] = {
        "id": codec.id,
        "config": asdict(codec.config),
        "figures": figures,
        "sources": sources,
    }
    save_weights(out_dir, WEIGHTS_NAME, codec, description)
