"""Trains the timbre map (stage 1): notes in, an encoder, a map and every note's point out."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from timbrel_training.checkpoint import load_description, load_weights, no_larger_than, save_weights
from timbrel_training.errors import CheckpointError, TrainingError
from timbrel_training.loop import Loop, batch_seed
from timbrel_training.notes.dataset import NoteDataset
from timbrel_training.notes.split import Split
from timbrel_training.timbre import layout, references
from timbrel_training.timbre.encoder import TimbreEncoder, TimbreEncoderConfig, frame_mask
from timbrel_training.timbre.features import (
    EMBED_BATCH,
    SHORTEST_CROP,
    disturbed,
    embed,
    features_key,
    foreign_features,
    library_features,
    locate,
    recorded_features,
)
from timbrel_training.timbre.map import ENCODER, TimbreMap, measure, write_map
from timbrel_training.timbre.model import Recognition, TimbreBatch, TimbreTrainingConfig
from timbrel_training.tokens.table import TokenTable, require_training_notes

KEPT_BACK = 0.2
"""Share of the foreign sounds that is not trained on, but judged by."""
N_COMPARED = 20_000
"""Training notes whose sound says how far instruments lie from one another, at most."""
N_JUDGED = 4_000
"""Notes of held-out cells that are heard as recordings, at most: shares are fitted to them."""


class TimbreTrainer:
    """Draws batches of notes' features, trains, and places every instrument and every note on the map."""

    def __init__(
        self,
        config: TimbreTrainingConfig,
        table: TokenTable,
        notes: NoteDataset,
        out_dir: Path,
        device: torch.device,
    ) -> None:
        require_training_notes(table)
        check_same_notes(table, notes)
        self.config = config
        self.table = table
        self.device = device
        self.training_notes = table.of_split(Split.TRAIN)
        self.known = np.unique(table.instrument[self.training_notes])
        self.number = np.full(len(table.instruments), -1)
        self.number[self.known] = np.arange(len(self.known))
        torch.manual_seed(config.loop.seed)
        encoder = TimbreEncoder(config.encoder, notes.sample_rate, len(self.known))
        self.model = Recognition(encoder).to(device)
        self.features = library_features(out_dir, encoder, notes)
        rng = np.random.default_rng(config.loop.seed)
        again = np.sort(rng.permutation(self.training_notes)[: config.recorded_notes])
        held_out = table.of_split(Split.HELD_OUT_CELL)
        held_out = held_out[self.number[table.instrument[held_out]] >= 0]
        judged = np.sort(rng.permutation(held_out)[:N_JUDGED])
        self.recorded_rows = np.concatenate([again, judged])
        self.n_recorded = len(again)
        self.recorded = recorded_features(out_dir, encoder, notes, self.recorded_rows)
        self.foreign = foreign_features(out_dir, encoder, notes, self.training_notes, config.foreign_sounds)
        self.n_foreign = round(config.foreign_sounds * (1.0 - KEPT_BACK))
        self._fit_normalisation()
        self._lay_out()

    def batch(self, step: int) -> TimbreBatch:
        """Draws training notes, others as recorded, and foreign sounds, all moved by some bands.

        Of the latter two some are disturbed. Half of all are cropped to a random shorter length; a crop is
        what the encoder would hear of a recording cut there: no frame looks ahead.
        """
        config, table = self.config, self.table
        generator = np.random.default_rng(batch_seed(config.loop.seed, step))
        taken = generator.integers(self.n_recorded, size=round(config.recorded_share * config.batch_size))
        foreign = generator.integers(self.n_foreign, size=round(config.foreign_share * config.batch_size))
        rest = generator.choice(self.training_notes, config.batch_size - len(taken))
        parts = ((self.features, rest), (self.recorded, taken), (self.foreign, foreign))
        levels = np.concatenate([features.levels[of] for features, of in parts])
        lengths = np.concatenate([features.n_frames[of] for features, of in parts])
        most = config.encoder.n_frames
        shorter = generator.integers(min(SHORTEST_CROP, most), most + 1, len(lengths))
        lengths = np.where(generator.random(len(lengths)) < 0.5, np.minimum(lengths, shorter), lengths)
        moves = generator.integers(-config.shift_bands, config.shift_bands + 1, len(lengths))
        heard = _moved(levels, moves).astype(np.float32)
        worse = generator.random(len(heard)) < config.disturbed_share
        worse[: len(rest)] = False
        heard[worse] = disturbed(heard[worse], lengths[worse], generator)
        named = self.number[table.instrument[np.concatenate([rest, self.recorded_rows[taken]])]]
        none = np.full(len(foreign), len(self.known))
        return TimbreBatch(
            levels=self._tensor(heard),
            n_frames=self._tensor(lengths),
            instrument=self._tensor(np.concatenate([named, none])),
        )

    def chart(self) -> TimbreMap:
        """Returns the map: every instrument that has training notes, where it was laid."""
        return TimbreMap.from_places(self.model.encoder.places.cpu().numpy(), self.table)

    def references(self, encoder: TimbreEncoder) -> tuple[references.References, references.ReferenceFigures]:
        """Finds by what the instruments are recognised; held-out cells judge, if there are any."""
        number = self.number[self.table.instrument]
        known = self.recorded_rows[: self.n_recorded]
        embeddings = np.concatenate(
            [
                embed(encoder, self.features, self.training_notes, self.device),
                embed(encoder, self.recorded, np.arange(self.n_recorded), self.device),
            ]
        )
        means = references.mean_embeddings(
            embeddings, number[np.concatenate([self.training_notes, known])], len(self.known)
        )
        judged = np.arange(self.n_recorded, len(self.recorded_rows))
        judged = judged if len(judged) > 1 else np.arange(self.n_recorded)
        foreign = np.arange(self.n_foreign, len(self.foreign.n_frames))
        return references.fit_references(
            means,
            embed(encoder, self.recorded, judged, self.device),
            number[self.recorded_rows[judged]],
            embed(encoder, self.foreign, foreign, self.device),
        )

    def locate_all(self, encoder: TimbreEncoder) -> NDArray[np.float32]:
        """Returns every note's point, float32 [N, 2]."""
        return locate(encoder, self.features, np.arange(self.table.n_notes), self.device)

    def validate(self, average: nn.Module) -> dict[str, float]:
        """Measures how well the averaged encoder tells the instruments."""
        return dataclasses.asdict(measure(self.locate_all(encoder_of(average)), self.chart(), self.table))

    def _tensor(self, array: NDArray[Any]) -> Tensor:
        return torch.from_numpy(array).to(self.device)

    def _fit_normalisation(self, n_notes: int = 1000) -> None:
        generator = np.random.default_rng(self.config.loop.seed)
        rows = generator.permutation(self.training_notes)[:n_notes]
        self.model.encoder.fit(*self.features.of(rows, self.device))

    def _lay_out(self) -> None:
        """Gives every instrument its place, by how its training notes sound; what is learnt changes none."""
        encoder, parts = self.model.encoder, []
        rng = np.random.default_rng(self.config.loop.seed)
        rows = np.sort(rng.permutation(self.training_notes)[:N_COMPARED])
        for batch in np.split(rows, range(EMBED_BATCH, len(rows), EMBED_BATCH)):
            levels, n_frames = self.features.of(batch, self.device)
            mask = frame_mask(n_frames, levels.shape[1])
            parts.append([part.cpu() for part in layout.segment_means(encoder.relative(levels, mask), mask)])
        segments, present = (torch.cat(part).numpy() for part in zip(*parts, strict=True))
        number = self.number[self.table.instrument[rows]]
        distances = layout.acoustic_distances(
            segments, present, self.table.pitch[rows], number, len(self.known)
        )
        places = layout.lay_out(distances, self.config.margin_of(len(self.known)))
        encoder.places.copy_(torch.from_numpy(places))


def train_timbre(
    config: TimbreTrainingConfig, table: TokenTable, notes: NoteDataset, out_dir: Path, device: torch.device
) -> dict[str, float]:
    """Trains stage 1 in `out_dir`, or resumes it, and writes the map there; `map` describes the files.

    Table and notes are of the same notes, in the same order. Returns MapFigures and ReferenceFigures. Raises
    TrainingError: the table is of other notes, or has none to train on; CheckpointError: the checkpoint is of
    another run.
    """
    trainer = TimbreTrainer(config, table, notes, out_dir, device)
    fields = dataclasses.asdict(config)
    del fields["loop"]
    identity = {"timbre": fields, "features": features_key(trainer.model.encoder, notes)}
    learns = trainer.model, trainer.model.loss, trainer.batch
    loop = Loop(config.loop, *learns, out_dir, validate=trainer.validate, identity=identity, name="timbre")
    loop.run()
    encoder = encoder_of(loop.ema.model)
    points = trainer.locate_all(encoder)
    chart = trainer.chart()
    found, told = trainer.references(encoder)
    figures = measure(points, chart, table)
    references.write_references(out_dir, found, [point.instrument for point in chart.points])
    description: dict[str, Any] = {
        "kind": "timbre_encoder",
        "encoder": dataclasses.asdict(config.encoder),
        "sample_rate": encoder.sample_rate,
        "n_instruments": len(encoder.places),
        "steps": loop.step,
        "figures": {**dataclasses.asdict(figures), **dataclasses.asdict(told)},
    }
    save_weights(out_dir, ENCODER, encoder, description)
    write_map(out_dir, chart, points, table)
    return description["figures"]


def _moved(levels: NDArray[np.float16], moves: NDArray[np.int64]) -> NDArray[np.float16]:
    """Moves levels [B, F, n_bands] up by so many bands each, int64 [B]; bands at the edges come again."""
    source = np.arange(levels.shape[2]) - moves[:, None]
    return np.take_along_axis(levels, source.clip(0, levels.shape[2] - 1)[:, None], axis=2)


def check_same_notes(table: TokenTable, notes: NoteDataset) -> None:
    """Raises TrainingError unless the table's rows are the library's notes, of the same length and split."""
    header = table.header
    names = [table.instruments[index] for index in table.instrument]
    n_frames = -(-notes.length.astype(np.int64) // header.hop_length) + header.lead_frames
    if not (
        len(notes) == table.n_notes
        and notes.sample_rate == header.sample_rate
        and (notes.pitch == table.pitch).all()
        and (notes.velocity == table.velocity).all()
        and (np.abs(n_frames - table.n_frames) <= 1).all()  # a codec may count a note's last frame otherwise
        and (notes.split == table.split).all()
        and names == list(map(notes.name, range(len(notes))))
    ):
        raise TrainingError(
            f"{notes.path}: the tokens are not of these notes; name the dataset that they were made of"
        )


def encoder_of(model: nn.Module) -> TimbreEncoder:
    """Returns the encoder within a model that is trained, or within a copy of it."""
    encoder = model.encoder
    if not isinstance(encoder, TimbreEncoder):
        raise TypeError(f"{type(model).__name__} has no timbre encoder")
    return encoder


def load_encoder(folder: Path) -> TimbreEncoder:
    """Returns the trained encoder of a stage-1 folder, in eval mode. Raises CheckpointError: there is none,
    or it is damaged or of an older timbrel."""
    description = load_description(folder, ENCODER)
    fields = description.get("encoder")
    if "n_instruments" not in description or not isinstance(fields, dict) or "n_channels" not in fields:
        raise CheckpointError(f"{folder}: its timbre encoder is of an older timbrel; train stage 1 again")
    with no_larger_than(folder / f"{ENCODER}.safetensors"):
        try:
            config = TimbreEncoderConfig(**fields)
            encoder = TimbreEncoder(config, description["sample_rate"], description["n_instruments"])
        except (KeyError, TypeError, ValueError) as error:
            reason = str(error).splitlines()[0]
            raise CheckpointError(
                f"{folder / ENCODER}.json: damaged ({reason}); train stage 1 again"
            ) from None
    load_weights(folder, ENCODER, encoder)
    return encoder.eval()
