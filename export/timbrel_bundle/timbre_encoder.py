"""The timbre encoder of a bundle: a recording to its point on the timbre map. All on the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from timbrel_bundle.bundle import Bundle
from timbrel_bundle.codec import CodecEncoder, Codes
from timbrel_bundle.layout import TIMBRE_ENCODER
from timbrel_bundle.recording import longest_seconds, prepare_recording
from timbrel_bundle.runtime import session_options


class TimbreEncoder:
    """Says where on the timbre map a recording lies. Safe to share between threads."""

    def __init__(self, bundle: Bundle, n_threads: int = 0) -> None:
        """Loads the graphs of the codec's encoder and of the timbre encoder.

        Args:
            n_threads: threads within an operator; 0 lets onnxruntime take one per core.

        Raises:
            BundleError: a graph or its weights are missing, damaged or do not fit the manifest.
            RuntimeMissingError: onnxruntime is not installed.
        """
        self._codec = CodecEncoder(bundle, n_threads)
        self._max_seconds = longest_seconds(bundle.manifest)
        self._session = bundle.session(
            TIMBRE_ENCODER,
            options=session_options(n_threads),
            inputs=["codes", "n_frames"],
            outputs=["timbre"],
        )

    def locate(
        self, audio: npt.NDArray[Any], sample_rate: int, pitch: float | None = None
    ) -> tuple[float, float]:
        """The point (x, y) in the unit disc of a recording of one note.

        Args:
            audio: [samples] or [samples, channels], at any level, with or without silence before and after.
            sample_rate: its samples per second.
            pitch: MIDI note number, fractions allowed, where it is known: a hint.

        Raises:
            AudioError: of another shape, not finite, silent or too short (see `prepare_recording`).
            ValueError: the pitch is not a number above 0 and up to 127.
        """
        codes = self.hear(audio, sample_rate, pitch)
        feeds = {"codes": codes.astype(np.int64)[None], "n_frames": np.array([len(codes)], dtype=np.int64)}
        (timbre,) = self._session.run(["timbre"], feeds)
        x, y = (float(value) for value in timbre[0])
        return x, y

    def hear(self, audio: npt.NDArray[Any], sample_rate: int, pitch: float | None = None) -> Codes:
        """What `locate` goes by: codes uint16 [T, K] of the sound alone; arguments and errors are its own."""
        spec = self._codec.spec
        sound = prepare_recording(audio, sample_rate, spec, self._max_seconds)
        return self._codec.encode(sound, spec.sample_rate, pitch)
