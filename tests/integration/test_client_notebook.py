"""The notebook runs from top to bottom, and is kept without what came of that."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from requirements_gate import require_module

NOTEBOOK = Path(__file__).resolve().parents[2] / "clients" / "notebooks" / "timbrel.ipynb"

CELL_SECONDS = 120


def outputs_of(notebook: Any, kind: str) -> list[str]:
    """What the cells showed, of this MIME type, in order."""
    shown = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    return [output["data"][kind] for output in shown if kind in output.get("data", {})]


def test_the_notebook_is_kept_without_outputs() -> None:
    require_module("nbformat", "dev")
    import nbformat

    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in notebook.cells)


def test_the_notebook_runs(server_address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("nbclient", "ipykernel"):
        require_module(module, "dev")
    require_module("matplotlib", "demo")
    import nbformat
    from nbclient import NotebookClient
    from traitlets.config import Config

    monkeypatch.setenv("TIMBREL_SERVER", server_address)
    monkeypatch.setenv("TIMBREL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    # By sockets in a folder, whose paths must be short: ports that are free now may be others' as it starts.
    with tempfile.TemporaryDirectory() as sockets:
        by_sockets = {"transport": "ipc", "ip": f"{sockets}/kernel"}
        NotebookClient(
            notebook,
            timeout=CELL_SECONDS,
            startup_timeout=CELL_SECONDS,
            kernel_name="python3",
            resources={"metadata": {"path": str(tmp_path)}},
            config=Config({"KernelManager": by_sockets}),
        ).execute()

    pages = outputs_of(notebook, "text/html")
    assert sum("<audio" in page for page in pages) == 2, pages  # the note, and the morph
    assert len(outputs_of(notebook, "image/png")) == 1
    said = [output.get("text", "") for cell in notebook.cells for output in cell.get("outputs", [])]
    assert any("notes: " in text and "/6 " in text for text in said), said  # a bar was asked for
    (files,) = [text for text in outputs_of(notebook, "text/plain") if ".sfz" in text]
    assert files.count(".wav") == 2
