"""The whole stage on the tiny bundle: a real server writes, and its notes are heard, an encoder learns."""

from __future__ import annotations

import argparse
import json
import shutil
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from data.make_tiny_bundle import TIMBRE

from timbrel_bundle.bundle import Bundle
from timbrel_bundle.timbre_encoder import TimbreEncoder as BundleEncoder
from timbrel_posttraining.bundles import published_map
from timbrel_posttraining.evaluate.takes import TakeCache
from timbrel_posttraining.timbre_finetune import command
from timbrel_posttraining.timbre_finetune.dataset import (
    NO_INSTRUMENT,
    FeatureExtractor,
    SamplePlan,
    TimbreSample,
    make_dataset,
)
from timbrel_posttraining.timbre_finetune.trainer import TimbreFineTuner, fine_tune_timbre
from timbrel_training.checkpoint import load_description, save_weights
from timbrel_training.errors import CheckpointError
from timbrel_training.loop import Loop
from timbrel_training.notes.dataset import NoteDataset
from timbrel_training.notes.split import Split
from timbrel_training.posttraining_config import TimbreFinetuneConfig
from timbrel_training.timbre.features import NoteFeatures
from timbrel_training.timbre.map import ENCODER, TimbreMap, read_map
from timbrel_training.timbre.references import read_references
from timbrel_training.timbre.train import load_encoder

CPU = torch.device("cpu")
ENCODER_FILE = "timbre_encoder.safetensors"


def train_hearing(arguments: dict[str, object]) -> int:
    """Runs `timbrel train hearing` with the tiny config."""
    parser = argparse.ArgumentParser()
    command.configure(parser)
    given = [text for name, value in arguments.items() for text in (f"--{name}", str(value))]
    return command.run(parser.parse_args(["--config", "tiny", *given]))


def test_the_command_leaves_a_stage_1_folder_with_the_same_points(
    tiny_bundle: Path,
    library_dir: Path,
    timbre_dir: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "hearing"
    arguments: dict[str, object] = {
        "bundle": tiny_bundle,
        "notes": library_dir,
        "timbre": timbre_dir,
        "out": out,
        "jobs": 1,
    }
    assert train_hearing(arguments) == 0
    assert "20 of 20 steps" in capsys.readouterr().out
    for name in ("timbre_map.json", "note_timbres.npy"):
        assert (out / name).read_bytes() == (timbre_dir / name).read_bytes()
    before, after = load_encoder(timbre_dir), load_encoder(out)
    assert after.config == before.config
    assert not torch.equal(after.directions, before.directions)
    assert torch.equal(after.mean, before.mean)  # levels are normalised as they were
    chart, points = read_map(out)
    assert chart.points and len(points) == len(read_map(timbre_dir)[1])
    description = json.loads((out / "timbre_encoder.json").read_text())
    assert description["hearing"]["steps"] == 20
    # A second run writes and hears nothing anew, and leaves the same.
    kept = {path: path.stat().st_mtime_ns for path in (out / "lessons").rglob("*")}
    weights = (out / ENCODER_FILE).read_bytes()
    assert train_hearing({**arguments, "jobs": 2}) == 0
    assert {path: path.stat().st_mtime_ns for path in (out / "lessons").rglob("*")} == kept
    assert (out / ENCODER_FILE).read_bytes() == weights


def test_an_interrupted_run_ends_with_the_same_weights(
    bundle: Bundle,
    library: NoteDataset,
    timbre_dir: Path,
    config: TimbreFinetuneConfig,
    tmp_path: Path,
) -> None:
    config = replace(config, source_notes=16, own_notes=4, between_notes=2)

    def train(config: TimbreFinetuneConfig, out: Path) -> Loop:
        return fine_tune_timbre(config, bundle, [library], timbre_dir, tmp_path / out, CPU)

    assert train(config, Path("whole")).finished
    sitting = replace(config, loop=replace(config.loop, max_minutes=1e-9))
    for _ in range(3):
        assert not train(sitting, Path("parts")).finished
    assert train(config, Path("parts")).finished
    whole, parts = (tmp_path / name / ENCODER_FILE for name in ("whole", "parts"))
    assert whole.read_bytes() == parts.read_bytes()
    with pytest.raises(CheckpointError, match="another"):
        train(replace(config, pull_weight=7.0), Path("whole"))


def test_what_was_heard_before_stays_named_and_once(
    bundle: Bundle, library: NoteDataset, timbre_dir: Path, config: TimbreFinetuneConfig, tmp_path: Path
) -> None:
    """Of a source that is heard again the new counts stand; what is no source in a damaged list goes."""
    config = replace(config, source_notes=16, own_notes=4, between_notes=2, other_notes=8)
    config = replace(config, loop=replace(config.loop, n_steps=2))
    again = {"name": library.sources[0], "licence": library.licences[library.sources[0]], "n_notes": 1}
    other = {"name": "folder of before", "licence": "CC0-1.0", "n_instruments": 2, "n_notes": 3}
    stage_1 = shutil.copytree(timbre_dir, tmp_path / "stage_1")
    about = load_description(stage_1, ENCODER)
    save_weights(stage_1, ENCODER, load_encoder(stage_1), {**about, "sources": [again, "damaged", other]})
    assert fine_tune_timbre(config, bundle, [library, library], stage_1, tmp_path / "out", CPU).finished
    sources = load_description(tmp_path / "out", ENCODER)["sources"]
    assert sources[0] == other and [each["name"] for each in sources[1:]] == list(library.sources)
    assert all(each["n_notes"] > 1 for each in sources)


def test_an_interrupted_dataset_goes_on(
    bundle: Bundle,
    library: NoteDataset,
    config: TimbreFinetuneConfig,
    timbre_dir: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    samples = SamplePlan(bundle, library, config).draw()
    samples = [*samples[:10], *samples[-6:]]
    whole = make_dataset(bundle, [library], samples, timbre_dir, tmp_path / "whole", jobs=1)
    hear = FeatureExtractor.hear
    heard: list[TimbreSample] = []

    def tiring(extractor: FeatureExtractor, sample: TimbreSample) -> np.ndarray:
        if len(heard) == 5:
            raise KeyboardInterrupt
        heard.append(sample)
        return hear(extractor, sample)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(FeatureExtractor, "hear", tiring)
        make_dataset(bundle, [library], samples, timbre_dir, tmp_path / "parts", jobs=1)
    parts = make_dataset(bundle, [library], samples, timbre_dir, tmp_path / "parts", jobs=1)
    assert np.array_equal(parts.levels, whole.levels) and np.array_equal(parts.n_frames, whole.n_frames)
    assert len(parts.n_frames) == len(samples)


def test_a_library_without_held_out_cells_gives_nothing_to_judge_by(
    bundle: Bundle, library: NoteDataset, timbre_dir: Path, config: TimbreFinetuneConfig, tmp_path: Path
) -> None:
    library.split[:] = Split.TRAIN
    judged = SamplePlan(bundle, library, config).draw_judged()
    heard = make_dataset(bundle, [library], judged, timbre_dir, tmp_path / "judged", jobs=1)
    assert not judged and not len(heard.n_frames) and not len(heard.levels)


def test_samples_are_heard_as_locate_hears_recordings(
    tiny_bundle: Path, library: NoteDataset, config: TimbreFinetuneConfig, timbre_dir: Path, tmp_path: Path
) -> None:
    """The bundle has stage 1's very encoder."""
    bundle = Bundle.open(tiny_bundle)
    samples = SamplePlan(bundle, library, config).draw()[: config.source_notes]
    extractor = FeatureExtractor(bundle.path, [library.path], timbre_dir, TakeCache(tmp_path))
    encoder = load_encoder(timbre_dir)
    plain = next(each for each in samples if each.share == 1.0 and each.flaws is None)
    audio, rate = library.audio(plain.take.row), library.sample_rate
    levels = torch.from_numpy(extractor.hear(plain)).float()
    padded = torch.nn.functional.pad(levels, (0, 0, 0, TIMBRE.n_frames - len(levels)))
    point = encoder.place(padded[None], torch.tensor([len(levels)]))[0].detach().numpy()
    located = BundleEncoder(bundle, n_threads=1).hear(3.0 * audio, rate).heard_at  # whatever its level
    np.testing.assert_allclose(point, located, atol=0.01)  # features and weights have 16 bits
    flawed = extractor.hear(replace(plain, flaws=1))
    assert np.array_equal(flawed, extractor.hear(replace(plain, flaws=1)))
    assert not np.array_equal(flawed, extractor.hear(replace(plain, flaws=2)))
    longest = replace(max(samples, key=lambda each: library.length[each.take.row]), flaws=None)
    cut = replace(longest, share=0.25)
    assert 0 < len(extractor.hear(cut)) < len(extractor.hear(replace(cut, share=1.0))) == TIMBRE.n_frames
    assert extractor.hear(replace(cut, start=60.0)).shape == (0, TIMBRE.n_bands)


def sample_features(samples: list[TimbreSample], seed: int = 0) -> NoteFeatures:
    """Makes levels that tell the point, and none at all of the first sample."""
    generator = np.random.default_rng(seed)
    shape = (len(samples), TIMBRE.n_frames, TIMBRE.n_bands)
    levels = generator.uniform(-80.0, -60.0, shape).astype(np.float16)
    targets = np.array([sample.target for sample in samples])
    levels[:, :12, :16] = (-40.0 + 20.0 * targets[:, 0])[:, None, None]
    levels[:, :12, 16:32] = (-40.0 + 20.0 * targets[:, 1])[:, None, None]
    levels[:, :12, 32] = 0.0
    return NoteFeatures(levels, np.where(np.arange(len(samples)) > 0, 12, 0))


def fine_tuner(
    config: TimbreFinetuneConfig,
    timbre_dir: Path,
    samples: list[TimbreSample],
    features: NoteFeatures,
    chart: TimbreMap,
    judged: tuple[list[TimbreSample], NoteFeatures] | None = None,
) -> TimbreFineTuner:
    """A trainer of stage 1's encoder; foreign sounds are noise."""
    shape = (20, TIMBRE.n_frames, TIMBRE.n_bands)
    noise = np.random.default_rng(1).uniform(-5.0, 0.0, shape).astype(np.float16)
    foreign = NoteFeatures(noise, np.full(len(noise), TIMBRE.n_frames))
    known = read_references(timbre_dir)
    return TimbreFineTuner(
        config,
        load_encoder(timbre_dir),
        known,
        samples,
        features,
        foreign,
        judged or ([], features),
        chart,
        CPU,
    )


def test_the_encoder_learns_and_the_points_stay(
    bundle: Bundle,
    library: NoteDataset,
    config: TimbreFinetuneConfig,
    timbre_dir: Path,
    tmp_path: Path,
) -> None:
    config = replace(
        config,
        source_notes=80,
        own_notes=80,
        between_notes=40,
        between_share=0.3,
        loop=replace(config.loop, n_steps=150, learning_rate=3e-3, validate_every=150),
    )
    samples = SamplePlan(bundle, library, config).draw()
    features, chart = sample_features(samples), published_map(bundle)
    trainer = fine_tuner(config, timbre_dir, samples, features, chart)
    between = np.array([row for row, each in enumerate(samples) if each.instrument == NO_INSTRUMENT])
    asked = np.array([samples[row].target for row in between])

    def astray() -> float:
        found = trainer.locate(trainer.encoder.eval(), between)
        return float(np.median(np.linalg.norm(found - asked, axis=1)))

    before, astray_before = trainer.validate(trainer.model.eval()), astray()
    loop = Loop(config.loop, trainer.model, trainer.loss, trainer.batch, tmp_path, validate=trainer.validate)
    loop.run()
    after = loop.history[-1]
    assert before["kept_back_generated"] < 0.6
    assert after["kept_back_source"] > 0.9 and after["kept_back_generated"] > 0.9
    assert astray() < 0.75 * astray_before
    _, told = trainer.references(trainer.encoder.eval())
    assert told.named > 0.9 and told.refused < 0.2 and told.foreign_refused >= 0.5  # of two
    # Judged by samples of which each is told to be another instrument's, hardly any is right.
    swapped = [replace(each, instrument=(each.instrument + 1) % len(chart.points)) for each in samples[:80]]
    wrong = fine_tuner(config, timbre_dir, samples, features, chart, (swapped, features))
    assert wrong.references(trainer.encoder.eval())[1].named < 0.1
    assert np.array_equal(trainer.points, chart.centroids)
    trained = {name for name, _ in trainer.encoder.named_parameters()}
    assert trained == {name for name, _ in load_encoder(timbre_dir).named_parameters()}


def test_batches_hold_each_kinds_share_and_nothing_silent_or_kept_back(
    bundle: Bundle, library: NoteDataset, config: TimbreFinetuneConfig, timbre_dir: Path
) -> None:
    plain = {"crop_share": 0.0, "disturbed_share": 0.0, "begun_share": 0.0, "foreign_share": 0.0}
    config = replace(config, validation_share=0.25, batch_size=40, **plain)
    samples = SamplePlan(bundle, library, config).draw()
    features = sample_features(samples)
    features.levels[:, 0, -1] = np.arange(len(samples))  # tells the sample
    chart = published_map(bundle)
    trainer = fine_tuner(config, timbre_dir, samples, features, chart)
    seen: set[int] = set()
    for step in range(60):
        batch = trainer.batch(step)
        rows = batch.levels[:, 0, -1].numpy().astype(int)
        seen |= set(rows.tolist())
        assert (batch.n_frames > 0).all()
        assert np.allclose([samples[row].target for row in rows], batch.target)
        assert [samples[row].instrument for row in rows] == batch.instrument.tolist()
        kinds = [samples[row].take.kind for row in rows]
        assert kinds.count(kinds[0]) == 16 and (batch.instrument == NO_INSTRUMENT).sum() == 4
    assert 0 not in seen
    kept_back = set(range(1, len(samples))) - seen
    assert len(kept_back) == sum(
        n // 4 for n in (config.source_notes - 1, config.own_notes, config.between_notes)
    )
    assert torch.equal(trainer.batch(7).levels, trainer.batch(7).levels)


def test_parts_that_do_not_belong_together_are_refused(
    bundle: Bundle,
    library: NoteDataset,
    config: TimbreFinetuneConfig,
    timbre_dir: Path,
    tmp_path: Path,
) -> None:
    chart, _ = read_map(timbre_dir)
    moved = TimbreMap(tuple(replace(point, x=point.x + 0.01) for point in chart.points))
    out = tmp_path / "out"
    with pytest.raises(CheckpointError, match=r"would be overwritten .*; choose another folder"):
        fine_tune_timbre(config, bundle, [library], timbre_dir, timbre_dir / ".", CPU)
    about = timbre_dir / "timbre_encoder.json"
    as_it_is = about.read_text()
    about.write_text(as_it_is.replace("48000,", "16000,"))
    with pytest.raises(CheckpointError, match=r"hears audio at 16000 Hz, .* has audio at 48000 Hz"):
        fine_tune_timbre(config, bundle, [library], timbre_dir, out, CPU)
    about.write_text(as_it_is)
    (timbre_dir / "timbre_map.json").write_text(json.dumps(asdict(moved)))
    with pytest.raises(CheckpointError, match="its map is not that of"):
        fine_tune_timbre(config, bundle, [library], timbre_dir, out, CPU)
    added = replace(chart.points[0], instrument="reed", x=0.0, y=0.0)
    (timbre_dir / "timbre_map.json").write_text(json.dumps(asdict(TimbreMap((*chart.points, added)))))
    bundle.timbre_map.points.add(**asdict(added))
    with pytest.raises(CheckpointError, match=r"its encoder tells 4 instruments, the map of .* has 5"):
        fine_tune_timbre(config, bundle, [library], timbre_dir, out, CPU)
    assert not out.exists()
