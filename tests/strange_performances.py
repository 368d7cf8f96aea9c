"""`timbrel play` of strangers' pieces, each held to what the piece says."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import soundfile
from strange_pieces import compose

from timbrel.cli import main

HEARD_DB = -80.0
"""A note that begins is as loud as this within a quarter of a second."""


def check_performances(server: str, folder: Path, seeds: Iterable[int], seconds: float) -> float:
    """Performs pieces; each note is played or counted among those left out, and what is missing is named.

    Args:
        seconds: of each piece, about.

    Returns:
        The seconds of sound that were made.
    """
    total = 0.0
    for seed in seeds:
        piece, path, sound = compose(seed, seconds), folder / f"{seed}.mid", folder / f"{seed}.wav"
        path.write_bytes(piece.data)
        out, error = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
            status = main(["play", str(path), "--out", str(sound), "--json", "--server", server])
        assert (status, error.getvalue()) == (0, ""), (seed, error.getvalue())
        facts = json.loads(out.getvalue())
        skipped = facts["skipped"]
        counts = (facts["notes"] + skipped["out_of_range"], skipped["drums"])
        assert counts == (piece.n_notes, piece.n_drums), seed
        assert facts["not_performed"].keys() == piece.unperformed, (seed, facts["not_performed"])
        assert len(facts["remarks"]) == len(piece.remarks), (seed, facts["remarks"])
        assert all(any(words in said for said in facts["remarks"]) for words in piece.remarks), seed
        audio, rate = soundfile.read(sound)
        assert np.isfinite(audio).all()
        onsets = [] if skipped["out_of_range"] else piece.onsets
        heard = [audio[round(onset * rate) : round((onset + 0.25) * rate)] for onset in onsets]
        silent = [20 * np.log10(np.abs(each).max(initial=1e-9)) < HEARD_DB for each in heard]
        assert sum(silent) <= facts["silent"], (seed, facts["silent"])
        total += len(audio) / rate
        sound.unlink()
    return total
