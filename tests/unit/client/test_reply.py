from __future__ import annotations

import numpy as np
import pytest

from timbrel.core.reply import NoteAssembler
from timbrel.errors import BundleMismatchError, ServerError
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb

MANIFEST = pb.Manifest(
    bundle_hash="h",
    codec=pb.CodecSpec(n_codebooks=2, codebook_size=10),
    model=pb.ModelSpec(max_frames=4),
)
HEADER = pb.GenerateHeader(seed=5, bundle_hash="h")


def codes(*frames: tuple[int, int]) -> pb.Codes:
    data = np.array(frames, dtype="<u2").reshape(-1, 2)
    return pb.Codes(data=data.tobytes(), n_frames=len(data), n_codebooks=2)


def assemble(*replies: pb.GenerateResponse) -> NoteAssembler:
    assembler = NoteAssembler(MANIFEST)
    for reply in replies:
        assembler.feed(reply)
    return assembler


def test_puts_the_chunks_together() -> None:
    note = assemble(
        pb.GenerateResponse(header=HEADER),
        pb.GenerateResponse(codes=codes((1, 2))),
        pb.GenerateResponse(codes=codes((3, 4), (5, 6))),
        pb.GenerateResponse(finish_reason=pb.FINISH_REASON_EOS),
    ).finish()
    assert note.codes.tolist() == [[1, 2], [3, 4], [5, 6]]
    assert note.codes.dtype == np.uint16
    assert (note.seed, note.truncated) == (5, False)


def test_a_note_may_come_in_one_reply_and_be_empty() -> None:
    note = assemble(pb.GenerateResponse(header=HEADER, finish_reason=pb.FINISH_REASON_EOS)).finish()
    assert note.codes.shape == (0, 2)


def test_a_note_cut_at_the_cap_says_so() -> None:
    reply = pb.GenerateResponse(header=HEADER, codes=codes((1, 2)), finish_reason=pb.FINISH_REASON_CAP)
    assert assemble(reply).finish().truncated


def test_another_bundle_is_refused() -> None:
    with pytest.raises(BundleMismatchError):
        assemble(pb.GenerateResponse(header=pb.GenerateHeader(bundle_hash="other")))


@pytest.mark.parametrize(
    ("replies", "message"),
    [
        ([pb.GenerateResponse(codes=codes((1, 2)))], "no header"),
        ([pb.GenerateResponse(header=HEADER, codes=codes((1, 10)))], "code 10"),
        ([pb.GenerateResponse(header=HEADER, codes=codes(*[(1, 2)] * 5))], "more than 4 frames"),
        (
            [pb.GenerateResponse(header=HEADER, codes=pb.Codes(data=b"xyz", n_frames=1, n_codebooks=2))],
            "3 bytes",
        ),
        (
            [pb.GenerateResponse(header=HEADER, codes=pb.Codes(data=b"ab" * 3, n_frames=1, n_codebooks=3))],
            "3 codebooks",
        ),
        ([pb.GenerateResponse(header=HEADER, finish_reason=pb.FINISH_REASON_EOS)] * 2, "after the end"),
    ],
)
def test_replies_that_make_no_sense_are_a_server_error(
    replies: list[pb.GenerateResponse], message: str
) -> None:
    with pytest.raises(ServerError, match=message):
        assemble(*replies)


@pytest.mark.parametrize("replies", [[], [pb.GenerateResponse(header=HEADER, codes=codes((1, 2)))]])
def test_a_stream_that_ends_too_early_is_a_server_error(replies: list[pb.GenerateResponse]) -> None:
    with pytest.raises(ServerError, match="before the note was finished"):
        assemble(*replies).finish()
