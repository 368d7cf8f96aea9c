"""The sound source of a note: partials and noise, with their seed, bends and level. It streams, causally."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

import torch
from torch import Tensor, nn

from timbrel_training.codec.interface import MAX_CENTS
from timbrel_training.codec.timbrel_notes.oscillator_bank import BankState, OscillatorBank
from timbrel_training.codec.timbrel_notes.seeded_noise import (
    BLOCK,
    PRIME,
    NoiseShaper,
    ShaperState,
    StaticNoise,
    counter_hash,
)

N_SUBFRAMES = 5


@dataclass
class SourceControls:
    """The parameters to play by, at control points (J = 5 T) and once a frame."""

    frequency: Tensor  # [B, J, P], Hz
    amplitude: Tensor  # [B, J, P], linear
    offset: Tensor  # [B, J, P], cycles
    noise_bins: Tensor  # [B, T, hop], linear gains of the noise, finely
    noise_gains: Tensor  # [B, J, n_gains], linear gains in bands on top
    cents: Tensor  # [B, T]
    level_db: Tensor  # [B, T]


class SoundSource(nn.Module):
    """Plays frames of 1280 samples: an oscillator bank, and noise that follows the note's seed."""

    share: Tensor  # [N_SUBFRAMES], rising to 1
    number: Tensor  # [1, 1 + P], int64

    def __init__(self, sample_rate: int, n_partials: int, n_noise_gains: int) -> None:
        super().__init__()
        self.hop = BLOCK // 2
        sub_hop = self.hop // N_SUBFRAMES
        self.bank = OscillatorBank(sample_rate, sub_hop)
        self.noise = StaticNoise()
        self.shaper = NoiseShaper(sample_rate, sub_hop, n_noise_gains)
        self.register_buffer("share", torch.arange(1, N_SUBFRAMES + 1) / N_SUBFRAMES, persistent=False)
        self.register_buffer("number", torch.arange(n_partials + 1)[None], persistent=False)

    @property
    def delay_samples(self) -> int:
        """Samples by which the audio lags behind the controls: one segment between control points."""
        return self.bank.sub_hop

    def initial_state(self, n_batch: int) -> dict[str, Tensor]:
        """Returns the zeros for a batch of notes that begin, by name: `position` counts frames."""
        shaper = self.shaper.initial_state(n_batch)
        device = self.share.device
        return {
            "position": torch.zeros(n_batch, dtype=torch.int64, device=device),
            "last_cents": torch.zeros(n_batch, device=device),
            "last_level": torch.zeros(n_batch, device=device),
            **vars(self.bank.initial_state(n_batch, self.number.shape[1] - 1)),
            "noise_tail": torch.zeros(n_batch, self.hop, device=device),
            "noise_folded": shaper.folded,
            "noise_overlap": shaper.overlap,
        }

    def drawn_phases(self, seed: Tensor) -> Tensor:
        """Returns numbers by chance, 0 to 1, [B, 1 + P], of seeds int64 [B]: a pulse's delay, and the phases
        in cycles that partials begin at."""
        return counter_hash(seed, self.number.expand(seed.shape[0], -1), purpose=2).float() / PRIME

    def forward(
        self, seed: Tensor, controls: SourceControls, state: Mapping[str, Tensor]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Plays one chunk of notes of these seeds, int64 [B], with the state carried from the chunk before:
        audio float32 [B, T * 1280], and the state after. What else is in the state is left out.

        Bends and levels glide through each frame from where the last ended, as cents and as dB, and reach
        their values at its end; beyond 2400 cents a bend is held there.
        """
        position = state["position"]
        begins = position == 0
        limited = torch.clamp(controls.cents, -MAX_CENTS, MAX_CENTS)
        cents = self._glide(limited, state["last_cents"], begins)
        level = self._glide(controls.level_db, state["last_level"], begins)
        # In float64, so that runtimes agree: whatever they differ by, a phase would sum.
        ratio = torch.exp2(cents.double() / 1200)
        gain = torch.exp2(level * (1 / 6.020599913279624))[:, :, None]
        partials, bank = self.bank(
            controls.frequency.double() * ratio[:, :, None],
            controls.amplitude * gain,
            controls.offset,
            self.drawn_phases(seed)[:, 1:],
            BankState(*(state[field.name] for field in fields(BankState))),
        )
        n_frames = controls.cents.shape[1]
        frames = position[:, None] + torch.arange(n_frames, device=self.share.device)
        noise, tail, before = self.noise(controls.noise_bins, seed, frames, state["noise_tail"])
        shaped, shaper = self.shaper(
            noise,
            controls.noise_gains * gain,
            ShaperState(state["noise_folded"], state["noise_overlap"]),
            before,
            begins,
        )
        after = {
            "position": position + n_frames,
            "last_cents": limited[:, -1],
            "last_level": controls.level_db[:, -1],
            **vars(bank),
            "noise_tail": tail,
            "noise_folded": shaper.folded,
            "noise_overlap": shaper.overlap,
        }
        return partials + shaped, after

    def _glide(self, frames: Tensor, last: Tensor, begins: Tensor) -> Tensor:
        """Returns values at control points [B, J] of values at the frames' ends [B, T]."""
        first = torch.where(begins, frames[:, 0], last)
        before = torch.cat([first[:, None], frames[:, :-1]], dim=1)
        return (before[:, :, None] + (frames - before)[:, :, None] * self.share).flatten(1)
