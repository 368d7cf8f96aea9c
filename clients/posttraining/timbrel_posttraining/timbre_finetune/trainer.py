"""Trains the timbre encoder further, towards points that stay where they are."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from timbrel_bundle.bundle import Bundle
from timbrel_bundle.files import atomic_path
from timbrel_posttraining.bundles import published_map
from timbrel_posttraining.evaluate.evaluation_set import Kind
from timbrel_posttraining.evaluate.sections.map import APART_FACTOR, ranks, spreads
from timbrel_posttraining.timbre_finetune import dataset
from timbrel_training.checkpoint import load_description, save_weights
from timbrel_training.errors import CheckpointError, TrainingError
from timbrel_training.loop import Loop, batch_seed
from timbrel_training.notes.dataset import NoteDataset
from timbrel_training.notes.split import Split
from timbrel_training.posttraining_config import TimbreFinetuneConfig
from timbrel_training.timbre import references
from timbrel_training.timbre.encoder import TimbreEncoder
from timbrel_training.timbre.features import (
    SHORTEST_CROP,
    NoteFeatures,
    begun_otherwise,
    disturbed,
    embed,
    foreign_features,
    locate,
)
from timbrel_training.timbre.map import ENCODER, MAP_FILE, NOTES_FILE, TimbreMap, read_chart
from timbrel_training.timbre.model import Recognition
from timbrel_training.timbre.train import KEPT_BACK, encoder_of, load_encoder

DATASET = "lessons"
"""The folder of the dataset, within that of the training; so named that older runs can be resumed."""
JUDGED = "judged"
"""The folder of what is heard of held-out cells, within the dataset's."""
PLACE_TOLERANCE = 1e-5
"""By how much the points of a bundle and of its stage 1 may differ, rounded to float32 as they are."""


@dataclass(frozen=True)
class TimbreBatch:
    """Notes as they are heard, and where they belong."""

    levels: Tensor  # float32 [B + foreign, F, n_bands], in dB: of notes, then of foreign sounds
    n_frames: Tensor  # int64 [B + foreign]
    instrument: Tensor  # int64 [B], NO_INSTRUMENT between instruments
    target: Tensor  # float32 [b, 2], of the first b: those of other libraries are not pulled to points


class TimbreFineTuner:
    """Draws batches of the dataset, and scores stage 1's encoder, trained in place, on them.

    `known` are references by which stage 1 recognises the map's instruments, `features` what is heard of the
    samples, in their order, `foreign` what is heard of sounds that are no note. References are fitted to what
    is heard of the `judged` samples; where there are none, to samples kept back. The chart's m points are no
    parameters, and stay. Raises TrainingError: there are no source notes, or none of the bundle's own, to
    learn from.
    """

    def __init__(
        self,
        config: TimbreFinetuneConfig,
        encoder: TimbreEncoder,
        known: references.References,
        samples: Sequence[dataset.TimbreSample],
        features: NoteFeatures,
        foreign: NoteFeatures,
        judged: tuple[Sequence[dataset.TimbreSample], NoteFeatures],
        chart: TimbreMap,
        device: torch.device,
    ) -> None:
        self.config = config
        self.model = Recognition(encoder, known.nearness).to(device)
        self.encoder = encoder
        self.features = features
        self.foreign = foreign
        self.judged = judged
        self.n_foreign = round(len(foreign.n_frames) * (1.0 - KEPT_BACK))
        self.device = device
        self.points = chart.centroids.astype(np.float64)
        self.spacings = chart.spacings
        self.spacing = chart.spacing
        self.instrument = np.array([sample.instrument for sample in samples], dtype=np.int64)
        self.target = np.array([sample.target for sample in samples], dtype=np.float32).reshape(-1, 2)
        self._of_kind = _kinds(samples, self.instrument)
        self._training, self._kept_back = self._share_out()
        room = np.minimum(chart.spacings, chart.spacing)
        self._scale = torch.from_numpy(np.append(room, chart.spacing).astype(np.float32)).to(device)

    def batch(self, step: int) -> TimbreBatch:
        """Draws notes of each kind, each kind's share, and foreign sounds; some cropped, some disturbed."""
        config = self.config
        rng = np.random.default_rng(batch_seed(config.loop.seed, step))
        n_others = round(config.other_share * config.batch_size) if len(self._training["other"]) else 0
        n_pulled = config.batch_size - n_others
        n_sources = round(config.source_share * n_pulled)
        n_between = round(config.between_share * n_pulled) if len(self._training["between"]) else 0
        counts = {
            "source": n_sources,
            "between": n_between,
            "generated": n_pulled - n_sources - n_between,
            "other": n_others,
        }
        rows = np.concatenate([rng.choice(self._training[kind], n) for kind, n in counts.items() if n])
        n_frames = self.encoder.config.n_frames
        foreign = rng.integers(self.n_foreign, size=round(config.foreign_share * config.batch_size))
        levels = np.concatenate([self.features.levels[rows], self.foreign.levels[foreign]]).astype(np.float32)
        lengths = np.concatenate([self.features.n_frames[rows], self.foreign.n_frames[foreign]])
        shorter = rng.integers(min(SHORTEST_CROP, n_frames), n_frames + 1, len(lengths))
        cropped = rng.random(len(lengths)) < config.crop_share
        lengths = np.where(cropped, np.minimum(lengths, shorter), lengths)
        begun = rng.random(len(levels)) < config.begun_share
        levels[begun], lengths[begun] = begun_otherwise(levels[begun], lengths[begun], rng)
        worse = rng.random(len(levels)) < config.disturbed_share
        levels[worse] = disturbed(levels[worse], lengths[worse], rng)
        return TimbreBatch(
            levels=torch.from_numpy(levels).to(self.device),
            n_frames=torch.from_numpy(lengths).to(self.device),
            instrument=torch.from_numpy(self.instrument[rows]).to(self.device),
            target=torch.from_numpy(self.target[rows[:n_pulled]]).to(self.device),
        )

    def loss(self, batch: TimbreBatch, /) -> tuple[Tensor, Mapping[str, Tensor]]:
        """Scores telling the instrument by the embedding, and nearness to the point asked for.

        A distance from a point counts by how near that instrument's neighbours are, and no more than in
        proportion: what cannot be told apart does not pull all others along.
        """
        config = self.config
        embedding = self.encoder.hear(batch.levels, batch.n_frames)
        points = self.encoder.point(embedding[: len(batch.target)])
        foreign = torch.full_like(batch.n_frames[len(batch.instrument) :], len(self.points))
        what = torch.cat([batch.instrument, foreign])
        named = what != dataset.NO_INSTRUMENT
        away = _length(points - batch.target) / self._scale[batch.instrument[: len(points)]]
        parts = {
            "name": nn.functional.cross_entropy(self.model.logits(embedding[named]), what[named]),
            "pull": nn.functional.huber_loss(away, torch.zeros_like(away), delta=0.5),
        }
        return parts["name"] + config.pull_weight * parts["pull"], parts

    def validate(self, average: nn.Module) -> dict[str, float]:
        """Measures which shares of the notes, kept back and trained on, lie nearest to their own point."""
        encoder = encoder_of(average)
        figures: dict[str, float] = {}
        for name, rows in (("kept_back", self._kept_back), ("training", self._sample(self._training))):
            for kind in ("source", "generated", "other"):
                if len(rows[kind]):
                    rank = ranks(self.locate(encoder, rows[kind]), self.instrument[rows[kind]], self.points)
                    figures[f"{name}_{kind}"] = float((rank == 0).mean())
        sources = self._of_kind["source"]
        spread = spreads(self.locate(encoder, sources), self.instrument[sources], self.points)
        known = ~np.isnan(spread)
        figures["apart"] = float((self.spacings[known] >= APART_FACTOR * spread[known]).mean())
        between = self._kept_back["between"]
        if len(between):
            away = np.linalg.norm(self.locate(encoder, between) - self.target[between], axis=1)
            figures["between_error"] = float(np.median(away)) / self.spacing
        return figures

    def references(self, encoder: TimbreEncoder) -> tuple[references.References, references.ReferenceFigures]:
        """Finds by what the instruments are recognised: the directions that were learnt, which notes of all
        libraries drew on. Held-out cells judge, if there are any."""
        samples, features = self.judged
        instrument, rows = np.array([sample.instrument for sample in samples]), np.arange(len(samples))
        if len(samples) < 2:
            instrument, features = self.instrument, self.features
            trained, kept = (
                np.concatenate([of["source"], of["generated"]]) for of in (self._training, self._kept_back)
            )
            rows = np.random.default_rng(0).permutation(kept if len(kept) > 1 else trained)
        rows = rows[features.n_frames[rows] > 0]
        foreign = np.arange(self.n_foreign, len(self.foreign.n_frames))
        return references.fit_references(
            nn.functional.normalize(encoder.directions.detach()).cpu().numpy(),
            embed(encoder, features, rows, self.device),
            instrument[rows],
            embed(encoder, self.foreign, foreign, self.device),
        )

    def locate(self, encoder: TimbreEncoder, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """Finds where the encoder puts these notes, [n, 2]."""
        return locate(encoder, self.features, rows, self.device).astype(np.float64)

    def _share_out(self) -> tuple[dict[str, NDArray[np.int64]], dict[str, NDArray[np.int64]]]:
        """Splits each kind's notes into those to train on and those kept back; silent notes are neither."""
        rng = np.random.default_rng(self.config.loop.seed)
        training, kept_back = {}, {}
        for kind, rows in self._of_kind.items():
            audible = rng.permutation(rows[self.features.n_frames[rows] > 0])
            n_kept = int(self.config.validation_share * len(audible))
            kept_back[kind], training[kind] = np.sort(audible[:n_kept]), np.sort(audible[n_kept:])
        for kind in ("source", "generated"):
            if not len(training[kind]):
                raise TrainingError(
                    f"no {kind} note can be learnt from; raise hearing.source_notes and own_notes"
                )
        self._of_kind = {kind: np.union1d(training[kind], kept_back[kind]) for kind in training}
        return training, kept_back

    def _sample(
        self, rows: Mapping[str, NDArray[np.int64]], n_notes: int = 600
    ) -> dict[str, NDArray[np.int64]]:
        rng = np.random.default_rng(0)
        return {kind: rng.permutation(of)[:n_notes] for kind, of in rows.items()}


def fine_tune_timbre(
    config: TimbreFinetuneConfig,
    bundle: Bundle,
    libraries: Sequence[NoteDataset],
    timbre_dir: Path,
    out_dir: Path,
    device: torch.device,
    jobs: int = 1,
) -> Loop[TimbreBatch]:
    """Makes the dataset and trains in `out_dir`, or resumes any of that.

    The bundle, verified, was made of this stage 1, which learnt from the first library. Leaves what stage 1
    leaves: the encoder as it is now, and its map and its notes' points as they were. Raises CheckpointError:
    stage 1 is missing, not the bundle's or in `out_dir`, or the checkpoint is of another run; TrainingError:
    the library is not the bundle's; TimbrelError: the bundle cannot be served.
    """
    if out_dir.resolve() == timbre_dir.resolve():
        raise CheckpointError(
            f"{timbre_dir}: its weights would be overwritten by what begins from them, which could not be "
            "gone on with; choose another folder to train in"
        )
    chart = _shared_map(bundle, timbre_dir)
    encoder = load_encoder(timbre_dir)
    _check_rate(bundle, encoder, timbre_dir)
    _check_instruments(bundle, encoder, timbre_dir)
    library, *others = libraries
    plan = dataset.SamplePlan(bundle, library, config, others)
    samples, judged = plan.draw(), plan.draw_judged()
    key = dataset.dataset_key(bundle, plan, config, encoder)
    folder = out_dir / DATASET / key
    features = dataset.make_dataset(bundle, libraries, samples, timbre_dir, folder, jobs)
    heard = dataset.make_dataset(bundle, libraries, judged, timbre_dir, folder / JUDGED, jobs)
    trained = library.of_split(Split.TRAIN).astype(np.int64)
    foreign = foreign_features(out_dir / DATASET, encoder, library, trained, config.foreign_sounds)
    known = references.read_references(timbre_dir)
    trainer = TimbreFineTuner(
        config, encoder, known, samples, features, foreign, (judged, heard), chart, device
    )
    weights = (timbre_dir / f"{ENCODER}.safetensors").read_bytes()
    settings = {name: value for name, value in asdict(config).items() if name != "loop"}
    identity = {"hearing": settings, "lessons": key, "stage_1": hashlib.sha256(weights).hexdigest()}
    learns = trainer.model, trainer.loss, trainer.batch
    loop = Loop(config.loop, *learns, out_dir, validate=trainer.validate, identity=identity, name="hearing")
    loop.run()
    loop.ema.model.eval()
    average = encoder_of(loop.ema.model)
    found, told = trainer.references(average)
    references.write_references(out_dir, found, [point.instrument for point in chart.points])
    figures = trainer.validate(loop.ema.model) if not loop.finished else loop.history[-1]
    figures = {**figures, **asdict(told)}
    hearing = {"steps": loop.step, "lessons": key, "figures": figures}
    about = load_description(timbre_dir, ENCODER)
    now = plan.sources_elsewhere()
    again = {(each["name"], each["licence"]) for each in now}
    stated = [each for each in about.get("sources", []) if isinstance(each, dict)]
    before = [each for each in stated if (each.get("name"), each.get("licence")) not in again]
    save_weights(out_dir, ENCODER, average, {**about, "hearing": hearing, "sources": before + now})
    for name in (MAP_FILE, NOTES_FILE):
        source, target = timbre_dir / name, out_dir / name
        if source.is_file():  # unpacked from a bundle: no notes
            with atomic_path(target) as temporary:
                shutil.copyfile(source, temporary)
    return loop


def _kinds(
    samples: Sequence[dataset.TimbreSample], instrument: NDArray[np.int64]
) -> dict[str, NDArray[np.int64]]:
    """Finds the numbers of the source notes, of those generated at points, of those between them, and of
    other libraries' notes."""
    source = np.array([sample.take.kind is Kind.SOURCE for sample in samples], dtype=bool)
    other = np.array([sample.library > 0 for sample in samples], dtype=bool)
    between = instrument == dataset.NO_INSTRUMENT
    found = {"source": source & ~other, "generated": ~source & ~between, "between": between, "other": other}
    return {kind: np.flatnonzero(of).astype(np.int64) for kind, of in found.items()}


def _shared_map(bundle: Bundle, timbre_dir: Path) -> TimbreMap:
    """Reads the bundle's map; raises CheckpointError where stage 1 has another one."""
    published, chart = published_map(bundle), read_chart(timbre_dir)
    names = [[point.instrument for point in each.points] for each in (published, chart)]
    if names[0] != names[1] or np.abs(published.centroids - chart.centroids).max() > PLACE_TOLERANCE:
        raise CheckpointError(
            f"{timbre_dir}: its map is not that of {bundle.path}; name the folder that the bundle was "
            "exported with"
        )
    return published


def _check_rate(bundle: Bundle, encoder: TimbreEncoder, timbre_dir: Path) -> None:
    """Raises CheckpointError where stage 1 hears other audio than the bundle gives."""
    if encoder.sample_rate != bundle.manifest.codec.sample_rate:
        raise CheckpointError(
            f"{timbre_dir}: its encoder hears audio at {encoder.sample_rate} Hz, {bundle.path} has audio at "
            f"{bundle.manifest.codec.sample_rate} Hz; name the folder that the bundle was exported with"
        )


def _check_instruments(bundle: Bundle, encoder: TimbreEncoder, timbre_dir: Path) -> None:
    """Raises CheckpointError where the map has instruments that stage 1 does not tell: fine-tuning adds some
    to the map alone."""
    n_told, n_mapped = len(encoder.places), len(bundle.timbre_map.points)
    if n_told != n_mapped:
        raise CheckpointError(
            f"{timbre_dir}: its encoder tells {n_told} instruments, the map of {bundle.path} has {n_mapped}, "
            "those of `train finetune` among them; name the bundle that was fine-tuned and its stage 1, or "
            "train stage 1 on notes of all"
        )


def _length(x: Tensor) -> Tensor:
    """The Euclidean length of [..., 2], with a gradient at 0 too."""
    return x.square().sum(dim=-1).add(1e-12).sqrt()
