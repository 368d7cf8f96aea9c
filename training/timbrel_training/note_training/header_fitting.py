"""The header network and the header decoder as one model that learns, and the batches that it learns from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from timbrel_training.codec.timbrel_notes.analysed_notes import AnalysedNotes
from timbrel_training.codec.timbrel_notes.codec import N_ROWS, STEPS_PER_DB, TimbrelNotes
from timbrel_training.codec.timbrel_notes.header import LEVELS, NUMBERS_PER_CODE, header_error
from timbrel_training.codec.timbrel_notes.phase_alignment import N_ALIGNMENTS
from timbrel_training.codec.timbrel_notes.train import CodecTrainingConfig, HeaderBatch, HeaderSampler
from timbrel_training.errors import CheckpointError
from timbrel_training.loop import LoopConfig, batch_seed
from timbrel_training.model.sampling import Sampling, sample
from timbrel_training.model.transformer import HeaderNetwork, NoteTransformer
from timbrel_training.note_training.batches import TimbreConditions
from timbrel_training.note_training.train import NoteTrainingConfig
from timbrel_training.notes.dataset import NoteDataset
from timbrel_training.notes.split import Split
from timbrel_training.settings import check_at_least
from timbrel_training.tokens.table import TokenTable

DRAWN = Sampling(temperature=0.18, top_k=256, top_p=0.95)
"""As servers draw a header by default."""
VALIDATION_NOTES = 1024
FARTHEST = 20.0
"""Movements further from one another than this are all the same."""
N_FREE_BOOKS = 2
"""Codebooks before those of the header: the fundamental, and what refines it."""


@dataclass(frozen=True)
class HeaderTrainingConfig:
    """The config section `headers`."""

    loop: LoopConfig = field(default_factory=LoopConfig)
    """Steps and rates."""
    batch_size: int = 256
    """Notes per step."""
    code_weight: float = 0.5
    """Weight of a nat a code, which keeps headers those of the codec's encoder, beside a dB of parameters."""
    loudness_weight: float = 0.3
    """Weight of a dB by which the loudness said is off."""
    movement_weight: float = 0.1
    """Weight of how much further from the note's own movement the one said is than the nearest there is."""
    alignment_weight: float = 0.3
    """Weight of a nat by which the alignment of phases that is said is not the note's."""

    def __post_init__(self) -> None:
        check_at_least(self, batch_size=2, code_weight=0, loudness_weight=0)
        check_at_least(self, movement_weight=0, alignment_weight=0)


class Batch(NamedTuple):
    """Notes, what stage 2 is told of them, and random numbers to draw headers with."""

    notes: HeaderBatch
    timbre: Tensor  # [B, 2]
    pitch: Tensor  # int64 [B]
    codes: Tensor  # int64 [B, slots]
    movement: Tensor  # [B, N_FEATURES], NaN of notes too short to say
    uniforms: Tensor  # [B, slots]


class HeaderFitting(nn.Module):
    """A header network and a codec's header decoder, which are trained; the heads and the rest stay."""

    numbers: Tensor  # [1000, NUMBERS_PER_CODE], of each code
    movements: Tensor  # [n_templates, N_FEATURES]

    def __init__(self, model: NoteTransformer, codec: TimbrelNotes, config: HeaderTrainingConfig) -> None:
        super().__init__()
        assert model.header is not None
        coder = codec.header
        self.network: HeaderNetwork = model.header
        self.decoder = coder.decoder
        self._fixed = model.requires_grad_(False), coder.requires_grad_(False)  # in a tuple: not trained
        self.network.requires_grad_(True)
        self.decoder.requires_grad_(True)
        self.config = config
        self.n_codes = coder.config.n_codes
        self.register_buffer("movements", codec.templates.described())
        codes = torch.arange(LEVELS**NUMBERS_PER_CODE, device=coder.digits.device)
        self.register_buffer("numbers", coder.dequantized(codes[:, None]))

    def logits(self, timbre: Tensor, pitch: Tensor, velocity: Tensor) -> Tensor:
        """Returns [B, slots, V]: the header's codes, the loudness, the movement."""
        decoder = self._fixed[0].decoder
        rows = self.network(timbre, pitch, velocity)
        position = torch.arange(N_ROWS, device=timbre.device)
        held = torch.ones_like(position, dtype=torch.bool)
        logits = decoder.heads(rows, decoder.tokens, position, held)[:, :, N_FREE_BOOKS:]
        return logits.flatten(1, 2)[:, : self.n_codes + 2].float()

    def values(self, numbers: Tensor, midi: Tensor) -> Tensor:
        """Returns the parameters [B, N_VALUES] of a header's numbers."""
        coder = self._fixed[1]
        return coder.values(numbers, midi, self.decoder)

    def drawn(self, logits: Tensor, uniforms: Tensor) -> Tensor:
        """Returns codes int64 [B, slots], drawn as the engine draws them."""
        held = torch.ones(len(logits), dtype=torch.bool, device=logits.device)
        codes = sample(logits.detach(), uniforms, held, *DRAWN.rows(len(logits), logits.device))
        return torch.cat(
            [codes[:, : self.n_codes].clamp(max=len(self.numbers) - 1), codes[:, self.n_codes :]], 1
        )

    def loss(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """Returns what training minimises, and its parts: dB of the parameters through the codec's own codes
        and through those drawn, nats a code, dB of the loudness."""
        notes, half = batch.notes, len(batch.pitch) // 2
        own = self.numbers[batch.codes[:half, : self.n_codes]].flatten(1)
        own = torch.clamp(own + notes.noise[:half] * (2 / (LEVELS - 1)), -1.0, 1.0)
        logits = self.logits(batch.timbre, batch.pitch, notes.velocity)
        drawn = self.numbers[self.drawn(logits, batch.uniforms)[:, : self.n_codes]].flatten(1)
        # The numbers drawn, with the gradient of those that are expected.
        share = torch.softmax(logits[:, : self.n_codes, : len(self.numbers)], dim=2)
        expected = (share @ self.numbers).flatten(1)
        said = expected + (drawn - expected).detach()
        parts = {
            "coded": header_error(
                self.values(own, notes.midi[:half]), notes.targets[:half], notes.target_weights[:half]
            ),
            "written": header_error(self.values(said, notes.midi), notes.targets, notes.target_weights),
            "nats": nn.functional.cross_entropy(logits.flatten(0, 1), batch.codes.flatten()),
            "loudness": self._loudness_error(logits, batch.codes),
            "movement": self.movement_error(logits, batch.movement),
            "alignment": self.alignment_nats(logits, batch.codes),
        }
        config = self.config
        weights = {
            "nats": config.code_weight,
            "loudness": config.loudness_weight,
            "movement": config.movement_weight,
            "alignment": config.alignment_weight,
        }
        return sum((weights.get(name, 1.0) * part for name, part in parts.items()), torch.zeros(())), parts

    def _loudness_error(self, logits: Tensor, codes: Tensor) -> Tensor:
        share = torch.softmax(logits[:, self.n_codes], dim=1)
        steps = torch.arange(logits.shape[2], device=logits.device, dtype=share.dtype)
        return (share @ steps - codes[:, self.n_codes]).abs().mean() / STEPS_PER_DB

    def movement_error(self, logits: Tensor, movement: Tensor) -> Tensor:
        """Returns how much further the movements said are expected to be from those of the notes [B,
        N_FEATURES] than the nearest ones, of the notes that are long enough to say."""
        known = ~movement.isnan().any(dim=1)
        share = torch.softmax(self._by_alignment(logits).flatten(1), dim=1)
        share = share.unflatten(1, (N_ALIGNMENTS, -1)).sum(dim=1)
        away = torch.cdist(torch.nan_to_num(movement), self.movements.nan_to_num(posinf=FARTHEST))
        away = away.clamp(max=FARTHEST)
        further = (share * (away - away.amin(dim=1, keepdim=True))).sum(dim=1)
        return (further * known).sum() / known.sum().clamp(min=1)

    def alignment_nats(self, logits: Tensor, codes: Tensor) -> Tensor:
        """Returns the nats by which the alignment of phases said, with whatever movement, is not that of
        headers of these codes [B, slots]."""
        own = codes[:, self.n_codes + 1] // len(self.movements)
        return nn.functional.cross_entropy(self._by_alignment(logits).logsumexp(dim=2), own)

    def _by_alignment(self, logits: Tensor) -> Tensor:
        """Returns the logits [B, N_ALIGNMENTS, n_templates] of the movements."""
        n = len(self.movements)
        return logits[:, self.n_codes + 1, : N_ALIGNMENTS * n].unflatten(1, (N_ALIGNMENTS, n))


class HeaderFitter:
    """Draws batches of measured notes, and judges headers on those of held-out cells."""

    def __init__(
        self,
        fitting: HeaderFitting,
        notes: AnalysedNotes,
        dataset: NoteDataset,
        table: TokenTable,
        conditions: TimbreConditions,
        training: NoteTrainingConfig,
        codec: TimbrelNotes,
        device: torch.device,
    ) -> None:
        self.notes, self.conditions, self.training, self.device = notes, conditions, training, device
        self.config = config = fitting.config
        split = dataset.split[notes.notes]
        rows = np.flatnonzero(split == Split.TRAIN)
        if not len(rows):
            raise CheckpointError(f"{dataset.path}: no notes to train on in this split; render more")
        settings = CodecTrainingConfig(codec=codec.config, batch_size=config.batch_size)
        self.sampler = HeaderSampler(notes, dataset, rows, settings)
        held_out = np.flatnonzero(split != Split.TRAIN)
        judged = np.random.default_rng(0).permutation(held_out if len(held_out) else rows)[:VALIDATION_NOTES]
        self.held_out = np.sort(judged)
        n_slots = fitting.n_codes + 2
        starts = table.offsets[notes.notes]
        headers = table.codes[starts[:, None] + np.arange(N_ROWS)]  # [N, N_ROWS, K]
        self.codes = headers[:, :, N_FREE_BOOKS:].reshape(len(headers), -1)[:, :n_slots].astype(np.int64)
        self.pitch = table.pitch[notes.notes]

    def batch(self, step: int) -> Batch:
        """Returns the batch of a step."""
        seed = batch_seed(self.config.loop.seed, step)
        generator = np.random.default_rng(seed)
        rows = generator.choice(self.sampler.rows, self.config.batch_size)
        where = self.conditions.draw(self.notes.notes[rows], self.training.centroid_share, generator)
        return self._batch(rows, where, generator, noise=0.5)

    def validate(self, average: nn.Module) -> dict[str, float]:
        """Measures headers of held-out notes at their instruments' points: the weighted error in dB of the
        parameters, of codes drawn and of the codec's own, that of loudness, and the share of codes alike."""
        assert isinstance(average, HeaderFitting)
        centroids = self.conditions.centroid[self.notes.notes[self.held_out]]
        batch = self._batch(self.held_out, centroids, np.random.default_rng(0), noise=0.0)
        notes, n_codes = batch.notes, average.n_codes
        logits = average.logits(batch.timbre, batch.pitch, notes.velocity)
        drawn = average.drawn(logits, batch.uniforms)
        figures = {}
        for name, codes in (("written", drawn), ("coded", batch.codes)):
            values = average.values(average.numbers[codes[:, :n_codes]].flatten(1), notes.midi)
            error = (values - notes.values).abs() * notes.weights
            figures[name] = float(error.sum() / notes.weights.sum())
        figures["movement"] = float(average.movement_error(logits, batch.movement))
        figures["alignment"] = float(average.alignment_nats(logits, batch.codes))
        loudness = (drawn - batch.codes)[:, n_codes].abs().float() / STEPS_PER_DB
        figures["loudness"] = float(loudness.mean())
        figures["codes_alike"] = float((drawn == batch.codes)[:, :n_codes].float().mean())
        return figures

    def _batch(
        self, rows: NDArray[np.intp], where: NDArray[np.float32], generator: np.random.Generator, noise: float
    ) -> Batch:
        """Returns these rows as heard at points [B, 2]; numbers are moved by up to `noise` of a step."""
        moved = generator.uniform(-noise, noise, (len(rows), self.sampler.n_numbers)).astype(np.float32)
        uniforms = generator.uniform(1e-7, 1 - 1e-7, (len(rows), self.codes.shape[1])).astype(np.float32)
        arrays = where, self.pitch[rows], self.codes[rows], self.notes.features[rows], uniforms
        tensors = (torch.from_numpy(each).to(self.device) for each in arrays)
        return Batch(self.sampler.batch(rows, moved, self.device), *tensors)
