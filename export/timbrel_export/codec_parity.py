"""Whether the codec's and the timbre encoder's graphs compute what the PyTorch modules do."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnxruntime as ort
import torch
from numpy.typing import NDArray
from torch import nn

from timbrel_bundle.bundle import Bundle
from timbrel_bundle.codec import CodecDecoder
from timbrel_bundle.layout import CODEC_DECODER, CODEC_ENCODER, TIMBRE_ENCODER
from timbrel_export.errors import ParityError
from timbrel_training.codec.interface import Codec

MAX_AUDIO_DIFFERENCE = 1e-3
"""Largest difference of a decoded sample: -60 dB of full scale."""
MAX_TIMBRE_DIFFERENCE = 1e-3
"""Largest difference of a point on the timbre map."""
MIN_EQUAL_CODES = 0.95
"""Share of codes that must be equal: a residual quantizer passes a flip on to all later codebooks."""
CHUNK_FRAMES = 5
"""Frames decoded at a time: the state must carry over."""


@torch.no_grad()
def compare_codec_decoder(codec: Codec, bundle: Bundle, notes: Sequence[NDArray[np.uint16]]) -> float:
    """Largest difference of any sample between a client's decoder, fed in chunks, and the codec.

    Args:
        codec: the PyTorch codec.
        bundle: holds its graph.
        notes: codes [T, K] of each note.

    Raises:
        ParityError: the difference exceeds MAX_AUDIO_DIFFERENCE.
    """
    decoder = CodecDecoder(bundle)
    worst = 0.0
    for codes in notes:
        expected = codec.decode(torch.from_numpy(codes.astype(np.int64))[None])[0].numpy()
        stream = decoder.stream()
        chunks = [stream.push(codes[at : at + CHUNK_FRAMES]) for at in range(0, len(codes), CHUNK_FRAMES)]
        found = np.concatenate([*chunks, stream.finish()])
        if found.shape != expected.shape:
            raise ParityError(f"{CODEC_DECODER}: {len(found)} samples, the codec gives {len(expected)}")
        worst = max(worst, float(np.abs(found - expected).max()))
    if not worst <= MAX_AUDIO_DIFFERENCE:
        raise ParityError(
            f"{CODEC_DECODER}: samples differ by up to {worst:.3g}, allowed are {MAX_AUDIO_DIFFERENCE:g}"
        )
    return worst


@torch.no_grad()
def compare_codec_encoder(
    codec: Codec, session: ort.InferenceSession, notes: Sequence[NDArray[np.uint16]]
) -> float:
    """Share of equal codes when what the notes decode to is encoded by graph and codec, without a pitch hint.

    Raises:
        ParityError: it is below MIN_EQUAL_CODES.
    """
    n_equal = n_codes = 0
    for codes in notes:
        audio = codec.decode(torch.from_numpy(codes.astype(np.int64))[None])
        expected = codec.encode(audio, torch.zeros(1)).numpy()
        (found,) = session.run(["codes"], {"audio": audio.numpy(), "pitch": np.zeros(1, dtype=np.float32)})
        n_equal += int((found == expected).sum())
        n_codes += expected.size
    if n_equal < MIN_EQUAL_CODES * n_codes:
        raise ParityError(f"{CODEC_ENCODER}: only {n_equal} of {n_codes} codes are the codec's")
    return n_equal / n_codes


@torch.no_grad()
def compare_timbre_encoder(
    codec: Codec, encoder: nn.Module, session: ort.InferenceSession, notes: Sequence[NDArray[np.uint16]]
) -> float:
    """Largest difference of any point, all notes in one batch, padded.

    Raises:
        ParityError: it exceeds MAX_TIMBRE_DIFFERENCE.
    """
    n_frames = np.array([len(codes) for codes in notes])
    padded = np.zeros((len(notes), n_frames.max(), notes[0].shape[1]), dtype=np.int64)
    for row, codes in enumerate(notes):
        padded[row, : len(codes)] = codes
    expected = encoder(codec.latents(torch.from_numpy(padded)), torch.from_numpy(n_frames)).numpy()
    (found,) = session.run(["timbre"], {"codes": padded, "n_frames": n_frames})
    worst = float(np.abs(found - expected).max())
    if not worst <= MAX_TIMBRE_DIFFERENCE:
        raise ParityError(
            f"{TIMBRE_ENCODER}: points differ by up to {worst:.3g}, allowed are {MAX_TIMBRE_DIFFERENCE:g}"
        )
    return worst
