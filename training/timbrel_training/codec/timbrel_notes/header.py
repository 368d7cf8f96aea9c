"""The header of a note: its parameters in a few codes that stay what they are while it sounds.

An autoencoder that knows the pitch squeezes the parameters into numbers, which finite scalar quantization
(Mentzer et al., 2023) rounds; three of them are a code. It is trained on parameters, never on sound.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from timbrel_training.codec.timbrel_notes.analysis import N_PITCH_FEATURES, pitch_features
from timbrel_training.codec.timbrel_notes.note_parameters import (
    LEVEL_SECONDS,
    N_VALUES,
    SHAPES,
    SIZES,
)
from timbrel_training.settings import check_at_least

LEVELS = 10
"""Values that each number is rounded to, evenly from -1 to 1."""
NUMBERS_PER_CODE = 3
UNIT_DB = 20.0
"""Parameters are divided by this for the networks."""
UNMEASURED_WEIGHT, TOO_LOUD_WEIGHT = 0.02, 0.15
"""The least that a value counts for in training, also where it could not be measured, and where it comes out
too loud: a partial that has died away must not ring on."""
IMPORTANCE = {
    "level": 8.0, "release": 1.5, "noise": 0.7, "noise_release": 0.5, "comb": 0.7, "fine": 0.4, "burst": 0.7,
    "stiffness": 60.0, "depth": 0.05,
}  # fmt: skip
"""How much a part's values count in training, those of other parts 1: what a note is told from its source by
are the levels of its partials, and hardly anything else (see COMPARISONS.md)."""
ATTACK_IMPORTANCE, ATTACK_SECONDS = 6.0, 0.1
"""Of the levels' anchors, those up to here count for less: they are as many as all behind them."""
SEARCH_RATE, SEARCH_OFFSET_IMPORTANCE = 0.03, 12.0
"""Step size of Adam in a search for codes, and how much partials' offsets count in it beside the rest: fewer
are heard to be out of tune."""
SEARCH_STEPS = 50
"""How long a search is, unless another number is asked for."""
MEAN_IMPORTANCE, SEARCH_DISTANCE = 0.3, 0.1
"""How much a dB of `mean_level_error`, and a square of the way from the encoder's numbers, count in it; the
latter in a search of `SEARCH_STEPS`, and in longer ones, for sounds that the encoder does not know, less."""
ALIKE_IMPORTANCE, N_ALIKE = 3.0, 8
"""How much a square of the way between the numbers of notes that are to be alike counts in a search, and how
many others each is to be like."""
ALIKE_SEMITONES, ALIKE_VELOCITY = 2.0, 20.0
"""As far from each other are two notes that differ by one of these."""
SPECTRA = ("level", "release", "noise", "noise_release", "comb", "burst")
"""The parts that are spectra, or valleys between partials, in the course of time."""
OFFSETS = slice(*(sum(SIZES[: [*SHAPES].index("offset") + end]) for end in (0, 1)))
"""Where the parameters have the partials' offsets."""
LEVELS_AT = slice(0, SIZES[0])
"""Where they have the partials' levels."""
MEAN_ATTACK, MEAN_WIDTH = 8, 4
"""Anchors of the levels that are the attack, up to 65 ms, and neighbouring groups of partials, of which
`mean_level_error` takes the means."""


@dataclass(frozen=True)
class HeaderConfig:
    """Sizes of the autoencoder."""

    n_codes: int = 30
    """Codes of a note, of 1,000 values each."""
    width: int = 512
    n_blocks: int = 2
    """Residual blocks on either side."""
    rank: int = 0
    """Products of a course in time and a spectrum that the decoder adds up for each part; 0: it is linear."""

    def __post_init__(self) -> None:
        check_at_least(self, n_codes=1, width=1, n_blocks=0, rank=0)


class HeaderCoder(nn.Module):
    """Parameters [..., N_VALUES] of notes of a pitch <-> codes [..., n_codes]."""

    mean: Tensor  # [N_VALUES], of the notes trained on, dB
    digits: Tensor  # [NUMBERS_PER_CODE], 1, 10, 100

    def __init__(self, config: HeaderConfig) -> None:
        super().__init__()
        self.config = config
        n_numbers = config.n_codes * NUMBERS_PER_CODE
        output = nn.Linear(config.width, n_numbers)
        self.encoder = _network(2 * N_VALUES + N_PITCH_FEATURES, output, config)
        self.decoder = _network(
            n_numbers + N_PITCH_FEATURES, ParameterLayer(config.width, config.rank), config
        )
        self.register_buffer("mean", torch.zeros(N_VALUES))
        digits = LEVELS ** torch.arange(NUMBERS_PER_CODE)
        self.register_buffer("digits", digits, persistent=False)
        self.register_load_state_dict_pre_hook(_with_later_parts)

    def numbers(self, values: Tensor, weights: Tensor, midi: Tensor) -> Tensor:
        """Returns what is quantized [B, n_numbers], -1 to 1, of values and their weights [B, N_VALUES].

        A weight says how much a value can be heard: 0 where it could not even be measured.
        """
        known = (values - self.mean) / UNIT_DB * (weights > 0)
        return torch.tanh(self.encoder(torch.cat([known, weights, pitch_features(midi)], dim=-1)))

    def values(self, numbers: Tensor, midi: Tensor, decoder: nn.Module | None = None) -> Tensor:
        """Returns parameters [..., N_VALUES] of quantized numbers [..., n_numbers] at pitches [...], by
        its own decoder or another."""
        return (
            UNIT_DB * (decoder or self.decoder)(torch.cat([numbers, pitch_features(midi)], dim=-1))
            + self.mean
        )

    def encode(
        self,
        values: Tensor,
        weights: Tensor,
        midi: Tensor,
        search_steps: int = 0,
        velocity: Tensor | None = None,
    ) -> Tensor:
        """Returns codes int64 [B, n_codes]: the encoder's, or better ones that a search begins there for.
        With velocities [B] they are of one instrument, and the search is for codes that are alike for notes
        that are near each other."""
        numbers = self.numbers(values, weights, midi)
        if search_steps:
            near = None if velocity is None or len(velocity) < 2 else _nearest(midi, velocity)
            numbers = self._searched(numbers, values, weights, midi, search_steps, near)
        steps = _to_steps(numbers).long()
        return (steps.unflatten(-1, (-1, NUMBERS_PER_CODE)) * self.digits).sum(dim=-1)

    @torch.enable_grad()
    def _searched(
        self,
        numbers: Tensor,
        values: Tensor,
        weights: Tensor,
        midi: Tensor,
        search_steps: int,
        near: Tensor | None,
    ) -> Tensor:
        """Returns the numbers [B, n_numbers] whose rounding decodes with the least error in some steps of
        gradient descent. Those of one that has learnt to encode err more, most of all of notes it has not
        heard (amortization gap: Cremer et al., 2018); how far they may move counts, too, since a model has
        to foretell them. So does how far each is from those of the notes `near` [B, n]: without that a sound
        that is strange to the encoder has other codes at each pitch, and what a model makes of them between
        is none of them."""
        distance = SEARCH_DISTANCE * SEARCH_STEPS / search_steps
        best, least = numbers, torch.full_like(numbers[:, 0], torch.inf)
        moving = torch.atanh(numbers.clamp(-0.999, 0.999)).requires_grad_()
        optimizer = torch.optim.Adam([moving], lr=SEARCH_RATE)
        weights = weights.clone()
        weights[:, OFFSETS] *= SEARCH_OFFSET_IMPORTANCE
        for _ in range(search_steps):
            exact = torch.tanh(moving)
            rounded = exact + (_from_steps(_to_steps(exact)) - exact).detach()
            decoded = self.values(rounded, midi)
            total, counted = _weighted_errors(decoded, values, weights)
            errors = total / counted + MEAN_IMPORTANCE * mean_level_error(decoded, values, weights)
            errors = errors + distance * ((exact - numbers) ** 2).sum(dim=1)
            if near is not None:
                apart = ((exact[:, None] - exact[near]) ** 2).sum(dim=2)
                errors = errors + ALIKE_IMPORTANCE * apart.mean(dim=1)
            # Together they are best in the end; by itself each is at some moment.
            better = errors < least if near is None else torch.ones_like(errors, dtype=torch.bool)
            best = torch.where(better[:, None], exact, best).detach()
            least = torch.where(better, errors, least).detach()
            (moving.grad,) = torch.autograd.grad(errors.sum(), [moving])
            optimizer.step()
        return best

    def decode(self, codes: Tensor, midi: Tensor) -> Tensor:
        """Returns the parameters [..., N_VALUES] of codes [..., n_codes] at pitches [...]."""
        return self.values(self.dequantized(codes), midi)

    def dequantized(self, codes: Tensor) -> Tensor:
        """Returns the numbers [..., n_numbers] of codes [..., n_codes]."""
        return _from_steps(torch.remainder(codes[..., None] // self.digits, LEVELS)).flatten(-2)

    def quantized(self, values: Tensor, weights: Tensor, midi: Tensor) -> Tensor:
        """Returns the numbers [B, n_numbers] as they come back from codes."""
        return _from_steps(_to_steps(self.numbers(values, weights, midi)))

    def noisy(self, values: Tensor, weights: Tensor, midi: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the numbers [B, n_numbers] of a batch in training, and the parameters decoded from them.

        Half the notes are quantized, the others get `noise` [B, n_numbers] instead, -0.5 to 0.5 of a step,
        which keeps the gradients true.
        """
        exact = self.numbers(values, weights, midi).float()
        half = len(exact) // 2
        noised = torch.clamp(exact + noise * (2 / (LEVELS - 1)), -1.0, 1.0)
        chosen = torch.cat([_from_steps(_to_steps(exact[:half])), noised[half:]])
        numbers = exact + (chosen - exact).detach()
        return numbers, self.values(numbers, midi)


def header_error(decoded: Tensor, values: Tensor, weights: Tensor) -> Tensor:
    """Returns the weighted error of decoded parameters [B, N_VALUES], dB: like a Huber loss, but that large
    errors count for somewhat more, that what should not be heard must not come out too loud, and that parts
    count by their `importance`."""
    total, counted = _weighted_errors(decoded, values, weights)
    return total.sum() / counted.sum()


def _weighted_errors(decoded: Tensor, values: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Returns each note's errors, summed, and what they count for in all: [B] each."""
    error = (decoded - values).float()
    least = torch.where(error > 0, TOO_LOUD_WEIGHT, UNMEASURED_WEIGHT)
    weights = torch.maximum(weights, least) * importance(error.device)
    return (weights * (torch.sqrt(error**2 + 1.0) + 0.03 * error**2)).sum(dim=-1), weights.sum(dim=-1)


def mean_level_error(decoded: Tensor, values: Tensor, weights: Tensor) -> Tensor:
    """Returns by how much levels are off in the mean, dB [B], of decoded parameters [B, N_VALUES].

    Means over the attack, over what is behind it and over both, of each group of partials and of four that
    are neighbours: what beats at each moment by chance is not worth a code, what a spectrum is like is.
    """
    shape = SHAPES["level"]
    error, weight = (
        part[..., LEVELS_AT].unflatten(-1, shape)
        for part in (decoded - values, weights * importance(weights.device))
    )
    found = torch.zeros_like(weight[..., 0, 0])
    for moments in (slice(None), slice(MEAN_ATTACK), slice(MEAN_ATTACK, None)):
        heard = weight[..., moments, :].sum(dim=-2)
        total = (error * weight)[..., moments, :].sum(dim=-2)
        for width in (1, MEAN_WIDTH):
            counted = heard.unflatten(-1, (-1, width)).sum(dim=-1)
            off = total.unflatten(-1, (-1, width)).sum(dim=-1) / counted.clamp(min=1e-4)
            lost = torch.sqrt(off**2 + 0.25) - 0.5
            found = found + (lost * counted).sum(dim=-1) / counted.sum(dim=-1).clamp(min=1e-4)
    return found


@functools.cache
def importance(device: torch.device) -> Tensor:
    """Returns how much each parameter counts in training, [N_VALUES]."""
    parts = {name: torch.full(shape, IMPORTANCE.get(name, 1.0)) for name, shape in SHAPES.items()}
    parts["level"][torch.tensor(LEVEL_SECONDS) <= ATTACK_SECONDS] = ATTACK_IMPORTANCE
    return torch.cat([part.flatten() for part in parts.values()]).to(device)


class ResidualBlock(nn.Module):
    """[..., width] -> [..., width]."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.inner = nn.Linear(width, width)
        self.outer = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.outer(nn.functional.gelu(self.inner(self.norm(x))))


class ParameterLayer(nn.Linear):
    """[..., width] -> [..., N_VALUES]: linear, and `rank` outer products beside it.

    The parts that are spectra in the course of time have the sum of as many products of a course and a
    spectrum added, both of which are linear in the input: what gets louder or dies away as one need not be
    said for each partial and moment. They begin as nothing. Depths of movements have a layer between, which
    makes them a third truer.
    """

    def __init__(self, width: int, rank: int) -> None:
        super().__init__(width, N_VALUES - SIZES[-1])
        self.depth = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, SIZES[-1]))
        self.rank = rank
        if rank:
            moments, bands = (sum(SHAPES[name][axis] for name in SPECTRA) for axis in (0, 1))
            self.courses = nn.Linear(width, rank * moments)
            self.spectra = nn.Linear(width, rank * bands)
            nn.init.zeros_(self.courses.weight)
            nn.init.zeros_(self.courses.bias)

    def forward(self, x: Tensor) -> Tensor:
        parts = dict(zip(list(SHAPES)[:-1], super().forward(x).split(SIZES[:-1], dim=-1), strict=True))
        parts["depth"] = self.depth(x)
        if self.rank:
            moments, bands = zip(*(SHAPES[name] for name in SPECTRA), strict=True)
            courses = self.courses(x).unflatten(-1, (-1, self.rank)).split(moments, dim=-2)
            spectra = self.spectra(x).unflatten(-1, (self.rank, -1)).split(bands, dim=-1)
            for name, course, spectrum in zip(SPECTRA, courses, spectra, strict=True):
                parts[name] = parts[name] + (course @ spectrum).flatten(-2)
        return torch.cat([*parts.values()], dim=-1)


def _nearest(midi: Tensor, velocity: Tensor) -> Tensor:
    """Returns int64 [B, n]: the notes nearest to each by pitch and velocity, N_ALIKE at most."""
    places = torch.stack([midi / ALIKE_SEMITONES, velocity / ALIKE_VELOCITY], dim=1)
    apart = torch.cdist(places, places)
    apart.fill_diagonal_(torch.inf)
    return torch.topk(apart, min(N_ALIKE, len(midi) - 1), largest=False).indices


def _network(n_inputs: int, output: nn.Linear, config: HeaderConfig) -> nn.Sequential:
    blocks = [ResidualBlock(config.width) for _ in range(config.n_blocks)]
    return nn.Sequential(nn.Linear(n_inputs, config.width), *blocks, nn.LayerNorm(config.width), output)


def _with_later_parts(coder: nn.Module, state: dict[str, Tensor], prefix: str, *_: object) -> None:
    """Makes weights of before the last parts were parameters say 0 of them: no stiffness, and movements as
    deep as their templates are."""
    assert isinstance(coder, HeaderCoder)
    last = f"decoder.{len(coder.decoder) - 1}"
    mean, first, weight, bias = (
        prefix + name for name in ("mean", "encoder.0.weight", f"{last}.weight", f"{last}.bias")
    )
    if not {mean, first, weight, bias} <= state.keys():
        return
    n, without_depth = len(state[mean]), N_VALUES - SIZES[-1]
    if n not in (without_depth, without_depth - SIZES[-2]):
        return
    if n < without_depth:
        state[weight] = nn.functional.pad(state[weight], (0, 0, 0, SIZES[-2]))
        state[bias] = nn.functional.pad(state[bias], (0, SIZES[-2]))
    state[mean] = nn.functional.pad(state[mean], (0, N_VALUES - n))
    values, weights, pitch = state[first].split([n, n, N_PITCH_FEATURES], dim=1)
    none = torch.zeros_like(values[:, :1]).expand(-1, N_VALUES - n)
    state[first] = torch.cat([values, none, weights, none, pitch], dim=1)
    layer = coder.decoder[-1]
    assert isinstance(layer, ParameterLayer)
    for name, each in layer.depth.state_dict().items():
        # Where both layers were 0, neither would learn; and all who load these weights get the same.
        begun = torch.eye(len(each)) if name == "0.weight" else torch.zeros_like(each)
        state[f"{prefix}{last}.depth.{name}"] = begun


def _to_steps(numbers: Tensor) -> Tensor:
    """Returns the nearest of the steps 0 to LEVELS - 1."""
    return torch.clamp(torch.round((numbers + 1) * ((LEVELS - 1) / 2)), 0, LEVELS - 1)


def _from_steps(steps: Tensor) -> Tensor:
    return steps.float() * (2 / (LEVELS - 1)) - 1
