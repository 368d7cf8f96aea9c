"""From a library of notes to a store of tokens."""

from __future__ import annotations

from pathlib import Path

from tqdm import tqdm

from timbrel_training.codec.interface import Codec
from timbrel_training.notes.library import AudioLibrary
from timbrel_training.tokens.parallel import ParallelEncoder
from timbrel_training.tokens.store_format import TokenHeader
from timbrel_training.tokens.store_writer import TokenStoreWriter


def tokenize_library(library: AudioLibrary, codec: Codec, codec_hash: str, path: Path, jobs: int = 1) -> None:
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
