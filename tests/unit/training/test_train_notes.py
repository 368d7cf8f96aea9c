"""Stage 2: batches, conditions, the quick loss, and tiny trainings of the note transformer."""

from __future__ import annotations

import ast
import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from data import make_tiny_bundle
from oracle import generate
from safetensors.torch import save_file
from training_notes import with_header

from timbrel_training.checkpoint import (
    load_checkpoint,
    load_description,
    save_checkpoint,
    save_weights,
)
from timbrel_training.config import Config, load_config
from timbrel_training.errors import CheckpointError, TrainingError
from timbrel_training.generation import write_notes
from timbrel_training.model.config import FORMER_FIELDS, ModelConfig
from timbrel_training.model.sampling import Sampling
from timbrel_training.model.transformer import NoteTransformer
from timbrel_training.note_training.batches import BatchPlan, TimbreConditions
from timbrel_training.note_training.loss import header_loss, token_loss, training_loss
from timbrel_training.note_training.train import (
    MODEL,
    NoteTrainer,
    load_model,
    read_config,
    start_from,
    train_notes,
)
from timbrel_training.notes.split import Split
from timbrel_training.timbre.map import TimbreMap, map_hash, write_map
from timbrel_training.tokens.delay import IGNORED
from timbrel_training.tokens.table import TokenTable

CPU = torch.device("cpu")


@pytest.fixture
def config(table: TokenTable) -> Config:
    tiny = load_config("tiny")
    model = dataclasses.replace(
        tiny.model,
        codebook_size=table.header.codebook_size,
        n_codebooks=table.header.n_codebooks,
        digit_base=0,
        header_width=0,
        release_frames=1,
    )
    return dataclasses.replace(tiny, model=model)


CORNERS = np.array([[0.6, 0.6], [-0.6, 0.6], [-0.6, -0.6], [0.6, -0.6]], dtype=np.float32)
"""The instruments' places."""


def place(table: TokenTable) -> np.ndarray:
    """A point per note, near its instrument's."""
    noise = 0.02 * np.random.default_rng(0).standard_normal((table.n_notes, 2))
    return (CORNERS[table.instrument] + noise).astype(np.float32)


def make_trainer(config: Config, table: TokenTable, **changes: float) -> NoteTrainer:
    points = place(table)
    known = np.unique(table.instrument[table.split == Split.TRAIN])
    chart = TimbreMap.from_places(CORNERS[known], table)
    conditions = TimbreConditions.from_map(chart, points, table, 0.25)
    training = dataclasses.replace(config.note_training, **changes)
    return NoteTrainer(training, config.model, table, conditions, CPU)


def stage_1(folder: Path, table: TokenTable) -> Path:
    folder.mkdir(parents=True)
    points = place(table)
    write_map(folder, TimbreMap.from_places(CORNERS, table), points, table)
    return folder


def test_every_note_comes_once_an_epoch_within_the_budget() -> None:
    n_steps = np.random.default_rng(0).integers(5, 90, 300)
    plan = BatchPlan(n_steps, budget=400, seed=1, window=64)
    batches = []
    while plan.epoch_of(len(batches)) < 2:
        batches.append(plan.batch(len(batches)))
    notes = np.concatenate(batches)
    assert len(notes) == 600
    assert sorted(notes[:300]) == sorted(notes[300:]) == list(range(300))
    assert not np.array_equal(notes[:300], notes[300:])
    for batch in batches:
        assert n_steps[batch].max() * len(batch) <= 400
    padded = sum(n_steps[batch].max() * len(batch) for batch in batches)
    assert padded < 1.25 * n_steps.sum() * 2
    again = BatchPlan(n_steps, budget=400, seed=1, window=64)  # as after a resume, in the middle
    assert np.array_equal(again.batch(len(batches) - 1), batches[-1])


def test_a_note_longer_than_the_budget_still_gets_its_batch() -> None:
    plan = BatchPlan(np.array([50, 10, 10]), budget=20, seed=0)
    assert sorted(len(plan.batch(step)) for step in range(2)) == [1, 2]


def test_conditions_stay_in_the_disc_and_mix_own_points_with_centroids(table: TokenTable) -> None:
    points = place(table)
    chart = TimbreMap.from_places(CORNERS, table)
    conditions = TimbreConditions.from_map(chart, points, table, noise_fraction=0.0)
    notes = np.arange(table.n_notes)
    drawn = conditions.draw(notes, 0.5, np.random.default_rng(0))
    at_centroid = (drawn == conditions.centroid).all(axis=1)
    at_own = (drawn == conditions.own).all(axis=1)
    assert (at_centroid | at_own).all()
    assert 0.35 < at_centroid.mean() < 0.65
    noisy = TimbreConditions.from_map(chart, points, table, noise_fraction=0.25)
    assert noisy.noise.shape == (table.n_notes, 1) and noisy.noise.dtype == np.float32
    spread = noisy.draw(notes, 1.0, np.random.default_rng(0))
    assert np.linalg.norm(spread, axis=1).max() <= 1 + 1e-6
    assert (spread - noisy.centroid).std() > 0.1


def test_crowded_instruments_get_less_noise_and_none_more_than_the_median(table: TokenTable) -> None:
    corners = np.array([[0.0, 0.0], [0.1, 0.0], [0.5, 0.0], [-0.9, 0.0]], dtype=np.float32)
    points = corners[table.instrument]
    chart = TimbreMap.from_places(corners, table)
    assert chart.spacings == pytest.approx([0.1, 0.1, 0.4, 0.9])
    conditions = TimbreConditions.from_map(chart, points, table, noise_fraction=0.2)
    expected = 0.2 * np.array([0.1, 0.1, 0.25, 0.25])  # the median spacing is 0.25
    assert conditions.noise[:, 0] == pytest.approx(expected[table.instrument])
    notes = np.repeat(np.arange(table.n_notes), 50)
    moved = conditions.draw(notes, 1.0, np.random.default_rng(0)) - points[notes]
    for instrument, deviation in enumerate(expected):
        assert moved[table.instrument[notes] == instrument].std() == pytest.approx(deviation, rel=0.05)


def test_a_map_of_other_notes_is_refused(table: TokenTable) -> None:
    points = place(table)
    with pytest.raises(CheckpointError, match="train stage 1 on this store"):
        TimbreConditions.from_map(TimbreMap.from_places(CORNERS, table), points[:-1], table, 0.25)


def test_cut_notes_get_no_end(config: Config, table: TokenTable) -> None:
    trainer = make_trainer(config, table)
    notes = np.arange(20)
    batch = trainer.make_batch(notes, trainer.conditions.centroid[notes])
    ends = (batch.tokens.targets[:, :, 0] == trainer.layout.eos_id).any(dim=1).numpy()
    assert np.array_equal(ends, ~table.cut[notes])
    first = batch.tokens.targets[0, :, 0]
    assert (first != IGNORED).sum() == table.n_frames[0]


def test_training_draws_from_training_cells_alone(config: Config, table: TokenTable) -> None:
    trainer = make_trainer(config, table)
    pitches = np.concatenate([trainer.batch(step).pitch.numpy() for step in range(12)])
    assert len(pitches) > 100
    assert (table.split[trainer.training_notes] == Split.TRAIN).all()


def test_codes_that_repeat_are_asked_for_now_and_then(config: Config, table: TokenTable) -> None:
    leading = with_header(table, lead_frames=4)
    every, few = (make_trainer(config, leading, repeat_share=share) for share in (1.0, 0.2))
    all_targets, targets = every.batch(3).tokens.targets, few.batch(3).tokens.targets
    assert torch.equal(all_targets[:, :4], targets[:, :4])
    assert torch.equal(all_targets[:, :, :2], targets[:, :, :2])
    left = (targets != IGNORED)[:, 4:, 2:].sum() / (all_targets != IGNORED)[:, 4:, 2:].sum()
    assert 0.1 < left < 0.3


def test_all_codes_are_asked_for_of_a_codec_that_has_none_for_as_before(
    config: Config, table: TokenTable
) -> None:
    leading = with_header(table, lead_frames=4, repeats=False)
    every, few = (make_trainer(config, leading, repeat_share=share) for share in (1.0, 0.2))
    assert torch.equal(every.batch(3).tokens.targets, few.batch(3).tokens.targets)


def test_lead_frames_of_delayed_codebooks_lie_further_behind(config: Config, table: TokenTable) -> None:
    model = dataclasses.replace(config.model, codebook_delay=1, lead_frames=4)
    delayed = dataclasses.replace(config, model=model)
    leading = with_header(table, lead_frames=4, codebook_delay=1)
    every, few = (make_trainer(delayed, leading, repeat_share=share) for share in (1.0, 0.0))
    targets = few.batch(3).tokens.targets
    expected = every.batch(3).tokens.targets.clone()
    expected[:, 4 + 2 :, 2] = IGNORED  # step s says the frame s - 2 of codebook 2
    assert torch.equal(targets, expected)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_the_quick_loss_is_the_plain_loss(config: Config, table: TokenTable, precision: str) -> None:
    trainer = make_trainer(config, table)
    batch = trainer.batch(0)
    results = []
    for loss in (token_loss, training_loss):
        trainer.model.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bfloat16"):
            scores = loss(trainer.model, batch.timbre, batch.pitch, batch.velocity, batch.tokens)
        (scores.nats / scores.n_targets).mean().backward()
        gradient = torch.cat([p.grad.flatten() for p in trainer.model.parameters() if p.grad is not None])
        results.append((scores.nats.detach(), gradient))
    (nats, gradient), (quick_nats, quick_gradient) = results
    close = 1e-4 if precision == "float32" else 2e-2
    assert torch.allclose(nats, quick_nats, rtol=close)
    assert (gradient - quick_gradient).norm() < close * gradient.norm()


@pytest.mark.parametrize("config", [{"d_model": "wide"}, {"lead_frames": -1}, {"colour": "red"}, None])
def test_a_folder_of_no_model_that_is_known_is_one_clear_line(tmp_path: Path, config: object) -> None:
    model = {"codebook_size": 4, "n_codebooks": 2, **config} if isinstance(config, dict) else config
    (tmp_path / "model.json").write_text(json.dumps({"model": model}))
    with pytest.raises(CheckpointError, match="not a model that this timbrel knows"):
        load_model(tmp_path)


def test_a_model_larger_than_memory_is_one_clear_line(tmp_path: Path) -> None:
    model = {"codebook_size": 4, "n_codebooks": 2, "d_model": 2**40}
    (tmp_path / "model.json").write_text(json.dumps({"model": model}))
    with pytest.raises(CheckpointError, match="safetensors: cannot be read; train it first"):
        load_model(tmp_path)
    save_file({"weight": torch.zeros(1)}, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match="cannot be built"):
        load_model(tmp_path)


def test_a_config_larger_than_memory_is_one_clear_line(config: Config, table: TokenTable) -> None:
    model = dataclasses.replace(config.model, release_frames=2**40)
    with pytest.raises(CheckpointError, match="section model: a model of these sizes cannot be built"):
        make_trainer(dataclasses.replace(config, model=model), table)


@pytest.mark.parametrize("delay", [0, 1])
def test_lead_frames_weigh_as_much_as_all_behind_them(config: Config, table: TokenTable, delay: int) -> None:
    model = dataclasses.replace(config.model, codebook_delay=delay)
    trainer = make_trainer(dataclasses.replace(config, model=model), table)
    batch = trainer.batch(0)
    given = (batch.timbre, batch.pitch, batch.velocity)
    plain = NoteTransformer(trainer.model.config).eval()
    leading = NoteTransformer(dataclasses.replace(plain.config, lead_frames=4)).eval()
    leading.load_state_dict(plain.state_dict())
    parts = []
    _, n_steps, n_codebooks = batch.tokens.targets.shape
    frame = torch.arange(n_steps)[:, None] - delay * torch.arange(n_codebooks)  # that a step says
    for span in (frame < 4, frame >= 4):
        targets = torch.where(span, batch.tokens.targets, IGNORED)
        scores = token_loss(plain, *given, dataclasses.replace(batch.tokens, targets=targets))
        parts.append(scores.nats / scores.n_targets)
    scores = training_loss(leading, *given, batch.tokens)
    torch.testing.assert_close(
        scores.nats / scores.n_targets, torch.stack(parts).mean(dim=0), rtol=1e-4, atol=1e-5
    )


def test_the_model_learns_and_can_be_loaded(config: Config, table: TokenTable, tmp_path: Path) -> None:
    loop_config = dataclasses.replace(
        config.note_training.loop, n_steps=200, learning_rate=5e-3, validate_every=100
    )
    training = dataclasses.replace(config.note_training, loop=loop_config, batch_steps=256)
    timbre = stage_1(tmp_path / "timbre", table)
    loop = train_notes(training, config.model, table, timbre, tmp_path / "model", CPU)
    first, last = loop.history[0], loop.history[-1]
    assert last["training"] < first["training"]
    # The first codebook says the instrument (2 of 12 codes each), the second the pitch, the third is noise.
    assert last["held_out_0"] < 1.3 and last["held_out_1"] < 1.5
    assert last["held_out_2"] > 2.5
    model = load_model(tmp_path / "model")
    for name, tensor in loop.ema.model.state_dict().items():
        assert torch.equal(model.state_dict()[name], tensor)
    best = json.loads((tmp_path / "model" / "best.json").read_text())
    assert best["validation"]["held_out"] == min(entry["held_out"] for entry in loop.history)
    assert load_model(tmp_path / "model", "best").config == config.model
    description = (tmp_path / "model" / "model.json").read_text()
    assert '"held_seconds"' in description and '"note_transformer"' in description


@pytest.mark.parametrize(("shards", "precision"), [(1, "float32"), (2, "bfloat16")])
def test_interrupted_training_ends_with_the_same_weights(
    config: Config, table: TokenTable, tmp_path: Path, shards: int, precision: str
) -> None:
    config = dataclasses.replace(config, model=dataclasses.replace(config.model, dropout=0.15))
    timbre = stage_1(tmp_path / "timbre", table)
    loop = dataclasses.replace(config.note_training.loop, shards=shards, precision=precision)
    whole = dataclasses.replace(config.note_training, loop=loop)
    sitting = dataclasses.replace(whole, loop=dataclasses.replace(loop, max_minutes=1e-9))
    train_notes(whole, config.model, table, timbre, tmp_path / "whole", CPU)
    for _ in range(3):
        assert not train_notes(sitting, config.model, table, timbre, tmp_path / "parts", CPU).finished
    # The best so far is one of those that a whole run validates, wherever sittings end.
    assert (tmp_path / "parts" / "model.json").exists() and not (tmp_path / "parts" / "best.json").exists()
    train_notes(whole, config.model, table, timbre, tmp_path / "parts", CPU)
    for name in ("model.safetensors", "best.safetensors"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "parts" / name).read_bytes()


def test_a_store_without_training_notes_is_refused(config: Config, table: TokenTable) -> None:
    empty = dataclasses.replace(table, split=np.full(table.n_notes, int(Split.HELD_OUT_CELL)))
    with pytest.raises(TrainingError, match="no training notes"):
        make_trainer(config, empty)


@pytest.mark.parametrize(("delay", "n_kv_heads"), [(0, 2), (1, 2), (1, 1)])
def test_notes_written_together_are_those_of_the_oracle(delay: int, n_kv_heads: int) -> None:
    torch.manual_seed(3)
    sizes = {"codebook_size": 12, "n_codebooks": 3, "codebook_delay": delay, "max_frames": 15}
    config = ModelConfig(**sizes, d_model=32, n_heads=2, n_kv_heads=n_kv_heads)
    model = NoteTransformer(config).eval()
    with torch.no_grad():
        model.decoder.heads.bias[0, config.layout.eos_id] = 1.0  # so that some end early
    timbre = np.array([[0.1, 0.2], [-0.5, 0.3], [0.7, -0.1]], dtype=np.float32)
    pitch, velocity, held = np.array([60, 40, 72]), np.array([30, 100, 127], np.float32), np.array([3, 9, 1])
    notes = write_notes(model, timbre, pitch, velocity, held)
    for row, codes in enumerate(notes):
        point = (float(timbre[row, 0]), float(timbre[row, 1]))
        expected = generate(model, point, int(pitch[row]), float(velocity[row]), int(held[row]))
        assert np.array_equal(codes, expected.codes)
    drawn = [write_notes(model, timbre, pitch, velocity, held, Sampling(), seed) for seed in (1, 1, 2)]
    assert all(np.array_equal(a, b) for a, b in zip(drawn[0], drawn[1], strict=True))
    assert any(not np.array_equal(a, b) for a, b in zip(drawn[0], drawn[2], strict=True))


def test_a_run_can_begin_from_the_weights_of_another(
    config: Config, table: TokenTable, tmp_path: Path
) -> None:
    timbre = stage_1(tmp_path / "timbre", table)

    def train(out: str, init: str | None = None, *, n_steps: int = 20, minutes: float = 0.0) -> Path:
        loop = dataclasses.replace(config.note_training.loop, n_steps=n_steps, max_minutes=minutes)
        training = dataclasses.replace(config.note_training, loop=loop)
        start = None if init is None else tmp_path / init
        known = dataclasses.replace(table, sources=(f"notes of {out}",))
        train_notes(training, config.model, known, timbre, tmp_path / out, CPU, init=start)
        return tmp_path / out

    first = train("first", n_steps=60)
    fresh, further = train("fresh"), train("further", "first")
    scores = {
        folder.name: json.loads((folder / "model.json").read_text())["validation"]["training"]
        for folder in (first, fresh, further)
    }
    assert scores["further"] < scores["first"] < scores["fresh"]
    described = json.loads((further / "model.json").read_text())
    assert described["steps"] == 80
    assert described["sources"] == [{"name": "notes of further"}, {"name": "notes of first"}]
    train("parts", "first", minutes=1e-9)  # a sitting of one step
    parts = train("parts", "first")
    assert (parts / "model.safetensors").read_bytes() == (further / "model.safetensors").read_bytes()
    with pytest.raises(CheckpointError, match="another"):
        train("further", "fresh")


def test_a_model_of_an_earlier_codec_begins_a_run_where_codes_mean_the_same(
    config: Config, table: TokenTable, tmp_path: Path
) -> None:
    timbre = stage_1(tmp_path / "timbre", table)
    train_notes(config.note_training, config.model, table, timbre, tmp_path / "earlier", CPU)
    later = with_header(table, codec_hash="of a later codec")
    with pytest.raises(CheckpointError, match="codes of another codec"):
        train_notes(
            config.note_training,
            config.model,
            later,
            timbre,
            tmp_path / "later",
            CPU,
            init=tmp_path / "earlier",
        )
    like = with_header(later, codes_like=("of none", table.header.codec_hash))
    train_notes(
        config.note_training, config.model, like, timbre, tmp_path / "later", CPU, init=tmp_path / "earlier"
    )
    assert load_description(tmp_path / "later", MODEL)["codec_hash"] == "of a later codec"


def test_a_run_goes_on_from_a_model_that_counts_and_reads_less(
    config: Config, table: TokenTable, tmp_path: Path
) -> None:
    folder, smaller = tmp_path / "smaller", dataclasses.replace(config.model, dropout=0.0)
    train_notes(config.note_training, smaller, table, stage_1(tmp_path / "timbre", table), folder, CPU)
    larger = NoteTransformer(dataclasses.replace(smaller, digit_base=4, release_frames=9, dropout=0.1))
    start_from(folder, larger, (table.header.codec_hash,))
    request = ((0.3, 0.2), int(table.pitch[0]), 80.0, 3)
    assert np.array_equal(
        generate(load_model(folder), *request).codes, generate(larger.eval(), *request).codes
    )
    described = load_description(folder, MODEL)
    huge = {**described, "model": {**described["model"], "d_model": 2**40}}
    save_weights(tmp_path / "huge", MODEL, larger, huge)
    with pytest.raises(CheckpointError, match="differs in"):
        start_from(tmp_path / "huge", larger, (table.header.codec_hash,))
    description = {**described, "model": dataclasses.asdict(larger.config)}
    save_weights(tmp_path / "larger", MODEL, larger, description)
    with pytest.raises(CheckpointError, match="differs in release_frames, digit_base"):
        start_from(tmp_path / "larger", NoteTransformer(smaller), (table.header.codec_hash,))


def test_models_of_earlier_timbrels_are_read_if_they_are_of_the_kind_there_is(
    config: Config, tmp_path: Path
) -> None:
    stored = dataclasses.asdict(config.model)
    assert read_config(tmp_path, {"model": {**stored, **FORMER_FIELDS}}) == config.model
    for name, value, only in (("conditioning", "'prefix'", "cross"), ("attention_bias", "True", "False")):
        fault = rf"knows \({name} is {value}; it must be {only}\); train it"
        with pytest.raises(CheckpointError, match=fault):
            read_config(tmp_path, {"model": {**stored, name: ast.literal_eval(value)}})


def test_headers_are_learnt_by_a_network_of_their_own(config: Config, table: TokenTable) -> None:
    model = dataclasses.replace(config.model, lead_frames=4, header_width=24)
    leading = with_header(table, lead_frames=4)
    trainer = make_trainer(dataclasses.replace(config, model=model), leading, header_notes=7)
    batch, again = trainer.batch(3), trainer.batch(3)
    assert batch.headers is not None and again.headers is not None
    assert torch.equal(batch.headers.targets, again.headers.targets)
    assert batch.headers.targets.shape == (7, 4, table.header.n_codebooks)
    loss, figures = trainer.loss(batch)
    alone, _ = trainer.loss(dataclasses.replace(batch, headers=None))
    torch.testing.assert_close(loss.detach(), alone.detach() + figures["headers"])
    network = trainer.model.header
    assert network is not None
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-2)
    given = batch.headers.timbre, batch.headers.pitch, batch.headers.velocity, batch.headers.targets
    before = header_loss(trainer.model, *given).item()
    for _ in range(60):  # seven notes: it learns them by heart
        optimizer.zero_grad()
        header_loss(trainer.model, *given).backward()
        optimizer.step()
    trainer.model.eval()
    assert header_loss(trainer.model, *given).item() < before / 2
    rows = trainer.model.header_rows(*given[:3])
    assert rows is not None
    read = trainer.model.hidden(*given[:3], again.headers.targets, torch.ones(7, 4, dtype=torch.int64))
    torch.testing.assert_close(read, rows)  # so the heads read in a whole note, too


def test_a_run_begins_from_no_other_model(config: Config, table: TokenTable, tmp_path: Path) -> None:
    timbre = stage_1(tmp_path / "timbre", table)
    training, out = config.note_training, tmp_path / "out"
    train_notes(training, config.model, table, timbre, tmp_path / "first", CPU)
    first = tmp_path / "first"
    deeper = dataclasses.replace(config.model, n_decoder_layers=3, d_feed_forward=96)
    with pytest.raises(CheckpointError, match="differs in d_feed_forward, n_decoder_layers"):
        train_notes(training, deeper, table, timbre, out, CPU, init=first)
    other_codec = with_header(table, codec_hash="another")
    with pytest.raises(CheckpointError, match="codes of another codec"):
        train_notes(training, config.model, other_codec, timbre, out, CPU, init=first)
    with pytest.raises(CheckpointError, match="train it first"):
        train_notes(training, config.model, table, timbre, out, CPU, init=tmp_path / "nowhere")
    (first / "checkpoint.pt").unlink()
    before = (first / "model.safetensors").read_bytes()
    with pytest.raises(CheckpointError, match=r"would be overwritten .*; choose another folder"):
        train_notes(training, config.model, table, timbre, tmp_path / "." / "first", CPU, init=first)
    assert (first / "model.safetensors").read_bytes() == before and not out.exists()


def test_a_run_is_of_one_map_and_of_the_notes_that_it_learns(
    config: Config, table: TokenTable, tmp_path: Path
) -> None:
    training = config.note_training
    sitting = dataclasses.replace(training, loop=dataclasses.replace(training.loop, max_minutes=1e-9))
    timbre, out = stage_1(tmp_path / "timbre", table), tmp_path / "model"
    known = dataclasses.replace(table, notes_hash="of these")
    train_notes(sitting, config.model, known, timbre, out, CPU)
    turned = stage_1(tmp_path / "turned", table)
    write_map(turned, TimbreMap.from_places(-CORNERS, table), -place(table), table)
    others = dataclasses.replace(table, notes_hash="of others")
    for change, notes, folder in (("map_hash", known, turned), ("notes_hash", others, timbre)):
        with pytest.raises(CheckpointError, match=rf"of other data \({change}: '.*' there, '.*' here\)"):
            train_notes(training, config.model, notes, folder, out, CPU)
    earlier = load_checkpoint(out / "checkpoint.pt")
    del earlier["later_identity"]  # as earlier timbrels wrote it
    assert earlier["identity"]["model"].items() >= FORMER_FIELDS.items()  # likewise
    save_checkpoint(out / "checkpoint.pt", earlier)
    assert train_notes(training, config.model, known, timbre, out, CPU).finished
    described = load_description(out, MODEL)
    assert (described["notes_hash"], described["map_hash"]) == ("of these", map_hash(timbre))


def test_the_tiny_bundle_can_be_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its training, that is; what it is exported by is tested elsewhere."""
    monkeypatch.setattr(make_tiny_bundle, "N_STEPS", 3)
    model = make_tiny_bundle.train(np.random.default_rng(0))
    assert all(bool(torch.isfinite(weight).all()) for weight in model.parameters())
