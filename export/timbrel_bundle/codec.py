"""The codec of a bundle: codes to audio, whole or as a stream, on the CPU."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from timbrel_bundle.bundle import Bundle
from timbrel_bundle.errors import BundleError
from timbrel_bundle.layout import CODEC_DECODER, state_output
from timbrel_bundle.randomness import MAX_SEED
from timbrel_bundle.request_fields import NO_BENDS, Cents, is_unbent
from timbrel_bundle.runtime import session_options
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb

Audio: TypeAlias = npt.NDArray[np.float32]
Codes: TypeAlias = npt.NDArray[np.uint16]
State: TypeAlias = dict[str, npt.NDArray[Any]]

SEED, CENTS, LEVEL_DB = "seed", "cents", "level_db"
EXPRESSION_TYPES = {SEED: "tensor(int64)", CENTS: "tensor(float)", LEVEL_DB: "tensor(float)"}
"""Inputs of the decoder's graph beside the codes and the state; older bundles lack them."""

PerFrame: TypeAlias = float | npt.NDArray[np.floating[Any]]
"""One number for all frames, or one a frame [t]."""

MOST_LEVEL_DB = 120.0
"""No note is so soft that more is of use; float32 overflows at some 700."""

MOST_FRAMES = 256
"""Of a whole note, decoded in one run."""

BEGIN_SECONDS = 0.001
"""Notes whose first frames hold no sound, but say how they sound, would begin in the middle of their waves,
with a click: over so long they come in."""

TENSOR_TYPES = {"float32": "tensor(float)", "float64": "tensor(double)", "int64": "tensor(int64)"}
"""onnxruntime's names of the dtypes that a state may have."""


class CodecDecoder:
    """Turns codes into audio. Safe to share between threads; a stream belongs to one.

    A note's `seed` decides its noise and where its waves begin: the same seed gives the same sound. `cents`
    and `level_db` bend it and make it louder; a frame's value is reached at the frame's end, in a glide from
    where the frame before ended, and beyond 2400 cents a bend is held there.
    """

    def __init__(self, bundle: Bundle, n_threads: int = 0) -> None:
        """Loads the decoder's graph; `n_threads` are those within an operator, 0 one per core.

        Raises BundleError: the graph or its weights are missing, damaged or do not fit the manifest;
        RuntimeMissingError: onnxruntime is not installed.
        """
        self.spec: pb.CodecSpec = bundle.manifest.codec
        names = [state.name for state in self.spec.decoder_state]
        self._outputs = ["audio", *map(state_output, names)]
        # Decoding runs beside what writes the notes, here or in another process, which wants the cores more.
        options = session_options(n_threads, spin=False)
        self._session = bundle.session(
            CODEC_DECODER, options=options, inputs=["codes", *names], outputs=self._outputs
        )
        self._path = bundle.path / CODEC_DECODER
        given = {each.name for each in self._session.get_inputs()}
        self._expression = [name for name in EXPRESSION_TYPES if name in given]
        self._check_ports()

    @property
    def sample_rate(self) -> int:
        """Samples per second of the audio it gives."""
        return self.spec.sample_rate

    @property
    def bends(self) -> bool:
        """Whether cents do something."""
        return self.spec.bends

    def decode(
        self, codes: npt.NDArray[np.integer[Any]], seed: int = 0, cents: Cents = 0.0, level_db: PerFrame = 0.0
    ) -> Audio:
        """Audio float32 [(T - lead_frames) * hop_length] of a whole note's codes [T, K].

        The seed is 0..2^64-1; `level_db` is for all frames, or [T]. Raises ValueError: codes, cents or levels
        have another shape or type, one is out of range, or the codec knows none; BundleError: the graph
        fails.
        """
        # In one run where memory allows it: one more, for the end alone, would take a fifth of the time.
        stream, codes = self.stream(seed, cents), checked_codes(codes, self.spec)
        levels = _per_frame(level_db, len(codes), LEVEL_DB)
        pieces = []
        for first in range(0, max(1, len(codes)), MOST_FRAMES):
            behind = first + MOST_FRAMES
            chunk = CodecChunk(stream, codes[first:behind], behind >= len(codes), 0.0, levels[first:behind])
            pieces += decode_together([chunk])
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)

    def stream(self, seed: int = 0, cents: Cents = 0.0) -> CodecStream:
        """A stream for one note, to be fed frames as they come. Raises ValueError: the seed is out of range,
        or the codec does not bend, and there is a bend."""
        if not (self.bends or is_unbent(cents)):
            raise ValueError(NO_BENDS)
        return CodecStream(self, seed, cents)

    def initial_state(self) -> State:
        """The graph's state at the start of a note: zeros, by input name, each [1, ...]."""
        return {
            state.name: np.zeros((1, *state.shape), dtype=np.dtype(state.dtype))
            for state in self.spec.decoder_state
        }

    def run(
        self,
        codes: npt.NDArray[np.integer[Any]],
        state: State,
        expression: Mapping[str, npt.NDArray[Any]] | None = None,
    ) -> tuple[Audio, State]:
        """Runs the graph on codes [B, t, K] of B notes, t >= 1, whose states are stacked: lagging audio [B, t
        * hop_length], and the states after.

        `expression` is seed int64 [B], cents and level_db float32 [B, t], by name, by default zeros; what the
        graph does not take is left out. Raises BundleError: it fails, or gives other shapes or no numbers.
        """
        given = no_expression(*codes.shape[:2]) if expression is None else expression
        feeds = {"codes": codes.astype(np.int64), **state, **{name: given[name] for name in self._expression}}
        try:
            audio, *after = self._session.run(self._outputs, feeds)
        except Exception as error:  # onnxruntime's exceptions share no base class of their own
            raise BundleError(self._path, f"onnxruntime cannot run it ({error})") from None
        n_notes, n_frames, _ = codes.shape
        if audio.shape != (n_notes, n_frames * self.spec.hop_length):
            raise BundleError(
                self._path, f"gives audio of shape {list(audio.shape)} for {n_notes} x {n_frames} frames"
            )
        if not np.isfinite(audio).all():
            raise BundleError(self._path, "gives samples that are no finite numbers: its weights are damaged")
        states = dict(zip(state, after, strict=True))
        for name, before in state.items():
            if states[name].shape != before.shape:
                raise BundleError(
                    self._path, f"gives the state {name!r} the shape {list(states[name].shape)}"
                )
        return audio, states

    def check_expression(self, cents: npt.NDArray[np.float32], level_db: npt.NDArray[np.float32]) -> None:
        """Raises ValueError where these ask for what the codec cannot do."""
        if cents.any() and not self.bends:
            raise ValueError(NO_BENDS)
        if level_db.any() and LEVEL_DB not in self._expression:
            raise ValueError("this bundle's codec takes no level: leave it at 0 dB, or scale the audio")
        if level_db.max(initial=0.0) > MOST_LEVEL_DB:
            raise ValueError(f"level_db {level_db.max():g}: {MOST_LEVEL_DB:g} at most is allowed")

    def _check_ports(self) -> None:
        """Raises BundleError where the graph's inputs or outputs are not what the manifest says."""
        inputs = {given.name: given for given in self._session.get_inputs()}
        for name in self._expression:
            if (kind := inputs[name].type) != (wanted := EXPRESSION_TYPES[name]):
                raise BundleError(self._path, f"has the input {name!r} as {kind}, not {wanted}")
        if self.spec.bends and CENTS not in inputs:
            raise BundleError(self._path, "has no input 'cents', and the manifest says that it bends")
        for state in self.spec.decoder_state:
            given = inputs[state.name]
            shape = list(given.shape[1:])  # behind the batch axis
            if shape != list(state.shape) or given.type != TENSOR_TYPES[state.dtype]:
                wanted = f"{list(state.shape)} of {TENSOR_TYPES[state.dtype]}"
                fault = f"has the state {state.name!r} as {shape} of {given.type}, the manifest says {wanted}"
                raise BundleError(self._path, fault)
        types = {given.name: given.type for given in self._session.get_outputs()}
        dtypes = ["float32", *(state.dtype for state in self.spec.decoder_state)]
        for name, dtype in zip(self._outputs, dtypes, strict=True):
            if types[name] != (wanted := TENSOR_TYPES[dtype]):
                raise BundleError(self._path, f"has the output {name!r} as {types[name]}, not {wanted}")


class CodecStream:
    """One note on its way from codes to audio.

    All that `push` and `finish` return, joined, is what `CodecDecoder.decode` gives, but for rounding: the
    graph's lag, and the frames that hold no sound, are taken off the start, what follows these is faded in
    (`begin_softly`); the lag is made up for at the end with frames of silence.
    """

    def __init__(self, decoder: CodecDecoder, seed: int = 0, cents: Cents = 0.0) -> None:
        """Use `CodecDecoder.stream`."""
        spec = decoder.spec
        if not 0 <= seed <= MAX_SEED:
            raise ValueError(f"seed {seed}: 0 to {MAX_SEED} are allowed")
        self._decoder = decoder
        self._seed = np.uint64(seed).astype(np.int64)  # the same bits
        self._cents = _points(cents)
        self._n_pushed = 0  # frames
        self._state = decoder.initial_state()
        self._n_lead_samples = spec.lead_frames * spec.hop_length
        self._n_to_drop = self._n_lead_samples + spec.delay_samples  # still to come
        self._n_owed = -self._n_lead_samples  # samples of the frames pushed that have not been returned
        self._n_returned = 0  # samples
        self._expressed = np.zeros((2, 1), dtype=np.float32)  # the last frame's cents and level
        self._finished = False

    def push(
        self, codes: npt.NDArray[np.integer[Any]], cents: PerFrame = 0.0, level_db: PerFrame = 0.0
    ) -> Audio:
        """Takes the next frames [t, K], t >= 0, and returns what audio is ready: float32, any length from 0.

        Cents, [t] or for all, are on top of the stream's bend, the sum held within 2400 either way; so is
        `level_db`. Raises ValueError: the stream is finished, codes, cents or levels have another shape or
        type, one is out of range, or the codec knows none.
        """
        return decode_together([CodecChunk(self, codes, False, cents, level_db)])[0]

    def finish(self) -> Audio:
        """Ends the note and returns the rest of its audio: float32, any length from 0."""
        if self._finished:
            return np.zeros(0, dtype=np.float32)
        nothing = np.zeros((0, self._decoder.spec.n_codebooks), dtype=np.uint16)
        return decode_together([CodecChunk(self, nothing, last=True)])[0]

    def _checked(self, chunk: CodecChunk) -> _Frames:
        """The frames of a chunk, and how they are to be played."""
        if self._finished:
            raise ValueError("the stream is finished: start another for the next note")
        spec = self._decoder.spec
        codes = checked_codes(chunk.codes, spec)
        cents = _per_frame(chunk.cents, len(codes), CENTS)
        cents = cents + _cents_at(self._cents, spec, self._n_pushed, len(codes))
        expressed = np.stack([cents, _per_frame(chunk.level_db, len(codes), LEVEL_DB)])
        self._decoder.check_expression(*expressed)
        return _Frames(codes, *expressed)

    def _begin(self, frames: _Frames, last: bool) -> _Frames:
        """The frames to run for those of a chunk: behind the last, silence that flushes the graph."""
        spec, codes, expressed = self._decoder.spec, frames.codes, np.stack(frames[1:])
        self._n_pushed += len(codes)
        self._n_owed += len(codes) * spec.hop_length
        self._finished = last
        if len(codes):
            self._expressed = expressed[:, -1:]
        if last and self._n_owed > 0:
            n_flush = -(-spec.delay_samples // spec.hop_length)
            codes = np.concatenate([codes, np.tile(np.array(spec.silence, dtype=np.uint16), (n_flush, 1))])
            expressed = np.concatenate([expressed, np.repeat(self._expressed, n_flush, axis=1)], axis=1)
        return _Frames(codes, *expressed)

    def _end(self, audio: Audio, state: State) -> Audio:
        """Takes the lagging audio [t * hop_length] of a run and returns the part of it that is ready."""
        self._state = state
        n_dropped = min(self._n_to_drop, len(audio))
        self._n_to_drop -= n_dropped
        ready = audio[n_dropped:][: max(0, self._n_owed)]
        self._n_owed -= len(ready)
        begun = begin_softly(ready, self._decoder.spec, self._n_returned)
        self._n_returned += len(ready)
        return begun


class CodecChunk(NamedTuple):
    """The next frames of a stream."""

    stream: CodecStream
    codes: npt.NDArray[np.integer[Any]]
    """[t, K], t >= 0."""
    last: bool = False
    """The note ends with them: `push` and `finish` in one."""
    cents: PerFrame = 0.0
    """[t]"""
    level_db: PerFrame = 0.0
    """[t]"""


class _Frames(NamedTuple):
    """The graph is run on these."""

    codes: Codes
    cents: npt.NDArray[np.float32]
    level_db: npt.NDArray[np.float32]


def decode_together(chunks: Sequence[CodecChunk]) -> list[Audio]:
    """Decodes chunks of several streams of one decoder, in one run for all that have equal numbers of frames.

    Returns for each chunk what audio is ready: float32, any length from 0.

    Raises:
        ValueError: a stream comes twice, and as `CodecStream.push`; nothing is decoded then.
    """
    if len({id(chunk.stream) for chunk in chunks}) < len(chunks):
        raise ValueError("a stream comes twice: its chunks have to be decoded one after the other")
    checked = [chunk.stream._checked(chunk) for chunk in chunks]  # all of them before any stream moves on
    frames = [chunk.stream._begin(each, chunk.last) for chunk, each in zip(chunks, checked, strict=True)]
    audio: list[Audio] = [np.zeros(0, dtype=np.float32) for _ in chunks]
    for n_frames in sorted({len(each.codes) for each in frames} - {0}):
        group = [index for index, each in enumerate(frames) if len(each.codes) == n_frames]
        streams = [chunks[index].stream for index in group]
        ready = _run_together(streams, [frames[index] for index in group])
        for index, samples in zip(group, ready, strict=True):
            audio[index] = samples
    return audio


def decode_each(chunks: Sequence[CodecChunk]) -> list[Audio | Exception]:
    """Decodes chunks as `decode_together`, and those beside one that is at fault all the same. Returns for
    each its audio, or the ValueError that it, or the BundleError that all of them met."""
    try:
        return [*decode_together(chunks)]
    except BundleError as error:
        return [error] * len(chunks)
    except ValueError as error:  # nothing was decoded
        return [error] if len(chunks) == 1 else [decode_each([chunk])[0] for chunk in chunks]


def _run_together(streams: Sequence[CodecStream], frames: Sequence[_Frames]) -> list[Audio]:
    """One run for equally many frames of each of B streams."""
    names = streams[0]._state
    stacked = {name: np.concatenate([stream._state[name] for stream in streams]) for name in names}
    expression = {
        SEED: np.array([stream._seed for stream in streams]),
        CENTS: np.stack([each.cents for each in frames]),
        LEVEL_DB: np.stack([each.level_db for each in frames]),
    }
    audio, after = streams[0]._decoder.run(np.stack([each.codes for each in frames]), stacked, expression)
    # Copies, so that a stream, or who keeps its audio, does not keep what belongs to the others alive.
    states = [{name: rows[[row]] for name, rows in after.items()} for row in range(len(streams))]
    heard = [row.copy() for row in audio] if len(streams) > 1 else audio
    return [stream._end(*each) for stream, *each in zip(streams, heard, states, strict=True)]


def begin_softly(audio: Audio, spec: pb.CodecSpec, first: int = 0) -> Audio:
    """Fades in audio [S], a note's samples from `first` on, by a raised cosine over BEGIN_SECONDS, where the
    codec has frames that hold no sound; others code how a recording begins."""
    n_fade = round(BEGIN_SECONDS * spec.sample_rate)
    n_own = min(len(audio), n_fade - first)
    if not spec.lead_frames or n_own <= 0:
        return audio
    share = np.arange(first, first + n_own) / n_fade
    softer = audio.copy()
    softer[:n_own] *= (0.5 - 0.5 * np.cos(np.pi * share)).astype(np.float32)
    return softer


def _points(cents: Cents) -> npt.NDArray[np.float64]:
    """A bend as an array: [] of one number, or [N, 2]. Raises ValueError where it is none."""
    points = np.array(list(cents) if isinstance(cents, Iterable) else cents, dtype=np.float64)
    if points.ndim and points.shape != (len(points), 2) and points.size:
        raise ValueError(f"cents of shape {list(points.shape)}: a number, or points [N, 2], is needed")
    if not np.isfinite(points).all():
        raise ValueError("cents that are not finite: numbers are needed")
    return points if points.size else np.zeros(())


def _cents_at(
    points: npt.NDArray[np.float64], spec: pb.CodecSpec, first: int, n_frames: int
) -> npt.NDArray[np.float32]:
    """A bend at the ends of frames `first` on of a note, float32 [n_frames], in the time that is heard."""
    if not points.ndim:
        return np.full(n_frames, points, dtype=np.float32)
    ends = np.maximum(np.arange(first + 1, first + n_frames + 1) - spec.lead_frames, 0)
    values = np.interp(ends * (spec.hop_length / spec.sample_rate), points[:, 0], points[:, 1])
    return values.astype(np.float32)


def no_expression(n_notes: int, n_frames: int) -> dict[str, npt.NDArray[Any]]:
    """Zeros for the expression of `CodecDecoder.run`."""
    return {
        SEED: np.zeros(n_notes, dtype=np.int64),
        CENTS: np.zeros((n_notes, n_frames), dtype=np.float32),
        LEVEL_DB: np.zeros((n_notes, n_frames), dtype=np.float32),
    }


def _per_frame(values: PerFrame, n_frames: int, name: str) -> npt.NDArray[np.float32]:
    """One value a frame, float32 [n_frames]. Raises ValueError where they are none."""
    array = np.asarray(values, dtype=np.float32)
    if array.shape not in ((), (n_frames,)):
        raise ValueError(f"{name} of shape {list(array.shape)}: one number, or [{n_frames}], is needed")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} that are not finite: numbers are needed")
    return np.broadcast_to(array, (n_frames,))


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
