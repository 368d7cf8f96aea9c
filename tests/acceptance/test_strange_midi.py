"""An hour of a hundred strangers' MIDI files, performed by the bundle that ships: in two halves, since a test
has ten minutes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from requirements_gate import require_module
from server_process import ServerProcess
from strange_performances import check_performances

from timbrel_server.config import default_bundle_path

pytestmark = pytest.mark.acceptance

N_FILES = 50
"""Of each half."""
SECONDS = 21.0
"""Of each, about: patterns in a row and slow tempos make them longer."""


@pytest.mark.parametrize("first", [0, N_FILES])
def test_half_an_hour_of_play(
    first: int, start_server: Callable[..., ServerProcess], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    require_module("mido", "midi")
    monkeypatch.setenv("TIMBREL_CACHE", str(tmp_path / "cache"))
    server = start_server("--threads", "0", bundle=default_bundle_path())
    seconds = check_performances(server.address, tmp_path, range(first, first + N_FILES), SECONDS)
    print(f"{N_FILES} files, {seconds / 60:.0f} minutes of sound")
    assert seconds >= 1700.0
