"""Puts a note together from the stream of replies that carries it, and checks that they make sense."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from timbrel.errors import BundleMismatchError, ServerError
from timbrel_bundle.errors import printable
from timbrel_bundle.manifest import longest_note
from timbrel_bundle.request_fields import FIELD
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb

Codes = npt.NDArray[np.uint16]
"""[frames, codebooks]"""

Audio = npt.NDArray[np.float32]
"""[samples], mono, full scale at 1."""


REPLY_BYTES = 128
"""A reply takes as many at least, however little it says."""

SPARE_BYTES = 2**16


@dataclass(frozen=True)
class WrittenNote:
    """A finished note as the server wrote it."""

    codes: Codes
    """[frames, codebooks]"""

    seed: int
    """The seed in use: the caller's, or the one that the server drew."""

    truncated: bool
    """Whether the note was cut at the bundle's cap."""


def check_numbers(reply: pb.GenerateResponse) -> None:
    """Raises ServerError where a reply says that the key was held for no finite number of seconds, or that
    its sound is bent by cents that cannot be."""
    if not math.isfinite(reply.held_seconds):
        raise ServerError(f"the server says that the key was held for {reply.held_seconds} seconds")
    if FIELD["cents"].fault(reply.cents, pb.RequestRanges()):
        raise ServerError(f"the server says that the sound is bent by {reply.cents} cents")


class ReplyLimit:
    """Bounds what the replies of one note take in memory: as much as the longest does, a frame a reply."""

    def __init__(self, manifest: pb.Manifest, sample_bytes: int = 0) -> None:
        """The replies hold codes and, where they are to hold sound, so many bytes a sample."""
        codec = manifest.codec
        frame_bytes = REPLY_BYTES + 2 * codec.n_codebooks + sample_bytes * codec.hop_length
        self._room = SPARE_BYTES + longest_note(manifest) * frame_bytes
        self._n_taken = self._n_read = 0  # bytes; each is for one thread to count

    def take(self, reply: pb.GenerateResponse) -> None:
        """Counts one more. Raises ServerError where that is too much."""
        self._n_taken += _size(reply)
        if self._n_taken - self._n_read > self._room:
            raise ServerError("the server sent more of a note than there can be")

    def was_read(self, reply: pb.GenerateResponse) -> None:
        """One that was taken counts no more: of a note that goes on until its key goes up."""
        self._n_read += _size(reply)


class NoteAssembler:
    """Takes the replies of one Generate call in order, and checks that they make sense together."""

    def __init__(self, manifest: pb.Manifest, *, is_endless: bool = False, keeps: bool = True) -> None:
        """The note may go on for as long as its key is held where it `is_endless`; `finish` gives its codes
        where it `keeps` them."""
        self._manifest = manifest
        self._longest = math.inf if is_endless else longest_note(manifest)
        self._limit = None if is_endless else ReplyLimit(manifest)
        self._keeps = keeps
        self._header: pb.GenerateHeader | None = None
        self._none: Codes = np.zeros((0, manifest.codec.n_codebooks), dtype=np.uint16)
        self._parts: list[Codes] = []
        self._n_frames = 0
        self._finish = pb.FINISH_REASON_UNSPECIFIED

    def feed(self, reply: pb.GenerateResponse) -> Codes:
        """Takes one reply; returns its codes [frames, codebooks], possibly none. Raises BundleMismatchError:
        another bundle than the manifest's wrote the note; ServerError: the replies do not follow the
        protocol."""
        if self._limit is not None:
            self._limit.take(reply)
        if self._finish != pb.FINISH_REASON_UNSPECIFIED:
            raise ServerError("the server sent more after the end of the note")
        check_numbers(reply)
        if self._header is None:
            self._accept_header(reply)
        codes = self._read(reply.codes)
        if self._keeps:
            self._parts.append(codes)
        self._n_frames += len(codes)
        if self._n_frames > self._longest:
            raise ServerError(f"the server sent more than {self._longest} frames")
        self._finish = reply.finish_reason
        return codes

    def finish(self) -> WrittenNote:
        """The whole note, once the stream has ended; raises ServerError where it ended before the note."""
        if self._header is None or self._finish == pb.FINISH_REASON_UNSPECIFIED:
            raise ServerError("the server ended the stream before the note was finished")
        codes = np.concatenate([self._none, *self._parts])
        codes.flags.writeable = False
        return WrittenNote(codes, self._header.seed, self._finish == pb.FINISH_REASON_CAP)

    def _accept_header(self, reply: pb.GenerateResponse) -> None:
        if not reply.HasField("header"):
            raise ServerError("the server's first reply has no header")
        written, expected = reply.header.bundle_hash, self._manifest.bundle_hash
        if written != expected:
            raise BundleMismatchError(
                f"bundle {printable(written[:64])} wrote the note, {expected} was expected"
            )
        self._header = reply.header

    def _read(self, codes: pb.Codes) -> Codes:
        codec = self._manifest.codec
        shape = (codes.n_frames, codec.n_codebooks)
        if codes.n_frames and codes.n_codebooks != codec.n_codebooks:
            raise ServerError(f"the server sent {codes.n_codebooks} codebooks, expected {codec.n_codebooks}")
        if len(codes.data) != 2 * shape[0] * shape[1]:
            raise ServerError(f"the server sent {len(codes.data)} bytes of codes for a shape of {shape}")
        values = np.frombuffer(codes.data, dtype="<u2").astype(np.uint16).reshape(shape)
        if values.size and values.max() >= codec.codebook_size:
            raise ServerError(
                f"the server sent code {values.max()}, the largest is {codec.codebook_size - 1}"
            )
        return values


def _size(reply: pb.GenerateResponse) -> int:
    return max(REPLY_BYTES, reply.ByteSize())
