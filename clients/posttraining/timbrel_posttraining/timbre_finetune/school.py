"""The lessons as files: what the bundle wrote and what was heard, kept so that a killed run goes on."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path

from timbrel.progress import bar
from timbrel_bundle.bundle import Bundle
from timbrel_bundle.layout import CODEC_WEIGHTS, MODEL_WEIGHTS, TIMBRE_MAP
from timbrel_posttraining.evaluate.cache import TakeCache
from timbrel_posttraining.evaluate.generation import write_takes
from timbrel_posttraining.timbre_finetune.ears import listening
from timbrel_posttraining.timbre_finetune.lessons import NOBODY, Lesson
from timbrel_training.notes.dataset import NoteDataset
from timbrel_training.notes.split import Split
from timbrel_training.posttraining_config import TimbreFinetuneConfig
from timbrel_training.tokens.store import TokenHeader, TokenStore
from timbrel_training.tokens.store_writer import TokenStoreWriter
from timbrel_training.tokens.table import TokenTable

VERSION = 1
"""Raise it when lessons are drawn or heard in another way."""
BETWEEN = "between instruments"
"""Under which the notes of no instrument are listed."""
PLAYS_AND_HEARS = (MODEL_WEIGHTS, CODEC_WEIGHTS, TIMBRE_MAP)
"""The files of a bundle that lessons depend on. Its timbre encoder is not among them: that is what learns."""


def lesson_key(bundle: Bundle, library: NoteDataset, config: TimbreFinetuneConfig) -> str:
    """Names the lessons, as 16 hexadecimal digits: of equal ones, and of no others."""
    hashes = {file.name: file.sha256 for file in bundle.manifest.files}
    fields = {name: value for name, value in dataclasses.asdict(config).items() if name in _DRAWN}
    about = [VERSION, [hashes[name] for name in PLAYS_AND_HEARS], fields, config.loop.seed, library.header]
    digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode())
    digest.update(library.index.tobytes())
    return digest.hexdigest()[:16]


def attend(
    bundle: Bundle, library: NoteDataset, lessons: list[Lesson], folder: Path, jobs: int
) -> TokenTable:
    """Has the bundle write what the lessons ask of it, hears them all, and keeps both in `folder`.

    Args:
        bundle: verified.
        library: of the source notes.
        lessons: of `LessonPlan.draw`.
        folder: of these very lessons, see `lesson_key`; what is there already is not made again.
        jobs: processes that hear.

    Returns:
        The codes heard, a note for each lesson in their order; one with too little to hear has no frames.

    Raises:
        TimbrelError: the bundle cannot be served.
    """
    path = folder / "heard.bin"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        cache = TakeCache(folder)
        write_takes(bundle.path, [lesson.take for lesson in lessons], cache, progress=True)
        _hear(bundle, library, lessons, cache, path, jobs)
    return TokenTable.from_store(TokenStore(path))


def _hear(
    bundle: Bundle, library: NoteDataset, lessons: list[Lesson], cache: TakeCache, path: Path, jobs: int
) -> None:
    points = bundle.timbre_map.points
    with TokenStoreWriter(path, _header(bundle)) as writer:
        done = len(writer)
        left = lessons[done:]
        with (
            listening(bundle.path, library.path, cache, left, jobs) as heard,
            bar("hearing", len(lessons), "note", initial=done) as shown,
        ):
            for lesson, codes in zip(left, heard, strict=True):
                known = lesson.instrument != NOBODY
                writer.add(
                    codes,
                    instrument=points[lesson.instrument].instrument if known else BETWEEN,
                    family=points[lesson.instrument].family if known else BETWEEN,
                    pitch=lesson.take.pitch,
                    velocity=lesson.take.velocity,
                    held_frames=max(1, round(lesson.take.seconds * writer.header.frame_rate)),
                    source=str(lesson.take.kind),
                    split=int(Split.TRAIN),
                )
                shown.update()
        writer.finish()


def _header(bundle: Bundle) -> TokenHeader:
    codec = bundle.manifest.codec
    return TokenHeader(
        codec_id=codec.id,
        codec_hash=next(file.sha256 for file in bundle.manifest.files if file.name == CODEC_WEIGHTS),
        sample_rate=codec.sample_rate,
        hop_length=codec.hop_length,
        n_codebooks=codec.n_codebooks,
        codebook_size=codec.codebook_size,
    )


_DRAWN = (
    "source_notes",
    "own_notes",
    "between_notes",
    "between_distance",
    "hinted_share",
    "hint_semitones",
    "cut_share",
)
"""Fields of the config that lessons depend on."""
