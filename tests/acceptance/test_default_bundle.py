"""The bundle that ships, at full size: does it sound, is it what was trained, does it keep its word."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

import timbrel
from timbrel.pitch import is_in_tune
from timbrel_bundle.bundle import Bundle
from timbrel_server.config import default_bundle_path

pytestmark = pytest.mark.acceptance

SHARE_IN_TUNE = 0.95
"""Of the notes that `timbrel demo` renders, within 50 cents of the pitch asked by either of two trackers."""

FAINT_DB = -40.0
ABRUPT_DB = -20.0
"""A note that is as loud just before its end, beside its loudest, is heard to break off."""
SHARE_ABRUPT = 0.0025
"""Of notes: the shortest releases take no longer than the last frame."""
HELD = 1.5
"""Seconds."""
LOGIT_TOLERANCE = 1e-3
MAX_BUNDLE_BYTES = 60_000_000


@pytest.fixture(scope="module")
def client() -> Iterator[timbrel.Client]:
    with timbrel.Client(bundle=default_bundle_path()) as client:
        yield client


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A demo over more instruments and pitches than `make demo` takes."""
    folder: Path = tmp_path_factory.mktemp("demo")
    command = [Path(sys.executable).with_name("timbrel"), "demo", "--instruments", "12", "--pitches", "5"]
    subprocess.run([*command, "--out", folder], check=True)
    return folder


@pytest.fixture(scope="module")
def demo_notes(demo: Path) -> list[dict[str, Any]]:
    """What its notes.json says."""
    notes: list[dict[str, Any]] = json.loads((demo / "notes.json").read_text(encoding="utf-8"))
    return notes


def test_notes_are_in_tune(demo_notes: list[dict[str, Any]]) -> None:
    missed = [note for note in demo_notes if not is_in_tune(note["pitch"], note["pitch_measured"])]
    share = 1 - len(missed) / len(demo_notes)
    assert share >= SHARE_IN_TUNE, f"{share:.0%} in tune; missed: {[note['file'] for note in missed]}"


def test_no_note_is_cut_while_it_is_heard(demo_notes: list[dict[str, Any]], demo: Path) -> None:
    """What rings on for longer than a note may be has died away where it is cut."""
    cut = [
        note["file"]
        for note in demo_notes
        if note["truncated"] and loudness_at_end(demo / note["file"]) > FAINT_DB
    ]
    assert len(cut) <= len(demo_notes) // 20, f"cut at the cap: {cut}"


def loudness_at_end(path: Path) -> float:
    """The peak of a file's last tenth of a second, in dB beside its own."""
    audio, rate = soundfile.read(path)
    last = np.abs(audio[-rate // 10 :]).max()
    return float(20 * np.log10(max(last, 1e-9) / np.abs(audio).max()))


def test_a_longer_hold_gives_a_longer_note(client: timbrel.Client) -> None:
    for instrument in sustained(client):
        short, long = (
            sounding_seconds(client.generate(instrument, 60, seconds=held, seed=3)) for held in (0.5, 2.5)
        )
        assert long > short + 1.0, f"{instrument}: {short:.2f} s, then {long:.2f} s"


def test_takes_of_a_key_are_about_as_loud(client: timbrel.Client) -> None:
    """Four seeds of one key of every instrument, dB from the softest to the loudest."""
    points, seeds = client.timbre_map(), range(4)
    asked = [
        timbrel.NoteRequest(each.name, (each.pitch_min + each.pitch_max) // 2, 80, 0.8, seed)
        for each in points
        for seed in seeds
    ]
    levels = [level(note.audio, note.sample_rate, 0.0, 0.8) for note in client.generate_many(asked)]
    apart = np.ptp(np.reshape(levels, (len(points), len(seeds))), axis=1)
    print(f"{np.median(apart):.2f} dB apart in the median, {(apart > 3.0).sum()} more than 3 dB")
    assert np.median(apart) < 1.7
    assert (apart > 3.0).mean() < 0.22


@pytest.fixture(scope="module")
def held_notes(client: timbrel.Client) -> dict[str, timbrel.Note]:
    """What is sustained, held for HELD: some hundred notes, by what was asked."""
    asked = [
        timbrel.NoteRequest(instrument, key, seconds=HELD, seed=seed)
        for instrument in sustained(client)
        for seed, key in enumerate((48, 60, 72) * 4)
    ]
    assert len(asked) > 500
    names = [f"{note.timbre} {note.pitch} by seed {note.seed}" for note in asked]
    return dict(zip(names, client.generate_many(asked), strict=True))


def test_no_note_of_what_is_sustained_ends_while_its_key_is_held(
    held_notes: dict[str, timbrel.Note],
) -> None:
    """A model that may let go of a key by itself does so once in some hundred notes."""
    lengths = {name: len(note.audio) / note.sample_rate for name, note in held_notes.items()}
    early = {name: f"{seconds:.2f} s" for name, seconds in lengths.items() if seconds < HELD}
    print(f"{len(early)} of {len(lengths)} notes end early")
    assert not early


def test_notes_fade_before_they_end(held_notes: dict[str, timbrel.Note]) -> None:
    """A release that is drawn late, or an end that is drawn early, breaks a note off."""
    abrupt = {}
    for name, note in held_notes.items():
        seconds = len(note.audio) / note.sample_rate
        end = level(note.audio, note.sample_rate, seconds - 0.012, seconds - 0.004)
        loudest = max(level(note.audio, note.sample_rate, at, at + 0.03) for at in np.arange(0.0, HELD, 0.03))
        if end > loudest + ABRUPT_DB:
            abrupt[name] = f"{end - loudest:.0f} dB"
    print(f"{len(abrupt)} of {len(held_notes)} notes break off: {abrupt}")
    assert len(abrupt) <= SHARE_ABRUPT * len(held_notes)


def sounding_seconds(note: timbrel.Note) -> float:
    """How long a note is heard: faint tails may be longer one time than another."""
    loudness = np.abs(note.audio)
    heard = np.flatnonzero(loudness > 10 ** (FAINT_DB / 20) * loudness.max())
    return float(heard[-1] / note.sample_rate)


def test_the_release_follows_the_end_of_the_hold(client: timbrel.Client) -> None:
    """Played until the key is released, and clearly quieter soon after."""
    missed = []
    names = sustained(client)
    for instrument in names:
        note = client.generate(instrument, 60, seconds=2.0, seed=5)
        held = level(note.audio, note.sample_rate, 1.7, 1.95)
        after = level(note.audio, note.sample_rate, 2.5, 2.75)
        start = level(note.audio, note.sample_rate, 0.1, 0.6)
        if held < start - 25 or after > held - 6:
            missed.append(f"{instrument}: {start:.0f} dB, held {held:.0f} dB, after {after:.0f} dB")
    assert len(missed) <= len(names) // 8, missed


def sustained(client: timbrel.Client) -> list[str]:
    """Instruments that sound for as long as they are held; plucked and struck ones die away before."""
    families = {"Organ", "Brass", "Reed", "Pipe", "Synth Lead", "Ensemble"}
    return [point.name for point in client.timbre_map() if point.family in families]


def level(audio: np.ndarray, sample_rate: int, start: float, end: float) -> float:
    """RMS in dB of a stretch given in seconds; what lies past the end is silent."""
    piece = audio[int(start * sample_rate) : int(end * sample_rate)]
    return float(10 * np.log10(np.mean(np.square(piece)) + 1e-12)) if len(piece) else -120.0


def test_sixteen_notes_at_once_are_the_notes_alone(client: timbrel.Client) -> None:
    names = client.instruments()

    def render(index: int) -> np.ndarray:
        timbre = names[index % len(names)]
        return client.generate(timbre, 40 + 3 * index, 60 + 4 * index, 0.3 + 0.15 * index, seed=index).codes

    alone = [render(index) for index in range(16)]
    with ThreadPoolExecutor(16) as pool:
        together = list(pool.map(render, range(16)))
    for index, (one, other) in enumerate(zip(alone, together, strict=True)):
        np.testing.assert_array_equal(one, other, err_msg=f"request {index}")


def test_the_bundle_agrees_with_the_trained_model() -> None:
    bundle = Bundle.open(default_bundle_path())
    parity = bundle.manifest.parity
    assert parity.n_tokens > 0
    assert parity.max_logit_difference <= LOGIT_TOLERANCE
    assert parity.n_flips_outside_margin == 0


def test_the_bundle_is_small_and_says_where_it_comes_from() -> None:
    manifest = Bundle.open(default_bundle_path()).manifest
    assert sum(file.size for file in manifest.files) <= MAX_BUNDLE_BYTES
    assert manifest.training.sources
    assert all(source.licence for source in manifest.training.sources)
