"""The codec of a bundle: codes to audio, whole or as a stream, and audio to codes. All on the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

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
State: TypeAlias = dict[str, npt.NDArray[Any]]

TENSOR_TYPES = {"float32": "tensor(float)", "float64": "tensor(double)", "int64": "tensor(int64)"}
"""onnxruntime's names of the dtypes that a state may have."""

PITCH_UNKNOWN = 0.0
"""Stands for a pitch that is not known, in the input of the encoder's graph."""


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
        self._check_output_types()

    @property
    def sample_rate(self) -> int:
        """Samples per second of the audio it gives."""
        return self.spec.sample_rate

    def decode(self, codes: npt.NDArray[np.integer[Any]]) -> Audio:
        """Audio float32 [T * hop_length] of a whole note's codes [T, K].

        Raises:
            ValueError: the codes have another shape or type, or one is out of range.
            BundleError: the graph fails.
        """
        # In one run: one more, for the end alone, would take a fifth of the time.
        (audio,) = decode_together([CodecChunk(self.stream(), codes, last=True)])
        return audio

    def stream(self) -> CodecStream:
        """A stream for one note, to be fed frames as they come."""
        return CodecStream(self)

    def initial_state(self) -> State:
        """The graph's state at the start of a note: zeros, by input name, each [1, ...]."""
        return {
            state.name: np.zeros((1, *state.shape), dtype=np.dtype(state.dtype))
            for state in self.spec.decoder_state
        }

    def run(self, codes: npt.NDArray[np.integer[Any]], state: State) -> tuple[Audio, State]:
        """Runs the graph on codes [B, t, K] of B notes, t >= 1, whose states are stacked: lagging audio
        [B, t * hop_length], and the states after.

        Raises:
            BundleError: the graph fails, or gives other shapes.
        """
        feeds = {"codes": codes.astype(np.int64), **state}
        try:
            audio, *after = self._session.run(self._outputs, feeds)
        except Exception as error:  # onnxruntime's exceptions share no base class of their own
            raise BundleError(self._path, f"onnxruntime cannot run it ({error})") from None
        n_notes, n_frames, _ = codes.shape
        if audio.shape != (n_notes, n_frames * self.spec.hop_length):
            raise BundleError(
                self._path, f"gives audio of shape {list(audio.shape)} for {n_notes} x {n_frames} frames"
            )
        states = dict(zip(state, after, strict=True))
        for name, before in state.items():
            if states[name].shape != before.shape:
                raise BundleError(
                    self._path, f"gives the state {name!r} the shape {list(states[name].shape)}"
                )
        return audio, states

    def _check_state_inputs(self) -> None:
        inputs = {given.name: given for given in self._session.get_inputs()}
        for state in self.spec.decoder_state:
            given = inputs[state.name]
            shape = list(given.shape[1:])  # behind the batch axis
            if shape != list(state.shape) or given.type != TENSOR_TYPES[state.dtype]:
                wanted = f"{list(state.shape)} of {TENSOR_TYPES[state.dtype]}"
                fault = f"has the state {state.name!r} as {shape} of {given.type}, the manifest says {wanted}"
                raise BundleError(self._path, fault)

    def _check_output_types(self) -> None:
        types = {given.name: given.type for given in self._session.get_outputs()}
        dtypes = ["float32", *(state.dtype for state in self.spec.decoder_state)]
        for name, dtype in zip(self._outputs, dtypes, strict=True):
            if types[name] != TENSOR_TYPES[dtype]:
                raise BundleError(
                    self._path, f"has the output {name!r} as {types[name]}, not {TENSOR_TYPES[dtype]}"
                )


class CodecStream:
    """One note on its way from codes to audio.

    All that `push` and `finish` return, joined, is what `CodecDecoder.decode` gives, but for rounding: the
    graph's lag is taken off the start, and made up for at the end with frames of silence.
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
        return decode_together([CodecChunk(self, codes)])[0]

    def finish(self) -> Audio:
        """Ends the note and returns the rest of its audio: float32, any length from 0."""
        if self._finished:
            return np.zeros(0, dtype=np.float32)
        nothing = np.zeros((0, self._decoder.spec.n_codebooks), dtype=np.uint16)
        return decode_together([CodecChunk(self, nothing, last=True)])[0]

    def _begin(self, codes: npt.NDArray[np.integer[Any]], last: bool) -> Codes:
        """The frames [t, K] to run for these: behind the last, silence that flushes the graph."""
        if self._finished:
            raise ValueError("the stream is finished: start another for the next note")
        spec = self._decoder.spec
        frames = checked_codes(codes, spec)
        self._n_owed += len(frames) * spec.hop_length
        self._finished = last
        if not last or self._n_owed == 0:
            return frames
        n_flush = -(-spec.delay_samples // spec.hop_length)
        silence = np.tile(np.array(spec.silence, dtype=np.uint16), (n_flush, 1))
        return np.concatenate([frames, silence])

    def _end(self, audio: Audio, state: State) -> Audio:
        """Takes the lagging audio [t * hop_length] of a run and returns the part of it that is ready."""
        self._state = state
        n_dropped = min(self._n_to_drop, len(audio))
        self._n_to_drop -= n_dropped
        ready = audio[n_dropped:][: self._n_owed]
        self._n_owed -= len(ready)
        return ready


class CodecChunk(NamedTuple):
    """The next frames of a stream."""

    stream: CodecStream
    codes: npt.NDArray[np.integer[Any]]
    """[t, K], t >= 0."""
    last: bool = False
    """The note ends with them: `push` and `finish` in one."""


def decode_together(chunks: Sequence[CodecChunk]) -> list[Audio]:
    """Decodes chunks of several streams of one decoder, in one run for all that have equal numbers of frames.

    Returns for each chunk what audio is ready: float32, any length from 0.

    Raises:
        ValueError: a stream comes twice, and as `CodecStream.push`; nothing is decoded then.
    """
    if len({id(chunk.stream) for chunk in chunks}) < len(chunks):
        raise ValueError("a stream comes twice: its chunks have to be decoded one after the other")
    frames = [chunk.stream._begin(chunk.codes, chunk.last) for chunk in chunks]
    audio: list[Audio] = [np.zeros(0, dtype=np.float32) for _ in chunks]
    for n_frames in sorted({len(each) for each in frames} - {0}):
        group = [index for index, each in enumerate(frames) if len(each) == n_frames]
        streams = [chunks[index].stream for index in group]
        ready = _run_together(streams, np.stack([frames[index] for index in group]))
        for index, samples in zip(group, ready, strict=True):
            audio[index] = samples
    return audio


def _run_together(streams: Sequence[CodecStream], codes: Codes) -> list[Audio]:
    """One run for codes [B, t, K] of B streams."""
    names = streams[0]._state
    stacked = {name: np.concatenate([stream._state[name] for stream in streams]) for name in names}
    audio, after = streams[0]._decoder.run(codes, stacked)
    # Copies, so that a stream does not keep what belongs to the others alive.
    states = [{name: rows[[row]] for name, rows in after.items()} for row in range(len(streams))]
    return [stream._end(*each) for stream, *each in zip(streams, audio, states, strict=True)]


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
