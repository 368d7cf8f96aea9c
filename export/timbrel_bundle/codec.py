"""The codec of a bundle: codes to audio, whole or as a stream, and audio to codes. All on the CPU."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from timbrel_bundle.audio import checked_mono, resample
from timbrel_bundle.bundle import Bundle
from timbrel_bundle.errors import BundleError
from timbrel_bundle.layout import CODEC_DECODER, CODEC_ENCODER, state_output
from timbrel_bundle.runtime import session_options
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb

Audio: TypeAlias = npt.NDArray[np.float32]
Codes: TypeAlias = npt.NDArray[np.uint16]

TENSOR_TYPES = {"float32": "tensor(float)", "float64": "tensor(double)", "int64": "tensor(int64)"}
"""onnxruntime's names of the dtypes that a state may have."""

PITCH_UNKNOWN = 0.0
"""What the encoder's graph takes where the note's pitch is not known."""


class CodecDecoder:
    """Turns codes into audio. Safe to share between threads; a stream belongs to one."""

    def __init__(self, bundle: Bundle, n_threads: int = 0) -> None:
        """Loads the decoder's graph.

        Args:
            n_threads: threads within an operator; 0 lets onnxruntime take one per core.

        Raises:
            BundleError: the graph or its weights are missing, damaged or do not fit the manifest.
            RuntimeMissingError: onnxruntime is not installed.
        """
        self.spec: pb.CodecSpec = bundle.manifest.codec
        names = [state.name for state in self.spec.decoder_state]
        self._outputs = ["audio", *map(state_output, names)]
        self._session = bundle.session(
            CODEC_DECODER, options=session_options(n_threads), inputs=["codes", *names], outputs=self._outputs
        )
        self._path = bundle.path / CODEC_DECODER
        self._check_state_inputs()

    @property
    def sample_rate(self) -> int:
        """Samples per second of the audio it gives."""
        return self.spec.sample_rate

    def decode(self, codes: npt.NDArray[np.integer[Any]]) -> Audio:
        """Audio float32 [T * hop_length] of a whole note's codes [T, K].

        Raises:
            ValueError: the codes have another shape or type, or one is out of range.
        """
        stream = self.stream()
        return np.concatenate([stream.push(codes), stream.finish()])

    def stream(self) -> CodecStream:
        """A stream for one note, to be fed frames as they come."""
        return CodecStream(self)

    def initial_state(self) -> dict[str, npt.NDArray[Any]]:
        """The graph's state at the start of a note: zeros, by input name."""
        return {
            state.name: np.zeros((1, *state.shape), dtype=np.dtype(state.dtype))
            for state in self.spec.decoder_state
        }

    def run(
        self, codes: npt.NDArray[np.integer[Any]], state: dict[str, npt.NDArray[Any]]
    ) -> tuple[Audio, dict[str, npt.NDArray[Any]]]:
        """Runs the graph on codes [t, K], t >= 1: lagging audio [t * hop_length], and the state after."""
        feeds = {"codes": codes.astype(np.int64)[None], **state}
        audio, *after = self._session.run(self._outputs, feeds)
        if audio.shape != (1, len(codes) * self.spec.hop_length):
            raise BundleError(self._path, f"gives audio of shape {list(audio.shape)} for {len(codes)} frames")
        return audio[0], dict(zip(state, after, strict=True))

    def _check_state_inputs(self) -> None:
        inputs = {given.name: given for given in self._session.get_inputs()}
        for state in self.spec.decoder_state:
            given = inputs[state.name]
            shape = list(given.shape[1:])  # behind the batch axis
            if shape != list(state.shape) or given.type != TENSOR_TYPES[state.dtype]:
                wanted = f"{list(state.shape)} of {TENSOR_TYPES[state.dtype]}"
                fault = f"has the state {state.name!r} as {shape} of {given.type}, the manifest says {wanted}"
                raise BundleError(self._path, fault)


class CodecStream:
    """One note on its way from codes to audio.

    All that `push` and `finish` return, joined, is what `CodecDecoder.decode` gives: the graph's lag is
    taken off the start, and made up for at the end with frames of silence.
    """

    def __init__(self, decoder: CodecDecoder) -> None:
        """Use `CodecDecoder.stream`."""
        self._decoder = decoder
        self._state = decoder.initial_state()
        self._n_to_drop = decoder.spec.delay_samples  # of the lag, still to come
        self._n_owed = 0  # samples of the frames pushed that have not been returned
        self._finished = False

    def push(self, codes: npt.NDArray[np.integer[Any]]) -> Audio:
        """Takes the next frames [t, K], t >= 0, and returns what audio is ready: float32, any length from 0.

        Raises:
            ValueError: the stream is finished, the codes have another shape or type, or one is out of range.
        """
        if self._finished:
            raise ValueError("the stream is finished: start another for the next note")
        frames = checked_codes(codes, self._decoder.spec)
        self._n_owed += len(frames) * self._decoder.spec.hop_length
        return self._decode(frames)

    def finish(self) -> Audio:
        """Ends the note and returns the rest of its audio: float32, any length from 0."""
        spec = self._decoder.spec
        self._finished = True
        n_flush = -(-spec.delay_samples // spec.hop_length) if self._n_owed else 0
        return self._decode(np.tile(np.array(spec.silence, dtype=np.uint16), (n_flush, 1)))

    def _decode(self, frames: Codes) -> Audio:
        if len(frames) == 0:
            return np.zeros(0, dtype=np.float32)
        audio, self._state = self._decoder.run(frames, self._state)
        n_dropped = min(self._n_to_drop, len(audio))
        self._n_to_drop -= n_dropped
        ready = audio[n_dropped:][: self._n_owed]
        self._n_owed -= len(ready)
        return ready


class CodecEncoder:
    """Turns audio into codes. Safe to share between threads."""

    def __init__(self, bundle: Bundle, n_threads: int = 0) -> None:
        """Loads the encoder's graph; arguments and errors are those of `CodecDecoder`."""
        self.spec: pb.CodecSpec = bundle.manifest.codec
        self._session = bundle.session(
            CODEC_ENCODER, options=session_options(n_threads), inputs=["audio", "pitch"], outputs=["codes"]
        )

    def encode(
        self, audio: npt.NDArray[np.floating[Any]], sample_rate: int, pitch: float | None = None
    ) -> Codes:
        """Codes uint16 [T, K] of one note, resampled to the codec's rate.

        Args:
            audio: [S], mono.
            sample_rate: its samples per second.
            pitch: MIDI note number, fractions allowed, where it is known: a hint.

        Raises:
            AudioError: the audio is empty, not mono or not finite.
            ValueError: the pitch is not a number of 0..127.
        """
        if pitch is not None and not 0 < pitch <= 127:
            raise ValueError(f"pitch {pitch} is not a MIDI note number above 0 and up to 127")
        samples = resample(checked_mono(audio), sample_rate, self.spec.sample_rate)
        hint = PITCH_UNKNOWN if pitch is None else pitch
        feeds = {"audio": samples[None], "pitch": np.array([hint], dtype=np.float32)}
        (codes,) = self._session.run(["codes"], feeds)
        return np.asarray(codes[0], dtype=np.uint16)


def checked_codes(codes: npt.NDArray[np.integer[Any]], spec: pb.CodecSpec) -> Codes:
    """The codes as uint16 [T, K]. Raises ValueError unless they are integers of that shape, in range."""
    codes = np.asarray(codes)
    if not np.issubdtype(codes.dtype, np.integer):
        raise ValueError(f"codes of type {codes.dtype}: whole numbers are needed")
    if codes.ndim != 2 or codes.shape[1] != spec.n_codebooks:
        raise ValueError(f"codes of shape {list(codes.shape)}: [frames, {spec.n_codebooks}] is needed")
    if codes.size and not 0 <= codes.min() <= codes.max() < spec.codebook_size:
        raise ValueError(
            f"codes from {codes.min()} to {codes.max()}: 0 to {spec.codebook_size - 1} are allowed"
        )
    return codes.astype(np.uint16)
