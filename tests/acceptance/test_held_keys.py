"""Keys of the bundle that ships, held for a minute: what is sustained stays as it is, what dies dies away."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest
from steadiness import LEAST_VARIATION_DB, STEP_SECONDS, distance, level_db, own_variation, release_seconds

import timbrel
from timbrel_server.config import default_bundle_path

pytestmark = pytest.mark.acceptance

SUSTAINED = ("Violin", "Flute", "Trumpet", "Clarinet", "Reed Organ")
DYING = ("Acoustic Grand Piano", "Acoustic Guitar (nylon)", "Vibraphone")
PITCH, SECONDS = 64, 60.0
RELEASE_SECONDS = 0.05
DEVICE_SECONDS = 0.01
"""What a sound device has in hand."""


@pytest.fixture(scope="module")
def client() -> Iterator[timbrel.Client]:
    with timbrel.Client(bundle=default_bundle_path()) as client:
        assert client.model().holds_on
        yield client


@pytest.mark.parametrize("instrument", SUSTAINED)
def test_what_is_sustained_is_after_a_minute_what_it_was(client: timbrel.Client, instrument: str) -> None:
    note = client.generate(instrument, PITCH, seconds=SECONDS, seed=1)
    audio, rate = note.audio, note.sample_rate
    assert len(audio) >= SECONDS * rate
    assert distance(audio, rate, 3.0, 58.9) <= max(1.5 * own_variation(audio, rate), LEAST_VARIATION_DB)
    steps = np.abs(np.diff(audio))
    held_on = round(2.5 * rate), round(4.5 * rate)  # where the model's part ends lies in between
    assert steps[slice(*held_on)].max() <= 1.5 * steps[rate : held_on[0]].max(), "a click"
    before, after = (level_db(audio, rate, SECONDS + at) for at in (-0.6, RELEASE_SECONDS))
    assert after < before - 3.0


@pytest.mark.parametrize("instrument", DYING)
def test_what_dies_away_dies_away(client: timbrel.Client, instrument: str) -> None:
    note = client.generate(instrument, PITCH, seconds=20.0, seed=1)
    audio, rate = note.audio, note.sample_rate
    audio = np.pad(audio, (0, max(0, 21 * rate - len(audio))))
    levels = [level_db(audio, rate, second) for second in (0.1, 3.0, 6.0, 12.0, 19.0)]
    assert levels[-1] < levels[0] - 30.0
    assert max(np.diff(levels)) < 1.0


def test_a_player_holds_a_key_for_a_minute(client: timbrel.Client) -> None:
    """Where the key goes up, the release follows."""
    went_up: list[float] = []

    def let_go() -> None:
        went_up.append(time.monotonic())
        held.off()

    with client.play(lead_seconds=0.03) as player:
        held = player.note_on("Flute", PITCH, seed=1)
        first = next(held)
        begun = time.monotonic()
        threading.Timer(SECONDS, let_go).start()
        audio = np.concatenate([first, *held])
    rate, seconds = client.model().sample_rate, held.held_seconds
    assert seconds is not None and seconds == pytest.approx(SECONDS, abs=1.0)
    assert len(audio) >= seconds * rate
    assert distance(audio, rate, 3.0, 58.9) <= max(1.5 * own_variation(audio, rate), LEAST_VARIATION_DB)
    released = release_seconds(audio, rate, seconds)
    heard = seconds - (went_up[0] - begun)
    print(f"released {released:.3f} s after the hold, which ends {heard:+.3f} s after the key went up")
    assert released <= RELEASE_SECONDS + STEP_SECONDS  # it is measured over three steps


@pytest.mark.parametrize("instrument", ["Flute", "Violin", "Reed Organ", "Trumpet"])
def test_a_release_is_heard_when_the_key_goes_up(client: timbrel.Client, instrument: str) -> None:
    """By who plays a note as it comes, with the default lead; on a machine that has no other work."""
    rate, late = client.model().sample_rate, []
    with client.play() as player:
        for seed in range(5):
            held = player.note_on(instrument, PITCH, seed=seed)
            heard, begun, went_up = [next(held)], time.monotonic(), 0.0
            for chunk in held:
                heard.append(chunk)
                ahead = sum(map(len, heard)) / rate - (time.monotonic() - begun)
                time.sleep(max(0.0, ahead - DEVICE_SECONDS))
                if not went_up and time.monotonic() - begun > 1.5:
                    went_up = time.monotonic() - begun
                    held.off()
            assert held.held_seconds is not None
            written = client.generate(instrument, PITCH, seconds=held.held_seconds, seed=seed)
            left_out = (len(written.audio) - sum(map(len, heard))) / rate
            late.append(held.held_seconds - left_out - went_up)
    print(f"{instrument}: releases begin so many ms after the key goes up:", np.round(1000 * np.array(late)))
    assert max(late) <= RELEASE_SECONDS
