"""From codes to sound for a library: one thread a note, so that no file depends on the cores there are."""

from __future__ import annotations

import threading
from collections.abc import Callable

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


class LibraryCodec:
    """The codec of a client's bundle, loaded once, by whoever needs it first. Threads may share it."""

    def __init__(self, client: Client) -> None:
        client.prepare()
        self._folder = cache_folder() / "bundles" / client.model().bundle_hash
        self._lock = threading.Lock()
        self._decoder: CodecDecoder | None = None

    def __call__(self, codes: npt.NDArray[np.uint16]) -> Audio:
        """codes [frames, codebooks] -> audio [samples] at the codec's rate; errors are those of `load`."""
        return self.load().decode(codes)

    def load(self) -> CodecDecoder:
        """
        Raises:
            MissingExtraError: no ONNX runtime is installed.
            BundleMismatchError: the codec's files were altered since they were fetched.
        """
        with self._lock:
            if self._decoder is None:
                try:
                    self._decoder = CodecDecoder(Bundle.open(self._folder), n_threads=1)
                except ImportError as error:
                    raise MissingExtraError("decoding a note into sound", EXTRA) from error
                except BundleError as error:
                    raise BundleMismatchError(str(error)) from error
            return self._decoder
