"""The bookkeeping of many notes, with a clock and a server that are plain numbers and messages."""

from __future__ import annotations

import numpy as np
import pytest

from timbrel.core import retry
from timbrel.core.batch import READ_AHEAD, Batch, Result
from timbrel.core.faults import error_from_status
from timbrel.core.reply import WrittenNote
from timbrel.core.request import NoteRequest
from timbrel.core.retry import Patience
from timbrel.errors import (
    AuthenticationError,
    DeadlineExceededError,
    InvalidRequestError,
    OverloadedError,
    ServerError,
    UnavailableError,
)
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb

MANIFEST = pb.Manifest(
    bundle_hash="h",
    codec=pb.CodecSpec(sample_rate=8000, n_codebooks=2, codebook_size=16),
    model=pb.ModelSpec(max_frames=40),
    ranges=pb.RequestRanges(
        pitch_min=36, pitch_max=96, velocity_min=1, velocity_max=127, seconds_min=0.05, seconds_max=4.0
    ),
)
MAP = pb.TimbreMap(points=[pb.TimbrePoint(instrument="Violin", family="Strings", x=0.5, y=-0.25)])
GONE = UnavailableError("gone")
LIMIT = 60.0


@pytest.fixture(autouse=True)
def _whole_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "FIRST_DELAY_SECONDS", 1.0)


def make_batch(max_in_flight: int = 4, *, ordered: bool = True, server_returns: bool = True) -> Batch:
    patience = Patience(LIMIT, 0.0, server_returns=server_returns)
    batch = Batch(MANIFEST, MAP, patience, max_in_flight, ordered=ordered)
    batch.open_stream()
    return batch


def fill(batch: Batch, n_notes: int, now: float = 0.0) -> None:
    for pitch in range(60, 60 + n_notes):
        batch.add(NoteRequest((0.0, 0.0), pitch), now)


def sent(batch: Batch, now: float = 0.0) -> list[int]:
    """The ids of all that is to be sent now."""
    ids = []
    while (message := batch.next_to_send(now)) is not None:
        ids.append(message.id)
    return ids


def answer(note_id: int, seed: int = 1, bundle_hash: str = "h") -> pb.GenerateBatchResponse:
    codes = np.full((3, 2), note_id % 16, dtype="<u2")
    note = pb.GenerateResponse(
        header=pb.GenerateHeader(seed=seed, bundle_hash=bundle_hash),
        codes=pb.Codes(data=codes.tobytes(), n_frames=3, n_codebooks=2),
        finish_reason=pb.FINISH_REASON_EOS,
    )
    return pb.GenerateBatchResponse(id=note_id, note=note)


def failure(note_id: int, code: int) -> pb.GenerateBatchResponse:
    response = pb.GenerateBatchResponse(id=note_id)
    response.status.code = code
    response.status.message = "no such luck"
    return response


def results(batch: Batch) -> list[Result]:
    handed_out = []
    while (result := batch.next_result()) is not None:
        handed_out.append(result)
    return handed_out


def test_results_keep_the_requests_order() -> None:
    batch = make_batch()
    fill(batch, 3)
    assert sent(batch) == [0, 1, 2]
    batch.receive(answer(2), 1.0)
    assert results(batch) == []
    batch.receive(answer(0), 1.0)
    assert [result.index for result in results(batch)] == [0]
    batch.receive(answer(1), 1.0)
    got = results(batch)
    assert [result.index for result in got] == [1, 2]
    assert [result.request.pitch for result in got] == [61, 62]
    assert isinstance(got[1].outcome, WrittenNote) and got[1].outcome.codes[0, 0] == 2


def test_or_come_as_they_are_finished() -> None:
    batch = make_batch(ordered=False)
    fill(batch, 3)
    sent(batch)
    for note_id in (2, 0, 1):
        batch.receive(answer(note_id), 1.0)
    assert [result.index for result in results(batch)] == [2, 0, 1]


def test_it_is_finished_when_all_has_been_handed_out() -> None:
    batch = make_batch()
    fill(batch, 1)
    sent(batch)
    batch.end()
    assert not batch.is_answered
    batch.receive(answer(0), 1.0)
    assert batch.is_answered and not batch.is_finished
    results(batch)
    assert batch.is_finished


@pytest.mark.parametrize("ordered", [True, False])
def test_no_more_is_read_than_there_is_room_for(ordered: bool) -> None:
    batch = make_batch(4, ordered=ordered)
    n_read = 0

    def read() -> int:
        nonlocal n_read
        while batch.has_room:
            batch.add(NoteRequest((0.0, 0.0)), 0.0)
            n_read += 1
        sent(batch)
        return n_read

    assert read() == 4
    for note_id in (1, 2, 3):  # the first one is slow, the caller slower
        batch.receive(answer(note_id), 0.0)
    assert read() == 7
    for note_id in (4, 5, 6):
        batch.receive(answer(note_id), 0.0)
    assert read() == 4 * READ_AHEAD
    batch.receive(answer(7), 0.0)
    assert read() == 4 * READ_AHEAD
    batch.receive(answer(0), 0.0)
    assert len(results(batch)) == 8
    assert read() == 12


def test_a_new_stream_is_sent_what_is_unanswered_and_nothing_else() -> None:
    batch = make_batch()
    fill(batch, 4)
    first = [message for _ in range(3) if (message := batch.next_to_send(0.0)) is not None]
    batch.receive(answer(1), 1.0)
    assert batch.break_off(GONE, 2.0) == 1.0
    batch.open_stream()
    again = [message for _ in range(9) if (message := batch.next_to_send(3.0)) is not None]
    assert [message.id for message in again] == [0, 2, 3]
    assert [message.note for message in again[:2]] == [first[0].note, first[2].note]  # the very same seeds
    assert all(message.note.HasField("seed") for message in again)


def test_what_was_answered_is_not_heard_again() -> None:
    batch = make_batch()
    fill(batch, 2)
    sent(batch)
    batch.receive(answer(0), 1.0)
    batch.receive(answer(0, seed=2), 1.0)
    batch.receive(answer(77), 1.0)
    (only,) = results(batch)
    assert isinstance(only.outcome, WrittenNote) and only.outcome.seed == 1


def test_names_become_points_and_what_no_server_would_take_fails_alone() -> None:
    batch = make_batch()
    batch.add(NoteRequest("violin", seed=9), 0.0)
    batch.add(NoteRequest("Violni"), 0.0)
    batch.add(NoteRequest((0.0, 0.0), pitch=12), 0.0)
    batch.add({"pitch": 60}, 0.0)  # type: ignore[arg-type]
    message = batch.next_to_send(0.0)
    assert message is not None and (message.note.timbre.x, message.note.seed) == (0.5, 9)
    assert batch.next_to_send(0.0) is None
    batch.receive(answer(0), 0.0)
    _, unknown, low, nonsense = (result.outcome for result in results(batch))
    assert isinstance(unknown, InvalidRequestError) and "Violin" in str(unknown)
    assert isinstance(low, InvalidRequestError) and low.fields[0].field == "pitch"
    assert isinstance(nonsense, InvalidRequestError) and "NoteRequest" in str(nonsense)


def test_an_item_that_fails_for_good_is_a_result() -> None:
    batch = make_batch()
    fill(batch, 2)
    sent(batch)
    batch.receive(failure(0, 3), 1.0)
    batch.receive(answer(1, bundle_hash="other"), 1.0)
    refused, strange = (result.outcome for result in results(batch))
    assert isinstance(refused, InvalidRequestError)
    assert type(strange).__name__ == "BundleMismatchError"


def test_an_item_that_fails_for_now_is_sent_again_ever_more_slowly() -> None:
    batch = make_batch()
    fill(batch, 1)
    assert sent(batch) == [0]
    batch.receive(failure(0, 14), 10.0)
    assert batch.next_result() is None
    assert batch.seconds_until_due(10.0) == 1.0
    assert sent(batch, 10.9) == [] and sent(batch, 11.0) == [0]
    batch.receive(failure(0, 14), 20.0)
    assert sent(batch, 21.9) == [] and sent(batch, 22.0) == [0]
    batch.receive(failure(0, 14), 59.0)  # patience ends before the next attempt
    (given_up,) = results(batch)
    assert isinstance(given_up.outcome, UnavailableError)


def test_of_an_item_that_is_to_be_sent_again_nothing_is_heard_before() -> None:
    """A server that refuses one note without end would fill the memory, each time with an attempt."""
    batch = make_batch()
    fill(batch, 1)
    sent(batch)
    for _ in range(3):
        batch.receive(failure(0, 14), 10.0)
    batch.receive(answer(0), 10.0)
    assert batch.next_result() is None
    assert sent(batch, 11.0) == [0]
    batch.receive(answer(0), 12.0)
    assert len(results(batch)) == 1 and sent(batch, 60.0) == []


def test_an_overloaded_item_is_sent_again_only_when_the_server_says_when() -> None:
    batch = make_batch()
    fill(batch, 1)
    sent(batch)
    batch.receive(failure(0, 8), 1.0)
    (result,) = results(batch)
    assert isinstance(result.outcome, OverloadedError)


def test_patience_ends_unless_notes_come() -> None:
    batch = make_batch()
    fill(batch, 3)
    sent(batch)
    assert batch.seconds_left(10.0) == LIMIT - 10.0
    batch.receive(answer(0), 50.0)
    batch.check(100.0)
    with pytest.raises(DeadlineExceededError, match="2 notes"):
        batch.check(110.0)


def test_a_broken_stream_is_borne_with_until_patience_ends() -> None:
    batch = make_batch()
    fill(batch, 1)
    delays = [batch.break_off(GONE, now) for now in (0.0, 10.0, 20.0, 30.0, 40.0)]
    assert delays == [1.0, 2.0, 4.0, 4.0, 4.0]
    with pytest.raises(UnavailableError, match="gone"):
        batch.break_off(GONE, 57.0)


def test_patience_that_ends_while_another_stream_is_sought_says_what_broke_the_last() -> None:
    batch = make_batch()
    fill(batch, 2)
    sent(batch)
    batch.break_off(GONE, 10.0)
    with pytest.raises(UnavailableError, match="gone"):
        batch.check(LIMIT)
    batch.receive(answer(0), 20.0)
    with pytest.raises(DeadlineExceededError, match="1 note was"):
        batch.check(20.0 + LIMIT)


def test_a_stream_that_broke_while_nothing_was_asked_is_no_reason_to_give_up() -> None:
    batch = make_batch()
    assert batch.seconds_left(1000.0) is None
    assert batch.break_off(GONE, 1000.0) == 1.0
    fill(batch, 1, now=2000.0)
    assert batch.seconds_left(2001.0) == LIMIT - 1.0


@pytest.mark.parametrize(
    "error", [AuthenticationError("who?"), ServerError("broken"), error_from_status(8, "message too large")]
)
def test_some_faults_end_it_at_once(error: ServerError) -> None:
    batch = make_batch()
    fill(batch, 1)
    with pytest.raises(type(error)):
        batch.break_off(error, 0.0)


def test_a_private_server_that_is_gone_stays_so() -> None:
    batch = make_batch(server_returns=False)
    fill(batch, 1)
    sent(batch)
    with pytest.raises(UnavailableError):
        batch.break_off(GONE, 0.0)


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize(
    "malformed",
    [
        NoteRequest([(0.0, "Violin"), (1.5,)]),  # type: ignore[list-item]
        NoteRequest("Violin", cents=np.array(50.0)),  # type: ignore[arg-type]
        NoteRequest(np.array(0.5)),  # type: ignore[arg-type]
    ],
)
def test_a_malformed_request_is_a_result_and_the_others_go_on(malformed: NoteRequest, ordered: bool) -> None:
    batch = make_batch(ordered=ordered)
    batch.add(malformed, 0.0)
    fill(batch, 1)
    batch.end()
    assert sent(batch) == [1]
    batch.receive(answer(1), 1.0)
    refused, written = results(batch)
    assert isinstance(refused.outcome, InvalidRequestError) and isinstance(written.outcome, WrittenNote)
    assert batch.is_finished


def test_nobody_waits_for_a_request_that_cannot_even_be_examined() -> None:
    batch = make_batch()
    with pytest.raises(ZeroDivisionError):
        batch.add(NoteRequest(1 / 0 for _ in range(2)), 0.0)  # type: ignore[arg-type]
    batch.end()
    assert batch.is_finished
