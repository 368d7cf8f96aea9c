"""The plan of a library, and the keys of its notes."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from timbrel.library import LibraryJob
from timbrel.library.plan.notes import PlannedNote, codes_hash, job_key, note_key, plan_notes, plan_voice
from timbrel.library.plan.voice import Voice


def test_every_note_is_planned_once_in_a_fixed_order(job: LibraryJob) -> None:
    notes = list(plan_notes(job))
    assert notes == list(plan_notes(job))
    assert len(notes) == job.n_notes == 2 * 3 * 2 * 2
    assert len({note.file for note in notes}) == len(notes)
    assert [note.voice.name for note in notes] == ["Violin"] * 12 + ["Flute"] * 12


def test_a_stretch_of_the_plan_makes_no_more_instruments_than_it_needs(
    job: LibraryJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = list(plan_notes(job))
    for first in range(len(whole) + 1):
        for stop in range(first, len(whole) + 1):
            assert list(plan_notes(job, first, stop)) == whole[first:stop]
    planned: list[str] = []

    def count(job: LibraryJob, voice: Voice) -> tuple[PlannedNote, ...]:
        planned.append(voice.name)
        return plan_voice(job, voice)

    monkeypatch.setattr("timbrel.library.plan.notes.plan_voice", count)
    assert list(plan_notes(job, 12, 24)) == whole[12:] and planned == ["Flute"]


def test_file_names_are_safe_and_carry_midi_numbers(job: LibraryJob) -> None:
    first, second = list(plan_notes(job))[:2]
    assert first.file == "samples/Violin/Violin_060_v040_r1.wav"
    assert second.file == "samples/Violin/Violin_060_v040_r2.wav"
    single = replace(job, round_robins=1, file_format="flac")
    assert next(plan_notes(single)).file == "samples/Violin/Violin_060_v040.flac"
    assert all(re.fullmatch(r"[\w./-]+", note.file) for note in plan_notes(job))


def test_round_robins_and_attempts_never_share_a_seed(job: LibraryJob) -> None:
    notes = list(plan_notes(job))[:2]
    seeds = [note.order(job, attempt).seed for note in notes for attempt in range(100)]
    assert len(set(seeds)) == len(seeds)
    assert notes[0].order(job, 0).seed == job.seed


def test_a_key_changes_with_everything_that_decides_about_the_codes(job: LibraryJob) -> None:
    note = next(plan_notes(job))
    order, writer = note.order(job, 0), job.writer
    keys = [note_key(writer, order)]
    for changed in (
        replace(order, timbre=(0.5, 0.5001)),
        replace(order, pitch=61),
        replace(order, velocity=41),
        replace(order, seconds=1.01),
        replace(order, seed=2),
        replace(order, temperature=0.9),
        replace(order, top_k=255),
        replace(order, top_p=0.9),
    ):
        keys.append(note_key(writer, changed))
    for field in ("bundle_hash", "codec", "precision", "provider"):
        keys.append(note_key(replace(writer, **{field: "another"}), order))
    assert len(set(keys)) == len(keys)
    assert all(re.fullmatch(r"[0-9a-f]{64}", key) for key in keys)


def test_a_key_is_the_same_in_every_run(job: LibraryJob) -> None:
    """A constant: another value would throw away what people have rendered."""
    order = next(plan_notes(job)).order(job, 0)
    assert note_key(job.writer, order) == "641ef3ac4306b54d830082a207f20b7544fad123b1c1ca8f9e90a92a9d2134e5"


def test_a_job_differs_where_its_files_would(job: LibraryJob) -> None:
    assert job_key(job) == job_key(replace(job))
    assert job_key(job) != job_key(replace(job, file_format="flac"))
    assert job_key(job) != job_key(replace(job, pitches=(60, 64)))


@pytest.mark.parametrize("other", [[[1, 2, 3, 4]], [[1], [2], [3], [4]], [[1, 2], [3, 5]]])
def test_the_hash_of_codes_sees_their_shape(other: list[list[int]]) -> None:
    codes = np.array([[1, 2], [3, 4]], dtype=np.uint16)
    assert codes_hash(codes) != codes_hash(np.array(other, dtype=np.uint16))
    assert codes_hash(codes) == codes_hash(np.asfortranarray(codes))
