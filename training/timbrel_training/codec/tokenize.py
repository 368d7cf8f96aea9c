"""Codes a dataset of notes into a store of tokens, by a codec at work in several processes."""

from __future__ import annotations

import pickle
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from timbrel_training.codec.interface import Codec, check_sample_rate, codes_like, encode_note
from timbrel_training.notes.dataset import AUDIO_FILE, NoteDataset
from timbrel_training.processes import results
from timbrel_training.progress import bar
from timbrel_training.tokens.store import TokenHeader
from timbrel_training.tokens.store_writer import TokenStoreWriter

CHUNK = 16
"""Notes handed to a process at a time."""

Worker = tuple[NoteDataset, Codec]


def _worker_of(path: Path, pickled: bytes) -> Worker:
    return NoteDataset(path), pickle.loads(pickled)


def _encode(worker: Worker, note: int) -> NDArray[np.uint16]:
    dataset, codec = worker
    audio = torch.from_numpy(dataset.audio(note))
    pitch, held_seconds = float(dataset.pitch[note]), float(dataset.held_seconds[note])
    return encode_note(codec, audio, pitch, held_seconds).numpy().astype(np.uint16)


def tokenize_dataset(
    dataset: NoteDataset, codec: Codec, codec_hash: str, path: Path, jobs: int = 1, folder: Path | None = None
) -> None:
    """Codes every note of `dataset` into a store at `path`, in the dataset's order; continues a killed run.

    The codec is in evaluation mode, on the CPU of each of `jobs` processes; in its folder its training may
    have kept what it measured of these notes. Raises StoreError: there is a store at `path` already, or
    unfinished work of another codec or of other notes; ConfigError: the dataset is at another sample rate
    than the codec.
    """
    check_sample_rate(dataset, codec.sample_rate)
    header = TokenHeader(
        codec_id=codec.id,
        codec_hash=codec_hash,
        sample_rate=codec.sample_rate,
        hop_length=codec.hop_length,
        n_codebooks=codec.n_codebooks,
        codebook_size=codec.codebook_size,
        codes_per_semitone=codec.codes_per_semitone,
        code_offset=codec.code_offset,
        lead_frames=codec.lead_frames,
        held_codes=tuple(codec.held_codes),
        released_codes=tuple(codec.released_codes),
        codebook_delay=codec.codebook_delay,
        repeats=codec.hold is not None,
        codes_like=codes_like(folder) if folder is not None else (),
    )
    audio = (dataset.path / AUDIO_FILE).stat()
    of = f"{dataset.fingerprint} {audio.st_size} {audio.st_mtime_ns}"
    with TokenStoreWriter(path, header, of) as writer:
        done = len(writer)
        known = codec.known_codes(dataset, folder) if folder is not None else {}
        rows = range(done, len(dataset))
        missing = [note for note in rows if note not in known]
        n_processes = min(jobs, -(-len(missing) // CHUNK))  # to start one takes as long as to code many notes
        pickled = pickle.dumps(codec) if n_processes > 1 else None
        make_worker = partial(_worker_of, dataset.path, pickled) if pickled else lambda: (dataset, codec)
        with results(make_worker, _encode, missing, n_processes, CHUNK) as heard:
            for note in bar(rows, description="tokens", total=len(dataset), unit="note", initial=done):
                codes = known[note].astype(np.uint16) if note in known else next(heard)
                row = dataset.index[note]
                instrument = int(row["instrument"])
                writer.add(
                    codes,
                    instrument=dataset.instruments[instrument],
                    family=dataset.instrument_families[instrument],
                    pitch=int(row["pitch"]),
                    velocity=int(row["velocity"]),
                    held_frames=codec.held_frames(float(row["held_seconds"])),
                    source=dataset.sources[int(row["source"])],
                    split=int(row["split"]),
                    cut=bool(row["cut"]),
                )
        writer.finish()
