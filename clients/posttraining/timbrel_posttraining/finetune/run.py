"""Fine-tuning from a bundle and a folder of recordings to a new bundle."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import cast

import numpy as np
import torch

from timbrel.progress import counted
from timbrel_bundle.file_lock import try_lock
from timbrel_bundle.files import atomic_write
from timbrel_bundle.manifest import LONGEST_TEXT
from timbrel_export.bundle_folder import check_free, check_texts
from timbrel_export.errors import ExportError
from timbrel_export.sample_note import sample_notes
from timbrel_posttraining.finetune.base import Base, write_bundle
from timbrel_posttraining.finetune.rehearsal import rehearse
from timbrel_posttraining.finetune.samples import (
    CodedSamples,
    as_read,
    code_samples,
    new_points,
    open_samples,
    place_samples,
)
from timbrel_posttraining.finetune.train import FineTuneBatch, fine_tune, gather
from timbrel_posttraining.finetune.tuning import check_tuning
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb
from timbrel_training.loop import Loop, pick_device
from timbrel_training.model import NoteTransformer
from timbrel_training.notes.folder import FolderSource
from timbrel_training.posttraining_config import FineTuneConfig

PLAN_FILE = "plan.json"
LOCK_FILE = "lock"
VERSION = 3
"""Raise it when samples are read or coded in another way, and what is kept of them would not fit."""
LONGEST_NAME = 100
"""Characters of a name within an account of a training."""
N_PARITY_NOTES = 4
"""Notes that the new bundle's graphs are compared on."""


def unfinished(out: Path) -> Path:
    """Returns the folder of unfinished work on the bundle `out`."""
    out = out.resolve()
    return out.with_name(f"{out.name}.partial")


def fine_tune_bundle(
    from_bundle: Path,
    recordings: str,
    out: Path,
    config: FineTuneConfig,
    config_name: str,
    *,
    licence: str = "unknown",
    name: str = "",
    device: str = "auto",
    retune: bool = False,
) -> pb.Manifest | None:
    """Makes the new bundle, or goes on making it where an interrupted call left off; returns its manifest, or
    None where the sitting ended before the last step (call again to resume).

    `recordings`, as folder:DIR, are brought in tune with `retune`. The manifest states their licence, and the
    config by its name; the bundle's own name is by default that of its folder. Raises BundleError:
    `from_bundle` is no bundle, or damaged; ExportError: bundle, samples and `out` do not fit together;
    TrainingError: the samples cannot be used, or training failed.
    """
    check_free(out)
    if out.resolve() == from_bundle.resolve():
        raise ExportError(f"{out}: is the bundle to start from; choose another folder for the new one")
    torch_device = pick_device(device)
    name = name or out.resolve().name
    check_texts({"--name": name, "--licence": licence, "--config": config_name})
    base = Base.open(from_bundle)
    base.bundle.require()  # all of it goes into the new one, hours from here
    source = open_samples(recordings, licence, base)
    print(*as_read(source), sep="\n")
    source = check_tuning(source, retune, print)
    check_texts({"the samples' folder": source.name})
    work = unfinished(out)
    _begin(work, config, base, source)
    with _alone_in(work):
        manifest = _make_bundle(work, base, source, out, name, config, config_name, torch_device)
    if manifest is not None:
        shutil.rmtree(work, ignore_errors=True)
    return manifest


def _make_bundle(
    work: Path,
    base: Base,
    source: FolderSource,
    out: Path,
    name: str,
    config: FineTuneConfig,
    config_name: str,
    device: torch.device,
) -> pb.Manifest | None:
    """Goes on with the work in its folder. When it returns, no file there is mapped any more: Windows removes
    none that is."""
    samples = code_samples(source, base, config, work, print)
    placement = place_samples(base, samples, config.distance * base.chart.spacing, print)
    where = placement.where
    base.verify(samples.table, where[samples.table.instrument])
    points, rehearsal = rehearse(base, where, config, work / "rehearsal.bin")
    notes = gather(samples.table, where, rehearsal, points, base.chart, config.training.noise_fraction)
    print(
        f"training on {counted(samples.n_trained, 'sample')}, coded as {len(notes.samples)} notes, "
        f"and {len(points)} notes of rehearsal"
    )
    loop = fine_tune(
        config, base.model, notes, work, device, {"bundle_hash": base.bundle.manifest.bundle_hash}
    )
    if not loop.finished:
        return None
    rows = np.random.default_rng(0).permutation(notes.table.n_notes)[:N_PARITY_NOTES]
    return write_bundle(
        base,
        cast(NoteTransformer, loop.ema.model),
        new_points(samples.table, where),
        placement.references,
        _training_info(base, source, samples, loop, config_name),
        sample_notes(notes.table, notes.conditions.centroid, rows, base.model.config.max_frames),
        out,
        name,
    )


def _begin(work: Path, config: FineTuneConfig, base: Base, source: FolderSource) -> None:
    """Makes the work folder, or makes sure that the one there is of this very task."""
    fields = asdict(config)
    del fields["training"]["loop"]  # the checkpoint minds it
    task = {"bundle_hash": base.bundle.manifest.bundle_hash, "samples": source.settings(), "config": fields}
    plan = {"version": VERSION, "seed": config.training.loop.seed, **task}  # rehearsal is drawn by the seed
    text = json.dumps(plan, indent=2)
    file = work / PLAN_FILE
    if not work.exists() or (work.is_dir() and not any(work.iterdir())):  # a full disk leaves it empty
        work.mkdir(parents=True, exist_ok=True)
        atomic_write(file, text)
    elif not file.is_file() or file.read_text(encoding="utf-8") != text:
        raise ExportError(
            f"{work}: unfinished work on another bundle, other samples or other settings, or of another "
            "timbrel; remove that folder or choose another --out"
        )


@contextmanager
def _alone_in(work: Path) -> Iterator[None]:
    """Keeps other processes out of the work folder: who takes a run that goes on somewhere for interrupted
    starts another, and two that write one store spoil it. The system lets go of the lock however a process
    ends. Raises ExportError: another one is at work."""
    with (work / LOCK_FILE).open("w") as file:
        is_ours = True
        with suppress(OSError):  # a file system that locks no files
            is_ours = try_lock(file)
        if not is_ours:
            raise ExportError(f"{work}: another process is at work there; wait for it, or end it first")
        yield


def longer_config(before: str, step: str) -> str:
    """Adds a step to a manifest's account of the steps of a training. Where that gets too long, the first and
    the last stay: the bundle that the last began from tells of the others."""
    text = f"{before}; {step}"
    return text if len(text) <= LONGEST_TEXT else f"{before.split('; ')[0][:LONGEST_NAME]}; ...; {step}"


def _training_info(
    base: Base, source: FolderSource, samples: CodedSamples, loop: Loop[FineTuneBatch], config_name: str
) -> pb.TrainingInfo:
    """Describes, for the manifest, the base's training and this one."""
    manifest = base.bundle.manifest
    info = pb.TrainingInfo()
    info.CopyFrom(manifest.training)
    info.n_steps += loop.step
    info.validation_loss = loop.history[-1].get("held_out", info.validation_loss)
    origin = f"{manifest.name[:LONGEST_NAME]} {manifest.bundle_hash[:12]}"
    info.config = longer_config(info.config, f"fine-tuned from {origin} by config {config_name}")
    info.sources.add(
        name=source.name,
        licence=source.licence,
        n_instruments=len(samples.table.instruments),
        n_notes=samples.n_trained,
    )
    return info
