"""The phases of a note's partials beside one another: those of a pulse, or phases by chance.

What is blown, bowed or sung, and any oscillator, repeats itself from period to period: its partials are
multiples of the fundamental, locked to one another in phase (Fletcher, Mode locking in nonlinearly excited
inharmonic musical oscillators, 1978). Of low notes the ear hears that as a buzz, which phases by chance blur.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

FREE, SCATTERED, ALIGNED = range(3)
"""Partials anywhere, in phases by chance; multiples, in phases near those of a pulse; in its very phases."""
N_ALIGNMENTS = 3
SCATTER_CYCLES = (0.5, 0.2, 0.0)
"""How far either way phases lie from those of a pulse."""
LEAST_COHERENCE = (0.7, 0.9)
"""From these on phases are scattered, and aligned."""
PULSE_CYCLES = 0.25
"""What a pulse's partials begin at beside their share of its delay: a falling flank, as a sawtooth's."""

N_MEASURED = 64
"""Partials whose phases are looked at."""
N_WINDOWS = 6
BEGIN_SECONDS, END_SECONDS = 0.05, 2.0
"""So many windows lie evenly between these, while the key is held."""
WINDOW_PERIODS, SHORTEST_WINDOW = 4.0, 0.02
"""Length of a window, in periods, and in seconds at least."""
FEWEST_PARTIALS = 7.0
"""A pulse of fewer is none: what they are to one another is hardly heard, and any few can be aligned."""
SHIFTS = 2048
"""Delays tried, as shares of a period."""
EMPHASIS = 0.5
"""Partials count by their amplitude times this power of their number."""
N_STRONGEST = 4
"""None counts for more than the one that is as strong as only so many are."""


def measure_coherence(
    audio: NDArray[np.float32], hertz: NDArray[np.floating], sample_rate: int, held_seconds: float
) -> float:
    """Returns how far a note's partials have the phases of a pulse, 0 to 1: the median over its held part.

    Of audio float32 [S] from its onset on, whose fundamental at each sample is `hertz` [S]. 0 where there are
    too few partials, too little of the note or nothing is heard.
    """
    end = max(min(held_seconds, END_SECONDS, len(audio) / sample_rate) - 0.02, 0.0)
    begin = min(BEGIN_SECONDS, end / 2)
    phase = np.concatenate([[0.0], np.cumsum(hertz)[:-1]]) / sample_rate
    found = []
    for seconds in np.linspace(begin, end, N_WINDOWS):
        middle = min(round(seconds * sample_rate), len(audio) - 1)
        half = round(max(SHORTEST_WINDOW, WINDOW_PERIODS / hertz[middle]) * sample_rate / 2)
        part = slice(max(0, middle - half), middle + half)
        if len(audio[part]) < half:
            return 0.0
        n = max(1, min(N_MEASURED, int(0.45 * sample_rate / hertz[middle])))
        window = np.hanning(2 * half + 1)[: 2 * half][part.start - middle + half :][: len(phase[part])]
        found.append(_coherence(audio[part] * window, phase[part] - phase[middle], n))
    return float(np.median(found))


def _coherence(audio: NDArray[np.floating], phase: NDArray[np.float64], n_partials: int) -> float:
    """Returns the coherence of partials 1 to N in windowed audio [W], of a fundamental of phases [W]."""
    turn = np.exp(-2j * np.pi * phase)
    amplitude = np.empty(n_partials, dtype=np.complex128)
    rotation = audio * turn
    for number in range(n_partials):
        amplitude[number] = rotation.sum()
        rotation = rotation * turn
    weight = np.abs(amplitude) * np.arange(1, n_partials + 1) ** EMPHASIS
    weight = np.minimum(weight, np.sort(weight)[-N_STRONGEST:][0])
    total = weight.sum()
    if total**2 <= FEWEST_PARTIALS * np.square(weight).sum():
        return 0.0
    pulse = np.zeros(n_partials + 1, dtype=np.complex128)
    pulse[1:] = weight * np.exp(1j * np.angle(amplitude))
    return float(np.abs(np.fft.fft(pulse, SHIFTS)).max() / total)


def alignment_of(coherence: float) -> int:
    """Returns which alignment a note of this coherence has."""
    return FREE + sum(coherence >= least for least in LEAST_COHERENCE)


def phases_beside(alignment: Tensor, drawn: Tensor) -> Tensor:
    """Returns cycles [B, T, N], -0.5 to 0.5, of alignments int64 [B, T]: by how much the phases of partials
    that began by chance lie beside those of the alignment; 0 of free ones. `drawn` [B, 1 + N], 0 to 1, are
    the pulse's delay, in periods, and the phases by chance."""
    delay, phase = drawn[:, :1], drawn[:, None, 1:]
    number = torch.arange(1, drawn.shape[1], device=drawn.device)
    scatter = torch.tensor(SCATTER_CYCLES, device=drawn.device)[alignment][..., None]  # [B, T, 1]
    pulse = (number * delay + PULSE_CYCLES)[:, None]
    away = pulse + scatter * (2 * phase - 1) - phase
    return torch.where(alignment[..., None] == FREE, torch.zeros_like(away), away - torch.round(away))
