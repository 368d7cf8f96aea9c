"""The codec's decoder on one chunk in the middle of notes: our graph, and the same in PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from benchmarks.harness.timing import Work

from timbrel_bundle.bundle import Bundle
from timbrel_bundle.codec import CodecDecoder
from timbrel_bundle.layout import CODEC_WEIGHTS

MAX_DIFFERENCE = 1e-3
"""Of a sample, between the two: more, and they are not the same decoder."""


class CodecStep:
    """The bundle's decoder, for any number of notes at once."""

    def __init__(self, bundle: Bundle, n_threads: int) -> None:
        self._decoder = CodecDecoder(bundle, n_threads)

    def decode(self, codes: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        """Lagging audio [B, T * hop_length] of the first frames [B, T, K] of B notes."""
        audio, _ = self._decoder.run(codes, self._start(len(codes)))
        return audio

    def bind(self, codes: npt.NDArray[np.int64]) -> Work:
        """Decodes this chunk [B, T, K] again and again, as if it came after itself."""
        _, state = self._decoder.run(codes, self._start(len(codes)))
        return lambda: self._decoder.run(codes, state)

    def _start(self, n_notes: int) -> dict[str, npt.NDArray[Any]]:
        return {name: np.repeat(one, n_notes, axis=0) for name, one in self._decoder.initial_state().items()}


class TorchCodecStep:
    """The same chunk through the PyTorch module."""

    def __init__(self, codec: Any, codes: npt.NDArray[np.int64]) -> None:
        import torch

        self._torch, self._codec = torch, codec
        self._codes = torch.from_numpy(codes)
        with torch.inference_mode():
            start = codec.initial_state(len(codes))
            self.first, self._state = codec.decode_chunk(self._codes, start)

    def run(self) -> None:
        """Once."""
        with self._torch.inference_mode():
            self._codec.decode_chunk(self._codes, self._state)


def open_torch_codec(bundle: Bundle, n_threads: int) -> Any:
    """The bundle's codec as a PyTorch module; None where torch is missing, or the codec is of a shape that
    only its training knows.

    Raises:
        SystemExit: the module decodes to other audio than the bundle's graph.
    """
    try:
        import torch
        from safetensors.torch import load_file

        from timbrel_training.codec.timbrel_notes import TimbrelNotes, TimbrelNotesConfig
    except ModuleNotFoundError:
        return None
    torch.set_num_threads(n_threads)
    spec = bundle.manifest.codec
    codec = TimbrelNotes(
        TimbrelNotesConfig(
            sample_rate=spec.sample_rate,
            hop_length=spec.hop_length,
            n_codebooks=spec.n_codebooks,
            codebook_size=spec.codebook_size,
        )
    ).eval()
    weights = {name: tensor.float() for name, tensor in load_file(bundle.file(CODEC_WEIGHTS)).items()}
    try:
        codec.load_state_dict(weights, strict=False)
    except RuntimeError:  # weights of other shapes
        return None
    codes = np.random.default_rng(0).integers(0, spec.codebook_size, (2, 4, spec.n_codebooks))
    theirs = TorchCodecStep(codec, codes).first.numpy()
    if (worst := float(np.abs(theirs - CodecStep(bundle, n_threads).decode(codes)).max())) > MAX_DIFFERENCE:
        raise SystemExit(f"the codec in PyTorch decodes to other audio: samples differ by up to {worst:.3g}")
    return codec
