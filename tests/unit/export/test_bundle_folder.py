"""A bundle's folder appears whole, and takes the place of nothing but a bundle."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from timbrel_export.bundle_folder import check_free
from timbrel_export.errors import ExportError


@pytest.fixture
def bundle(tiny_bundle: Path, tmp_path: Path) -> Path:
    """A bundle that may be written to, with a card."""
    (tmp_path / "mine").mkdir()
    for name in ("manifest.json", "timbre_map.json"):
        shutil.copyfile(tiny_bundle / name, tmp_path / "mine" / name)
    (tmp_path / "mine" / "MODEL_CARD.md").write_text("of this bundle")
    return tmp_path / "mine"


def test_nothing_an_empty_folder_and_a_bundle_may_be_replaced(bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for free in (tmp_path / "none", tmp_path / "empty", bundle):
        check_free(free)
    manifest = json.loads((bundle / "manifest.json").read_text())
    (bundle / "manifest.json").write_text(json.dumps({**manifest, "format_version": 1}))
    check_free(bundle)  # of an older timbrel


@pytest.mark.parametrize(
    "manifest", ['{"name": "an extension", "version": "1.0"}', '{"files": ["src"]}', "[]", "no JSON"]
)
def test_a_manifest_of_something_else_is_no_bundle(manifest: str, tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "manifest.json").write_text(manifest)
    with pytest.raises(ExportError, match="exists and is no bundle; choose another folder or empty it"):
        check_free(tmp_path)


def test_what_lies_beside_a_bundles_files_is_named(bundle: Path) -> None:
    (bundle / "takes").mkdir()
    with pytest.raises(ExportError, match="mine: holds 'takes', which is not the bundle's"):
        check_free(bundle)
