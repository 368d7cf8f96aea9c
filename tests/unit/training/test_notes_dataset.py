"""The dataset of notes on disk."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from simple_notes import SyntheticSource

from timbrel_training.errors import TrainingError, WriteError
from timbrel_training.notes.cleaning import Cleaner, without_offset
from timbrel_training.notes.dataset import DatasetError, NoteDataset
from timbrel_training.notes.note import Note, SourceError
from timbrel_training.notes.render import render_dataset
from timbrel_training.notes.split import Split, SplitRule


def source() -> SyntheticSource:
    return SyntheticSource(n_instruments=3, pitches=range(60, 64), n_draws=2, max_held=0.3)


class InterruptedSource(SyntheticSource):
    """Fails at its last group, and counts what it was asked for."""

    def __init__(self, fails: bool) -> None:
        super().__init__(n_instruments=3, pitches=range(60, 64), n_draws=2, max_held=0.3)
        self.fails = fails
        self.asked: list[str] = []

    def notes(self, group: str) -> Iterator[Note]:
        self.asked.append(group)
        if self.fails and group == self.groups()[-1]:
            raise OSError("the disk is gone")
        return super().notes(group)


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("library") / "notes"
    render_dataset(source(), path, jobs=1)
    return path


def test_notes_come_back_within_16_bits_of_their_peak(path: Path) -> None:
    library = NoteDataset(path)
    assert len(library) == len(list(source())) == 24
    for i, note in enumerate(source()):
        heard = without_offset(note.audio, note.sample_rate)
        assert np.allclose(library.audio(i), heard, atol=float(np.abs(heard).max()) / 32767)
        assert library.audio(i).dtype == np.float32
        assert (library.name(i), library.pitch[i], library.velocity[i]) == (
            note.instrument,
            note.pitch,
            note.velocity,
        )
        assert library.families[library.family[i]] == note.family
        assert library.held_seconds[i] == pytest.approx(note.held_seconds)
        assert library.length[i] == len(note.audio) and not library.cut[i]


def test_a_piece_of_a_note_stays_within_it(path: Path) -> None:
    library = NoteDataset(path)
    whole = library.audio(1)
    assert np.array_equal(library.audio(1, 100, 50), whole[100:150])
    assert np.array_equal(library.audio(1, len(whole) - 10, 50), whole[-10:])


def test_splits_follow_the_rule(tmp_path: Path) -> None:
    rule = SplitRule(cell_fraction=0.3, instruments=("Synthetic 2",))
    summary = render_dataset(source(), tmp_path / "notes", jobs=1, rule=rule)
    library = NoteDataset(tmp_path / "notes")
    for i in range(len(library)):
        assert library.split[i] == rule.split_of(library.name(i), int(library.pitch[i]))
    assert set(library.split) == set(Split)
    assert len(library.of_split(Split.TRAIN)) == summary.splits["train"]
    assert len(library.of_split(Split.TRAIN, Split.HELD_OUT_CELL, Split.HELD_OUT_INSTRUMENT)) == len(library)


def test_several_processes_write_the_same_bytes(path: Path, tmp_path: Path) -> None:
    render_dataset(source(), tmp_path / "notes", jobs=2)
    assert files(tmp_path / "notes") == files(path)


def test_an_interrupted_rendering_goes_on_where_it_stopped(path: Path, tmp_path: Path) -> None:
    out = tmp_path / "notes"
    with pytest.raises(OSError, match="the disk is gone"):
        render_dataset(InterruptedSource(fails=True), out, jobs=1)
    assert not out.exists()
    resumed = InterruptedSource(fails=False)
    render_dataset(resumed, out, jobs=1)
    assert resumed.asked == ["Synthetic 2"]
    assert files(out) == files(path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["notes"]


def test_an_instruments_notes_need_not_fit_into_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mapped: list[int] = []
    memmap, fromfile = np.memmap, np.fromfile

    def watch(*given: Any) -> Any:
        found = memmap(*given)
        mapped.append(found.nbytes)
        return found

    def refuse(file: Any, *given: Any, **how: Any) -> Any:
        assert "<i2" not in given, "it is read at once"
        return fromfile(file, *given, **how)

    monkeypatch.setattr(np, "memmap", watch)
    monkeypatch.setattr(np, "fromfile", refuse)
    render_dataset(SyntheticSource(1, range(50, 55), n_draws=4), tmp_path / "notes", jobs=1)
    assert sum(mapped) == (tmp_path / "notes" / "audio.i16").stat().st_size


def test_silent_and_duplicate_notes_are_counted(tmp_path: Path) -> None:
    class Doubled(SyntheticSource):
        def notes(self, group: str) -> Iterator[Note]:
            for note in super().notes(group):
                yield note
                yield note

    doubled = Doubled(n_instruments=1, pitches=(60, 61), n_draws=10, max_held=0.2)
    silent = sum(bool(np.abs(note.audio).max() < 0.1) for note in doubled)
    summary = render_dataset(doubled, tmp_path / "notes", jobs=1, cleaner=Cleaner(silence_peak=0.1))
    assert 0 < silent < 40
    assert summary.dropped == {"silent": silent, "duplicate": 20 - silent // 2}
    assert summary.n_notes == 20 - silent // 2
    assert f"{silent} silent" in "\n".join(summary.lines())


def test_a_library_has_one_sample_rate(tmp_path: Path) -> None:
    class OtherRate(SyntheticSource):
        def notes(self, group: str) -> Iterator[Note]:
            self.sample_rate, wanted = 12_000, self.sample_rate
            made = list(super().notes(group))
            self.sample_rate = wanted
            return iter(made)

    slow = OtherRate(n_instruments=1, pitches=(60,), n_draws=1)
    render_dataset(slow, tmp_path / "notes", jobs=1)
    library = NoteDataset(tmp_path / "notes")
    [note] = slow
    assert library.sample_rate == 24_000 and note.sample_rate == 12_000
    assert abs(len(library.audio(0)) - 2 * len(note.audio)) <= 2


def test_nothing_usable_is_one_clear_line_and_leaves_nothing(tmp_path: Path) -> None:
    empty = SyntheticSource(n_instruments=1, pitches=(), n_draws=1)
    with pytest.raises(SourceError, match="no usable note in synthetic"):
        render_dataset(empty, tmp_path / "notes", jobs=1)
    assert not list(tmp_path.iterdir())


class CorruptSource(SyntheticSource):
    """Cannot read one of its groups, nor knows so before."""

    def __init__(self, corrupt: int | None) -> None:
        super().__init__(n_instruments=3, pitches=range(60, 64), n_draws=2, max_held=0.3)
        self.corrupt = corrupt

    def notes(self, group: str) -> Iterator[Note]:
        if self.corrupt is not None and group == self.groups()[self.corrupt]:
            raise SourceError("060.wav: not a readable WAV")
        return super().notes(group)


def test_a_source_that_cannot_be_read_leaves_nothing_but_what_it_rendered(path: Path, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"060\.wav"):
        render_dataset(CorruptSource(0), tmp_path / "notes", jobs=1)
    assert not list(tmp_path.iterdir())
    with pytest.raises(SourceError, match=r"060\.wav"):
        render_dataset(CorruptSource(2), tmp_path / "notes", jobs=1)
    assert len(list((tmp_path / "notes.partial").glob("*.npy"))) == 2
    render_dataset(CorruptSource(None), tmp_path / "notes", jobs=1)
    assert files(tmp_path / "notes") == files(path)


@pytest.mark.parametrize("n_bytes", [50, 20_000, 200_000])  # at the plan, at a note, as the parts are merged
def test_a_full_disk_is_one_clear_line_and_is_gone_on_from(
    path: Path, tmp_path: Path, full_disk: Callable[[int], AbstractContextManager[None]], n_bytes: int
) -> None:
    with full_disk(n_bytes), pytest.raises(WriteError, match=r"notes.*: cannot be written \(.*\); make room"):
        render_dataset(source(), tmp_path / "notes", jobs=1)
    assert not (tmp_path / "notes").exists()
    render_dataset(source(), tmp_path / "notes", jobs=1)
    assert files(tmp_path / "notes") == files(path)


class KilledSource(CorruptSource):
    """Ends the process that comes to one of its groups."""

    def notes(self, group: str) -> Iterator[Note]:
        if self.corrupt is not None and group == self.groups()[self.corrupt]:
            os._exit(9)
        return SyntheticSource.notes(self, group)


def test_a_worker_that_is_killed_is_one_clear_line_and_is_gone_on_from(path: Path, tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"a worker process was ended, perhaps for want of memory; "):
        render_dataset(KilledSource(2), tmp_path / "notes", jobs=2)
    assert not (tmp_path / "notes").exists()
    render_dataset(KilledSource(None), tmp_path / "notes", jobs=1)
    assert files(tmp_path / "notes") == files(path)


def test_an_existing_folder_is_not_overwritten(path: Path) -> None:
    with pytest.raises(SourceError, match="exists already"):
        render_dataset(source(), path, jobs=1)


@pytest.mark.parametrize("theirs", ["thesis.txt", "plan.json"])
def test_unfinished_work_of_others_is_left_alone(tmp_path: Path, theirs: str) -> None:
    file = tmp_path / "notes.partial" / theirs
    file.parent.mkdir()
    file.write_text('{"format": "a thesis"}')
    with pytest.raises(SourceError, match=r"notes\.partial: not of `timbrel train notes`; move it away"):
        render_dataset(source(), tmp_path / "notes", jobs=1)
    assert file.read_text() == '{"format": "a thesis"}'
    file.unlink()
    render_dataset(source(), tmp_path / "notes", jobs=1)


def test_unfinished_work_on_other_notes_is_not_lost(path: Path, tmp_path: Path) -> None:
    (other := CorruptSource(2)).n_draws = 1
    with pytest.raises(SourceError):
        render_dataset(other, tmp_path / "notes", jobs=1)
    work = tmp_path / "notes.partial"
    with pytest.raises(SourceError, match=r"notes\.partial: unfinished work on other notes, or with"):
        render_dataset(source(), tmp_path / "notes", jobs=1)
    assert len(list(work.glob("*.npy"))) == 2
    for part in work.glob("*.npy"):
        part.unlink()
    render_dataset(source(), tmp_path / "notes", jobs=1)  # nothing of it was done
    assert files(tmp_path / "notes") == files(path)


def test_a_damaged_library_is_one_clear_line(path: Path, tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="not a dataset of notes"):
        NoteDataset(tmp_path)
    for name, content in files(path).items():
        (tmp_path / name).write_bytes(content[:-5])
        for other, whole in files(path).items():
            if other != name:
                (tmp_path / other).write_bytes(whole)
        with pytest.raises(DatasetError, match=rf"{name}: "):
            NoteDataset(tmp_path)
    header = json.loads((path / "library.json").read_text()) | {"version": 9}
    (tmp_path / "library.json").write_text(json.dumps(header))
    with pytest.raises(DatasetError, match="dataset version 9, this timbrel reads 2"):
        NoteDataset(tmp_path)


@pytest.mark.parametrize(
    "said",
    [{"sources": None}, {"instruments": [{"name": "a"}]}, {"n_samples": "many"}, {"sample_rate": None}],
)
def test_a_damaged_header_is_one_clear_line(path: Path, tmp_path: Path, said: dict[str, object]) -> None:
    shutil.copytree(path, tmp_path / "notes")
    file = tmp_path / "notes" / "library.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | said))
    with pytest.raises(DatasetError, match=r"library\.json: damaged; render the dataset again"):
        NoteDataset(tmp_path / "notes")


@pytest.mark.parametrize(
    ("column", "value"),
    [("offset", -1), ("length", 1 << 30), ("scale", np.nan), ("instrument", 3), ("source", -1), ("split", 7)],
)
def test_a_damaged_row_is_one_clear_line(path: Path, tmp_path: Path, column: str, value: float) -> None:
    shutil.copytree(path, tmp_path / "notes")
    index = np.load(path / "index.npy")
    index[column][5] = value
    np.save(tmp_path / "notes" / "index.npy", index)
    with pytest.raises(DatasetError, match=r"index\.npy: damaged; render the dataset again"):
        NoteDataset(tmp_path / "notes")


def test_there_may_be_more_samples_than_32_bits_count(path: Path, tmp_path: Path) -> None:
    shutil.copytree(path, tmp_path / "notes")
    file = tmp_path / "notes" / "library.json"
    n_samples = 2**31 + 1000
    file.write_text(json.dumps(json.loads(file.read_text()) | {"n_samples": n_samples}))
    os.truncate(tmp_path / "notes" / "audio.i16", 2 * n_samples)  # takes no room
    index = np.load(path / "index.npy")
    index["offset"][-1] = n_samples - int(index["length"][-1])
    np.save(tmp_path / "notes" / "index.npy", index)
    assert not NoteDataset(tmp_path / "notes").audio(len(index) - 1).any()


def test_an_index_that_numpy_cannot_begin_to_read_is_one_clear_line(path: Path, tmp_path: Path) -> None:
    shutil.copytree(path, tmp_path / "notes")
    file = tmp_path / "notes" / "index.npy"
    file.write_bytes(file.read_bytes().replace(b"}", b"(", 1))
    with pytest.raises(DatasetError, match=r"index\.npy: missing or damaged"):
        NoteDataset(tmp_path / "notes")


@pytest.mark.parametrize(
    "split", ["8 %", 3, {"fraction": 0.1}, {"cell_fraction": "a"}, {"spacings": ["a"]}, None]
)
def test_a_library_that_does_not_say_what_was_held_out_is_one_clear_line(
    path: Path, tmp_path: Path, split: object
) -> None:
    shutil.copytree(path, tmp_path / "notes")
    file = tmp_path / "notes" / "library.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"split": split}))
    with pytest.raises(DatasetError, match=r"library\.json: damaged; render the dataset again"):
        _ = NoteDataset(tmp_path / "notes").rule
