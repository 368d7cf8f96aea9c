"""Names of notes: a hash of everything that decides about a note's codes."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np
import numpy.typing as npt

from timbrel.library.job import LibraryJob, Writer
from timbrel.library.plan import NoteOrder

KEY_VERSION = 1
"""Goes into every key: to be raised where the meaning of an order changes."""


def note_key(writer: Writer, order: NoteOrder) -> str:
    """SHA-256, in hex, of who writes the note and of everything that was asked for."""
    # Equal to asdict(), which copies every value and takes ten times as long.
    asked = {**vars(order), "sampling": vars(order.sampling)}
    return _hash({"version": KEY_VERSION, "writer": vars(writer), "order": asked})


def job_key(job: LibraryJob) -> str:
    """SHA-256, in hex, of the whole job: equal jobs may share a folder."""
    return _hash({"version": KEY_VERSION, "job": job.to_json()})


def codes_hash(codes: npt.NDArray[np.uint16]) -> str:
    """SHA-256, in hex, of codes [frames, codebooks] and their shape."""
    header = f"{codes.shape[0]}x{codes.shape[1]}:".encode()
    return hashlib.sha256(header + codes.astype("<u2").tobytes()).hexdigest()


def _hash(facts: dict[str, Any]) -> str:
    text = json.dumps(facts, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()
