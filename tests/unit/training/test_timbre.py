"""Stage 1: the encoder, the losses that shape the map, and a tiny training from notes to files."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
import pytest
import torch
from requirements_gate import require_module
from safetensors.torch import save_file
from training_notes import with_header

from timbrel_training.config import load_config
from timbrel_training.errors import CheckpointError, ConfigError, TrainingError, WriteError
from timbrel_training.notes.dataset import NoteDataset
from timbrel_training.notes.split import Split
from timbrel_training.timbre import layout
from timbrel_training.timbre.encoder import TimbreEncoder, TimbreEncoderConfig, frame_mask
from timbrel_training.timbre.features import Levels, kept_features, levels_of
from timbrel_training.timbre.layout import N_SEGMENTS, acoustic_distances, lay_out, segment_means
from timbrel_training.timbre.log_mel import LogMel
from timbrel_training.timbre.map import TimbreMap, draw_map, measure, read_map
from timbrel_training.timbre.train import TimbreTrainer, TimbreTrainingConfig, load_encoder, train_timbre
from timbrel_training.tokens.table import TokenTable

CONFIG = TimbreEncoderConfig(n_frames=20, n_bands=32, n_channels=4, n_layers=2, width=16)
RATE = 16_000
HOP = 427
CPU = torch.device("cpu")


@pytest.fixture
def few_layout_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where instruments lie does not matter to a test of the training around them."""
    monkeypatch.setattr(layout, "N_STEPS", 100)


@pytest.fixture
def encoder() -> TimbreEncoder:
    torch.manual_seed(0)
    made = TimbreEncoder(CONFIG, RATE, 6)
    made.places.uniform_(-0.7, 0.7)
    made.mean.fill_(-50.0)
    made.deviation.fill_(20.0)
    return made.eval()


def tones(n_notes: int, n_samples: int) -> torch.Tensor:
    """Decaying tones [B, S] of random pitches, with some noise."""
    t = torch.arange(n_samples) / RATE
    hertz = 110 * 2 ** (3 * torch.rand(n_notes, 1))
    return 0.3 * torch.exp(-2 * t) * torch.sin(2 * torch.pi * hertz * t) + 0.001 * torch.randn(
        n_notes, n_samples
    )


@pytest.mark.parametrize("sample_rate", [8000, 16_000, 44_100, 48_000])
def test_levels_are_those_of_a_fourier_transform(sample_rate: int) -> None:
    log_mel = LogMel(sample_rate, 37.5, 4, 64, 40.0, 16_000.0)
    length, hop = len(log_mel.window), log_mel.hop_length
    torch.manual_seed(0)  # a band may hold next to nothing, and be rounded by more
    audio = torch.randn(2, 4 * hop)
    levels = log_mel(audio, torch.tensor([4 * hop, 4 * hop]))
    framed = torch.nn.functional.pad(audio, (length - hop, 0)).unfold(1, length, hop)
    power = torch.fft.rfft(framed * log_mel.window).abs().square()[:, :, :-1]
    torch.testing.assert_close(levels, 10 * torch.log10(power @ log_mel.bands), atol=1e-3, rtol=0)
    assert (log_mel.bands.sum(dim=0) > 0.99).all()  # none is empty


def test_bands_lie_where_they_should() -> None:
    log_mel = LogMel(48_000, 37.5, 40, 64, 40.0, 16_000.0)
    t = torch.arange(48_000) / 48_000
    audio = torch.stack([torch.sin(2 * torch.pi * hertz * t) for hertz in (60, 440, 15_000, 19_000)])
    levels = log_mel(audio, torch.full((4,), 48_000))[:, 20]
    loudest = levels.argmax(dim=1).tolist()
    assert loudest[0] <= 1 and loudest[0] < loudest[1] < loudest[2] and loudest[2] >= 61
    assert levels[3].max() < levels[2].max() - 50  # beyond the last band


def test_the_front_end_is_no_part_of_the_weights(encoder: TimbreEncoder) -> None:
    assert not [name for name in encoder.state_dict() if name.startswith("log_mel")]


def test_points_lie_in_the_unit_disc_for_notes_of_any_length(encoder: TimbreEncoder) -> None:
    for n_samples in (1, 7 * HOP, 20 * HOP, 55 * HOP):
        points, embeddings = encoder(tones(9, n_samples), torch.full((9,), n_samples))
        assert points.shape == (9, 2)
        assert points.square().sum(dim=1).max() <= 1 + 1e-5
        torch.testing.assert_close(embeddings.square().sum(dim=1), torch.ones(9))


def test_what_lies_behind_a_note_is_ignored(encoder: TimbreEncoder) -> None:
    audio = tones(3, 30 * HOP)
    n_samples = torch.tensor([4 * HOP - 99, 11 * HOP + 1, 20 * HOP])
    other = audio.clone()
    for row, length in enumerate(n_samples):
        other[row, int(length) :] = 9.0
    for one, another in zip(encoder(audio, n_samples), encoder(other, n_samples), strict=True):
        assert torch.equal(one, another)
    cropped = encoder(audio[:1, : 4 * HOP - 99], n_samples[:1])
    for one, another in zip(cropped, encoder(audio[:1], n_samples[:1]), strict=True):
        assert torch.allclose(one, another, atol=1e-5)


def test_how_loud_a_note_is_does_not_move_it(encoder: TimbreEncoder) -> None:
    audio, n_samples = tones(5, 15 * HOP), torch.full((5,), 15 * HOP)
    for one, another in zip(encoder(0.1 * audio, n_samples), encoder(audio, n_samples), strict=True):
        assert torch.allclose(one, another, atol=1e-3)


def test_a_crop_of_features_is_what_is_heard_of_cropped_audio(encoder: TimbreEncoder) -> None:
    audio, whole = tones(4, 30 * HOP), torch.full((4,), 30 * HOP)
    levels = encoder.log_mel(audio, whole)
    for n_frames in (1, 9, 20):
        heard, _ = encoder(audio[:, : n_frames * HOP], torch.full((4,), n_frames * HOP))
        assert torch.allclose(encoder.place(levels, torch.full((4,), n_frames)), heard, atol=1e-5)


def test_encoder_can_be_traced_with_any_length(encoder: TimbreEncoder) -> None:
    batch, samples = torch.export.Dim("batch", min=1), torch.export.Dim("samples", min=1)
    program = torch.export.export(
        encoder,
        (tones(2, 999), torch.tensor([999, 500])),
        dynamic_shapes=({0: batch, 1: samples}, {0: batch}),
    ).module()
    for n_samples in (3, 31 * HOP):
        audio, lengths = tones(4, n_samples), torch.tensor([1, 2, 3, n_samples])
        for one, another in zip(program(audio, lengths), encoder(audio, lengths), strict=True):
            assert torch.allclose(one, another, atol=1e-6)


def test_bad_shapes_of_the_encoder_are_refused() -> None:
    with pytest.raises(ConfigError, match="embedding_width"):
        TimbreEncoderConfig(embedding_width=0)
    with pytest.raises(ConfigError, match="lowest_hertz"):
        TimbreEncoderConfig(lowest_hertz=20_000.0)


def test_segments_are_means_of_a_notes_own_frames() -> None:
    levels = torch.arange(20.0)[None, :, None].expand(1, 20, 2)
    means, present = segment_means(levels, frame_mask(torch.tensor([5]), 20))
    assert means.shape == (1, N_SEGMENTS, 2) and means[0, 0, 0] == 0.0
    lengths = present[0, :, 0].tolist()
    assert lengths == sorted(lengths, reverse=True) and 0 < sum(lengths) < N_SEGMENTS
    whole, _ = segment_means(levels, torch.ones(1, 20, 1))
    assert (whole.diff(dim=1) > 0).all() and whole[0, -1, 0] > 14  # the last is the longest


def test_instruments_are_compared_at_pitches_that_both_play() -> None:
    """The third plays the first one's sound two octaves higher, where it would be as the second's."""
    pitch = np.array([48, 72, 48, 72, 72])
    instrument = np.array([0, 0, 1, 1, 2])
    sounds = np.array([0.0, 6.0, 4.0, 6.0, 5.0], np.float32)[:, None, None] * np.ones((5, 2, 3), np.float32)
    distances = acoustic_distances(sounds, np.ones((5, 2, 1), np.float32), pitch, instrument, 3)
    assert distances[0, 1] == pytest.approx(np.sqrt((16 + 0) / 2))
    assert distances[0, 2] == pytest.approx(1.0) == distances[1, 2]
    assert (distances == distances.T).all() and not distances.diagonal().any()


@pytest.mark.parametrize("n_groups", [3, 20])
def test_what_sounds_alike_lies_together_and_apart_enough(n_groups: int) -> None:
    rng = np.random.default_rng(0)
    kinds = np.repeat(rng.normal(0.0, 5.0, (n_groups, 20)), 4, axis=0)
    sounds = kinds + rng.normal(0.0, 1.0, kinds.shape)
    distances = np.linalg.norm(sounds[:, None] - sounds[None], axis=2)
    margin = 1.6 / np.sqrt(len(sounds))
    places = lay_out(distances, margin)
    assert np.array_equal(places, lay_out(distances, margin))
    assert np.linalg.norm(places, axis=1).max() <= 1 + 1e-6
    between = np.linalg.norm(places[:, None] - places[None], axis=2)
    np.fill_diagonal(between, np.inf)
    assert between.min() > 0.9 * margin
    assert (between.argmin(axis=1) // 4 == np.arange(len(sounds)) // 4).mean() > 0.9


@pytest.mark.parametrize("n_instruments", [1, 2, 3])
def test_few_instruments_have_places_too(n_instruments: int) -> None:
    places = lay_out(np.ones((n_instruments, n_instruments)) - np.eye(n_instruments), 0.8)
    assert places.shape == (n_instruments, 2) and np.isfinite(places).all()
    assert len(np.unique(places.round(2), axis=0)) == n_instruments


def test_figures_of_a_perfect_map(table: TokenTable) -> None:
    corners = np.array([[0.5, 0.5], [-0.5, 0.5], [-0.5, -0.5], [0.5, -0.5]], dtype=np.float32)
    jitter = 0.01 * np.random.default_rng(0).standard_normal((table.n_notes, 2)).astype(np.float32)
    figures = measure(corners[table.instrument] + jitter, TimbreMap.from_places(corners, table), table)
    assert figures.accuracy == figures.training_accuracy == 1.0
    assert figures.spacing == pytest.approx(1.0, abs=0.02)
    assert figures.separation > 30


def test_pitch_moves_no_notes_where_higher_instruments_lie_aside(table: TokenTable) -> None:
    corners = np.array([[0.5, 0.5], [-0.5, 0.5], [-0.5, -0.5], [0.5, -0.5]], dtype=np.float32)
    jitter = 0.01 * np.random.default_rng(0).standard_normal((table.n_notes, 2)).astype(np.float32)
    points, chart = corners[table.instrument] + jitter, TimbreMap.from_places(corners, table)
    aside = points + np.float32(0.1) * table.instrument[:, None].astype(np.float32)
    higher = dataclasses.replace(table, pitch=table.pitch + 12 * table.instrument)
    alone = measure(points, chart, table).pitch_correlation
    assert alone < 0.5
    assert measure(aside, chart, higher).pitch_correlation == pytest.approx(alone, abs=1e-4)


def test_names_with_dollars_are_drawn_as_they_are_whatever_a_user_s_settings(
    table: TokenTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The picture is the last that hours of training write."""
    require_module("matplotlib", "demo")
    import matplotlib

    names = tuple(f"$\\{name}$" for name in table.instruments)
    odd = dataclasses.replace(table, instruments=names, families=("$_$",) * len(names))
    n_trained = len(np.unique(table.instrument[table.split == int(Split.TRAIN)]))
    chart = TimbreMap.from_places(np.zeros((n_trained, 2), np.float32), odd)
    for has_latex_for_texts in (False, True):
        monkeypatch.setitem(matplotlib.rcParams, "text.usetex", has_latex_for_texts)
        draw_map(tmp_path / "map.png", chart, np.zeros((len(table.pitch), 2), np.float32), odd)
        assert (tmp_path / "map.png").stat().st_size > 1000


def test_training_writes_a_map_that_tells_instruments_apart(
    tmp_path: Path, library_table: TokenTable, library_dir: Path
) -> None:
    table, notes = library_table, NoteDataset(library_dir)
    changes = ["loop.n_steps=150", "loop.learning_rate=0.005", "shift_bands=0"]
    changes += ["recorded_share=0.0", "disturbed_share=0.0", "foreign_share=0.0"]
    config = load_config("tiny", [f"timbre.{change}" for change in changes]).timbre
    figures = train_timbre(config, table, notes, tmp_path, CPU)
    assert figures["training_accuracy"] > 0.9  # eight pitches are too few to tell held-out ones by
    written = json.loads((tmp_path / "timbre_map.json").read_text())["points"]
    assert [point["instrument"] for point in written] == list(table.instruments)
    training = (table.split == Split.TRAIN) & (table.instrument == 0)
    assert written[0]["pitch_min"] == table.pitch[training].min()
    chart, points = read_map(tmp_path)
    assert points.shape == (table.n_notes, 2)
    assert np.linalg.norm(points, axis=1).max() <= 1 + 1e-5
    assert chart == TimbreMap.from_places(load_encoder(tmp_path).places.numpy(), table)
    assert (tmp_path / "map.png").stat().st_size > 1000
    encoder = load_encoder(tmp_path)
    for row in range(5):  # but for the features' rounding to 16 bits
        audio = torch.from_numpy(notes.audio(row))[None]
        found = encoder(audio, torch.tensor([audio.shape[1]]))[0].detach().numpy()
        assert np.allclose(found, points[row], atol=0.01)


def replace_loop(config: TimbreTrainingConfig, **changes: float) -> TimbreTrainingConfig:
    return dataclasses.replace(config, loop=dataclasses.replace(config.loop, **changes))


@pytest.mark.slow
@pytest.mark.usefixtures("few_layout_steps")
def test_interrupted_training_of_the_map_ends_with_the_same_map(
    tmp_path: Path, library_table: TokenTable, library_dir: Path
) -> None:
    table, notes = library_table, NoteDataset(library_dir)
    config = load_config("tiny").timbre
    train_timbre(config, table, notes, tmp_path / "whole", CPU)
    train_timbre(replace_loop(config, max_minutes=1e-9), table, notes, tmp_path / "parts", CPU)
    (features,) = (tmp_path / "parts").glob("features-*")
    before = features.stat().st_mtime_ns
    train_timbre(config, table, notes, tmp_path / "parts", CPU)
    assert features.stat().st_mtime_ns == before  # computed once
    for name in ("timbre_encoder.safetensors", "note_timbres.npy", "timbre_map.json"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "parts" / name).read_bytes()


@pytest.mark.usefixtures("few_layout_steps")
def test_batches_are_notes_moved_by_some_bands_and_half_of_them_cropped(
    tmp_path: Path, library_table: TokenTable, library_dir: Path
) -> None:
    plain = ["recorded_share=0.0", "disturbed_share=0.0", "shift_bands=2", "batch_size=40"]
    config = load_config("tiny", [f"timbre.{change}" for change in plain]).timbre
    trainer = TimbreTrainer(config, library_table, NoteDataset(library_dir), tmp_path, CPU)
    batch, kept, moves = trainer.batch(3), trainer.features, set()
    n_cropped = 0
    assert len(batch.levels) == len(batch.n_frames) == 45  # five foreign sounds
    for levels, n_frames, instrument in zip(
        batch.levels[:40].numpy(), batch.n_frames[:40], batch.instrument[:40], strict=True
    ):
        alike = library_table.instrument == int(instrument)
        (row, move), *_ = [
            (row, move)
            for row in np.flatnonzero(alike & (library_table.split == Split.TRAIN))
            for move in range(-2, 3)
            if np.array_equal(np.roll(kept.levels[row], move, axis=1)[:, 2:-2], levels[:, 2:-2])
        ]
        moves.add(move)
        n_cropped += int(n_frames < kept.n_frames[row])
        assert n_frames <= kept.n_frames[row]
    assert moves == {-2, -1, 0, 1, 2} and 0 < n_cropped < 30
    assert torch.equal(trainer.batch(3).levels, batch.levels)


@pytest.mark.usefixtures("few_layout_steps")
def test_an_encoder_of_few_frames_hears_them_all(
    tmp_path: Path, library_table: TokenTable, library_dir: Path
) -> None:
    config = load_config("tiny", ["timbre.encoder.n_frames=10"]).timbre
    batch = TimbreTrainer(config, library_table, NoteDataset(library_dir), tmp_path, CPU).batch(0)
    assert batch.levels.shape[1] == int(batch.n_frames.max()) == 10


@pytest.mark.usefixtures("few_layout_steps")
def test_notes_that_are_not_the_table_s_are_refused(
    tmp_path: Path, table: TokenTable, library_table: TokenTable, library_dir: Path
) -> None:
    config, notes = load_config("tiny").timbre, NoteDataset(library_dir)
    with pytest.raises(TrainingError, match="the tokens are not of these notes"):
        train_timbre(config, table, notes, tmp_path, CPU)
    for changed in (
        dataclasses.replace(library_table, split=1 - library_table.split),  # what is not to be trained on
        dataclasses.replace(library_table, offsets=library_table.offsets // 2),  # held for as long otherwise
        with_header(library_table, sample_rate=24_000, hop_length=480),
    ):
        with pytest.raises(TrainingError, match="the tokens are not of these notes"):
            train_timbre(config, changed, notes, tmp_path, CPU)
    train_timbre(replace_loop(config, max_minutes=1e-9), library_table, notes, tmp_path, CPU)
    notes.header["seed"] = "another"
    with pytest.raises(CheckpointError, match="another"):
        train_timbre(config, library_table, notes, tmp_path, CPU)


def test_features_that_were_begun_are_gone_on_with(tmp_path: Path, encoder: TimbreEncoder) -> None:
    levels = levels_of(encoder, [note.numpy() for note in tones(5, 9 * HOP)])
    assert [len(each) for each in levels] == [9] * 5
    levels[2] = levels[2][:0]

    def tiring(done: int) -> Iterator[Levels]:
        yield from levels[done : done + 3]
        raise KeyboardInterrupt

    path = tmp_path / "features.f16"
    with pytest.raises(KeyboardInterrupt):
        kept_features(path, encoder, 5, tiring)
    with path.with_name("features.f16.partial").open("ab") as file:
        file.write(b"half a record")
    begun_at: list[int] = []
    kept = kept_features(path, encoder, 5, lambda done: begun_at.append(done) or levels[done:])
    assert begun_at == [3] and list(tmp_path.iterdir()) == [path]
    assert kept.n_frames.tolist() == [9, 9, 0, 9, 9]
    for row, each in enumerate(levels):
        assert np.array_equal(kept.levels[row, : len(each)], each) and not kept.levels[row, len(each) :].any()
    with pytest.raises(CheckpointError, match="not the features of these 6 notes; delete it"):
        kept_features(path, encoder, 6, tiring)


def test_a_full_disk_is_one_clear_line_and_features_are_gone_on_with(
    tmp_path: Path, encoder: TimbreEncoder, full_disk: Callable[[int], AbstractContextManager[None]]
) -> None:
    path, levels = tmp_path / "features.f16", levels_of(encoder, list(tones(3, 9 * HOP).numpy()))
    n_bytes = 4 + 2 * encoder.config.n_frames * encoder.config.n_bands
    with (
        full_disk(2 * n_bytes + n_bytes // 2),
        pytest.raises(WriteError, match=r"features\.f16: cannot be written \(.*\); make room and run"),
    ):
        kept_features(path, encoder, 3, lambda done: levels[done:])
    begun_at: list[int] = []
    kept = kept_features(path, encoder, 3, lambda done: begun_at.append(done) or levels[done:])
    assert begun_at == [2] and np.array_equal(kept.levels[:, :9], np.stack(levels))


def test_points_that_lie_nowhere_are_one_clear_line(tmp_path: Path) -> None:
    point = {"instrument": "A", "family": "B", "x": 0.1, "y": 0.2, "pitch_min": 60, "pitch_max": 61}
    points = np.zeros((3, 2), np.float32)
    for x, notes in ((math.nan, points), (0.1, points + np.nan), (0.1, points[:, :1]), (0.1, points[0])):
        (tmp_path / "timbre_map.json").write_text(json.dumps({"points": [{**point, "x": x}]}))
        np.save(tmp_path / "note_timbres.npy", notes)
        with pytest.raises(CheckpointError, match=f"^{tmp_path}: damaged timbre map"):
            read_map(tmp_path)
    np.save(tmp_path / "note_timbres.npy", points)
    file = tmp_path / "note_timbres.npy"
    file.write_bytes(file.read_bytes().replace(b"}", b"(", 1))
    with pytest.raises(CheckpointError, match=f"^{tmp_path}: damaged timbre map"):
        read_map(tmp_path)


def test_a_missing_map_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=f"^{tmp_path}: no timbre map .*train stage 1 first$"):
        read_map(tmp_path)
    with pytest.raises(CheckpointError, match="train it first"):
        load_encoder(tmp_path)
    before_channels = '{"sample_rate": 48000, "n_instruments": 4, "encoder": {"n_layers": 3, "width": 128}}'
    for older in (
        '{"latent_dim": 8}',
        '{"sample_rate": 48000, "encoder": {"embedding_width": 64}}',
        before_channels,
        '{"sample_rate": 48000, "n_instruments": 4, "encoder": null}',
    ):
        (tmp_path / "timbre_encoder.json").write_text(older)
        with pytest.raises(CheckpointError, match="of an older timbrel; train stage 1 again"):
            load_encoder(tmp_path)
    save_file({}, tmp_path / "timbre_encoder.safetensors")
    about = {"sample_rate": 48_000, "n_instruments": "four", "encoder": {"n_channels": 4, "n_layers": 1}}
    for damaged in (about, {**about, "n_instruments": 4, "encoder": {"n_channels": 4, "colour": 1}}):
        (tmp_path / "timbre_encoder.json").write_text(json.dumps(damaged))
        with pytest.raises(CheckpointError, match=r"timbre_encoder\.json: damaged .*; train stage 1 again"):
            load_encoder(tmp_path)
