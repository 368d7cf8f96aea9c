"""Fine-tuning from a bundle and a folder of recordings to a new bundle."""

from __future__ import annotations

import dataclasses
import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import NDArray

from timbrel_bundle.files import atomic_write
from timbrel_export.bundle_folder import check_free
from timbrel_export.errors import ExportError
from timbrel_export.sample_note import SampleNote
from timbrel_posttraining.finetune.base import Base
from timbrel_posttraining.finetune.material import Material, gather, new_points
from timbrel_posttraining.finetune.place import find_place
from timbrel_posttraining.finetune.rehearsal import RehearsalPlan, write_rehearsal
from timbrel_posttraining.finetune.samples import (
    CodedSamples,
    Tell,
    code_library,
    locate,
    open_samples,
    read_library,
)
from timbrel_posttraining.finetune.train import FineTuneBatch, fine_tune
from timbrel_posttraining.finetune.write import write_bundle
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb
from timbrel_training.loop import Loop, pick_device
from timbrel_training.model import NoteTransformer
from timbrel_training.notes.folder import FolderSource
from timbrel_training.notes.split import Split
from timbrel_training.posttraining_config import FineTuneConfig
from timbrel_training.timbre.map import MapPoint
from timbrel_training.tokens.store import TokenStore
from timbrel_training.tokens.table import TokenTable

PLAN_FILE = "plan.json"
N_PARITY_NOTES = 4
"""Notes that the new bundle's graphs are compared on."""


@dataclass(frozen=True)
class FineTuning:
    """What is asked for."""

    base: Path
    """Folder of the bundle to start from."""
    source: str
    """folder:DIR."""
    out: Path
    """The bundle to make. Unfinished work lies beside it in `<out>.partial`."""
    config: FineTuneConfig
    config_name: str
    """For the manifest."""
    licence: str = "unknown"
    """Of the recordings."""
    name: str = ""
    """Of the new bundle; empty: that of its folder."""
    device: str = "auto"

    @property
    def work(self) -> Path:
        """Where unfinished work lies."""
        out = self.out.resolve()
        return out.with_name(f"{out.name}.partial")


@dataclass(frozen=True, eq=False)
class _Prepared:
    """Everything that training needs."""

    material: Material
    points: list[MapPoint]  # of the new instruments
    samples: CodedSamples


def fine_tune_bundle(task: FineTuning, tell: Tell = print) -> pb.Manifest | None:
    """Makes the new bundle, or goes on making it where an interrupted call left off.

    Returns:
        The new bundle's manifest; None where the sitting ended before the last step (call again to resume).

    Raises:
        BundleError: the base is no bundle, or damaged.
        ExportError: bundle, samples and `out` do not fit together.
        TrainingError: the samples cannot be used, or training failed.
    """
    check_free(task.out)
    if task.out.resolve() == task.base.resolve():
        raise ExportError(f"{task.out}: is the bundle to start from; choose another folder for the new one")
    device = pick_device(task.device)
    base = Base.open(task.base)
    source = open_samples(task.source, task.licence, base)
    _begin(task, base, source)
    prepared = _prepare(task, base, source, tell)
    identity = {"bundle_hash": base.bundle.manifest.bundle_hash}
    loop = fine_tune(task.config, base.model, prepared.material, task.work, device, identity)
    if not loop.finished:
        return None
    manifest = write_bundle(
        base,
        cast(NoteTransformer, loop.ema.model),
        prepared.points,
        _training_info(task, base, source, prepared.samples, loop),
        _parity_notes(prepared.material),
        task.out,
        task.name or task.out.resolve().name,
    )
    shutil.rmtree(task.work, ignore_errors=True)
    return manifest


def _begin(task: FineTuning, base: Base, source: FolderSource) -> None:
    """Makes the work folder, or makes sure that the one there is of this very task."""
    config = dataclasses.asdict(task.config)
    del config["training"]["loop"]  # the checkpoint minds it
    plan = {"bundle_hash": base.bundle.manifest.bundle_hash, "samples": source.settings(), "config": config}
    text = json.dumps(plan, indent=2)
    file = task.work / PLAN_FILE
    if not task.work.exists():
        task.work.mkdir(parents=True)
        atomic_write(file, text)
    elif not file.is_file() or file.read_text(encoding="utf-8") != text:
        raise ExportError(
            f"{task.work}: unfinished work on another bundle, other samples or other settings; "
            "remove that folder or choose another --out"
        )


def _prepare(task: FineTuning, base: Base, source: FolderSource, tell: Tell) -> _Prepared:
    config, work = task.config, task.work
    library = read_library(source, config.cell_fraction, work / "notes", tell)
    coded = code_library(library, base, config, work / "samples.bin", tell)
    samples = coded.table
    distance = config.distance * base.chart.spacing
    own, where = _place(base, samples, distance, tell)
    base.verify(_sample_notes(samples, own, _shortest(samples, 2)))
    plan = RehearsalPlan.draw(base.chart.points, where, base.ranges, config, distance)
    if len(plan) and not (work / "rehearsal.bin").exists():
        write_rehearsal(base.model, plan, base.header, work / "rehearsal.bin", config)
    rehearsal = TokenTable.from_store(TokenStore(work / "rehearsal.bin")) if len(plan) else None
    noise = config.training.noise_fraction * base.chart.spacing
    material = gather(samples, own, where, rehearsal, plan.timbre, noise)
    tell(
        f"training on {coded.n_trained} samples, coded as {len(samples.of_split(Split.TRAIN))} notes, "
        f"and {len(plan)} notes of rehearsal"
    )
    return _Prepared(material, new_points(samples, where), coded)


def _place(
    base: Base, samples: TokenTable, distance: float, tell: Tell
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Each sample's own point [N, 2] and each instrument's [M, 2], moved off others if need be."""
    own = locate(base, samples)
    taken = base.chart.centroids
    names = [point.instrument for point in base.chart.points]
    where = []
    for index, name in enumerate(samples.instruments):
        rows = samples.instrument == index
        heard = own[rows].mean(axis=0)
        found = find_place(heard, taken, distance)
        tell(_account(name, heard, found, taken, names))
        own[rows] += found - heard
        where.append(found)
        taken, names = np.concatenate([taken, found[None]]), [*names, name]
    radius = np.linalg.norm(own, axis=1, keepdims=True)
    return own / np.maximum(radius, 1.0), np.stack(where)


def _account(
    name: str,
    heard: NDArray[np.float32],
    found: NDArray[np.float32],
    taken: NDArray[np.float32],
    names: list[str],
) -> str:
    """One line on where an instrument went."""
    if not len(taken):
        return f"{name}: at {_point(found)}"
    gaps = np.linalg.norm(taken - heard, axis=1)
    near = f"{gaps.min():.2f} from {names[int(gaps.argmin())]}"
    if (found == heard).all():
        return f"{name}: at {_point(found)}, {near}"
    return f"{name}: heard at {_point(heard)}, {near}: too near, so moved to {_point(found)}"


def _point(point: NDArray[np.float32]) -> str:
    return f"({point[0]:.2f}, {point[1]:.2f})"


def _shortest(table: TokenTable, count: int) -> NDArray[np.int64]:
    """Numbers of the shortest notes of a table."""
    return np.argsort(table.n_frames, kind="stable")[:count]


def _sample_notes(
    table: TokenTable, points: NDArray[np.float32], rows: NDArray[np.int64]
) -> list[SampleNote]:
    """Notes of a table, at these points [N, 2], to compare graphs on."""
    return [
        SampleNote(
            (float(points[row, 0]), float(points[row, 1])),
            int(table.pitch[row]),
            float(table.velocity[row]),
            int(table.held_frames[row]),
            table.note(row),
        )
        for row in rows.tolist()
    ]


def _parity_notes(material: Material) -> list[SampleNote]:
    """Some notes, new and old ones."""
    rows = np.random.default_rng(0).permutation(material.table.n_notes)[:N_PARITY_NOTES]
    return _sample_notes(material.table, material.conditions.centroid, rows)


def _training_info(
    task: FineTuning, base: Base, source: FolderSource, samples: CodedSamples, loop: Loop[FineTuneBatch]
) -> pb.TrainingInfo:
    """The base's training and this one."""
    manifest = base.bundle.manifest
    info = pb.TrainingInfo()
    info.CopyFrom(manifest.training)
    info.n_steps += loop.step
    info.validation_loss = loop.history[-1].get("held_out", info.validation_loss)
    origin = f"{manifest.name} {manifest.bundle_hash[:12]}"
    info.config = f"{info.config}; fine-tuned from {origin} by config {task.config_name}"
    info.sources.add(
        name=f"folder {source.folder.resolve().name}",
        licence=source.licence,
        n_instruments=len(samples.table.instruments),
        n_notes=samples.n_trained,
    )
    return info
