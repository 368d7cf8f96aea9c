"""Refines a finished codec's decoder on its own codes: the codes stay, the sound improves.

Encoder and codebooks stay as they are, so whatever was trained on the codes stays valid. While a codec is
trained whole its decoder chases codes that still move, some of them dropped; here it learns what is really
sent to it: all codebooks, codes of whole notes, and what came before a segment in its state.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from timbrel_training.checkpoint import load_description, save_weights
from timbrel_training.codec.discriminator import Discriminator, DiscriminatorConfig
from timbrel_training.codec.interface import WEIGHTS_NAME, Expression, codec_hash
from timbrel_training.codec.timbrel_notes.codec import TimbrelNotes
from timbrel_training.codec.timbrel_notes.objective import HARMONIC_WEIGHT, SpectralLoss, harmonic_loss
from timbrel_training.codec.timbrel_notes.train import MIN_SEGMENT_FRAMES, VALIDATION_SEED, load_codec
from timbrel_training.errors import CheckpointError
from timbrel_training.loop import Loop, LoopConfig, batch_seed, pick_device
from timbrel_training.notes.dataset import NoteDataset
from timbrel_training.notes.split import Split
from timbrel_training.settings import check_at_least, check_shares
from timbrel_training.tokens.store import TokenStore


@dataclass(frozen=True)
class RefiningConfig:
    """The config section `refine`: the training of a finished codec's decoder."""

    loop: LoopConfig = field(default_factory=LoopConfig)
    """Steps, rates, checkpoints."""
    batch_size: int = 12
    """Segments per step."""
    segment_frames: int = 48
    """Frames per segment that are compared with the note."""
    onset_share: float = 0.35
    """Share of batches whose segments begin with their notes."""
    discriminator: DiscriminatorConfig | None = None
    """The discriminator trained beside it, if any."""
    validation_batches: int = 16
    """Batches of held-out cells per validation."""
    device: str = "auto"
    """`auto`, `cpu` or `cuda`."""

    def __post_init__(self) -> None:
        check_at_least(self, batch_size=1, segment_frames=MIN_SEGMENT_FRAMES, validation_batches=1)
        check_shares(self, "onset_share")


@dataclass(frozen=True)
class CodedBatch:
    """A batch of segments of notes, and their codes from a few frames before them on."""

    codes: Tensor  # int64 [B, C + T, K]
    audio: Tensor  # float32 [B, T * hop]
    peak: Tensor  # float32 [B], peak amplitude of the whole note


class CodedSegments:
    """Draws batches of coded segments from some notes, each a function of its seed alone."""

    def __init__(
        self,
        dataset: NoteDataset,
        store: TokenStore,
        notes: NDArray[np.intp],
        config: RefiningConfig,
        codec: TimbrelNotes,
    ) -> None:
        if not len(notes):
            raise CheckpointError(f"{dataset.path}: no notes to train on in this split; render more")
        self.dataset, self.store, self.notes, self.config = dataset, store, notes, config
        self.hop = codec.hop_length
        self.silence = codec.silence().cpu().numpy()
        self.n_context = (codec.config.decoder_kernel - 1) * codec.config.n_decoder_blocks

    def draw(self, seed: int, device: torch.device) -> CodedBatch:
        """Returns the batch of a seed: all its segments begin with their notes, or all of them later."""
        config = self.config
        generator = np.random.default_rng(seed)
        chosen = generator.choice(self.notes, config.batch_size)
        n_context = 0 if generator.random() < config.onset_share else self.n_context
        codes = np.tile(self.silence, (config.batch_size, n_context + config.segment_frames, 1))
        audio = np.zeros((config.batch_size, config.segment_frames * self.hop), np.float32)
        for row, note in enumerate(chosen):
            whole = self.store.note(int(note))
            latest = max(1, len(whole) - n_context - config.segment_frames // 3)
            first = int(generator.integers(latest)) if n_context else 0
            piece = whole[first : first + codes.shape[1]]
            codes[row, : len(piece)] = piece
            sound = self.dataset.audio(int(note), (first + n_context) * self.hop, audio.shape[1])
            audio[row, : len(sound)] = sound
        peaks = self.dataset.index["scale"][chosen] * 32767
        return CodedBatch(
            codes=torch.from_numpy(codes.astype(np.int64)).to(device),
            audio=torch.from_numpy(audio).to(device),
            peak=torch.from_numpy(peaks.astype(np.float32)).to(device),
        )


class RefiningObjective(nn.Module):
    """The codec with the losses of its decoder: spectra and harmonics, and a discriminator's.

    Args:
        codec: its decoder is trained, the rest is left alone.
        discriminator: of what it is trained beside, None for nothing.
    """

    def __init__(self, codec: TimbrelNotes, discriminator: DiscriminatorConfig | None = None) -> None:
        super().__init__()
        self.codec = codec.requires_grad_(False)
        self.codec.decoder.requires_grad_(True)
        self.spectral = SpectralLoss(codec.sample_rate)
        self.discriminator = Discriminator(discriminator, codec.sample_rate) if discriminator else None

    def forward(self, batch: CodedBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """Returns the loss (scalar) and its named parts."""
        codec, decoder = self.codec, self.codec.decoder
        n_frames = batch.audio.shape[1] // codec.hop_length
        with torch.autocast(batch.audio.device.type, enabled=False):
            with torch.no_grad():
                latents = codec.latents(batch.codes)
                long = codec.analysis.long_spectrum(batch.audio)
            fundamental = batch.codes[:, :, 0]
            state = decoder.initial_state(len(batch.audio))
            plain = Expression.of(batch.codes)
            controls, after = decoder.controls(latents, fundamental, plain, state)
            audio, _ = decoder.play(controls, plain.seed, after)
            heard = audio[:, audio.shape[1] - batch.audio.shape[1] + codec.delay_samples :]
            target = batch.audio[:, : -codec.delay_samples]
            spectral = self.spectral(heard, target, batch.peak)
            n_points = n_frames * codec.config.n_subframes
            harmonic = harmonic_loss(
                codec,
                controls.log_amplitudes[:, -n_points:],
                long,
                decoder.midi_of_code[fundamental[:, -n_frames:]],
                batch.peak,
            )
        loss = spectral + HARMONIC_WEIGHT * harmonic
        parts = {"spectral": spectral.detach(), "harmonic": harmonic.detach()}
        if self.discriminator is not None:
            level = batch.peak[:, None]
            sides = self.discriminator.losses(heard / level, target / level)
            loss = loss + self.discriminator.weighted(sides)
            parts |= {name: value.detach() for name, value in sides.items()}
        return loss, parts


def refine_codec(
    config: RefiningConfig, folder: Path, dataset: NoteDataset, tokens: TokenStore, out_dir: Path
) -> TimbrelNotes | None:
    """Refines, or goes on refining, in `out_dir` the codec finished in `folder`, which is left as it is.

    The tokens are the dataset's notes as that codec's codes. Returns the refined codec with averaged weights,
    saved as codec.safetensors and codec.json; None where the sitting ended before the last step.

    Raises:
        CheckpointError: the tokens are not of these notes, or not of this codec.
    """
    original = codec_hash(folder)
    _check_tokens(dataset, tokens, original)
    device = pick_device(config.device)
    codec = load_codec(folder).to(device)
    torch.manual_seed(config.loop.seed)
    objective = RefiningObjective(codec, config.discriminator).to(device)
    train = CodedSegments(dataset, tokens, dataset.of_split(Split.TRAIN), config, codec)
    held_out = dataset.of_split(Split.HELD_OUT_CELL)
    validation = CodedSegments(dataset, tokens, held_out if len(held_out) else train.notes, config, codec)
    loop = Loop(
        config.loop,
        objective,
        objective,
        lambda step: train.draw(batch_seed(config.loop.seed, step), device),
        out_dir,
        validate=lambda model: _validate(model, validation, config, device),
        identity={
            "refines": original,
            "batch_size": config.batch_size,
            "discriminator": asdict(config.discriminator) if config.discriminator else None,
        },
        name="refine",
    )
    loop.run()
    if not loop.finished:
        return None
    refined = cast(RefiningObjective, loop.ema.model).codec
    figures = dict(loop.history[-1]) if loop.history else {}
    description = {**load_description(folder, WEIGHTS_NAME), "codes_hash": original, "figures": figures}
    save_weights(out_dir, WEIGHTS_NAME, refined, description)
    return refined


def _check_tokens(dataset: NoteDataset, tokens: TokenStore, codes_hash: str) -> None:
    if tokens.header.codec_hash != codes_hash:
        raise CheckpointError(f"{tokens.path}: codes of another codec; tokenise the notes with this one")
    if len(tokens) != len(dataset) or (tokens.pitch != dataset.pitch).any():
        raise CheckpointError(f"{tokens.path}: not the notes of {dataset.path}; tokenise them")


def _validate(
    model: nn.Module, segments: CodedSegments, config: RefiningConfig, device: torch.device
) -> Mapping[str, float]:
    """Returns the mean losses on held-out cells."""
    sums: dict[str, float] = {}
    for number in range(config.validation_batches):
        _, parts = model(segments.draw(batch_seed(VALIDATION_SEED, number), device))
        for name, value in parts.items():
            sums[name] = sums.get(name, 0.0) + float(value) / config.validation_batches
    return sums
