"""Fine-tuning, but for the training itself: places on the map, rehearsal, and what is mixed with it."""

from __future__ import annotations

import copy
import dataclasses
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch

from timbrel_bundle.manifest import LONGEST_TEXT
from timbrel_bundle.timbre_map import name_key
from timbrel_posttraining.finetune.base import NoteRanges
from timbrel_posttraining.finetune.rehearsal import BETWEEN, RehearsalPlan, write_rehearsal
from timbrel_posttraining.finetune.run import longer_config
from timbrel_posttraining.finetune.samples import check_names, find_place, new_points
from timbrel_posttraining.finetune.train import FineTuner, TrainingSet, divergence, gather
from timbrel_training.errors import ConfigError, TrainingError
from timbrel_training.model import ModelConfig, NoteTransformer
from timbrel_training.note_training.batches import BatchPlan
from timbrel_training.note_training.train import NoteTrainingConfig
from timbrel_training.notes.note import fold_name
from timbrel_training.notes.split import Split
from timbrel_training.posttraining_config import FineTuneConfig
from timbrel_training.timbre.map import MapPoint, TimbreMap
from timbrel_training.tokens.store import TokenHeader
from timbrel_training.tokens.table import TokenTable

WAIT_SECONDS = 60.0
CONFIG = FineTuneConfig(rehearsal_notes=3, near_notes=2, between_notes=40, distance=0.3)
RANGES = NoteRanges(pitch=(50, 70), velocity=(10, 120), held_frames=(2, 12))
POINTS = (MapPoint("Oud", "Plucked", 0.5, 0.0, 40, 60), MapPoint("Ney", "Blown", -0.5, 0.0, 66, 90))
CHART = TimbreMap(POINTS)


def point(x: float, y: float) -> np.ndarray:
    return np.array([x, y], dtype=np.float32)


def test_a_free_place_is_taken_as_it_is() -> None:
    wanted = point(0.3, 0.1)
    assert (find_place(wanted, np.array([[0.5, 0.5]], np.float32), 0.2) == wanted).all()
    assert (find_place(wanted, np.zeros((0, 2), np.float32), 0.2) == wanted).all()


def test_two_instruments_never_share_a_place() -> None:
    generator = np.random.default_rng(0)
    radius, angle = np.sqrt(generator.random(30)), 2 * np.pi * generator.random(30)
    taken = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1).astype(np.float32)
    for each in taken:
        found = find_place(each, taken, 0.06)
        assert np.linalg.norm(taken - found, axis=1).min() >= 0.06
        assert np.linalg.norm(found) <= 1.0
        assert np.linalg.norm(found - each) <= 0.3  # nowhere near the other end of the map


def test_a_full_disc_gives_its_roomiest_place() -> None:
    taken = np.array([[0.0, 0.0], [0.1, 0.0]], dtype=np.float32)
    found = find_place(point(0.0, 0.0), taken, 5.0)
    assert np.linalg.norm(taken - found, axis=1).min() > 0.9


def plan(taken: np.ndarray | None = None, chart: TimbreMap = CHART) -> RehearsalPlan:
    return RehearsalPlan.draw(chart, np.zeros((0, 2), np.float32) if taken is None else taken, RANGES, CONFIG)


def test_a_plan_stays_within_what_instruments_and_bundle_know() -> None:
    found = plan()
    assert len(found) == 2 * 3 + 40
    names = np.array([name for name, _ in found.names])
    oud, ney = names == "Oud", names == "Ney"
    assert (oud.sum(), ney.sum(), (names == BETWEEN).sum()) == (3, 3, 40)
    assert (found.timbre[oud] == point(0.5, 0.0)).all() and (found.timbre[ney] == point(-0.5, 0.0)).all()
    assert (np.linalg.norm(found.timbre, axis=1) <= 1).all()
    assert found.pitch[oud].min() >= 50 and found.pitch[oud].max() <= 60
    assert found.pitch[ney].min() >= 66 and found.pitch.max() <= 70
    assert found.velocity.min() >= 10 and found.velocity.max() <= 120
    assert found.held_frames[0] >= 2 and found.held_frames[-1] <= 12
    assert (np.diff(found.held_frames) >= 0).all()
    again = plan()
    assert (again.pitch == found.pitch).all() and (again.timbre == found.timbre).all()


def test_nothing_is_rehearsed_where_a_new_instrument_will_be() -> None:
    new = np.array([[0.0, 0.2]], dtype=np.float32)
    found = plan(new)
    between = found.timbre[[name == BETWEEN for name, _ in found.names]]
    assert 0 < len(between) < 40
    assert (np.linalg.norm(between - new, axis=1) >= 0.3).all()


def test_neighbours_of_a_new_instrument_are_rehearsed_more() -> None:
    far = MapPoint("Zurna", "Blown", 0.5, 0.1, 50, 70)  # the chart's spacing becomes 0.1
    found = plan(np.array([[0.6, 0.0]], np.float32), TimbreMap((*POINTS, far)))
    names = np.array([name for name, _ in found.names])
    assert ((names == "Oud").sum(), (names == "Zurna").sum(), (names == "Ney").sum()) == (5, 5, 3)


@pytest.fixture
def model() -> NoteTransformer:
    torch.manual_seed(0)
    return NoteTransformer(
        ModelConfig(16, 3, d_model=16, n_heads=2, n_kv_heads=2, d_feed_forward=16, max_frames=40)
    ).eval()


HEADER = TokenHeader("test", "0", 24_000, 480, 3, 16)


def test_rehearsal_is_written_in_the_order_of_its_plan(model: NoteTransformer, tmp_path: Path) -> None:
    write_rehearsal(model, plan(), HEADER, tmp_path / "whole.bin", CONFIG)
    store = TokenTable.read(tmp_path / "whole.bin")
    assert (store.pitch == plan().pitch).all() and (store.held_frames == plan().held_frames).all()
    assert ((store.n_frames == 40) == store.cut).all(), "a note that the cap ended has no known end"


WHERE = np.array([[0.1 * index, 0.2] for index in range(4)], dtype=np.float32)
"""Places of the table's instruments on the chart."""


def gathered(table: TokenTable, rehearsal: TokenTable | None) -> TrainingSet:
    n_rehearsed = 0 if rehearsal is None else rehearsal.n_notes
    points = np.resize(np.concatenate([CHART.centroids, [[0.0, -0.9]]]), (n_rehearsed, 2)).astype(np.float32)
    return gather(table, WHERE, rehearsal, points, CHART, 0.25)


def test_a_table_of_samples_and_rehearsal(table: TokenTable) -> None:
    rehearsal = dataclasses.replace(table, instruments=("A", "B", "C", "D"))
    notes = gathered(table, rehearsal)
    joined, n = notes.table, table.n_notes
    assert joined.n_notes == 2 * n and joined.instruments == (*table.instruments, "A", "B", "C", "D")
    assert (joined.note(n + 7) == table.note(7)).all() and (joined.note(7) == table.note(7)).all()
    assert (notes.conditions.centroid[:n] == WHERE[table.instrument]).all()
    assert (notes.conditions.centroid[n : n + 2] == CHART.centroids).all()


def test_what_is_learnt_and_rehearsed_stays_at_its_instruments_point(table: TokenTable) -> None:
    """New notes were learnt where each was heard, which is on top of old instruments, which they ousted."""
    notes = gathered(table, table)
    points = np.concatenate([CHART.centroids, WHERE])
    rows = np.flatnonzero((notes.conditions.centroid[:, None] == points).all(axis=2).any(axis=1))
    drawn = notes.conditions.draw(np.tile(rows, 20), 0.5, np.random.default_rng(0))
    nearest = np.linalg.norm(drawn[:, None] - points, axis=2).argmin(axis=1)
    own = (points[nearest] == notes.conditions.centroid[np.tile(rows, 20)]).all(axis=1)
    assert own.mean() > 0.9


def test_samples_and_rehearsal_are_told_apart(table: TokenTable) -> None:
    notes = gathered(table, table)
    assert (notes.samples == table.of_split(Split.TRAIN)).all()
    assert (notes.rehearsal == np.arange(table.n_notes, 2 * table.n_notes)).all()


def test_an_instrument_held_out_whole_is_trained_on_all_the_same(table: TokenTable) -> None:
    split = np.where(table.instrument == 2, int(Split.HELD_OUT_CELL), table.split)
    notes = gathered(dataclasses.replace(table, split=split), None)
    trained = set(notes.table.instrument[notes.samples].tolist())
    assert trained == {0, 1, 2, 3}


def tuner(table: TokenTable, model: NoteTransformer, **changes: float) -> FineTuner:
    """Learns `table` beside rehearsal of half of it."""
    training = NoteTrainingConfig(batch_steps=800)
    config = FineTuneConfig(training=training, **changes)
    return FineTuner(config, model, gathered(table, table), torch.device("cpu"))


def test_a_batch_is_split_by_its_share(table: TokenTable, model: NoteTransformer) -> None:
    found = tuner(table, model, sample_share=0.25)
    batches = [found.batch(step) for step in range(20)]
    learnt = sum(batch.samples.tokens.tokens[:, :, 0].numel() for batch in batches)
    rehearsed = sum(batch.rehearsal.tokens.tokens[:, :, 0].numel() for batch in batches if batch.rehearsal)
    assert learnt / (learnt + rehearsed) == pytest.approx(0.25, abs=0.06)
    assert (found.batch(3).samples.timbre == batches[3].samples.timbre).all()


@torch.no_grad()
def test_a_model_has_not_moved_from_itself(table: TokenTable, model: NoteTransformer) -> None:
    found = tuner(table, model)
    assert found.validate(model)["moved"] == pytest.approx(0.0, abs=1e-6)
    other = copy.deepcopy(model)
    other.decoder.heads.bias += torch.randn_like(other.decoder.heads.bias)
    assert found.validate(other)["moved"] > 0.1


def test_a_validation_leaves_the_batch_that_is_made_ahead_as_it_is(
    table: TokenTable, model: NoteTransformer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `prefetch` a thread makes the next step's batch, while the epoch of the step may change."""
    found, late = tuner(table, model), 60
    expected = tuner(table, model).batch(late).rehearsal
    begun, validated, load = threading.Event(), threading.Event(), BatchPlan._load

    def slow_load(plan: BatchPlan, epoch: int) -> None:
        load(plan, epoch)
        if threading.current_thread() is not threading.main_thread():
            begun.set()
            validated.wait(WAIT_SECONDS)

    monkeypatch.setattr(BatchPlan, "_load", slow_load)
    found._rehearsal_plan.batch(late)  # the epochs up to there are counted
    found._rehearsal_plan.batch(0)
    with ThreadPoolExecutor(1) as pool:
        ahead = pool.submit(found._rehearse, late)
        assert begun.wait(WAIT_SECONDS)
        with torch.no_grad():
            found.validate(model)
        validated.set()
        made = ahead.result(WAIT_SECONDS)
    assert made is not None and expected is not None
    assert made.tokens.tokens.shape == expected.tokens.tokens.shape
    assert (made.tokens.tokens == expected.tokens.tokens).all()


def test_rehearsal_pulls_a_model_back(table: TokenTable, model: NoteTransformer) -> None:
    found = tuner(table, model)
    batch = found.batch(0).rehearsal
    assert batch is not None
    with torch.no_grad():
        found.trainer.model.decoder.heads.bias += torch.randn_like(found.trainer.model.decoder.heads.bias)
    optimizer = torch.optim.Adam(found.trainer.model.parameters(), lr=0.02)
    moved = []
    for _ in range(30):
        loss = divergence(found.trainer.model, found.old, batch)
        moved.append(float(loss.detach()))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert moved[-1] < 0.3 * moved[0]


def test_new_points_have_the_pitches_of_their_samples(table: TokenTable) -> None:
    found = new_points(table, np.array([[0.1, 0.2]] * 4, dtype=np.float32))
    assert [each.instrument for each in found] == list(table.instruments)
    assert (found[0].pitch_min, found[0].pitch_max) == (60, 69)


def test_a_name_that_is_taken_is_refused() -> None:
    check_names(["Reed"], ["Violin"])
    with pytest.raises(TrainingError, match="has an instrument 'Violin' already"):
        check_names(["violin"], ["Violin"])
    with pytest.raises(TrainingError, match="has an instrument 'Grand Piano' already"):
        check_names(["grand  piano "], ["Grand Piano"])


@pytest.mark.parametrize(
    "name", ["Reed Organ", " reed  ORGAN\t", "STRASSE", "Stra\u00dfe", "a\u00a0b", "Flu\u0302te", ""]
)
def test_training_and_the_map_tell_instruments_apart_alike(name: str) -> None:
    assert fold_name(name) == name_key(name)


def test_the_account_of_a_training_stays_short_however_often_it_goes_on() -> None:
    text = "band"
    for number in range(60):
        text = longer_config(text, f"fine-tuned from mine-{number} 0123456789ab by config cpu")
        assert len(text) <= LONGEST_TEXT
        assert text.startswith("band; ") and f"; fine-tuned from mine-{number} " in text
    assert longer_config("cpu", "fine-tuned from a b by config c") == "cpu; fine-tuned from a b by config c"
    assert len(longer_config("x" * LONGEST_TEXT, "y" * 400)) <= LONGEST_TEXT


@pytest.mark.parametrize(
    ("field", "value"),
    [("sample_share", 0.0), ("rehearsal_top_p", 1.5), ("onset_variants", 0), ("distance", -1.0)],
)
def test_a_bad_config_names_the_field(field: str, value: float) -> None:
    with pytest.raises(ConfigError, match=field):
        FineTuneConfig(**{field: value})
