"""MIDI files that hypothesis draws: each is performed, with what is missing named, or refused in one line."""

from __future__ import annotations

import contextlib
import io
import json
import os
from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import HealthCheck, Phase, given, settings
from requirements_gate import require_module
from strange_midi import FILES
from strange_performances import check_performances

from timbrel import InvalidRequestError
from timbrel.cli import main
from timbrel.performance import read_score

pytestmark = pytest.mark.usefixtures("codecs_loaded_once")

N_READ = int(os.environ.get("TIMBREL_STRANGE_FILES", "400"))
"""Files that are read; of an eighth as many the sound is made."""

MOST_SECONDS = 120.0
"""Of all notes of a file whose sound is made: a few bytes may ask for hours."""

RELAXED = settings(
    deadline=None,
    database=None,
    derandomize=True,
    phases=(Phase.generate, Phase.shrink),
    suppress_health_check=list(HealthCheck),
)


def seconds_of_notes(path: Path) -> float:
    """For how long the notes of a file are held; 0 where it is refused."""
    try:
        return sum(note.held for note in read_score(path).notes)
    except InvalidRequestError:
        return 0.0


def test_strange_files_are_read_or_refused_in_a_line(tmp_path: Path) -> None:
    require_module("mido", "midi")
    n_taken = 0

    @settings(RELAXED, max_examples=N_READ)
    @given(data=FILES)
    def read(data: bytes) -> None:
        nonlocal n_taken
        path = tmp_path / "strange.mid"
        path.write_bytes(data)
        try:
            score = read_score(path)
        except InvalidRequestError as error:
            assert str(error).isprintable() and "strange.mid" in str(error)
            return
        n_taken += 1
        for note in score.notes:
            assert note.held >= 0.0 and 0 <= note.start <= score.seconds
            curves = [] if isinstance(note.cents, float) else [*note.cents]
            assert all(np.isfinite(point).all() for point in [*curves, *note.level_db])
        assert all(remark.isprintable() for remark in score.remarks)

    read()
    print(f"{n_taken} of {N_READ} held notes")
    assert n_taken > N_READ / 4


@pytest.mark.slow
def test_strange_files_are_performed_or_refused_in_a_line(
    server_address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    require_module("mido", "midi")
    monkeypatch.setenv("TIMBREL_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    outcomes = {0: 0, 2: 0}

    @settings(RELAXED, max_examples=N_READ // 8)
    @given(data=FILES)
    def perform(data: bytes) -> None:
        Path("strange.mid").write_bytes(data)
        if seconds_of_notes(Path("strange.mid")) > MOST_SECONDS:
            return
        Path("strange.wav").unlink(missing_ok=True)
        out, error = io.StringIO(), io.StringIO()
        command = [
            "play",
            "strange.mid",
            "--out",
            "strange.wav",
            "--json",
            "--fold",
            "--server",
            server_address,
        ]
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
            status = main(command)
        outcomes[status] += 1
        if status == 2:
            assert error.getvalue().startswith("timbrel: ") and error.getvalue().count("\n") == 1
            assert not Path("strange.wav").exists()
            return
        facts = json.loads(out.getvalue())
        audio, _ = soundfile.read("strange.wav")
        assert np.isfinite(audio).all() and facts["notes"] > 0 and error.getvalue() == ""

    perform()
    print(f"{outcomes[0]} played, {outcomes[2]} refused")
    assert outcomes[0] > 0


def test_nothing_of_a_piece_is_left_out_unsaid(
    server_address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`tests/acceptance/` has an hour of it."""
    require_module("mido", "midi")
    monkeypatch.setenv("TIMBREL_CACHE", str(tmp_path / "cache"))
    check_performances(server_address, tmp_path, (0, 1, 2, 4, 5, 9, 13, 23), 3.0)
