"""A note's sound, as it comes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

from timbrel.core.reply import NoteAssembler
from timbrel_bundle.codec import CodecStream
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb

Audio = npt.NDArray[np.float32]
"""float32 [samples], mono, full scale at 1."""


def decode_as_it_comes(
    replies: Iterable[pb.GenerateResponse], assembler: NoteAssembler, stream: CodecStream
) -> Iterator[Audio]:
    """Yields the audio of each reply, none of it empty. Joined, it is the whole note's.

    Raises:
        ServerError, BundleMismatchError: as `NoteAssembler`.
    """
    for reply in replies:
        audio = stream.push(assembler.feed(reply))
        if len(audio):
            yield audio
    assembler.finish()
    rest = stream.finish()
    if len(rest):
        yield rest
