"""A bundle's folder: what its manifest says of it, and how it appears, whole or not at all."""

from __future__ import annotations

import errno
import importlib.util
import math
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from timbrel_bundle.audio import MAX_SAMPLES
from timbrel_bundle.bundle import Bundle
from timbrel_bundle.errors import UNPRINTABLE, BundleError
from timbrel_bundle.files import read_json_object
from timbrel_bundle.layout import FORMAT_VERSION, MANIFEST, MAP_PICTURE, MODEL_CARD
from timbrel_bundle.manifest import LONGEST_TEXT, bundle_hash, describe_file, held_frames, last_delay
from timbrel_export.errors import ExportError
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb
from timbrel_training.errors import writing
from timbrel_training.model import NoteTransformer
from timbrel_training.model.config import N_CONDITION_POSITIONS

SHIPPED = "default"
"""Stands for the bundle that ships."""

HOLD_SECONDS = 600.0
"""A request may hold a key for so long where the note goes on without the model."""

MOST_HELD = 0.97
"""Of the samples that a note may have, so many are held at most; the rest is for its release."""

WRITTEN_SHARE = 0.75
"""From this share of the longest hold that it was trained on: closer to its end, where the keys of all notes
trained on went up, a model expects the release at any moment."""


def bundle_path(name: str | Path, option: str = "--bundle") -> Path:
    """The folder of the bundle that an option of the command line names: the one that ships is called
    "default", where no folder here is. Raises ExportError: none ships with this installation."""
    if str(name) != SHIPPED or Path(name).is_dir():
        return Path(name)
    found = importlib.util.find_spec("timbrel_server")
    packages = (found.submodule_search_locations or []) if found is not None else []
    for package in map(Path, packages):
        for folder in (package, package.parent):
            if (folder / "bundles" / SHIPPED / MANIFEST).is_file():
                return folder / "bundles" / SHIPPED
    raise ExportError(f"no bundle ships with this installation: name one with {option} DIR")


def describe_bundle(folder: Path, name: str, git_revision: str, **sections: Any) -> pb.Manifest:
    """A manifest that lists and hashes the files of `folder`, with these of its other sections: codec, model,
    ranges, training or parity."""
    files = [describe_file(path) for path in sorted(folder.iterdir()) if path.name != MANIFEST]
    return pb.Manifest(
        format_version=FORMAT_VERSION,
        name=name,
        bundle_hash=bundle_hash(files),
        created=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        git_revision=git_revision,
        files=files,
        **sections,
    )


def describe_model(model: NoteTransformer) -> pb.ModelSpec:
    """The manifest's account of the model."""
    config, layout = model.config, model.config.layout
    return pb.ModelSpec(
        d_model=config.d_model,
        n_heads=config.n_heads,
        n_kv_heads=config.n_kv_heads,
        head_dim=config.width_per_head,
        d_feed_forward=config.d_feed_forward,
        n_encoder_layers=config.n_encoder_layers,
        n_decoder_layers=config.n_decoder_layers,
        vocabulary_size=layout.vocabulary_size,
        bos_id=layout.bos_id,
        eos_id=layout.eos_id,
        max_frames=config.max_frames,
        max_positions=config.max_positions,
        n_condition_positions=N_CONDITION_POSITIONS,
        conditioning="cross",
        n_parameters=model.n_parameters,
        codes_per_semitone=config.codes_per_semitone,
        code_offset=config.code_offset,
        codebook_delay=config.codebook_delay,
        release_frames=config.release_frames if config.release_frames > 1 else None,
    )


def lengthen_holds(manifest: pb.Manifest) -> None:
    """Allows keys to be held for longer than the model writes, where the codec says how their notes go on."""
    if manifest.codec.hold and not last_delay(manifest):
        written = max(manifest.ranges.seconds_min, WRITTEN_SHARE * manifest.ranges.seconds_max)
        n_written = held_frames(written, manifest.codec)
        manifest.model.hold_frames = min(n_written, manifest.model.max_frames - 1)
        longest = min(HOLD_SECONDS, MOST_HELD * MAX_SAMPLES / manifest.codec.sample_rate)
        manifest.ranges.seconds_max = max(manifest.ranges.seconds_max, math.floor(longest))


def check_texts(texts: Mapping[str, str]) -> None:
    """Raises ExportError where a bundle could not be opened for one of its texts; each by what it is."""
    for what, text in texts.items():
        if len(text) > LONGEST_TEXT:
            raise ExportError(f"{what} has {len(text)} characters, {LONGEST_TEXT} are the most")
        if UNPRINTABLE.search(text):
            raise ExportError(f"{what} {text[:60]!r} has characters that cannot be printed")


def open_written(folder: Path) -> Bundle:
    """Opens a bundle that was just written. Raises BundleError: nobody could open it, its map or its
    references."""
    bundle = Bundle.open(folder)
    _ = bundle.timbre_map, bundle.timbre_references
    return bundle


def check_free(out_dir: Path) -> None:
    """Raises ExportError where `out_dir` holds something that is no bundle's, which may be replaced, or is a
    folder that no other can take the place of."""
    if out_dir.is_file():
        raise ExportError(f"{out_dir}: exists and is no bundle; choose another folder")
    if not out_dir.is_dir():
        return
    if out_dir.resolve() == Path.cwd() or os.path.ismount(out_dir):  # Path's: not on Windows before 3.12
        raise ExportError(
            f"{out_dir}: cannot be replaced: it is the folder you are in, or a mount point; choose another"
        )
    present, known = {path.name for path in out_dir.iterdir()}, _known_files(out_dir)
    if present and known is None:
        raise ExportError(f"{out_dir}: exists and is no bundle; choose another folder or empty it")
    if known is not None and (foreign := present - known):
        raise ExportError(
            f"{out_dir}: holds {min(foreign)!r}, which is not the bundle's and would be lost; "
            "choose another folder or move it away"
        )


@contextmanager
def new_bundle(out_dir: Path) -> Iterator[Path]:
    """A folder to write a bundle's files to; it becomes `out_dir` when the block ends well, else it goes.

    Where `out_dir` is a symbolic link, it becomes what that names. Raises ExportError: as `check_free`, of
    what was put there meanwhile; WriteError: the disk is full, or will not be written to.
    """
    out_dir = out_dir.resolve()
    with writing(out_dir):
        out_dir.parent.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=f".{out_dir.name}.", suffix=".tmp", dir=out_dir.parent))
        try:
            yield folder
            check_free(out_dir)  # since it was last asked, hours of training may have gone by
            _make_readable(folder)
            _replace_folder(folder, out_dir)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def git_revision() -> str:
    """The commit of the checkout that this file is part of, with "-dirty" where it was edited; "" elsewhere:
    an installed timbrel may lie in the checkout of something else."""
    head = _git("rev-parse", "HEAD")
    if not head or not _git("ls-files", "--error-unmatch", Path(__file__).name):
        return ""
    return f"{head}-dirty" if _git("status", "--porcelain", "--untracked-files=no") else head


def _known_files(folder: Path) -> set[str] | None:
    """The names of what belongs to the bundle in a folder, of any version; None: it holds none."""
    try:
        content = read_json_object(folder / MANIFEST)
    except BundleError:
        return None
    if not {"format_version", "bundle_hash"} <= content.keys() or not isinstance(content.get("files"), list):
        return None
    listed = {str(file["name"]) for file in content["files"] if isinstance(file, dict) and "name" in file}
    return {MANIFEST, MODEL_CARD, MAP_PICTURE, *listed}


def _make_readable(folder: Path) -> None:
    """Undoes the privacy of temporary files."""
    folder.chmod(0o755)
    for path in folder.iterdir():
        path.chmod(0o644)


def _replace_folder(folder: Path, out_dir: Path) -> None:
    """Renames `folder` to `out_dir`, setting aside what is there until that has worked: what another export
    has put there meanwhile, too."""
    old = folder.with_suffix(".old")  # this export's alone
    while True:
        with suppress(FileNotFoundError):
            out_dir.rename(old)
        try:
            folder.rename(out_dir)
            break
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                if old.exists():
                    old.rename(out_dir)
                raise
            shutil.rmtree(old, ignore_errors=True)
    shutil.rmtree(old, ignore_errors=True)


def _git(*arguments: str) -> str:
    folder = Path(__file__).resolve().parent
    try:
        result = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return result.stdout.strip()
