"""The decoder: it turns codes into what the two sources play. It is causal and carries a stream's state."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor, nn

from timbrel_training.codec.interface import MAX_CENTS, Expression
from timbrel_training.codec.timbrel_notes.analysis import (
    N_PITCH_FEATURES,
    band_position,
    code_to_fundamental,
    midi_to_hertz,
    pitch_features,
    spread_matrix,
)
from timbrel_training.codec.timbrel_notes.config import TimbrelNotesConfig
from timbrel_training.codec.timbrel_notes.encoder import CausalBlock
from timbrel_training.codec.timbrel_notes.seeded_noise import counter_hash
from timbrel_training.codec.timbrel_notes.synthesis import FilteredNoise, Oscillator

MAX_LOG_GAIN = 2.0
AUDIBLE_TO = 0.98
"""Share of half the sample rate from which on harmonics are silent."""
FADE = 0.05
"""Share of it over which they fade below that."""
DB_PER_NEPER = 8.685889638065037
HARMONICS_STEP = 32
"""A multiple of this many harmonics is worked out for a chunk."""


@dataclass
class DecoderState:
    """The tensors that a stream remembers between chunks; all are zeros at the start of a note."""

    contexts: list[Tensor]  # one [B, kernel - 1, width] per block
    last_hertz: Tensor  # [B, 1], fundamental of the frame before, unbent; 0: none yet
    last_cents: Tensor  # [B, 1]
    last_level: Tensor  # [B, 1], dB
    table: Tensor  # [B, table_size + 1]
    last_frequency: Tensor  # [B], Hz
    phase: Tensor  # [B] float64, cycles
    noise_position: Tensor  # [B] int64, segments
    noise_tail: Tensor  # [B, sub_hop]

    def by_name(self) -> dict[str, Tensor]:
        """Returns the tensors in order: context_0, context_1, .. and the other fields under their names."""
        contexts = {f"context_{i}": context for i, context in enumerate(self.contexts)}
        return contexts | {name: getattr(self, name) for name in STATE_FIELDS}

    @classmethod
    def from_names(cls, tensors: dict[str, Tensor]) -> DecoderState:
        """Returns the inverse of `by_name`."""
        contexts = [tensors[f"context_{i}"] for i in range(len(tensors) - len(STATE_FIELDS))]
        return cls(contexts, **{name: tensors[name] for name in STATE_FIELDS})


STATE_FIELDS = [field.name for field in fields(DecoderState)[1:]]
"""The fields that are one tensor each."""


@dataclass
class Controls:
    """The parameters that the two sources play by, at control points."""

    frequency: Tensor  # [B, J], Hz
    log_amplitudes: Tensor  # [B, J, H], natural log of each harmonic's amplitude
    noise_gains: Tensor  # [B, J, sub_hop + 1], linear


class HarmonicNoiseDecoder(nn.Module):
    """Latents [B, T, latent_dim] and fundamental codes [B, T] -> audio [B, T * hop], `delay_samples` late."""

    noise_spread: Tensor  # [n_noise_bands, sub_hop + 1]
    midi_of_code: Tensor  # [codebook_size]
    hertz_of_code: Tensor  # [codebook_size]
    numbers: Tensor  # [n_harmonics], 1, 2, 3, ...
    gain_of_harmonic: Tensor  # [n_harmonics], which of the gains is each harmonic's

    def __init__(self, config: TimbrelNotesConfig) -> None:
        super().__init__()
        self.config = config
        n = config.n_subframes
        self.inlet = nn.Linear(config.latent_dim + N_PITCH_FEATURES, config.width)
        self.blocks = nn.ModuleList(
            CausalBlock(config.width, config.decoder_kernel) for _ in range(config.n_decoder_blocks)
        )
        self.norm = nn.LayerNorm(config.width)
        self.envelope = nn.Linear(config.width, n * config.n_envelope_bands)
        self.free = nn.Linear(config.width, config.n_harmonic_gains)
        self.noise_envelope = nn.Linear(config.width, n * config.n_noise_bands)
        self.oscillator = Oscillator(
            config.sample_rate, config.sub_hop, config.n_harmonics, config.table_size
        )
        self.noise = FilteredNoise(config.sub_hop, config.noise_period)
        spread = spread_matrix(config.n_noise_bands, config.sub_hop + 1, config.sample_rate)
        self.register_buffer("noise_spread", spread, persistent=False)
        midi = code_to_fundamental(torch.arange(config.codebook_size), config)
        self.register_buffer("midi_of_code", midi, persistent=False)
        # A table, not a formula: runtimes round exp2 differently, and a phase that sums it would drift apart.
        self.register_buffer("hertz_of_code", midi_to_hertz(midi.double()).float(), persistent=False)
        self.register_buffer("numbers", torch.arange(1, config.n_harmonics + 1).float(), persistent=False)
        self.register_buffer("gain_of_harmonic", _gain_of_harmonic(config), persistent=False)

    @property
    def delay_samples(self) -> int:
        """Samples by which the audio lags behind the codes: one segment between control points."""
        return self.config.sub_hop

    def initial_state(self, n_batch: int) -> DecoderState:
        """Returns the zeros for a batch of notes that begin."""
        config, device = self.config, self.inlet.weight.device
        return DecoderState(
            contexts=[
                torch.zeros(n_batch, config.decoder_kernel - 1, config.width, device=device)
                for _ in self.blocks
            ],
            last_hertz=torch.zeros(n_batch, 1, device=device),
            last_cents=torch.zeros(n_batch, 1, device=device),
            last_level=torch.zeros(n_batch, 1, device=device),
            table=torch.zeros(n_batch, config.table_size + 1, device=device),
            last_frequency=torch.zeros(n_batch, device=device),
            phase=torch.zeros(n_batch, dtype=torch.float64, device=device),
            noise_position=torch.zeros(n_batch, dtype=torch.int64, device=device),
            noise_tail=torch.zeros(n_batch, config.sub_hop, device=device),
        )

    def forward(
        self, latents: Tensor, fundamental: Tensor, expression: Expression, state: DecoderState
    ) -> tuple[Tensor, DecoderState]:
        """Plays one chunk of frames, with the state carried from the chunk before.

        Only as many harmonics are worked out as its lowest frequency has below half the sample rate: for a
        high note a small part of them all.
        """
        controls, after = self.controls(latents, fundamental, expression, state, audible_only=True)
        return self.play(controls, expression.seed, after)

    def controls(
        self,
        latents: Tensor,
        fundamental: Tensor,
        expression: Expression,
        state: DecoderState,
        *,
        audible_only: bool = False,
    ) -> tuple[Controls, DecoderState]:
        """Returns what to play (of all harmonics, or of those that sound), and the state that `play` takes.

        A bend moves the harmonics under a spectral envelope that stays where it is.
        """
        x = self.inlet(torch.cat([latents, pitch_features(self.midi_of_code[fundamental])], dim=2))
        contexts = []
        for block, context in zip(self.blocks, state.contexts, strict=True):
            x, after = block(x, context)
            contexts.append(after)
        x = self.norm(x)
        begins = state.last_hertz == 0
        hertz = self.hertz_of_code[fundamental]
        limited = torch.clamp(expression.cents, -MAX_CENTS, MAX_CENTS)
        cents = self._glide(limited, state.last_cents, begins)
        # In float64, so that runtimes agree: whatever they differ by, a phase would sum.
        ratio = torch.exp2(cents.double() / 1200)
        frequency = (self._glide(hertz, state.last_hertz, begins).double() * ratio).float()
        level = self._glide(expression.level_db, state.last_level, begins)[:, :, None] / DB_PER_NEPER
        n_harmonics = self._n_audible(frequency) if audible_only else self.config.n_harmonics
        log_amplitudes = self._log_amplitudes(x, frequency, n_harmonics) + level
        after = replace(
            state,
            contexts=contexts,
            last_hertz=hertz[:, -1:],
            last_cents=limited[:, -1:],
            last_level=expression.level_db[:, -1:],
        )
        return Controls(frequency, log_amplitudes, self._noise_gains(x) * torch.exp(level)), after

    def play(self, controls: Controls, seed: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        """Returns the audio of the controls, and the state after it; the seed int64 [B] is the note's."""
        frequency = controls.frequency
        drawn = counter_hash(seed, torch.arange(2, device=seed.device).expand(seed.shape[0], 2), purpose=1)
        nyquist = self.config.sample_rate / 2
        numbers = self.numbers[: controls.log_amplitudes.shape[2]]
        audible = torch.clamp(
            (AUDIBLE_TO * nyquist - frequency[:, :, None] * numbers) / (FADE * nyquist), 0.0, 1.0
        )
        harmonic, table, last_frequency, phase = self.oscillator(
            torch.exp(controls.log_amplitudes) * audible,
            frequency,
            drawn[:, 0],
            state.table,
            state.last_frequency,
            state.phase,
        )
        noise, position, tail = self.noise(
            controls.noise_gains, drawn[:, 1], state.noise_position, state.noise_tail
        )
        after = replace(
            state,
            table=table,
            last_frequency=last_frequency,
            phase=phase,
            noise_position=position,
            noise_tail=tail,
        )
        return harmonic + noise, after

    def _n_audible(self, frequency: Tensor) -> int:
        """Returns how many harmonics sound somewhere, rounded up; at least HARMONICS_STEP, or all."""
        config = self.config
        steps = torch.ceil(AUDIBLE_TO * config.sample_rate / 2 / frequency.min() / HARMONICS_STEP)
        # No int() around it, which export would take for a constant.
        n: int = (HARMONICS_STEP * steps).clamp(max=config.n_harmonics).long().item()  # type: ignore[assignment]
        torch._check(n >= 1)
        torch._check(n <= config.n_harmonics)
        return n

    def _glide(self, frames: Tensor, last: Tensor, begins: Tensor) -> Tensor:
        """Returns values at control points [B, J]: frames [B, T] glide from the last and end on their own."""
        n = self.config.n_subframes
        before = torch.cat([torch.where(begins, frames[:, :1], last), frames[:, :-1]], dim=1)
        share = torch.arange(1, n + 1, device=frames.device) / n
        return (before[:, :, None] + (frames - before)[:, :, None] * share).flatten(1)

    def _log_amplitudes(self, x: Tensor, frequency: Tensor, n_harmonics: int) -> Tensor:
        """Returns the logs of the first harmonics' amplitudes at control points: [B, J, n_harmonics]."""
        config = self.config
        n_batch = x.shape[0]
        nyquist = config.sample_rate / 2
        envelope = 4.0 * self.envelope(x).reshape(n_batch, -1, config.n_envelope_bands) - 7.0  # [B, J, bands]
        harmonic_frequency = frequency[:, :, None] * self.numbers[:n_harmonics]
        position = band_position(harmonic_frequency, config.n_envelope_bands, nyquist)
        index = torch.clamp(position.long(), max=config.n_envelope_bands - 2)
        low = torch.gather(envelope, 2, index)
        high = torch.gather(envelope, 2, index + 1)
        log_gain = low + (high - low) * (position - index.float())
        free = 4.0 * self.free(x)[:, :, self.gain_of_harmonic[:n_harmonics]]
        free = free[:, :, None].expand(-1, -1, config.n_subframes, -1).reshape(n_batch, -1, n_harmonics)
        return torch.clamp(log_gain + free, max=MAX_LOG_GAIN)

    def _noise_gains(self, x: Tensor) -> Tensor:
        """Returns the gains of the noise at control points: [B, J, sub_hop + 1]."""
        bands = 4.0 * self.noise_envelope(x).reshape(x.shape[0], -1, self.config.n_noise_bands) - 11.0
        return torch.exp(torch.clamp(bands, max=MAX_LOG_GAIN)) @ self.noise_spread


def _gain_of_harmonic(config: TimbrelNotesConfig) -> Tensor:
    """Returns int64 [n_harmonics]: the lowest have a gain each, above, a run's odd ones share one."""
    number = torch.arange(config.n_harmonics)
    above = torch.clamp(number - config.n_free_harmonics, min=0)
    shared = config.n_free_harmonics + 2 * (above // config.harmonics_per_group) + number % 2
    return torch.where(number < config.n_free_harmonics, number, shared)
