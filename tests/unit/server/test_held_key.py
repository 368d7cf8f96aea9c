"""How a note goes on whose key is held for longer than the model writes."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest

from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb
from timbrel_server.engine.request import Frame
from timbrel_server.synthesizer.held_key import HeldKey

SIZE, HOLD, RATE = 1024, 1023, 40
CODEC = pb.CodecSpec(
    sample_rate=40_000,
    hop_length=1000,
    n_codebooks=3,
    codebook_size=SIZE,
    lead_frames=4,
    hold=[SIZE, SIZE, HOLD],
)


def held_on(frames: list[Frame], n_frames: int) -> list[Frame]:
    key = HeldKey(CODEC)
    for frame in frames:  # in whatever pieces
        key.hear([frame])
    return list(islice(key.frames(), n_frames))


def sung(pitch: np.ndarray) -> list[Frame]:
    """A note: its header, and then these fundamentals."""
    header = [(7, 7, row) for row in range(CODEC.lead_frames)]
    return [*header, *((int(code), int(code) % 4, HOLD) for code in np.round(pitch))]


def test_a_steady_note_stays_as_it_is() -> None:
    assert set(held_on(sung(np.full(150, 500)), 1000)) == {(500, 0, HOLD)}


def test_what_does_not_move_is_held_whatever_the_model_said_last() -> None:
    frames = [*sung(np.full(60, 500)), (500, 0, 12)]
    assert {frame[2] for frame in held_on(frames, 200)} == {HOLD}


def test_a_vibrato_goes_on_without_a_jump_and_in_time() -> None:
    frequency = 5.3
    pitch = 500 + 8 * np.sin(2 * np.pi * frequency * np.arange(150) / RATE + 1.0)
    written = [frame[0] for frame in sung(pitch)][CODEC.lead_frames :]
    after = [frame[0] for frame in held_on(sung(pitch), 20 * RATE)]
    steps = np.abs(np.diff(written))
    assert np.abs(np.diff([written[-1], *after])).max() <= steps.max() + 1
    swing = np.asarray(after) - np.mean(after)
    spectrum = np.abs(np.fft.rfft(swing * np.hanning(len(swing))))
    heard = np.argmax(spectrum) * RATE / len(swing)
    assert heard == pytest.approx(frequency, rel=0.1)
    assert swing.std() == pytest.approx(np.std(pitch), rel=0.2)


@pytest.mark.parametrize("drift", [-1.0, -0.5, 0.0, 0.5, 1.0])
def test_a_vibrato_does_not_stand_still_where_the_pitch_wanders(drift: float) -> None:
    """What is repeated is highest in its middle, or falls, or rises: on top of that it goes up and down."""
    time = np.arange(150) / RATE
    wandering = 4 * np.cos(2 * np.pi * 0.5 * (time - time[-RATE // 2])) + 4 * drift * (time - time[-1])
    pitch = 500 + wandering + 2 * np.sin(2 * np.pi * 5 * time)
    after = np.asarray([frame[0] for frame in held_on(sung(pitch), 20 * RATE)])
    assert after[RATE:].std() > 0.6 * np.round(pitch[-RATE:]).std()


@pytest.mark.parametrize("n_frames", [1, 2, 3])
def test_the_shortest_notes_go_on_too(n_frames: int) -> None:
    written = sung(np.arange(500, 500 + n_frames))
    after = held_on(written, 50)
    assert len(after) == 50
    assert set(after) <= set(written[CODEC.lead_frames :])
