"""Trains the note transformer (stage 2)."""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from timbrel_training.checkpoint import load_description, load_weights, no_larger_than, save_weights
from timbrel_training.errors import CheckpointError
from timbrel_training.loop import Loop, LoopConfig, batch_seed
from timbrel_training.model.config import FORMER_FIELDS, ModelConfig, without_former
from timbrel_training.model.transformer import NoteTransformer
from timbrel_training.note_training.batches import BatchPlan, TimbreConditions, pack
from timbrel_training.note_training.loss import TokenLoss, header_loss, token_loss, training_loss
from timbrel_training.notes.split import Split
from timbrel_training.optimization import autocast
from timbrel_training.settings import check_at_least, check_shares
from timbrel_training.timbre.map import map_hash, read_map
from timbrel_training.tokens.delay import IGNORED, TokenBatch, collate
from timbrel_training.tokens.table import TokenTable, require_training_notes

MODEL = "model"
"""Name of the latest averaged weights in a stage-2 folder."""
BEST = "best"
"""Name of those that predicted held-out notes best so far: in time a few notes are learned by heart."""
MAP_HASH, NOTES_HASH = "map_hash", "notes_hash"
"""In a stage-2 folder's description: digests of the map and of the notes that its model learnt from. Older
folders, and those made of a bundle, lack them."""


@dataclass(frozen=True)
class NoteTrainingConfig:
    """Stage 2: its schedule, its batches, and how notes are conditioned."""

    loop: LoopConfig = field(default_factory=LoopConfig)
    """Steps and rates."""
    batch_steps: int = 6144
    """Decoder steps per batch, padding included: about 50 notes."""
    centroid_share: float = 0.5
    """Share of notes conditioned on their instrument's point; the others are on their own."""
    noise_fraction: float = 0.25
    """Standard deviation of the noise on points, as a share of the distance from the note's instrument to its
    nearest neighbour; of the median of these distances at most."""
    repeat_share: float = 1.0
    """Share of the codes behind a codec's lead frames, of codebooks 2 on, that are asked for: where they
    repeat those of the lead frames, as those of a codec with `hold` do, a few are enough, and the first count
    for more."""
    header_notes: int = 0
    """Further notes in each batch, of which only the lead frames are learnt, by a model whose header network
    says them: these tell how a note sounds, and cost a fortieth of a whole one."""
    validation_notes: int = 400
    """Held-out notes scored at each validation, and as many training notes beside them."""

    def __post_init__(self) -> None:
        check_shares(self, "centroid_share", "repeat_share")
        check_at_least(self, batch_steps=1, header_notes=0, noise_fraction=0, validation_notes=1)


@dataclass(frozen=True)
class HeaderBatch:
    """The lead frames of some notes and what they are conditioned on."""

    timbre: Tensor  # float32 [B, 2]
    pitch: Tensor  # int64 [B]
    velocity: Tensor  # float32 [B]
    targets: Tensor  # int64 [B, lead_frames, K]


@dataclass(frozen=True)
class NoteBatch:
    """Tokens of some notes and what they are conditioned on."""

    timbre: Tensor  # float32 [B, 2]
    pitch: Tensor  # int64 [B]
    velocity: Tensor  # float32 [B]
    tokens: TokenBatch
    headers: HeaderBatch | None = None
    """Further notes."""


class NoteTrainer:
    """Draws batches from a table of notes and scores the model on them."""

    def __init__(
        self,
        config: NoteTrainingConfig,
        model_config: ModelConfig,
        table: TokenTable,
        conditions: TimbreConditions,
        device: torch.device,
    ) -> None:
        require_training_notes(table)
        self.config = config
        self.table = table
        self.conditions = conditions
        self.device = device
        torch.manual_seed(config.loop.seed)
        self.model = build_model(model_config, "the config's section model").to(device)
        self.layout = model_config.layout
        self.max_frames, self.release_frames = model_config.max_frames, model_config.release_frames
        kept = np.minimum(table.n_frames, self.max_frames)
        self.n_steps = np.array([self.layout.n_steps(int(frames)) for frames in kept], dtype=np.int64)
        self.training_notes = table.of_split(Split.TRAIN)
        self.plan = BatchPlan(self.n_steps[self.training_notes], config.batch_steps, config.loop.seed)

    def batch(self, step: int) -> NoteBatch:
        """Returns the training batch of a 0-based step."""
        notes = self.training_notes[self.plan.batch(step)]
        generator = np.random.default_rng(batch_seed(self.config.loop.seed + 1, step))
        points = self.conditions.draw(notes, self.config.centroid_share, generator)
        batch = self.make_batch(notes, points)
        header = self.table.header
        if self.config.repeat_share < 1.0 and header.lead_frames and header.repeats:
            repeats = batch.tokens.targets[:, header.lead_frames :, 2:]
            left_out = generator.random(repeats.shape) >= self.config.repeat_share
            for book in range(repeats.shape[2]):  # whose lead frames end so many steps later
                left_out[:, : (book + 2) * self.layout.codebook_delay, book] = False
            repeats[torch.from_numpy(left_out)] = IGNORED
        if self.config.header_notes and self.model.header is not None:
            notes = generator.choice(self.training_notes, self.config.header_notes)
            points = self.conditions.draw(notes, self.config.centroid_share, generator)
            return dataclasses.replace(batch, headers=self.make_headers(notes, points))
        return batch

    def make_headers(self, notes: NDArray[np.int64], points: NDArray[np.float32]) -> HeaderBatch:
        """Makes a batch of the lead frames of notes [B] at points [B, 2] of the map."""
        table, n_rows = self.table, self.table.header.lead_frames
        headers = [self.layout.to_tokens(table.note(note)[:n_rows], int(table.pitch[note])) for note in notes]
        return HeaderBatch(
            torch.from_numpy(points),
            torch.from_numpy(table.pitch[notes]),
            torch.from_numpy(table.velocity[notes].astype(np.float32)),
            torch.from_numpy(np.stack(headers).astype(np.int64)),
        )

    def make_batch(self, notes: NDArray[np.int64], points: NDArray[np.float32]) -> NoteBatch:
        """Makes a batch of notes [B] at points [B, 2] of the map."""
        table = self.table
        tokens = collate(
            [self.layout.to_tokens(table.note(note), int(table.pitch[note])) for note in notes],
            table.held_frames[notes].tolist(),
            self.layout,
            max_frames=self.max_frames,
            release_frames=self.release_frames,
        )
        cut = table.cut[notes] & (table.n_frames[notes] <= self.max_frames)
        rows = np.flatnonzero(cut)
        tokens.targets[rows, table.n_frames[notes][rows], 0] = IGNORED  # nobody knows where these end
        return NoteBatch(
            torch.from_numpy(points),
            torch.from_numpy(table.pitch[notes]),
            torch.from_numpy(table.velocity[notes].astype(np.float32)),
            tokens,
        )

    def loss(self, batch: NoteBatch, /) -> tuple[Tensor, Mapping[str, Tensor | float]]:
        """Returns nats per token, each codebook counting alike, with those of the further headers; and each
        codebook's own."""
        scores = self._score(training_loss, self.model, batch)
        by_codebook = scores.nats / scores.n_targets.clamp(min=1)
        scalars = {f"codebook_{q}": value for q, value in enumerate(by_codebook.detach())}
        scalars["notes"] = float(len(batch.pitch))
        if batch.headers is None:
            return by_codebook.mean(), scalars
        given = batch.headers
        inputs = (given.timbre, given.pitch, given.velocity, given.targets)
        more = header_loss(self.model, *(each.to(self.device) for each in inputs))
        return by_codebook.mean() + more, {**scalars, "headers": more.detach()}

    def validate(self, average: nn.Module) -> dict[str, float]:
        """Returns nats per token on held-out cells and as many training notes, at instruments' points."""
        held_out = self._sample(self.table.of_split(Split.HELD_OUT_CELL))
        figures = self._nats(average, held_out, "held_out") if len(held_out) else {}
        return {**figures, **self._nats(average, self._sample(self.training_notes), "training")}

    def _nats(self, model: nn.Module, notes: NDArray[np.int64], name: str) -> dict[str, float]:
        nats = torch.zeros(self.layout.n_codebooks)
        counts = torch.zeros(self.layout.n_codebooks)
        for rows in pack(notes, self.n_steps, self.config.batch_steps):
            batch = self.make_batch(rows, self.conditions.centroid[rows])
            with autocast(self.device, self.config.loop.precision):
                scores = self._score(token_loss, model, batch)
            nats += scores.nats.float().cpu()
            counts += scores.n_targets.cpu()
        by_codebook = nats / counts.clamp(min=1)
        figures = {name: float(by_codebook.mean())}
        if name == "held_out":
            figures |= {f"{name}_{q}": float(value) for q, value in enumerate(by_codebook)}
        return figures

    def _score(self, loss: Callable[..., TokenLoss], model: nn.Module, batch: NoteBatch) -> TokenLoss:
        inputs = (batch.timbre, batch.pitch, batch.velocity, batch.tokens)
        return loss(model, *(each.to(self.device) for each in inputs))

    def _sample(self, notes: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.random.default_rng(0).permutation(notes)[: self.config.validation_notes]


def train_notes(
    config: NoteTrainingConfig,
    model_config: ModelConfig,
    table: TokenTable,
    timbre_dir: Path,
    out_dir: Path,
    device: torch.device,
    name: str = "",
    init: Path | None = None,
) -> Loop[NoteBatch]:
    """Trains stage 2 in `out_dir`, or resumes it; from the weights in `init`, where that is given.

    Leaves model.safetensors (averaged weights, renewed at every validation and where a sitting ends;
    best.safetensors: see BEST) and model.json, whose "model" holds the ModelConfig's fields, "ranges" what
    the notes covered, "config" the `name` given and "sources" what it learnt from, what the weights in `init`
    did included.

    Raises:
        CheckpointError: stage 1's map is missing or of other notes, `init` holds another model or that of
            another codec, or is `out_dir`, or the checkpoint is of another config.
    """
    chart, points = read_map(timbre_dir)
    conditions = TimbreConditions.from_map(chart, points, table, config.noise_fraction)
    trainer = NoteTrainer(config, model_config, table, conditions, device)
    start, earlier_steps = {}, 0
    sources: list[dict[str, Any]] = [{"name": name} for name in table.sources]
    if init is not None:
        if init.resolve() == out_dir.resolve():
            raise CheckpointError(
                f"{init}: its weights would be overwritten by what begins from them, which could not be gone "
                "on with; choose another folder to train in"
            )
        known = table.header.codec_hash, *table.header.codes_like
        start["init"], earlier_steps = start_from(init, trainer.model, known)
        earlier = load_description(init, MODEL).get("sources", [])
        sources += [source for source in earlier if source not in sources]
    learns_from = digests(timbre_dir, table.notes_hash)
    about = {**_about(model_config, table), **learns_from, "config": name, "sources": sources, **start}

    def save(average: nn.Module, is_due: bool) -> dict[str, float]:
        figures = trainer.validate(average)
        description = {**about, "steps": earlier_steps + loop.step, "validation": figures}
        save_weights(out_dir, MODEL, average, description)
        if not is_due:  # no checkpoint remembers it: later ones could not tell whether they are better
            return figures
        earlier = [entry["held_out"] for entry in loop.history if "held_out" in entry]
        if figures.get("held_out", math.inf) < min(earlier, default=math.inf):
            save_weights(out_dir, BEST, average, description)
        return figures

    fields = dataclasses.asdict(config)
    del fields["loop"]
    loop = Loop(
        *(config.loop, trainer.model, trainer.loss, trainer.batch, out_dir),
        validate=lambda average: save(average, is_due=True),
        identity={
            "model": {**dataclasses.asdict(model_config), **FORMER_FIELDS},
            **fields,
            "input_corruption": 0.0,  # what earlier timbrels could train with
            "codec_hash": table.header.codec_hash,
            **start,
        },
        later_identity=learns_from,
        name="model",
    )
    print(
        f"{trainer.model.n_parameters / 1e6:.2f} M parameters, {len(trainer.training_notes)} training notes, "
        f"{config.loop.n_steps} steps = {trainer.plan.epoch_of(config.loop.n_steps - 1):.1f} epochs"
    )
    loop.run()
    if not loop.finished:
        save(loop.ema.model, is_due=False)
    return loop


def digests(timbre_dir: Path, notes_hash: str) -> dict[str, str]:
    """Returns the digests of the map in a stage-1 folder and, where it is known, of the notes."""
    known = {NOTES_HASH: notes_hash} if notes_hash else {}
    return {MAP_HASH: map_hash(timbre_dir), **known}


def check_learnt_from(
    folder: Path, description: Mapping[str, Any], timbre_dir: Path, tokens: Path, table: TokenTable
) -> None:
    """Raises CheckpointError where a stage-2 folder's model learnt from other `tokens` than those in
    the table, or from another map. What its description does not state is not compared."""
    if description.get("codec_hash") != table.header.codec_hash:
        raise CheckpointError(f"{folder}: the model was trained on other tokens than {tokens}")
    given = digests(timbre_dir, table.notes_hash)
    unlike = [name for name in given if description.get(name, given[name]) != given[name]]
    if NOTES_HASH in unlike:
        raise CheckpointError(f"{folder}: the model was trained on the tokens of other notes than {tokens}")
    if MAP_HASH in unlike:
        raise CheckpointError(f"{folder}: the model was trained on another map than that in {timbre_dir}")


def start_from(folder: Path, model: NoteTransformer, codec_hashes: Collection[str]) -> tuple[str, int]:
    """Gives `model` the weights of another stage-2 folder; returns their SHA-256 in hex, and their steps.

    Codes may gain embeddings of their digits, the gate more frames that it counts, and what is known of codes
    and the key: at first the model does what the other did. Lead frames may gain a network of their own,
    which has to learn them anew.

    Raises:
        CheckpointError: there are none, they are damaged, of a model unlike this, or of none of these codecs.
    """
    description = load_description(folder, MODEL)
    earlier_config = read_config(folder, description)
    found, wanted = (dataclasses.asdict(each) for each in (earlier_config, model.config))
    gained = {"dropout"}
    if not earlier_config.digit_base:
        gained.add("digit_base")
    if not earlier_config.header_width:
        gained.add("header_width")
    if model.config.release_frames > earlier_config.release_frames:
        gained.add("release_frames")
    gained |= {name for name in ("held_codes", "released_codes") if not getattr(earlier_config, name)}
    if unlike := [key for key in wanted if found[key] != wanted[key] and key not in gained]:
        raise CheckpointError(
            f"{folder}: its model differs in {', '.join(unlike)}; choose the config that it was made with"
        )
    if description.get("codec_hash") not in codec_hashes:
        raise CheckpointError(f"{folder}: its model writes codes of another codec than the tokens are of")
    earlier = build_model(earlier_config, str(folder))
    load_weights(folder, MODEL, earlier)
    _take_over(earlier, model)
    sha256 = hashlib.sha256((folder / f"{MODEL}.safetensors").read_bytes()).hexdigest()
    return sha256, int(description.get("steps", 0))


@torch.no_grad()
def _take_over(earlier: NoteTransformer, model: NoteTransformer) -> None:
    """Gives `model` the weights of one that differs in what `start_from` allows."""
    weights = earlier.state_dict()
    gate = weights["decoder.gate.weight"]
    n_more = model.config.release_frames - earlier.config.release_frames
    weights["decoder.gate.weight"] = torch.cat([gate[:1].expand(n_more, -1), gate])
    if model.config.digit_base and not earlier.config.digit_base:
        tokens = "decoder.tokens.parametrizations.weight"
        weights[f"{tokens}.original"] = weights.pop("decoder.tokens.weight")
        weights[f"{tokens}.0.tables"] = torch.zeros_like(model.state_dict()[f"{tokens}.0.tables"])
    fresh = {name: value for name, value in model.state_dict().items() if name.startswith("header.")}
    model.load_state_dict({**fresh, **weights})


def load_model(folder: Path, name: str = MODEL) -> NoteTransformer:
    """Returns the trained model of a stage-2 folder as it ships, in eval mode; `name` is MODEL or BEST.
    Raises CheckpointError: there is none, or it is damaged."""
    config = read_config(folder, load_description(folder, name))
    with no_larger_than(folder / f"{name}.safetensors"):
        model = build_model(config, str(folder))
    load_weights(folder, name, model)
    return model.with_plain_embeddings().eval()


def build_model(config: ModelConfig, whose: str) -> NoteTransformer:
    """Returns an untrained model. Raises CheckpointError: memory is short for the sizes of `whose` config."""
    try:
        return NoteTransformer(config)
    except (RuntimeError, ValueError) as error:  # the former: torch's way to say that memory is short
        raise CheckpointError(f"{whose}: a model of these sizes cannot be built ({error})") from None


def read_config(folder: Path, description: Mapping[str, Any]) -> ModelConfig:
    """Reads a stage-2 folder's ModelConfig; older ones have the lead frames beside it alone. Raises
    CheckpointError: it is none that is known here."""
    try:
        fields = without_former(description["model"])
        return ModelConfig(**{"lead_frames": description.get("lead_frames", 0), **fields})
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"{folder}: not a model that this timbrel knows ({error}); train it with this one"
        ) from None


def _about(model_config: ModelConfig, table: TokenTable) -> dict[str, Any]:
    """Returns what export needs to know of the data."""
    training = table.split == int(Split.TRAIN)
    held_seconds = (table.held_frames[training] - table.header.lead_frames) / table.header.frame_rate
    return {
        "kind": "note_transformer",
        "model": dataclasses.asdict(model_config),
        "codec_hash": table.header.codec_hash,
        "frame_rate": table.header.frame_rate,
        "lead_frames": table.header.lead_frames,
        "ranges": {
            "pitch": [int(table.pitch[training].min()), int(table.pitch[training].max())],
            "velocity": [int(table.velocity[training].min()), int(table.velocity[training].max())],
            "held_seconds": [float(held_seconds.min()), float(held_seconds.max())],
        },
        "instruments": list(table.instruments),
        "n_notes": int(training.sum()),
        "hours": float(table.n_frames[training].sum() / table.header.frame_rate / 3600),
    }
