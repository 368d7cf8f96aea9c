"""The parameters of a note: a vector of fixed length that says how its partials and its noise go.

Levels are in dB below the note's loudest moment, at anchors in time that are dense where the note begins and
where its key is let go. Those after the release are relative to what sounded when it came, so that they mean
the same however long the key was held.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from timbrel_training.codec.timbrel_notes.stiffness import LARGEST

LEVEL_SECONDS = (
    0.0, 0.004, 0.008, 0.013, 0.02, 0.03, 0.045, 0.065, 0.09, 0.125, 0.18, 0.26, 0.4, 0.6, 0.9, 1.4, 2.1,
    3.2, 4.5,
)  # fmt: skip
"""Anchors of the partials' levels, after the onset."""
RELEASE_SECONDS = (0.0, 0.01, 0.025, 0.045, 0.07, 0.1, 0.15, 0.22, 0.32, 0.48, 0.7, 1.1)
"""Anchors of the partials' levels, after the release."""
NOISE_SECONDS = (0.01, 0.04, 0.09, 0.18, 0.4, 0.9, 2.1)
"""Anchors of the noise's levels, after the onset."""
NOISE_RELEASE_SECONDS = (0.02, 0.08, 0.2, 0.45)
"""Anchors of the noise's levels, after the release."""
BURST_SECONDS = (0.0, 0.005, 0.01, 0.018, 0.03, 0.045, 0.065)
"""Anchors of the noise that a note begins with."""
ONSET_GAINS = 12
"""Gains of all partials in the first moments, ..."""
ONSET_SECONDS = 128 / 48_000
"""... so far apart."""

N_PARTIALS = 224
N_NOISE_BANDS = 32
"""Bands of the noise, evenly spaced in mel."""
N_BURST_BANDS = 16
N_FINE_BANDS = 256
N_OFFSETS = 64
"""Lowest partials that may lie beside where the stiffness says."""
N_MOVING = 64
"""Lowest partials whose movement is known; those above borrow it from the upper half of these."""
STIFFNESS_UNIT, STIFFNESS_STEPS = 1e-5, 40.0
"""A stiffness is in steps of 6 %, 40 a decade; below the first of these steps are even: nobody hears it."""


def partial_groups() -> list[list[int]]:
    """Returns the numbers of partials that share a level: the lowest 24 have their own, above, runs of odd
    and of even ones share, as hollow sounds are hollow all the way up."""
    groups = [[number] for number in range(1, 25)]
    first = 25
    for width, end in ((2, 33), (4, 57), (8, 105), (12, 153), (18, N_PARTIALS)):
        while first < end and first <= N_PARTIALS:
            run = range(first, min(first + 2 * width, N_PARTIALS + 1))
            groups += [part for odd in (1, 0) if (part := [n for n in run if n % 2 == odd])]
            first += 2 * width
    return groups


def valley_groups() -> list[list[int]]:
    """Returns the numbers of partials whose noise has one shape; 0 stands for what lies below the first."""
    runs = (range(25, 33), range(33, 49), range(49, 65), range(65, 97), range(97, 400))
    return [[number] for number in range(25)] + [list(run) for run in runs]


def group_of_number(groups: list[list[int]]) -> list[int]:
    """Returns the group that each number is in, from the lowest number on."""
    found = {number: group for group, numbers in enumerate(groups) for number in numbers}
    return [found[number] for number in sorted(found)]


N_GROUPS = len(partial_groups())
N_MOVING_GROUPS = group_of_number(partial_groups())[N_MOVING - 1] + 1
"""Groups with a partial whose movement is known."""
N_VALLEYS = len(valley_groups())


def stiffness_steps(stiffness: float) -> float:
    """Returns a stiffness as the parameters have it."""
    return STIFFNESS_STEPS * math.log10(1.0 + stiffness / STIFFNESS_UNIT)


def stiffness_of(steps: Tensor) -> Tensor:
    """Returns the stiffness, float64, that the parameters say in steps."""
    within = torch.clamp(steps, 0.0, stiffness_steps(LARGEST)).double()
    return STIFFNESS_UNIT * (torch.exp2(within * (math.log2(10.0) / STIFFNESS_STEPS)) - 1.0)


@dataclass
class NoteParameters:
    """The parts of the vector, in its order and units, behind any leading axes; arrays or tensors alike."""

    level: Tensor
    """[19, groups]: dB of a partial of each group."""
    release: Tensor
    """[12, groups]: dB above what the partials had when the key was let go."""
    noise: Tensor
    """[7, 32]: dB of the noise in each band, per bin ..."""
    noise_release: Tensor
    """[4, 32]: dB above what the noise had when the key was let go."""
    comb: Tensor
    """[2, valleys]: dB that the noise is above its bands at the partials, and between them."""
    fine: Tensor
    """[256]: dB that the noise is above bands and comb, in finer bands."""
    offset: Tensor
    """[64]: how far each partial lies from where the stiffness says, cents / 20 x its number."""
    onset: Tensor
    """[12]: dB of all partials in the first moments."""
    burst: Tensor
    """[7, 16]: dB of the noise that a note begins with."""
    stiffness: Tensor
    """[1]: how far apart the partials lie, in steps of a logarithm: see `stiffness_of`."""
    depth: Tensor
    """[2, moving groups]: how much the partials of each group move, dB above 1 dB of their levels and above 1
    Hz of their frequencies: see `movement.movement_depth`."""

    @classmethod
    def unpack(cls, values: Tensor) -> NoteParameters:
        """Returns the parts of vectors [..., N_VALUES]."""
        parts = torch.split(values, SIZES, dim=-1)
        named = zip(SHAPES.items(), parts, strict=True)
        return cls(**{name: part.unflatten(-1, shape) for (name, shape), part in named})

    def behind_first(self) -> NoteParameters:
        """Returns those of all frames but the first."""
        return NoteParameters(**{name: part[:, 1:] for name, part in vars(self).items()})


SHAPES: dict[str, tuple[int, ...]] = {
    "level": (len(LEVEL_SECONDS), N_GROUPS),
    "release": (len(RELEASE_SECONDS), N_GROUPS),
    "noise": (len(NOISE_SECONDS), N_NOISE_BANDS),
    "noise_release": (len(NOISE_RELEASE_SECONDS), N_NOISE_BANDS),
    "comb": (2, N_VALLEYS),
    "fine": (N_FINE_BANDS,),
    "offset": (N_OFFSETS,),
    "onset": (ONSET_GAINS,),
    "burst": (len(BURST_SECONDS), N_BURST_BANDS),
    "stiffness": (1,),
    "depth": (2, N_MOVING_GROUPS),
}
"""The parts of `NoteParameters`, in order."""
SIZES = [math.prod(shape) for shape in SHAPES.values()]
"""How many numbers each has."""
N_VALUES = sum(SIZES)
"""Length of the vector."""
