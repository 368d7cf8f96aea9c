"""A bundle's folder appears whole, and takes the place of nothing but a bundle."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from torch import nn

from timbrel_bundle.bundle import Bundle
from timbrel_bundle.errors import BundleError
from timbrel_bundle.layout import MANIFEST
from timbrel_bundle.manifest import load_manifest, save_manifest
from timbrel_export import bundle_folder
from timbrel_export.bundle_folder import (
    check_free,
    check_texts,
    describe_bundle,
    git_revision,
    new_bundle,
    open_written,
)
from timbrel_export.errors import ExportError
from timbrel_export.onnx_export import drop_unused_weights, save_weights
from timbrel_training.errors import WriteError

SOME_BUNDLE = '{"format_version": 2, "bundle_hash": "", "files": []}'
ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def bundle(tiny_bundle: Path, tmp_path: Path) -> Path:
    """A bundle that may be written to, with a card."""
    (tmp_path / "mine").mkdir()
    for name in ("manifest.json", "timbre_map.json"):
        shutil.copyfile(tiny_bundle / name, tmp_path / "mine" / name)
    (tmp_path / "mine" / "MODEL_CARD.md").write_text("of this bundle")
    return tmp_path / "mine"


def test_nothing_an_empty_folder_and_a_bundle_may_be_replaced(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").mkdir()

    def refuse(path: Path) -> bool:
        raise NotImplementedError("Path.is_mount() is unsupported on this system")

    monkeypatch.setattr(Path, "is_mount", refuse)  # as on Windows, before Python 3.12
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


@pytest.mark.parametrize(
    ("text", "fault"), [("a\nb", "has characters"), ("\udcf6", "has characters"), ("x" * 1001, "has 1001")]
)
def test_a_text_that_no_bundle_may_have_is_refused(text: str, fault: str) -> None:
    check_texts({"--name": "mine", "--licence": "CC0-1.0"})
    with pytest.raises(ExportError, match=f"--name .*{fault}|--name {fault}"):
        check_texts({"--name": text})


@pytest.mark.parametrize("name", ["timbre_map.json", "timbre_references.json"])
def test_a_bundle_that_was_written_is_read_as_a_whole(name: str, tiny_bundle: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(tiny_bundle, tmp_path / "written")
    open_written(folder)
    (folder / name).write_text((folder / name).read_text().replace("Violin", "Vio\\u200blin"))
    described = describe_bundle(folder, "mine", "")
    manifest = load_manifest(tiny_bundle / MANIFEST)
    manifest.ClearField("files")
    manifest.files.extend(described.files)
    manifest.bundle_hash = described.bundle_hash
    save_manifest(manifest, folder / MANIFEST)
    Bundle.open(folder)
    with pytest.raises(BundleError, match="characters that cannot be printed"):
        open_written(folder)


def test_a_full_disk_is_one_clear_line_and_leaves_the_older_bundle(
    bundle: Path, full_disk: Callable[[int], AbstractContextManager[None]]
) -> None:
    """As at the end of a fine-tuning, whose weights are the first that there is no room for."""
    before = sorted(path.name for path in bundle.iterdir())
    with (
        pytest.raises(WriteError, match=r"mine: cannot be written \(.*\); make room and run the same"),
        new_bundle(bundle) as folder,
        full_disk(1000),
    ):
        save_weights(nn.Linear(100, 100), folder / "model.safetensors")
    assert sorted(path.name for path in bundle.iterdir()) == before
    assert [path.name for path in bundle.parent.iterdir()] == ["mine"]


def test_what_was_put_there_meanwhile_is_no_bundle_and_stays(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="mine: exists and is no bundle"), new_bundle(tmp_path / "mine"):
        (tmp_path / "mine").mkdir()
        (tmp_path / "mine" / "poem.txt").write_text("precious")
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
    assert (tmp_path / "mine" / "poem.txt").read_text() == "precious"


def test_a_link_stays_and_what_it_names_is_replaced(bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "latest").symlink_to("mine")
    for text in (SOME_BUNDLE, "newer"):
        with new_bundle(tmp_path / "latest") as folder:
            (folder / "manifest.json").write_text(text)
        assert [(path.name, path.read_text()) for path in bundle.iterdir()] == [("manifest.json", text)]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["latest", "mine"]
    assert (tmp_path / "latest").is_symlink()


def test_an_older_bundle_comes_back_where_the_new_one_cannot_take_its_place(
    bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, rename = sorted(path.name for path in bundle.iterdir()), Path.rename

    def refuse(path: Path, target: Path) -> Path:
        if path.suffix == ".tmp":
            raise PermissionError("no")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(WriteError), new_bundle(bundle):
        pass
    assert sorted(path.name for path in bundle.iterdir()) == before
    assert [path.name for path in bundle.parent.iterdir()] == ["mine"]


def test_of_two_exports_to_one_place_the_last_stays(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other puts its bundle there between the two renames of the first."""
    rename, others = Path.rename, ["theirs"]

    def come_between(path: Path, target: Path) -> Path:
        if path.suffix == ".tmp" and others:
            text = others.pop()
            with new_bundle(bundle) as folder:
                (folder / "manifest.json").write_text(text)
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", come_between)
    with new_bundle(bundle) as folder:
        (folder / "manifest.json").write_text("ours")
    assert [path.name for path in bundle.parent.iterdir()] == ["mine"]
    assert (bundle / "manifest.json").read_text() == "ours"


def test_a_folder_beside_the_bundles_is_left_alone(bundle: Path) -> None:
    (bundle.parent / ".mine.old").mkdir()
    (bundle.parent / ".mine.old" / "kept").write_text("by its owner")
    with new_bundle(bundle) as folder:
        (folder / "manifest.json").write_text("new")
    assert (bundle.parent / ".mine.old" / "kept").read_text() == "by its owner"


def test_the_folder_one_is_in_is_refused_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for out in (Path("."), tmp_path):
        with pytest.raises(ExportError, match="cannot be replaced: it is the folder you are in"):
            check_free(out)
    check_free(Path("mine"))


def test_an_installed_timbrel_has_no_commit_of_the_project_that_it_lies_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / ".venv" / "timbrel_export"
    package.mkdir(parents=True)
    shutil.copyfile(bundle_folder.__file__, package / "bundle_folder.py")
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@example.com"]
    (tmp_path / ".gitignore").write_text(".venv\n")
    for command in (["init", "-q"], ["add", ".gitignore"], ["commit", "-q", "-m", "theirs"]):
        subprocess.run([*git, *command], check=True)
    monkeypatch.setattr(bundle_folder, "__file__", str(package / "bundle_folder.py"))
    assert git_revision() == ""
    for command in (["add", "-f", ".venv"], ["commit", "-q", "-m", "ours"]):
        subprocess.run([*git, *command], check=True)
    assert re.fullmatch("[0-9a-f]{40}", git_revision())


def test_git_keeps_the_line_ends_of_files_whichever_it_is_to_write(tmp_path: Path) -> None:
    """Git for Windows is set so by its installer; a bundle's .json files have hashes."""
    theirs, clone = tmp_path / "theirs", tmp_path / "clone"
    theirs.mkdir()
    shutil.copyfile(ROOT / ".gitattributes", theirs / ".gitattributes")
    (theirs / "timbre_map.json").write_bytes(b"{\n}\n")
    git = ["git", "-C", str(theirs), "-c", "user.name=a", "-c", "user.email=a@example.com"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "ours"]):
        subprocess.run([*git, *command], check=True)
    subprocess.run(["git", "clone", "-q", "-c", "core.autocrlf=true", theirs, clone], check=True)
    assert (clone / "timbre_map.json").read_bytes() == b"{\n}\n"


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="asks Linux what is mapped")
def test_weights_are_not_mapped_as_they_are_written_anew(
    tiny_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = shutil.copytree(tiny_bundle, tmp_path / "bundle")
    written, write = [], Path.write_bytes

    def write_what_is_not_mapped(path: Path, content: bytes) -> int:  # Windows writes to nothing else
        assert str(path) not in Path("/proc/self/maps").read_text()
        written.append(path.name)
        return write(path, content)

    monkeypatch.setattr(Path, "write_bytes", write_what_is_not_mapped)
    drop_unused_weights(folder, keep="codec.safetensors")
    assert "model.safetensors" in written
