"""Trains the codec on the parameters of a dataset's notes."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from timbrel_training.checkpoint import load_description, load_weights, no_larger_than, save_weights
from timbrel_training.codec.interface import (
    CODES_LIKE,
    WEIGHTS_NAME,
    check_sample_rate,
    codec_hash,
    codes_hash,
    codes_like,
    unpacked_hash,
)
from timbrel_training.codec.timbrel_notes.analysed_notes import (
    ANALYSIS_FOLDER,
    HELD_OUT_FOLDER,
    WEIGHT_STEPS,
    AnalysedNotes,
    analyse_dataset,
)
from timbrel_training.codec.timbrel_notes.codec import TimbrelNotes, TimbrelNotesConfig
from timbrel_training.codec.timbrel_notes.completion import complete
from timbrel_training.codec.timbrel_notes.header import (
    NUMBERS_PER_CODE,
    HeaderCoder,
    HeaderConfig,
    header_error,
)
from timbrel_training.codec.timbrel_notes.header_prior import HeaderPrior
from timbrel_training.codec.timbrel_notes.note_parameters import SHAPES, SIZES
from timbrel_training.errors import CheckpointError, ConfigError
from timbrel_training.loop import Loop, LoopConfig, batch_seed, n_cores, pick_device
from timbrel_training.notes.dataset import NoteDataset
from timbrel_training.notes.split import Split
from timbrel_training.settings import check_at_least

VALIDATION_NOTES = 512


@dataclass(frozen=True)
class CodecTrainingConfig:
    """The config section `codec`: the codec's sizes and its training."""

    codec: TimbrelNotesConfig = field(default_factory=TimbrelNotesConfig)
    """Its sizes."""
    loop: LoopConfig = field(default_factory=LoopConfig)
    """Steps, rates, checkpoints of the header's autoencoder."""
    batch_size: int = 256
    """Notes per step."""
    rate_weight: float = 0.002
    """How many dB of error it is worth to say a note in one nat less, given what a model knows of it."""
    init: str = ""
    """Folder of a codec of the same sizes, or of rank 0, to begin from: codes then go on meaning about the
    same; empty: from nothing."""
    jobs: int = 0
    """Processes that measure notes; 0: one per core."""
    device: str = "auto"
    """`auto`, `cpu` or `cuda`."""

    def __post_init__(self) -> None:
        check_at_least(self, batch_size=2, rate_weight=0, jobs=0)


class HeaderBatch(NamedTuple):
    """Notes as the header's autoencoder learns from them."""

    values: Tensor  # [B, N_VALUES]
    weights: Tensor  # [B, N_VALUES]
    targets: Tensor  # [B, N_VALUES], completed
    target_weights: Tensor  # [B, N_VALUES]
    midi: Tensor  # [B]
    noise: Tensor  # [B, n_numbers]
    instrument: Tensor  # int64 [B]
    velocity: Tensor  # [B]


class HeaderTraining(nn.Module):
    """The header's autoencoder and the prior that keeps its codes predictable."""

    def __init__(self, config: CodecTrainingConfig, n_instruments: int) -> None:
        super().__init__()
        self.coder = HeaderCoder(config.codec.header)
        self.prior = HeaderPrior(n_instruments, config.codec.header.n_codes * NUMBERS_PER_CODE)
        self.rate_weight = config.rate_weight

    def loss(self, batch: HeaderBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """Returns what training minimises, and its parts: error in dB, nats a note."""
        numbers, decoded = self.coder.noisy(batch.values, batch.weights, batch.midi, batch.noise)
        error = header_error(decoded, batch.targets, batch.target_weights)
        nats = self.prior.nats(numbers, batch.instrument, batch.midi, batch.velocity).mean()
        return error + self.rate_weight * nats, {"error": error, "nats": nats}


class HeaderSampler:
    """Draws batches of measured notes, each a function of its seed alone."""

    def __init__(
        self, notes: AnalysedNotes, dataset: NoteDataset, rows: NDArray[np.intp], config: CodecTrainingConfig
    ) -> None:
        self.notes, self.rows = notes, rows
        self.instrument = dataset.instrument[notes.notes].astype(np.int64)
        self.velocity = dataset.velocity[notes.notes].astype(np.float32)
        self.batch_size = config.batch_size
        self.n_numbers = config.codec.header.n_codes * NUMBERS_PER_CODE
        self.midi = np.array([np.median(notes[row].track) for row in range(len(notes))], dtype=np.float32)
        self.targets, self.target_weights = self._completed(dataset)

    def draw(self, seed: int, device: torch.device) -> HeaderBatch:
        """Returns the batch of a seed."""
        generator = np.random.default_rng(seed)
        noise = generator.uniform(-0.5, 0.5, (self.batch_size, self.n_numbers)).astype(np.float32)
        return self.batch(generator.choice(self.rows, self.batch_size), noise, device)

    def batch(self, rows: NDArray[np.intp], noise: NDArray[np.float32], device: torch.device) -> HeaderBatch:
        """Returns some notes."""
        values = self.notes.values[rows].astype(np.float32)
        weights = self.notes.weights[rows].astype(np.float32) / WEIGHT_STEPS
        targets = self.targets[rows].astype(np.float32)
        target_weights = self.target_weights[rows].astype(np.float32) / WEIGHT_STEPS
        note = noise, self.instrument[rows], self.velocity[rows]
        arrays = values, weights, targets, target_weights, self.midi[rows], *note
        tensors = (torch.from_numpy(each).to(device) for each in arrays)
        return HeaderBatch(*tensors)

    def _completed(self, dataset: NoteDataset) -> tuple[NDArray[np.float16], NDArray[np.uint8]]:
        """Returns values and weights of all notes, of which the rows trained on complete each other."""
        notes, rows = self.notes, self.rows
        source = dataset.index["source"][notes.notes].astype(np.int64)
        values, weights = notes.values.copy(), notes.weights.copy()
        completed, heard = complete(
            values[rows].astype(np.float32),
            (weights[rows] / WEIGHT_STEPS).astype(np.float32),
            (self.instrument * len(dataset.sources) + source)[rows],
            self.midi[rows],
            self.velocity[rows],
            dataset.held_seconds[notes.notes][rows].astype(np.float32),
        )
        values[rows], weights[rows] = completed, np.ceil(heard * WEIGHT_STEPS)
        return values, weights

    def mean(self) -> Tensor:
        """Returns the mean of each parameter [N_VALUES], weighted by what is heard."""
        total, heard = 0.0, 0.0
        for rows in np.array_split(self.rows, max(1, len(self.rows) // 1000)):
            weights = self.notes.weights[rows].astype(np.float64)
            total = total + (self.notes.values[rows] * weights).sum(axis=0)
            heard = heard + weights.sum(axis=0)
        return torch.from_numpy((total / np.maximum(heard, 1.0)).astype(np.float32))


def train_codec(config: CodecTrainingConfig, dataset: NoteDataset, out_dir: Path) -> TimbrelNotes | None:
    """Trains, or goes on training, the codec in `out_dir`. Returns it with averaged weights, saved as
    codec.safetensors and codec.json; None where the sitting ended before the last step (run again to
    resume)."""
    check_sample_rate(dataset, config.codec.sample_rate)
    if not (dataset.split == Split.TRAIN).any():
        raise CheckpointError(f"{dataset.path}: no notes to train on in this split; render more")
    _check_pitches(dataset, config.codec)
    device = pick_device(config.device)
    torch.manual_seed(config.loop.seed)
    trained = HeaderTraining(config, len(dataset.instruments)).to(device)
    start: dict[str, str] = {}
    before: list[str] = []
    learnt: dict[str, Any] = {}
    if config.init and Path(config.init).resolve() == out_dir.resolve():
        raise CheckpointError(
            f"{config.init}: its weights would be overwritten by what begins from them, which could not be "
            "gone on with; choose another folder to train in"
        )
    earlier = _finished(Path(config.init), config.codec) if config.init else None
    if earlier is not None:
        trained.coder.load_state_dict({**trained.coder.state_dict(), **earlier.header.state_dict()})
        init = Path(config.init)
        start["init"] = codec_hash(init)
        own = start["init"], unpacked_hash(init), codes_hash(init)
        before = list(dict.fromkeys((*own, *codes_like(init))))
        learnt = {"sources": load_description(init, WEIGHTS_NAME).get("sources", [])}
    jobs = config.jobs or n_cores()
    # In the dataset's order, whatever the seed: what a run of another has measured is what is wanted.
    split = dataset.of_split(Split.TRAIN, Split.HELD_OUT_CELL)
    notes = analyse_dataset(dataset, split, out_dir / ANALYSIS_FOLDER, jobs)
    if len(coded_alone := dataset.of_split(Split.HELD_OUT_INSTRUMENT)):  # by `train tokens`, as all are
        analyse_dataset(dataset, coded_alone, out_dir / HELD_OUT_FOLDER, jobs)
    trains = dataset.split[notes.notes] == Split.TRAIN
    train = HeaderSampler(notes, dataset, np.flatnonzero(trains), config)
    held_out = np.flatnonzero(~trains if not trains.all() else trains)
    held_out = np.random.default_rng(config.loop.seed).permutation(held_out)[:VALIDATION_NOTES]
    if earlier is None:
        trained.coder.mean.copy_(train.mean())

    def validate(model: nn.Module) -> dict[str, float]:
        assert isinstance(model, HeaderTraining)
        noise = np.zeros((len(held_out), train.n_numbers), dtype=np.float32)
        return _errors(model, train.batch(held_out, noise, device))

    loop = Loop(
        config.loop,
        trained,
        trained.loss,
        lambda step: train.draw(batch_seed(config.loop.seed, step), device),
        out_dir,
        validate=validate,
        identity={
            "codec": asdict(config.codec),
            "batch_size": config.batch_size,
            "rate_weight": config.rate_weight,
            **start,
        },
        name="codec",
    )
    loop.run()
    if not loop.finished:
        return None
    codec = TimbrelNotes(config.codec)
    averaged = loop.ema.model
    assert isinstance(averaged, HeaderTraining)
    codec.header.load_state_dict(averaged.coder.state_dict())
    if earlier is None:
        moving = dataset.split[notes.moving] == Split.TRAIN
        codec.templates.learn([each for each, known in zip(notes.movements, moving, strict=True) if known])
    else:
        codec.templates.load_state_dict(earlier.templates.state_dict())
        codec.templates.measure_depths()
    figures = loop.history[-1] if loop.history else {}
    about = {"id": codec.id, "config": asdict(config.codec), "figures": figures, CODES_LIKE: before, **learnt}
    save_weights(out_dir, WEIGHTS_NAME, codec, about)
    return codec.eval()


def _check_pitches(dataset: NoteDataset, sizes: TimbrelNotesConfig) -> None:
    """Raises ConfigError where the library has notes whose pitch has no code: they would get another's."""
    low = sizes.fundamental_min
    high = low + (sizes.codebook_size - 1) / sizes.fundamental_steps_per_semitone
    lowest, highest = dataset.pitch.min(), dataset.pitch.max()
    if lowest < low or highest > high:
        raise ConfigError(
            f"{dataset.path}: has notes of MIDI pitch {lowest:g} to {highest:g}, this codec codes {low:g} to "
            f"{high:g}: render others (notes.low_pitch, notes.high_pitch), or set codec.codec.fundamental_min"
        )


def _finished(folder: Path, sizes: TimbrelNotesConfig) -> TimbrelNotes:
    """Returns the finished codec of a folder, whose rank may be 0. Raises CheckpointError: there is none, or
    of other sizes."""
    about = load_description(folder, WEIGHTS_NAME)
    with no_larger_than(folder / f"{WEIGHTS_NAME}.safetensors"):
        try:
            codec = build_codec(about["config"]) if about.get("id") == TimbrelNotes.id else None
        except (KeyError, TypeError, ValueError):  # of a later version, or damaged
            codec = None
    known = codec.config if codec else sizes
    if codec is None or replace(known, header=replace(known.header, rank=sizes.header.rank)) != sizes:
        raise CheckpointError(
            f"{folder}: holds no timbrel-notes of these sizes; choose the config it was made with"
        )
    if known.header.rank not in (0, sizes.header.rank):
        raise CheckpointError(
            f"{folder}: its codec's rank is {known.header.rank}, 0 or {sizes.header.rank} is needed; set "
            f"codec.codec.header.rank={known.header.rank}"
        )
    load_weights(folder, WEIGHTS_NAME, codec)
    return codec


def build_codec(sizes: dict[str, Any]) -> TimbrelNotes:
    """Returns an untrained codec of a TimbrelNotesConfig as plain data."""
    return TimbrelNotes(TimbrelNotesConfig(**{**sizes, "header": HeaderConfig(**sizes["header"])}))


def _errors(trained: HeaderTraining, batch: HeaderBatch) -> dict[str, float]:
    """Returns the mean error of each part, dB, weighted by what is heard, and the nats of a note's codes."""
    numbers = trained.coder.quantized(batch.values, batch.weights, batch.midi)
    error = (trained.coder.values(numbers, batch.midi) - batch.values).abs() * batch.weights
    parts = zip(SHAPES, error.split(SIZES, dim=1), batch.weights.split(SIZES, dim=1), strict=True)
    found = {name: float(wrong.sum() / heard.sum().clamp(min=1e-9)) for name, wrong, heard in parts}
    nats = trained.prior.nats(numbers, batch.instrument, batch.midi, batch.velocity)
    return {"error": float(error.sum() / batch.weights.sum()), "nats": float(nats.mean()), **found}
