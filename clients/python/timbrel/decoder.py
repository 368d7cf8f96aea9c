"""From codes to sound, with the codec that the bundle brings."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from timbrel.core.faults import codec_faults
from timbrel.core.request import check_bend
from timbrel.errors import MissingExtraError, TimbrelError
from timbrel_bundle.bundle import Bundle
from timbrel_bundle.codec import CodecDecoder, CodecStream, PerFrame
from timbrel_bundle.errors import RuntimeMissingError
from timbrel_bundle.layout import CODEC_DECODER, CODEC_WEIGHTS
from timbrel_bundle.request_fields import Cents

CODEC_FILES = (CODEC_DECODER, CODEC_WEIGHTS)
"""The files of a bundle that decoding needs."""

EXTRA = "cpu"
"""Brings an ONNX runtime; so does `gpu`, for those who know that they want it."""


class Decoder:
    """Decodes notes with the codec of a bundle folder. Threads may share one.

    The codec is loaded with the first note, so that codes can be had where no ONNX runtime is installed.
    Pickled with its notes it is the folder alone, and one decoder for all that come from there. Decoders of
    one folder are equal.
    """

    def __init__(self, folder: Path, n_threads: int = 0) -> None:
        """`n_threads` decode a note; 0 lets onnxruntime take one per core."""
        self._folder = folder
        self._n_threads = n_threads
        self._lock = threading.Lock()
        self._codec: CodecDecoder | None = None

    def __call__(
        self, codes: npt.NDArray[np.uint16], seed: int = 0, cents: Cents = 0.0, level_db: PerFrame = 0.0
    ) -> npt.NDArray[np.float32]:
        """codes [frames, codebooks] -> audio [samples]; the other arguments are those of `Client.decode`.
        Raises InvalidRequestError: the bend is out of range, or the codec does not bend; MissingExtraError:
        no ONNX runtime is installed; TimbrelError: it cannot be loaded; BundleMismatchError: the codec's
        files were altered since they were fetched, or make no codec."""
        if len(codes) == 0:
            return np.zeros(0, dtype=np.float32)
        codec = self.load()
        cents = check_bend(cents, codec.spec)
        with codec_faults():
            return codec.decode(codes, seed, cents, level_db)

    def __reduce__(self) -> tuple[Callable[[Path, int], Decoder], tuple[Path, int]]:
        return _shared, (self._folder, self._n_threads)

    def __eq__(self, other: object) -> bool:
        return self._folder == other._folder if isinstance(other, Decoder) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._folder)

    def __deepcopy__(self, memo: object) -> Decoder:
        return self

    def stream(self, seed: int = 0, cents: Cents = 0.0) -> CodecStream:
        """A stream for one note, to be fed codes as they come; errors are those of a call."""
        return self.load().stream(seed, cents)

    def load(self) -> CodecDecoder:
        """Loads the codec unless it is loaded; errors are those of a call."""
        with self._lock:
            if self._codec is None:
                try:
                    with codec_faults():
                        self._codec = CodecDecoder(Bundle.open(self._folder), self._n_threads)
                except (ModuleNotFoundError, RuntimeMissingError) as error:
                    raise MissingExtraError("decoding a note into sound", EXTRA) from error
                except ImportError as error:
                    raise TimbrelError(f"the ONNX runtime cannot be loaded: {error}") from error
            return self._codec


@lru_cache(maxsize=4)
def _shared(folder: Path, n_threads: int) -> Decoder:
    """The decoder of notes of other processes; each loading the codec anew would cost more than its sound."""
    return Decoder(folder, n_threads)
