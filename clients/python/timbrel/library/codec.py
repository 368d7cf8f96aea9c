"""From codes to sound for a library: one thread a note, so that no file depends on the cores there are."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cache

import numpy as np
import numpy.typing as npt

from timbrel.client import Client
from timbrel.decoder import EXTRA
from timbrel.errors import BundleMismatchError, MissingExtraError
from timbrel.files import cache_folder
from timbrel.library.level import Audio
from timbrel_bundle.bundle import Bundle
from timbrel_bundle.codec import CodecDecoder
from timbrel_bundle.errors import BundleError

Decode = Callable[[npt.NDArray[np.uint16]], Audio]
"""codes [frames, codebooks] -> audio [samples] at the codec's rate"""

KEPT_BYTES = 256 * 2**20
"""Some 600 notes of two seconds at 48 kHz."""


def decoder_of(client: Client) -> Decode:
    """The codec of the client's bundle, loaded with the first note; threads may share it.

    It raises MissingExtraError where no ONNX runtime is installed, and BundleMismatchError where the codec's
    files were altered since they were fetched.
    """
    client.prepare()
    folder = cache_folder() / "bundles" / client.model().bundle_hash
    lock = threading.Lock()

    @cache
    def load() -> CodecDecoder:
        try:
            return CodecDecoder(Bundle.open(folder), n_threads=1)
        except ImportError as error:
            raise MissingExtraError("decoding a note into sound", EXTRA) from error
        except BundleError as error:
            raise BundleMismatchError(str(error)) from error

    def decode(codes: npt.NDArray[np.uint16]) -> Audio:
        if len(codes) == 0:
            return np.zeros(0, dtype=np.float32)
        with lock:
            decoder = load()
        return decoder.decode(codes)

    return decode


class SoundShelf:
    """Sounds between the moment they are measured and the moment they are finished: not decoded twice.

    As many as there is room for; the others are decoded again. Safe to use from several threads.
    """

    def __init__(self, n_bytes: int = KEPT_BYTES) -> None:
        self._room = n_bytes
        self._lock = threading.Lock()
        self._sounds: dict[str, Audio] = {}

    def put(self, key: str, audio: Audio) -> None:
        with self._lock:
            if key not in self._sounds and audio.nbytes <= self._room:
                self._sounds[key] = audio
                self._room -= audio.nbytes

    def take(self, key: str) -> Audio | None:
        """The sound, which is on the shelf no longer; None where it is not."""
        with self._lock:
            audio = self._sounds.pop(key, None)
            if audio is not None:
                self._room += audio.nbytes
            return audio
