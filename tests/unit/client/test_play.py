"""Notes played live: the bookkeeping, and the stream that a package's own listeners are told by."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import numpy as np
import pytest
from google.rpc import code_pb2, status_pb2

import timbrel
from timbrel.aio.player import PlayStream
from timbrel.core.play import LiveNotes, WrittenAhead
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb

REQUEST = pb.GenerateRequest(pitch=60)
LAST = pb.GenerateResponse(finish_reason=pb.FINISH_REASON_EOS)


def reply(note_id: int, message: pb.GenerateResponse | None = None) -> pb.PlayResponse:
    return pb.PlayResponse(id=note_id, reply=message or pb.GenerateResponse())


def failure(note_id: int) -> pb.PlayResponse:
    error = status_pb2.Status(code=code_pb2.RESOURCE_EXHAUSTED, message="full")
    return pb.PlayResponse(id=note_id, error=error)


def test_each_note_has_an_id_of_its_own_and_hears_of_itself() -> None:
    notes: LiveNotes[str] = LiveNotes()
    first, second = (notes.note_on(name, REQUEST, 0.1) for name in ("a", "b"))
    assert first.id != second.id and first.note_on.lead_seconds == pytest.approx(0.1)
    assert notes.receive(reply(second.id)) == ("b", pb.GenerateResponse())
    off, cancel = notes.about("a", note_off=pb.NoteOff()), notes.about("b", cancel=pb.NoteCancel())
    assert off is not None and (off.id, off.WhichOneof("action")) == (first.id, "note_off")
    assert cancel is not None and (cancel.id, cancel.WhichOneof("action")) == (second.id, "cancel")


def frames_read(ahead: WrittenAhead, frames: list[list[int]]) -> list[int]:
    """The numbers of the frames that are not left out."""
    return [number for number, frame in enumerate(frames) if list(ahead.kept(np.array([frame])))]


def test_behind_a_key_that_went_up_what_would_be_heard_later_is_left_out() -> None:
    """At ten frames a second, the first two silent: written until frame 12, while the key went up in 9."""
    codec = pb.CodecSpec(sample_rate=1000, hop_length=100, lead_frames=2, codebook_size=8, hold=[8, 7])
    frames = [[number % 8, 7] for number in range(15)]
    ahead = WrittenAhead(pb.Manifest(codec=codec))
    ahead.heard(5.0)
    ahead.heard(5.2)
    ahead.key_up(5.65)
    ahead.told(pb.GenerateResponse())
    assert frames_read(ahead, frames[:9]) == list(range(9))  # the release has not come
    ahead.told(pb.GenerateResponse(held_seconds=1.0))
    ahead.key_up(6.0)
    rest = [number + 9 for number in frames_read(ahead, frames[9:])]
    assert rest == [12, 13, 14]


@pytest.mark.parametrize("hold", [[8, 7], []])
def test_frames_that_say_more_are_heard(hold: list[int]) -> None:
    codec = pb.CodecSpec(sample_rate=1000, hop_length=100, codebook_size=8, hold=hold)
    ahead = WrittenAhead(pb.Manifest(codec=codec))
    ahead.heard(5.0)
    ahead.key_up(5.0)
    ahead.told(pb.GenerateResponse(held_seconds=0.3))
    frames = [[0, 7], [0, 3], [0, 7], [0, 7]]
    assert frames_read(ahead, frames) == ([1, 3] if hold else [0, 1, 2, 3])


@pytest.mark.parametrize("n_late", range(8))
@pytest.mark.parametrize("n_before", range(4))
def test_a_timbre_that_moves_comes_in_the_rows_it_was_sent_in(n_late: int, n_before: int) -> None:
    """Each of the four rows has a place in four: at another it would be another timbre."""
    codec = pb.CodecSpec(
        sample_rate=1000,
        hop_length=100,
        lead_frames=4,
        n_codebooks=2,
        codebook_size=8,
        hold=[8, 7],
        moves=True,
    )
    ahead = WrittenAhead(pb.Manifest(codec=codec))
    ahead.heard(5.0)
    ahead.key_up(5.0)
    ahead.told(pb.GenerateResponse(held_seconds=n_late / 10))
    n_held = 4 + n_late + n_before
    steady = [[number % 8, 7] for number in range(4, n_held)]
    moved = [[0, number % 4] for number in range(n_held, n_held + 4)]
    frames = np.array([[0, row] for row in range(4)] + steady + moved + [[0, 7]] * 3, dtype=np.uint16)
    kept = np.concatenate(list(ahead.kept(frames)))
    assert kept.dtype == frames.dtype and len(kept) <= len(frames)
    rows = [(place, int(row)) for place, row in enumerate(kept[:, 1]) if row != 7]
    assert len(rows) == 8
    assert all(place % 4 == row for place, row in rows)


def test_of_a_note_that_nobody_has_heard_yet_nothing_is_left_out() -> None:
    codec = pb.CodecSpec(sample_rate=1000, hop_length=100, codebook_size=8, hold=[8, 7])
    ahead = WrittenAhead(pb.Manifest(codec=codec))
    ahead.key_up(5.0)
    ahead.told(pb.GenerateResponse(held_seconds=0.3))
    ahead.heard(5.1)
    assert frames_read(ahead, [[0, 7]] * 5) == [0, 1, 2, 3, 4]


def test_of_a_note_that_has_ended_nothing_is_said_or_heard() -> None:
    notes: LiveNotes[str] = LiveNotes()
    ended, failed = (notes.note_on(name, REQUEST, None).id for name in ("ended", "failed"))
    assert notes.receive(reply(ended, LAST)) == ("ended", LAST)
    heard = notes.receive(failure(failed))
    assert heard is not None and heard[0] == "failed" and isinstance(heard[1], timbrel.OverloadedError)
    for note_id, name in ((ended, "ended"), (failed, "failed")):
        assert notes.about(name, note_off=pb.NoteOff()) is None
        assert notes.receive(reply(note_id)) is None
    assert notes.end() == []
    assert notes.note_on("again", REQUEST, None).id not in (ended, failed)


def test_a_refusal_concerns_nobody_and_the_end_all_that_live() -> None:
    notes: LiveNotes[str] = LiveNotes()
    note_id = notes.note_on("a", REQUEST, None).id
    assert notes.receive(pb.PlayResponse(id=note_id, refusal=status_pb2.Status(code=5))) is None
    assert notes.end() == ["a"] and notes.end() == []


class Line:
    """A Play call that says what the test puts in, in place of a server: an error ends it, None politely."""

    def __init__(self) -> None:
        self.responses: asyncio.Queue[pb.PlayResponse | timbrel.TimbrelError | None] = asyncio.Queue()

    def play(self, requests: AsyncIterator[pb.PlayRequest]) -> Line:
        return self

    async def __aiter__(self) -> AsyncIterator[pb.PlayResponse]:
        while (response := await self.responses.get()) is not None:
            if isinstance(response, timbrel.TimbrelError):
                raise response
            yield response

    def cancel(self) -> None:
        self.responses.put_nowait(timbrel.CancelledError("cancelled"))


class Listener:
    def __init__(self, raising: Exception | None = None) -> None:
        self.heard: list[object] = []
        self._raising = raising

    async def take(self, reply: pb.GenerateResponse) -> None:
        if self._raising is not None:
            raise self._raising
        self.heard.append("reply")

    async def fail(self, error: timbrel.TimbrelError) -> None:
        self.heard.append(("failed", type(error)))

    def cut_off(self, error: timbrel.TimbrelError) -> None:
        self.heard.append(("cut off", type(error)))


def played(*said: pb.PlayResponse | timbrel.TimbrelError | None, raising: Exception | None = None) -> object:
    """What two listeners heard, and how the stream ended: of notes 1 and 2."""

    async def main() -> object:
        line, ends = Line(), []
        stream = PlayStream(line, ends.append)  # type: ignore[arg-type]
        listeners = Listener(raising), Listener()
        for listener in listeners:
            stream.note_on(listener, REQUEST, 0.1)
        for response in said:
            line.responses.put_nowait(response)
        await stream.finish()
        with pytest.raises(timbrel.TimbrelError) as refused:
            stream.note_on(Listener(), REQUEST)
        assert refused.value is stream.end
        return [listener.heard for listener in listeners], ends, type(stream.end)

    return asyncio.run(main())


def test_a_stream_that_breaks_cuts_off_the_notes_that_sound() -> None:
    broken = timbrel.UnavailableError("broken")
    heard, ends, _ = played(reply(1), reply(2, LAST), broken)  # type: ignore[misc]
    assert heard == [["reply", ("cut off", timbrel.UnavailableError)], ["reply"]] and ends == [broken]


def test_an_error_of_one_note_leaves_the_others_alone() -> None:
    heard, ends, end = played(failure(1), reply(2, LAST), None)  # type: ignore[misc]
    assert heard == [[("failed", timbrel.OverloadedError)], ["reply"]]
    assert ends == [None] and end is timbrel.UnavailableError


def test_a_listener_that_raises_ends_the_stream_and_nobody_is_told() -> None:
    stalled = timbrel.OverloadedError("takes no more")
    heard, ends, _ = played(reply(1), reply(2), raising=stalled)  # type: ignore[misc]
    assert heard == [[], []] and ends == [stalled]


@pytest.mark.parametrize("leave", [PlayStream.close, PlayStream.finish])
def test_who_leaves_is_done_at_once_or_when_all_is_written(leave: Callable[[PlayStream], object]) -> None:
    async def main() -> None:
        line, listener, ends = Line(), Listener(), []
        stream = PlayStream(line, ends.append)  # type: ignore[arg-type]
        stream.note_on(listener, REQUEST)
        line.responses.put_nowait(reply(1, LAST))
        line.responses.put_nowait(None)
        await leave(stream)  # type: ignore[misc]
        assert listener.heard == ([] if leave is PlayStream.close else ["reply"])
        assert ends == ([] if leave is PlayStream.close else [None])

    asyncio.run(main())
