"""The training of the codec: what is measured once is kept, a run goes on; the command line does it all."""

from __future__ import annotations

import argparse
import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from simple_notes import SyntheticSource

from timbrel_training.checkpoint import load_description, save_weights
from timbrel_training.codec import registry
from timbrel_training.codec.interface import WEIGHTS_NAME, codec_hash, codes_like, encode_note, unpacked_hash
from timbrel_training.codec.registry import load_codec
from timbrel_training.codec.timbrel_notes.analysed_notes import (
    AnalysedNotes,
    analyse_dataset,
    analyse_note,
    kept_analysis,
)
from timbrel_training.codec.timbrel_notes.codec import TimbrelNotes, TimbrelNotesConfig
from timbrel_training.codec.timbrel_notes.header import (
    LEVELS,
    HeaderConfig,
    ParameterLayer,
    header_error,
)
from timbrel_training.codec.timbrel_notes.header_prior import HeaderPrior
from timbrel_training.codec.timbrel_notes.note_parameters import N_VALUES, SHAPES
from timbrel_training.codec.timbrel_notes.train import ANALYSIS_FOLDER, CodecTrainingConfig, train_codec
from timbrel_training.codec.tokenize import tokenize_dataset
from timbrel_training.errors import CheckpointError, ConfigError
from timbrel_training.loop import LoopConfig
from timbrel_training.notes.dataset import DatasetError, NoteDataset
from timbrel_training.notes.render import render_dataset
from timbrel_training.notes.split import Split, SplitRule
from timbrel_training.stages import STAGES
from timbrel_training.tokens.store import StoreError
from timbrel_training.tokens.table import TokenTable

CONFIG = CodecTrainingConfig(
    codec=TimbrelNotesConfig(n_templates=4, header=HeaderConfig(n_codes=6, width=24, n_blocks=1)),
    loop=LoopConfig(n_steps=60, n_warmup=5, validate_every=20, checkpoint_every=20, ema_decay=0.9),
    batch_size=8,
    jobs=1,
)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> NoteDataset:
    path = tmp_path_factory.mktemp("notes") / "notes"
    source = SyntheticSource(pitches=range(57, 61), n_draws=2, sample_rate=48_000, max_held=0.8)
    render_dataset(source, path, jobs=1, rule=SplitRule(cell_fraction=0.25))
    return NoteDataset(path)


@pytest.fixture(scope="module")
def trained(dataset: NoteDataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained") / "codec"
    assert train_codec(CONFIG, dataset, folder) is not None
    return folder


def analysis_of(folder: Path) -> list[Path]:
    return sorted((folder / ANALYSIS_FOLDER).glob("*.npz"))


def test_a_trained_codec_is_read_back_and_codes_notes(dataset: NoteDataset, trained: Path) -> None:
    codec = load_codec(trained)
    audio = torch.from_numpy(dataset.audio(0))[None]
    pitch, held = torch.tensor([float(dataset.pitch[0])]), torch.tensor([float(dataset.held_seconds[0])])
    codes = codec.encode(audio, pitch, held)
    assert codes.shape == (1, codec.n_frames(audio.shape[1]), codec.n_codebooks)
    decoded = codec.decode(codes)
    assert decoded.isfinite().all() and decoded.shape[1] == (codes.shape[1] - codec.lead_frames) * 1280


def test_training_makes_the_parameters_truer(trained: Path) -> None:
    history = torch.load(trained / "checkpoint.pt", weights_only=False)["history"]
    assert [entry["step"] for entry in history] == [20, 40, 60]
    assert history[-1]["level"] < history[0]["level"]


def test_codes_that_pay_for_surprise_are_more_predictable(
    dataset: NoteDataset, trained: Path, tmp_path: Path
) -> None:
    plain = replace(CONFIG, rate_weight=0.0)
    costly = replace(CONFIG, rate_weight=0.3)
    nats = []
    for name, config in (("plain", plain), ("costly", costly)):
        (tmp_path / name).mkdir()
        shutil.copytree(trained / ANALYSIS_FOLDER, tmp_path / name / ANALYSIS_FOLDER)
        train_codec(config, dataset, tmp_path / name)
        nats.append(torch.load(tmp_path / name / "checkpoint.pt", weights_only=False)["history"][-1]["nats"])
    assert nats[1] < 0.8 * nats[0]


def test_a_prior_gives_every_step_a_probability_and_they_sum_to_one() -> None:
    prior = HeaderPrior(n_instruments=3, n_numbers=1).eval()
    steps = torch.linspace(-1, 1, LEVELS)[:, None]
    instrument = torch.full((LEVELS,), 2)
    midi, velocity = torch.full((LEVELS,), 60.0), torch.full((LEVELS,), 90.0)
    nats = prior.nats(steps, instrument, midi, velocity)
    assert float(torch.exp(-nats.detach()).sum()) == pytest.approx(1.0, abs=1e-4)


def test_an_interrupted_training_ends_as_one_that_was_not(
    dataset: NoteDataset, trained: Path, tmp_path: Path
) -> None:
    part = replace(CONFIG, loop=replace(CONFIG.loop, max_minutes=1e-6))
    folder = tmp_path / "codec"
    while (codec := train_codec(part, dataset, folder)) is None:
        part = replace(CONFIG, loop=replace(CONFIG.loop, max_minutes=0.01))
    whole = load_codec(trained).state_dict()
    assert all(torch.equal(value, whole[name]) for name, value in codec.state_dict().items())


def test_a_training_begins_from_another_codec(dataset: NoteDataset, trained: Path, tmp_path: Path) -> None:
    earlier = load_codec(trained)
    earlier.templates.table += 1  # templates that these notes would not give
    begin = tmp_path / "earlier"
    sources = [{"name": "recordings", "licence": "CC BY-NC 4.0"}]
    about = {**load_description(trained, WEIGHTS_NAME), "sources": sources}
    save_weights(begin, WEIGHTS_NAME, earlier, about)
    further = replace(
        CONFIG, init=str(begin), loop=replace(CONFIG.loop, n_steps=1, n_warmup=0, learning_rate=1e-9)
    )
    shutil.copytree(trained / ANALYSIS_FOLDER, tmp_path / "further" / ANALYSIS_FOLDER)
    codec = train_codec(further, dataset, tmp_path / "further")
    assert codec is not None
    start = earlier.state_dict()
    for name, value in codec.state_dict().items():
        assert torch.allclose(value.double(), start[name].double(), atol=1e-6), name
    assert load_description(tmp_path / "further", WEIGHTS_NAME)["sources"] == sources
    # Its codes mean about the same, and so do those of the next one.
    assert codes_like(tmp_path / "further") == (codec_hash(begin), unpacked_hash(begin))
    next_one = replace(further, init=str(tmp_path / "further"))
    shutil.copytree(trained / ANALYSIS_FOLDER, tmp_path / "next" / ANALYSIS_FOLDER)
    assert train_codec(next_one, dataset, tmp_path / "next") is not None
    assert codes_like(tmp_path / "next") == tuple(
        hash_of(folder) for folder in (tmp_path / "further", begin) for hash_of in (codec_hash, unpacked_hash)
    )
    tokenize_dataset(dataset, codec, "of further", tmp_path / "tokens.bin", folder=tmp_path / "further")
    table = TokenTable.read(tmp_path / "tokens.bin")
    assert table.header.codes_like == (codec_hash(begin), unpacked_hash(begin)) and table.header.repeats


def test_products_are_added_to_a_codec_that_has_none_and_begin_as_nothing(
    dataset: NoteDataset, trained: Path, tmp_path: Path
) -> None:
    def ranked(rank: int, init: Path, name: str, rate: float) -> TimbrelNotes:
        loop = replace(CONFIG.loop, n_steps=20, n_warmup=0, learning_rate=rate, ema_decay=0.5)
        sizes = replace(CONFIG.codec, header=replace(CONFIG.codec.header, rank=rank))
        shutil.copytree(trained / ANALYSIS_FOLDER, tmp_path / name / ANALYSIS_FOLDER)
        codec = train_codec(replace(CONFIG, codec=sizes, init=str(init), loop=loop), dataset, tmp_path / name)
        assert isinstance(codec, TimbrelNotes)
        return codec

    earlier = load_codec(trained)
    assert isinstance(earlier, TimbrelNotes)
    codes, midi = torch.randint(1000, (5, 6)), torch.linspace(57, 60, 5)
    before = earlier.header.decode(codes, midi)
    same = ranked(3, trained, "same", 1e-9).header
    torch.testing.assert_close(same.decode(codes, midi), before, atol=1e-4, rtol=0)
    learnt = ranked(3, tmp_path / "same", "learnt", 1e-2).header
    products = learnt.decoder[-1]
    assert isinstance(products, ParameterLayer)
    assert products.courses.weight.abs().max() > 1e-3
    with pytest.raises(CheckpointError, match="its codec's rank is 3, 0 or 2 is needed"):
        ranked(2, tmp_path / "same", "less", 1e-9)


def test_a_training_begins_from_no_codec_of_other_sizes(
    dataset: NoteDataset, trained: Path, tmp_path: Path
) -> None:
    wider = replace(CONFIG.codec, header=replace(CONFIG.codec.header, width=32))
    with pytest.raises(CheckpointError, match="no timbrel-notes of these sizes"):
        train_codec(replace(CONFIG, codec=wider, init=str(trained)), dataset, tmp_path / "further")
    with pytest.raises(CheckpointError, match="choose another folder to train in"):
        train_codec(replace(CONFIG, init=str(trained)), dataset, trained)
    with pytest.raises(CheckpointError, match="nowhere"):
        train_codec(replace(CONFIG, init=str(tmp_path / "nowhere")), dataset, tmp_path / "further")
    (tmp_path / "nested").mkdir()
    (tmp_path / "nested" / "codec.json").write_text("[" * 100_000)
    with pytest.raises(CheckpointError, match=r"codec\.json: damaged JSON"):
        train_codec(replace(CONFIG, init=str(tmp_path / "nested")), dataset, tmp_path / "further")
    later = {**load_description(trained, WEIGHTS_NAME), "config": {"header": {}, "of_a_later_version": 1}}
    save_weights(tmp_path / "later", WEIGHTS_NAME, load_codec(trained), later)
    with pytest.raises(CheckpointError, match="later: holds no timbrel-notes of these sizes"):
        train_codec(replace(CONFIG, init=str(tmp_path / "later")), dataset, tmp_path / "further")
    unlike = {**load_description(trained, WEIGHTS_NAME), "codes_like": 5}
    save_weights(tmp_path / "unlike", WEIGHTS_NAME, load_codec(trained), unlike)
    with pytest.raises(CheckpointError, match="codes_like of its description is no list of hashes"):
        train_codec(replace(CONFIG, init=str(tmp_path / "unlike")), dataset, tmp_path / "further")
    assert not (tmp_path / "further").exists()  # before notes are measured, which takes long


def test_levels_count_for_more_than_what_is_hardly_heard() -> None:
    values, weights = torch.zeros(1, N_VALUES), torch.ones(1, N_VALUES)
    errors = {}
    begin = 0
    for name, shape in SHAPES.items():
        off = values.clone()
        off[:, begin : begin + math.prod(shape)] = 3.0
        errors[name] = float(
            header_error(off, values, weights) - header_error(values, values, weights)
        ) / math.prod(shape)
        begin += math.prod(shape)
    assert errors["level"] > errors["release"] > errors["offset"] > errors["fine"]


def test_notes_are_measured_once_and_a_stopped_analysis_goes_on(dataset: NoteDataset, tmp_path: Path) -> None:
    notes = np.arange(6)
    first = analyse_dataset(dataset, notes, tmp_path, jobs=1)
    (file,) = tmp_path.glob("*.npz")
    before = file.stat().st_mtime_ns
    again = analyse_dataset(dataset, notes, tmp_path, jobs=1)
    assert file.stat().st_mtime_ns == before and len(again) == 6
    file.unlink()
    (tmp_path / "00000.part.npz").write_bytes(b"half")
    third = analyse_dataset(dataset, notes, tmp_path, jobs=1)
    assert np.array_equal(first.values, third.values)


def test_a_run_of_another_seed_measures_what_is_missing_alone(
    dataset: NoteDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("timbrel_training.codec.timbrel_notes.analysed_notes.NOTES_PER_FILE", 10)
    loop = replace(CONFIG.loop, n_steps=1, n_warmup=0)
    train_codec(replace(CONFIG, loop=loop), dataset, tmp_path)
    first, *others = analysis_of(tmp_path)
    first.unlink()
    before = [file.stat().st_mtime_ns for file in others]
    (tmp_path / "checkpoint.pt").unlink()
    train_codec(replace(CONFIG, loop=replace(loop, seed=1)), dataset, tmp_path)
    assert [file.stat().st_mtime_ns for file in others] == before
    measured = np.concatenate([np.load(file)["notes"] for file in analysis_of(tmp_path)])
    assert sorted(measured) == dataset.of_split(Split.TRAIN, Split.HELD_OUT_CELL).tolist()


@pytest.mark.parametrize(
    ("words", "device"), [([], "cpu"), (["--device", "auto"], "auto"), (["--set", "codec.jobs=1"], "cpu")]
)
def test_the_configs_device_counts_unless_the_command_line_names_one(
    dataset: NoteDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], device: str
) -> None:
    seen: list[str] = []
    design = registry.design_named(registry.DEFAULT)
    told = replace(design, train=lambda config, *_: seen.append(config.device))
    monkeypatch.setattr(registry, "design_of", lambda _: told)
    (tmp_path / "own.toml").write_text('extends = "tiny"\n[codec]\ndevice = "cpu"\n')
    config = ("--config", tmp_path / "own.toml", *words)
    run("codec", *config, "--notes", dataset.path, "--out", tmp_path / "codec")
    assert seen == [device]


def test_notes_that_training_measured_are_not_heard_again(dataset: NoteDataset, trained: Path) -> None:
    codec = load_codec(trained)
    codec.search_steps = 0  # half precision sends a search other ways
    known = codec.known_codes(dataset, trained)
    assert sorted(known) == dataset.of_split(Split.TRAIN, Split.HELD_OUT_CELL).tolist()
    for note in sorted(known)[:3]:
        pitch, held = float(dataset.pitch[note]), float(dataset.held_seconds[note])
        heard = encode_note(codec, torch.from_numpy(dataset.audio(note)), pitch, held).numpy()
        assert known[note].shape == heard.shape and np.array_equal(known[note][:, :2], heard[:, :2])
        assert (known[note] != heard).mean() < 0.02  # half precision


def test_held_out_instruments_are_measured_once_too(tmp_path: Path) -> None:
    source = SyntheticSource(3, range(57, 60), n_draws=1, sample_rate=48_000, max_held=0.3)
    rule = SplitRule(cell_fraction=0.0, instruments=("Synthetic 1",))
    render_dataset(source, tmp_path / "notes", jobs=1, rule=rule)
    dataset, folder = NoteDataset(tmp_path / "notes"), tmp_path / "codec"
    one_step = replace(CONFIG, loop=replace(CONFIG.loop, n_steps=1, n_warmup=0))
    codec = train_codec(one_step, dataset, folder)
    assert codec is not None
    kept = kept_analysis(dataset, folder / ANALYSIS_FOLDER)
    assert kept is not None and kept.notes.tolist() == dataset.of_split(Split.TRAIN).tolist()
    known = codec.known_codes(dataset, folder)
    assert sorted(known) == list(range(len(dataset)))
    audio, (note, *_) = torch.from_numpy(dataset.audio(3)), dataset.of_split(Split.HELD_OUT_INSTRUMENT)
    heard = encode_note(codec, audio, float(dataset.pitch[note]), float(dataset.held_seconds[note])).numpy()
    assert note == 3 and np.array_equal(known[note][:, :2], heard[:, :2])
    for each in (0, 3, 1, 8, 5):  # in whatever order they are asked for
        assert len(known[each]) == codec.n_frames(int(dataset.length[each]))
    before = [file.stat().st_mtime_ns for file in sorted(folder.rglob("*.npz"))]
    assert train_codec(one_step, dataset, folder) is not None
    assert len(before) == 2 and [file.stat().st_mtime_ns for file in sorted(folder.rglob("*.npz"))] == before


def test_a_damaged_measurement_is_one_clear_line(dataset: NoteDataset, tmp_path: Path) -> None:
    analyse_dataset(dataset, np.arange(4), tmp_path, 1)
    (kept,) = tmp_path.glob("*.npz")
    kept.write_bytes(kept.read_bytes()[:-100])
    with pytest.raises(DatasetError, match=r"00000\.npz: damaged \(.*\); delete it"):
        analyse_dataset(dataset, np.arange(4), tmp_path, 1)


def test_measurements_of_another_version_are_one_clear_line(dataset: NoteDataset, tmp_path: Path) -> None:
    analyse_dataset(dataset, np.arange(4), tmp_path, 1)
    (file,) = tmp_path.glob("*.npz")
    with np.load(file) as kept:
        fewer = {name: each[:, 1:] if name in ("values", "weights") else each for name, each in kept.items()}
    np.savez(file, **fewer)
    with pytest.raises(DatasetError, match=r"00000\.npz: measured by another version of timbrel; delete"):
        analyse_dataset(dataset, np.arange(4), tmp_path, 1)


def test_measurements_of_another_library_are_not_taken_for_this_ones(
    dataset: NoteDataset, trained: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "codec"
    shutil.copytree(trained, folder)
    for said in (b"beef", b"\xff\xfe"):  # damaged, it is not theirs either
        (folder / "analysis" / "dataset").write_bytes(said)
        assert not load_codec(folder).known_codes(dataset, folder)
        with pytest.raises(DatasetError, match="of another dataset of notes"):
            train_codec(CONFIG, dataset, folder)


def test_a_kept_analysis_is_what_was_measured(dataset: NoteDataset, tmp_path: Path) -> None:
    kept: AnalysedNotes = analyse_dataset(dataset, np.array([3, 5]), tmp_path, jobs=1)
    for row, note in enumerate((3, 5)):
        held, pitch = float(dataset.held_seconds[note]), float(dataset.pitch[note])
        exact, _ = analyse_note(dataset.audio(note), 48_000, pitch, held)
        assert np.abs(kept[row].values - exact.values).max() < 0.2  # half precision
        assert np.abs(kept[row].weights - exact.weights).max() < 0.01
        assert np.array_equal(kept[row].track, exact.track)
        assert kept[row].loudest_db == pytest.approx(exact.loudest_db)


def test_notes_at_another_rate_are_refused(tmp_path: Path) -> None:
    source = SyntheticSource(pitches=[60], n_draws=1, sample_rate=16_000, max_held=0.2)
    render_dataset(source, tmp_path / "notes", jobs=1)
    with pytest.raises(ConfigError, match=r"16000 Hz, but this codec works at 48000 Hz; render"):
        train_codec(CONFIG, NoteDataset(tmp_path / "notes"), tmp_path)


def run(stage: str, *words: object) -> int:
    parser = argparse.ArgumentParser()
    STAGES[stage].configure(parser)
    return int(STAGES[stage].run(parser.parse_args([str(word) for word in words])))


def test_tokens_say_whether_codes_repeat_those_of_the_header(
    dataset: NoteDataset, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    codec = load_codec(trained)
    monkeypatch.setattr(codec, "_codes", lambda *_: np.zeros((9, codec.n_codebooks), np.int64))
    codec.hold = None  # as a codec that says each frame anew
    tokenize_dataset(dataset, codec, "of another", tmp_path / "tokens.bin", folder=trained)
    assert not TokenTable.read(tmp_path / "tokens.bin").header.repeats


def test_tokens_that_were_begun_go_on_with_the_same_notes_alone(
    dataset: NoteDataset, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    codec, calls = load_codec(trained), iter(range(3))

    def interrupted(*_: object) -> object:
        return np.full((9, codec.n_codebooks), next(calls), np.int64)

    monkeypatch.setattr(codec, "_codes", interrupted)
    monkeypatch.setattr("timbrel_training.codec.timbrel_notes.codec.NOTES_AT_ONCE", 1)
    with pytest.raises(StopIteration):  # at the fourth note
        tokenize_dataset(dataset, codec, "hash", tmp_path / "tokens.bin", folder=trained)
    shutil.copytree(dataset.path, tmp_path / "notes")
    audio = tmp_path / "notes" / "audio.i16"
    audio.write_bytes(audio.read_bytes()[::-1])  # as many notes of these names, but of another sound
    with pytest.raises(StoreError, match="unfinished work of other notes"):
        tokenize_dataset(
            NoteDataset(tmp_path / "notes"), codec, "hash", tmp_path / "tokens.bin", folder=trained
        )


def test_notes_to_codec_to_tokens_from_the_command_line(
    dataset: NoteDataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    codec, tokens = tmp_path / "codec", tmp_path / "tokens.bin"
    with pytest.raises(CheckpointError, match="train it first"):
        run("tokens", "--notes", dataset.path, "--codec", codec, "--out", tokens)
    begin = ("codec", "--config", "tiny", "--notes", dataset.path, "--out", codec)
    assert run(*begin, "--set", "codec.loop.max_minutes=1e-9") == 3
    assert "run the same command again to go on" in capsys.readouterr().out
    assert run(*begin) == 0
    assert "noise release" in capsys.readouterr().out
    assert run("tokens", "--notes", dataset.path, "--codec", codec, "--out", tokens) == 0
    store = TokenTable.read(tokens)
    assert (store.n_notes, store.header.n_codebooks) == (len(dataset), 4)
    assert store.header.codec_hash == codec_hash(codec)
    with pytest.raises(ValueError, match="exists already"):
        run("tokens", "--notes", dataset.path, "--codec", codec, "--out", tokens)


def notes_of(folder: Path, rule: SplitRule | None = None, **source: object) -> NoteDataset:
    wanted: dict[str, Any] = {"pitches": (60, 61), "n_draws": 2, "sample_rate": 48_000, "max_held": 0.8}
    render_dataset(SyntheticSource(**wanted | source), folder, jobs=1, rule=rule or SplitRule())
    return NoteDataset(folder)


def test_a_codec_is_trained_on_notes_too_short_for_movement(tmp_path: Path) -> None:
    short = notes_of(tmp_path / "notes", max_held=0.2)
    config = replace(CONFIG, loop=replace(CONFIG.loop, n_steps=4))
    assert train_codec(config, short, tmp_path / "codec") is not None


def test_notes_that_the_codec_has_no_code_for_are_one_clear_line(tmp_path: Path) -> None:
    low = notes_of(tmp_path / "notes", pitches=(21, 60))
    with pytest.raises(ConfigError, match=r"MIDI pitch 21 to 60, this codec codes 24 to 109\.25"):
        train_codec(CONFIG, low, tmp_path / "codec")
    assert not (tmp_path / "codec").exists()


def test_a_library_that_is_held_out_whole_is_one_clear_line(tmp_path: Path) -> None:
    families = tuple(sorted(set(notes_of(tmp_path / "all").families)))
    held_out = notes_of(tmp_path / "notes", SplitRule(families=families))
    with pytest.raises(CheckpointError, match="no notes to train on in this split"):
        train_codec(CONFIG, held_out, tmp_path / "codec")


@pytest.mark.parametrize("rate", [24_000, 44_100, 96_000])
def test_pitch_is_measured_at_the_rate_of_the_notes(rate: int) -> None:
    time = np.arange(rate) / rate
    hertz = 440 * 2 ** ((60 - 69) / 12)
    audio = sum(np.sin(2 * np.pi * hertz * n * time) / n for n in range(1, 6)).astype(np.float32) / 4
    note, _ = analyse_note(audio, rate, 60.0, 0.8)
    assert np.median(note.track[4:20]) == pytest.approx(60, abs=0.03)
