"""From a dataset of notes to a store of tokens: a codec at work in several processes."""

from __future__ import annotations

import multiprocessing
import pickle
from collections.abc import Iterable, Iterator
from multiprocessing.pool import Pool
from pathlib import Path
from types import TracebackType

import numpy as np
import torch
from numpy.typing import NDArray
from tqdm import tqdm

from timbrel_training.codec.encodec import import_encodec
from timbrel_training.codec.interface import Codec, encode_note
from timbrel_training.notes.dataset import NoteDataset
from timbrel_training.tokens.store import TokenHeader
from timbrel_training.tokens.store_writer import TokenStoreWriter

CHUNK = 16
"""Notes handed to a process at a time."""


class ParallelEncoder:
    """Codes notes of a library, in order.

    Args:
        library: at the codec's sample rate.
        codec: in evaluation mode, on the CPU.
        jobs: processes; with one, the work is done here.
    """

    def __init__(self, library: NoteDataset, codec: Codec, jobs: int) -> None:
        self._library, self._codec = library, codec
        self._pool: Pool | None = None
        if jobs > 1:
            context = multiprocessing.get_context("spawn")
            self._pool = context.Pool(jobs, _begin, (library.path, pickle.dumps(codec)))

    def __enter__(self) -> ParallelEncoder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool is not None:
            self._pool.terminate()

    def encode(self, notes: Iterable[int]) -> Iterator[NDArray[np.uint16]]:
        """Codes [T, K] of each of these notes of the library."""
        if self._pool is not None:
            return self._pool.imap(_encode_in_worker, notes, CHUNK)
        return (_encode(self._library, self._codec, note) for note in notes)


_worker: tuple[NoteDataset, Codec] | None = None
"""What a worker process works with."""


def _begin(path: Path, pickled: bytes) -> None:
    global _worker
    import_encodec()  # before anything that unpickling would import with the torchaudio that it lacks
    torch.set_num_threads(1)
    _worker = NoteDataset(path), pickle.loads(pickled)


def _encode_in_worker(note: int) -> NDArray[np.uint16]:
    assert _worker is not None
    return _encode(*_worker, note)


def _encode(library: NoteDataset, codec: Codec, note: int) -> NDArray[np.uint16]:
    audio = torch.from_numpy(library.audio(note))
    return encode_note(codec, audio, float(library.index["pitch"][note])).numpy().astype(np.uint16)


def tokenize_dataset(library: NoteDataset, codec: Codec, codec_hash: str, path: Path, jobs: int = 1) -> None:
    """Codes every note of `library` into a store at `path`, in the library's order; continues a killed run.

    Args:
        library: the notes, at the codec's sample rate.
        codec: in evaluation mode, on the CPU.
        codec_hash: of the codec's weights.
        path: the store to make.
        jobs: processes, one thread each.

    Raises:
        StoreError: there is a store at `path` already, or unfinished work of another codec.
        ValueError: the library is at another sample rate than the codec.
    """
    if library.sample_rate != codec.sample_rate:
        raise ValueError(
            f"{library.path}: at {library.sample_rate} Hz, but the codec works at {codec.sample_rate} Hz; "
            "render the notes at the codec's rate"
        )
    header = TokenHeader(
        codec_id=codec.id,
        codec_hash=codec_hash,
        sample_rate=codec.sample_rate,
        hop_length=codec.hop_length,
        n_codebooks=codec.n_codebooks,
        codebook_size=codec.codebook_size,
        codes_per_semitone=codec.codes_per_semitone,
        code_offset=codec.code_offset,
    )
    with TokenStoreWriter(path, header) as writer, ParallelEncoder(library, codec, jobs) as encoder:
        done = len(writer)
        rows = range(done, len(library))
        for note, codes in zip(
            tqdm(rows, "tokens", len(library), initial=done, dynamic_ncols=True),
            encoder.encode(rows),
            strict=True,
        ):
            row = library.index[note]
            instrument = int(row["instrument"])
            writer.add(
                codes,
                instrument=library.instruments[instrument],
                family=library.instrument_families[instrument],
                pitch=int(row["pitch"]),
                velocity=int(row["velocity"]),
                held_frames=max(1, round(float(row["held_seconds"]) * codec.frame_rate)),
                source=library.sources[int(row["source"])],
                split=int(row["split"]),
                cut=bool(row["cut"]),
            )
        writer.finish()
