"""The page's mixer, sample by sample, in no real time: late sound, bends, and brightness that jumps."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pytest

from browser.explorer_page import ENCODED, decoded

if TYPE_CHECKING:
    from playwright.sync_api import Browser

WORKLET = Path(__file__).resolve().parents[2] / "clients" / "web" / "worklet.js"

MIXER = f"""
  const bytes = (text) => Uint8Array.from(atob(text), (each) => each.charCodeAt(0));
  const decoded = (text) => new Float32Array(bytes(text).buffer);
  const encoded = {ENCODED};"""
MIXER += """
  let now = 0, Made;
  const sampleRate = 48000;
  class AudioWorkletProcessor { port = { postMessage: (message) => told.push({ now, ...message }) }; }
  const registerProcessor = (_, made) => { Made = made; };
  const told = [];
  %s
  const mixer = new Made();
  mixer.start({ id: 1, rate: sampleRate, gain: 1, prebuffer: 0.015 });
"""

LATE_SOUND = """
({ arrivals, seconds, rate }) => {
  %s
  mixer.start({ id: 1, rate, gain: 1, prebuffer: 0.015 });
  const coming = [...arrivals];
  for (; now < seconds; now += 128 / sampleRate) {
    while (coming.length && coming[0][0] <= now) {
      const samples = new Float32Array(Math.round(coming.shift()[1] * rate)).fill(0.1);
      mixer.hear({ type: "push", id: 1, samples });
    }
    mixer.process([], [[new Float32Array(128)]]);
  }
  return told.filter(({ type }) => type === "starved").map(({ now }) => now);
}
"""

SILENCED = """
({ value }) => {
  %s
  mixer.hear({ type: "push", id: 1, samples: new Float32Array(4800).fill(value) });
  mixer.hear({ type: "finish", id: 1 });
  mixer.start({ id: 2, rate: sampleRate, gain: 1, prebuffer: 0 });
  mixer.hear({ type: "push", id: 2, samples: new Float32Array(48000).fill(0.1) });
  const out = new Float32Array(128);
  for (let n = 0; n < 300; n++) mixer.process([], [[out.fill(0)]]);
  return [out[127], mixer.limiter.envelope];
}
"""

BRIGHTNESS = """
({ sound, corner, gains, every }) => {
  %s
  const samples = decoded(sound);
  mixer.hear({ type: "push", id: 1, samples: samples.slice() });
  const heard = [];
  for (let n = 0; n < samples.length / 128 - 8; n++) {
    const changes = n % every === 0 && gains.length > 0;
    if (changes) mixer.hear({ type: "setBrightness", id: 1, value: gains.shift(), corner });
    const out = new Float32Array(128);
    mixer.process([], [[out]]);
    heard.push(...out);
  }
  return encoded(heard);
}
"""

SKIPPING = """
({ sound, arrivals, release, asked, within, ends }) => {
  %s
  const samples = decoded(sound);
  const coming = [...arrivals];
  const heard = [];
  let taken = 0;
  for (let n = 0; n < samples.length / 128; n++) {
    if (n === asked) mixer.hear({ type: "skipTo", id: 1, seconds: release / sampleRate, within });
    while (coming.length && coming[0][0] <= n) {
      mixer.hear({ type: "push", id: 1, samples: samples.slice(taken, (taken += coming.shift()[1])) });
    }
    if (n === ends) mixer.hear({ type: "finish", id: 1 });
    const out = new Float32Array(128);
    mixer.process([], [[out]]);
    heard.push(...out);
  }
  return [encoded(heard), told.filter(({ type }) => type === "starved").length];
}
"""

BENDING = """
({ sound, chunks, wheel, blocks }) => {
  %s
  const samples = decoded(sound);
  const heard = [];
  let taken = 0;
  for (let n = 0; n < blocks; n++) {
    while (wheel.length && wheel[0][0] <= n) mixer.hear({ type: "setBend", id: 1, cents: wheel.shift()[1] });
    while (chunks.length && chunks[0].block <= n) {
      const { count, ...bent } = chunks.shift();
      if (bent.cents !== null) mixer.hear({ type: "bent", id: 1, ...bent });
      mixer.hear({ type: "push", id: 1, samples: samples.slice(taken, (taken += count)) });
    }
    const out = new Float32Array(128);
    mixer.process([], [[out]]);
    heard.push(...out);
  }
  return [encoded(heard), told.filter(({ type }) => type === "starved").length];
}
"""

STOPPED = """
({ sound, fade }) => {
  %s
  mixer.hear({ type: "push", id: 1, samples: decoded(sound) });
  const heard = [];
  for (let n = 0; n < 40; n++) {
    if (n === 20) {
      mixer.hear({ type: "finish", id: 1 });
      mixer.hear({ type: "stop", id: 1, fade });
    }
    const out = new Float32Array(128);
    mixer.process([], [[out]]);
    heard.push(...out);
  }
  return encoded(heard);
}
"""

STANDING_STILL = """
(count) => {
  %s
  for (let id = 2; id <= count; id++) mixer.start({ id, rate: sampleRate, gain: 1, prebuffer: 0 });
  const samples = new Float32Array(4800).fill(0.1);
  for (let id = 1; id <= count; id++) mixer.hear({ type: "push", id, samples });
  return [mixer.voices.size, told.filter(({ type }) => type === "done").map(({ id }) => id)];
}
"""

Arrivals = Sequence[tuple[float, float]]
"""When sound comes, and how much, in seconds."""


@pytest.fixture(scope="module")
def blank(browser: Browser) -> Iterator[Any]:
    page = browser.new_page()
    yield page
    page.close()


def simulate(page: Any, script: str, *, sound: npt.NDArray[np.float64] | None = None, **given: Any) -> Any:
    """What the script returns of a mixer with one voice, and of a sound."""
    mixer = MIXER.replace("%s", WORKLET.read_text())
    if sound is not None:
        given["sound"] = base64.b64encode(sound.astype(np.float32).tobytes()).decode()
    return page.evaluate(script.replace("%s", mixer), given)


def skipped(page: Any, sound: npt.NDArray[np.float64], **given: Any) -> tuple[npt.NDArray[np.float64], int]:
    """What is put out of a sound that comes in parts, (block, samples) each, and how often it ran dry."""
    heard, starved = simulate(page, SKIPPING, sound=sound, **{"within": 0.0, "ends": -1, **given})
    return decoded(heard).astype(np.float64), int(starved)


def gaps(page: Any, arrivals: Arrivals, seconds: float, rate: int = 48_000) -> list[float]:
    """When the voice ran dry, which has so many samples a second."""
    found: list[float] = simulate(page, LATE_SOUND, arrivals=arrivals, seconds=seconds, rate=rate)
    return found


def late(*moments: tuple[float, float], lead: float = 0.15, seconds: float = 12.0) -> Arrivals:
    """Sound that comes frame by frame, so far ahead of time; at each moment it stands still for so long, and
    then all that was written meanwhile comes at once."""
    frame = 1280 / 48_000
    arrivals = []
    for n in range(round(seconds / frame)):
        due = max(0.0, n * frame - lead)
        stands = [start + long for start, long in moments if start <= due < start + long]
        arrivals.append((max([due, *stands]), frame))
    return arrivals


def test_a_stream_that_comes_in_time_has_no_gap(blank: Any) -> None:
    assert gaps(blank, late((2.0, 0.12), (3.0, 0.12)), 11.0) == []


@pytest.mark.parametrize("rate", [48_000, 44_100])
def test_a_stream_that_was_late_once_plays_on_with_more_lead(blank: Any, rate: int) -> None:
    """What comes later still, by some hundredths of a second each time, has no gap each time; of a rate
    beside the device's alike."""
    growing = [(float(second), 0.15 + 0.03 * second) for second in range(1, 9)]
    dry = gaps(blank, late(*growing), 11.0, rate)
    assert 1 <= len(dry) <= 4, dry
    steady = late((1.0, 0.3), *((float(second), 0.3) for second in range(2, 9)))
    assert len(gaps(blank, steady, 11.0, rate)) == 1


def test_a_stream_that_lost_its_lead_is_given_one(blank: Any) -> None:
    """From a stream that only keeps up, with nothing in hand, pieces come now early and now late."""
    arrivals = [(0.0, 0.1), *((0.1 + 0.1 * n + 0.08 * (n % 3), 0.1) for n in range(1, 100))]
    assert len(gaps(blank, sorted(arrivals), 9.0)) == 1


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_sound_that_is_no_number_silences_no_other(blank: Any, value: float) -> None:
    """Nor does it turn the limiter off for all that follows."""
    assert simulate(blank, SILENCED, value=value) == pytest.approx([0.1, 0.1], abs=0.001)


@pytest.mark.parametrize("gains", [(0.25, 4.0), (4.0, 0.25), (1.0, 4.0, 1.0, 0.25)])
def test_a_jump_of_the_brightness_moves_no_level(blank: Any, gains: Sequence[float]) -> None:
    """The brightness changes, in each hundredth of a second the level does not."""
    rate, hertz, every = 48_000, 400.0, 150
    time = np.arange(128 * every * len(gains)) / rate
    sound = np.sum([np.sin(2 * np.pi * n * hertz * time + n * n) / n for n in range(1, 21)], axis=0) / 10
    given = {"sound": sound, "corner": 3 * hertz, "gains": [*gains], "every": every}
    heard = decoded(simulate(blank, BRIGHTNESS, **given)).astype(np.float64)
    late = rate // 1000  # the limiter looks so far ahead
    pairs = np.stack([sound[: len(heard) - late], heard[late:]], axis=1)
    hundredths = np.square(pairs[: len(pairs) // 480 * 480]).reshape(-1, 480, 2).mean(axis=1)[5:]
    assert np.abs(10 * np.log10(hundredths[:, 1] / hundredths[:, 0])).max() <= 0.5
    middles = [heard[(2 * n + 1) * 64 * every :][:4800] for n in range(len(gains))]
    edge = [np.square(np.diff(each)).mean() / np.square(each).mean() for each in middles]
    assert np.all(np.sign(np.diff(edge)) == np.sign(np.diff(gains)))


@pytest.mark.parametrize("hertz", [55.0, 220.0, 1567.0])
def test_what_was_written_ahead_is_left_out_once_what_follows_is_there(blank: Any, hertz: float) -> None:
    """A sound 0.3 s long, softer by 12 dB from there on, of which a quarter has been heard. It is softer
    within two hundredths of a second of the block with which the softer part came, without a click."""
    release, asked, comes, rate = 14_400, 28, 31, 48_000
    time = np.arange(2 * release) / rate
    sound = 0.2 * np.sin(2 * np.pi * hertz * time) * np.where(time * rate < release, 1.0, 0.25)
    arrivals = [(0, release - 640), (comes, release + 640)]
    heard, _ = skipped(blank, sound, arrivals=arrivals, release=release, asked=asked)
    late = rate // 1000  # the limiter looks so far ahead
    loud = np.flatnonzero(np.abs(heard) > 0.051)
    assert 128 * comes - rate / hertz <= loud[-1] - late <= 128 * comes + rate / 50
    assert np.abs(np.diff(heard)).max() <= 1.05 * np.abs(np.diff(sound[:release])).max()


def test_a_skip_leads_to_where_the_wave_goes_on(blank: Any) -> None:
    """Straight to its target it would lead from a wave's crest to a trough, and both would cancel out."""
    release, comes, rate, hertz = 14_400, 35, 48_000, 220.0
    sound = 0.2 * np.sin(2 * np.pi * hertz * np.arange(2 * release) / rate)
    assert 0.4 < (release - 128 * comes) * hertz / rate % 1 < 0.6
    arrivals = [(0, release - 640), (comes, release + 640)]
    heard, _ = skipped(blank, sound, arrivals=arrivals, release=release, asked=28)
    waves = heard[1000 : 128 * comes + 2000]
    waves = waves[: len(waves) // 240 * 240].reshape(-1, 240)
    assert np.abs(waves).max(axis=1).min() > 0.18


@pytest.mark.parametrize("follows", [0, 300])
def test_what_was_written_ahead_is_left_out_where_hardly_anything_follows(blank: Any, follows: int) -> None:
    """Of a note that ends within hundredths of a second of its release, and one whose release is in what was
    there already: it is over a few hundredths after its end was told."""
    release, ends, rate = 14_400, 31, 48_000
    sound = 0.2 * np.sin(2 * np.pi * 220.0 * np.arange(release + follows) / rate)
    arrivals = [(0, release), (29, follows)]
    heard, _ = skipped(blank, sound, arrivals=arrivals, release=release, asked=28, ends=ends)
    last = int(np.flatnonzero(np.abs(heard) > 0.02)[-1])
    assert 128 * ends < last <= 128 * ends + rate * 0.03
    assert np.abs(np.diff(heard)).max() <= 1.2 * np.abs(np.diff(sound)).max()


FRAME = 1280
"""Samples of a codec frame."""


@pytest.mark.parametrize(("second", "begins"), [(34, 34), (39, 39), (60, 40)])
def test_a_release_waits_for_what_follows_it_as_long_as_it_may(blank: Any, second: int, begins: int) -> None:
    """Its first frame comes with block 30, the next with `second`: it begins then, so that nothing runs dry,
    or with the frame that is there once its time is up; what was written ahead sounds on until then."""
    release, rate = 14_080, 48_000
    time = np.arange(3 * release) / rate
    sound = 0.2 * np.sin(2 * np.pi * 220.0 * time) * np.where(time * rate < release, 1.0, 0.25)
    arrivals = [(0, release), (30, FRAME), *((second + 3 * n, FRAME) for n in range(20))]
    within = 10 * 128 / rate
    heard, _ = skipped(blank, sound, arrivals=arrivals, release=release, asked=30, within=within)
    loud = int(np.flatnonzero(np.abs(heard) > 0.051)[-1]) - rate // 1000
    assert 128 * begins - rate / 220 <= loud <= 128 * begins + rate / 50
    sounding = heard[128 * 10 : 128 * (begins + 30)].reshape(-1, 128)
    assert (np.abs(sounding).max(axis=1) < 1e-4).any() == (second == 60)


def test_a_release_that_ran_dry_goes_on_at_once_and_costs_no_lead(blank: Any) -> None:
    """With three hundredths of a second in hand, whatever it had before; later notes wait no longer."""
    release, rate = 14_080, 48_000
    sound = 0.2 * np.sin(2 * np.pi * 220.0 * np.arange(3 * release) / rate)
    arrivals = [(0, release), (30, FRAME), *((45 + 2 * n, FRAME) for n in range(20))]
    heard, starved = skipped(blank, sound, arrivals=arrivals, release=release, asked=30)
    silent = np.abs(heard[128 * 20 : 128 * 90].reshape(-1, 128)).max(axis=1) < 1e-4
    assert 0 < silent.sum() <= 12 and starved == 0


def test_a_held_note_that_ran_dry_goes_on_with_its_release(blank: Any) -> None:
    """What it waits for is of no use once its key is up."""
    release, rate = 14_080, 48_000
    time = np.arange(3 * release) / rate
    sound = 0.2 * np.sin(2 * np.pi * 220.0 * time) * np.where(time * rate < release, 1.0, 0.25)
    arrivals = [(0, release - FRAME), (125, FRAME), *((130 + 3 * n, FRAME) for n in range(20))]
    heard, starved = skipped(blank, sound, arrivals=arrivals, release=release, asked=128)
    assert starved == 1
    again = np.abs(heard[128 * 118 :])
    assert again.max() < 0.051 and np.flatnonzero(again > 0.01)[0] < 128 * (135 - 118)


@pytest.mark.parametrize("left", [300, 960, 2400])
def test_a_note_cut_short_fades_however_little_of_it_is_there(blank: Any, left: int) -> None:
    """As where a server writes no faster than one hears: a fade that is longer than what is left begins
    where the note is, and does not jump to its own last part."""
    sound = 0.5 * np.sin(2 * np.pi * 110.0 * np.arange(20 * 128 + left) / 48_000)
    heard = decoded(simulate(blank, STOPPED, sound=sound, fade=0.08))
    assert np.abs(np.diff(heard)).max() <= 1.5 * np.abs(np.diff(sound)).max()


def bent_by_both(
    page: Any, wheel: Sequence[tuple[int, float]], told: bool, blocks: int = 640
) -> npt.NDArray[np.float64]:
    """The cents, in each hundredth of a second behind the first, of a sine that is played as a wheel stands
    from some blocks on: a server writes it 0.16 s ahead, each frame as the wheel stands then, and says so or
    not; its codec lags by 256 samples."""
    hertz, rate, lag, lead = 1000.0, 48_000, 256, 6 * FRAME
    n_frames = blocks * 128 // FRAME + 8
    written = [max(0, n * FRAME - lead) / 128 for n in range(n_frames)]
    cents = [next((to for block, to in reversed(wheel) if block <= when), 0.0) for when in written]
    places = FRAME * np.arange(n_frames + 1)
    curve = np.interp(np.arange(n_frames * FRAME), places, [cents[0], *cents])
    sound = 0.2 * np.sin(2 * np.pi * hertz / rate * np.cumsum(2 ** (curve / 1200)))
    sizes = [FRAME - lag, *[FRAME] * (n_frames - 1)]
    chunks = [
        {"block": when, "count": size, "cents": to if told else None, "after": lag, "within": FRAME}
        for when, size, to in zip(written, sizes, cents, strict=True)
    ]
    text, starved = simulate(page, BENDING, sound=sound, chunks=chunks, wheel=[*wheel], blocks=blocks)
    assert starved == 0
    heard = decoded(text).astype(np.float64)
    windows = heard[480 : len(heard) // 480 * 480].reshape(-1, 480)
    middle, both = windows[:, 1:-1], windows[:, :-2] + windows[:, 2:]
    cosine = (middle * both).sum(axis=1) / (2 * np.square(middle).sum(axis=1))
    found: npt.NDArray[np.float64] = 1200 * np.log2(np.arccos(cosine) * rate / (2 * np.pi * hertz))
    return found


def test_a_bend_is_heard_at_once_and_stays_as_what_was_bent_at_the_server_comes(blank: Any) -> None:
    """Up, down and back; and from the first on where the wheel stands elsewhere before."""
    wheel = [(0, 100.0), (120, 300.0), (270, -700.0), (400, 0.0)]
    heard = bent_by_both(blank, wheel, told=True)
    ends = [block * 128 / 480 - 1 for block, _ in [*wheel[1:], (640, 0.0)]]
    for (block, cents), end in zip(wheel, ends, strict=True):
        begins = max(0.0, block * 128 / 480 - 1)
        within = heard[round(begins) + 7 * (block > 0) : int(end)]
        assert len(within) > 20 and np.abs(within - cents).max() < 6, (cents, np.round(within, 1).tolist())


def test_where_nobody_says_how_a_sound_is_bent_it_is_left_as_it_came(blank: Any) -> None:
    """It would be bent twice."""
    heard = bent_by_both(blank, [(120, 300.0)], told=False)
    assert np.abs(heard[: 30 + 14]).max() < 3 and np.abs(heard[30 + 24 :] - 300).max() < 3


def test_while_the_context_stands_still_the_oldest_voices_make_room(blank: Any) -> None:
    """As where notes come over MIDI and the browser has suspended the page's sound: nothing is mixed."""
    mixer = MIXER.replace("%s", WORKLET.read_text())
    kept, ended = blank.evaluate(STANDING_STILL.replace("%s", mixer), 100)
    assert kept == 48
    assert ended == list(range(1, 53))
