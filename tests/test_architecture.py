"""Who may import whom: walks every import statement of every package, those inside functions too."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from benchmarks.house import House, product

ROOT = Path(__file__).resolve().parent.parent

OURS = frozenset(
    {
        "timbrel",
        "timbrel_bundle",
        "timbrel_export",
        "timbrel_posttraining",
        "timbrel_protos",
        "timbrel_server",
        "timbrel_training",
    }
)

TORCH_WORLD = frozenset(
    {"encodec", "einops", "onnx", "onnxscript", "tensorboard", "torch", "torchaudio", "transformers"}
)
"""What only training and exporting may need: a server or a client installs none of it."""


@dataclass(frozen=True)
class Rule:
    """What one package may import."""

    folder: str
    ours: frozenset[str]
    """Packages of this project, besides itself."""
    forbidden: frozenset[str] = TORCH_WORLD
    """Other people's packages that must not be imported."""
    third_party: frozenset[str] | None = None
    """Where set, the only other people's packages allowed."""


RULES = {
    "timbrel_protos": Rule(
        "protos/timbrel_protos", ours=frozenset(), third_party=frozenset({"google", "grpc"})
    ),
    "timbrel_bundle": Rule(
        "export/timbrel_bundle",
        ours=frozenset({"timbrel_protos"}),
        third_party=frozenset({"google", "numpy", "onnxruntime", "safetensors", "soundfile", "soxr"}),
    ),
    "timbrel_server": Rule("server/timbrel_server", ours=frozenset({"timbrel_protos", "timbrel_bundle"})),
    "timbrel": Rule("clients/python/timbrel", ours=frozenset({"timbrel_protos", "timbrel_bundle"})),
    "timbrel_training": Rule(
        "training/timbrel_training",
        ours=frozenset(),
        forbidden=frozenset({"onnx", "onnxscript", "onnxruntime"}),
    ),
    "timbrel_export": Rule(
        "export/timbrel_export",
        ours=frozenset({"timbrel_bundle", "timbrel_protos", "timbrel_training"}),
        forbidden=frozenset(),
    ),
    "timbrel_posttraining": Rule(
        "clients/posttraining/timbrel_posttraining",
        ours=frozenset({"timbrel", "timbrel_bundle", "timbrel_export", "timbrel_protos", "timbrel_training"}),
        forbidden=frozenset(),
    ),
}


@dataclass(frozen=True)
class Import:
    """One imported module, and where it is imported."""

    module: str
    place: str


def imports_of(source: Path) -> Iterator[Import]:
    """Every absolute import of a file, wherever it stands; `import_module("x")` with a literal counts."""
    for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"), str(source))):
        place = f"{source.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}"
        match node:
            case ast.Import(names=names):
                yield from (Import(alias.name, place) for alias in names)
            case ast.ImportFrom(module=str(module), names=names, level=0):
                yield from (Import(f"{module}.{alias.name}", place) for alias in names)
            case ast.Call(
                func=ast.Attribute(attr="import_module") | ast.Name(id="import_module" | "__import__"),
                args=[ast.Constant(value=str(module)), *_],
            ):
                yield Import(module, place)


def violation(package: str, module: str) -> str | None:
    """Why a package may not import the module; None where it may."""
    rule = RULES[package]
    top = module.partition(".")[0]
    if top in sys.stdlib_module_names or top == package:
        return None
    if module.startswith("timbrel_protos.inference") and package != "timbrel_server":
        return "only timbrel_server speaks the Open Inference Protocol"
    if top in OURS:
        return None if top in rule.ours else f"{package} may not import {top}"
    if top in rule.forbidden:
        return f"{package} may not import {top}"
    if rule.third_party is not None and top not in rule.third_party:
        return f"{package} may import only {', '.join(sorted(rule.third_party))}"
    return None


@pytest.mark.parametrize("package", sorted(RULES))
def test_imports_only_what_the_rule_allows(package: str) -> None:
    folder = ROOT / RULES[package].folder
    sources = sorted(folder.rglob("*.py"))
    assert sources, f"{folder} holds no Python file"
    found = [
        f"{item.place}: {item.module}: {reason}"
        for source in sources
        for item in imports_of(source)
        if (reason := violation(package, item.module))
    ]
    assert not found, "\n".join(["", *found])


@pytest.mark.parametrize(
    ("package", "module"),
    [
        ("timbrel_server", "torch"),
        ("timbrel_server", "timbrel.client"),
        ("timbrel", "timbrel_server.app"),
        ("timbrel", "timbrel_posttraining.evaluate"),
        ("timbrel", "timbrel_protos.inference"),
        ("timbrel_bundle", "grpc"),
        ("timbrel_protos", "timbrel_bundle"),
        ("timbrel_training", "timbrel"),
        ("timbrel_training", "timbrel_bundle.bundle"),
        ("timbrel_training", "timbrel_export"),
        ("timbrel_export", "timbrel_posttraining"),
    ],
)
def test_the_rule_forbids(package: str, module: str) -> None:
    assert violation(package, module) is not None


@pytest.fixture(scope="module")
def house() -> House:
    return House(ROOT)


def test_no_two_folders_of_a_package_import_each_other(house: House) -> None:
    """Nor do a folder and a file beside it."""
    arrows = house.rooms()
    found = [
        f"{one} and {two.name}: "
        + ", ".join(sorted(f"{a} imports {b}" for a, b in arrows[one, two] | arrows[two, one]))
        for one, two in house.two_way_pairs()
    ]
    assert not found, "\n".join(["", *found])


def test_the_top_folders_stand_on_one_another_and_nothing_runs_back(house: House) -> None:
    assert not house.floors()


@pytest.mark.parametrize("place", ["inner", "outer"])
def test_two_way_imports_of_folders_are_seen(tmp_path: Path, place: str) -> None:
    """Wherever in the package they lie, and however deep the files that draw them."""
    inside = "room" if place == "inner" else "."
    files = {
        "one/deep/a.py": f"from timbrel_x.{'room.' if place == 'inner' else ''}two.b import b\n",
        "two/b.py": f"def f():\n    import timbrel_x.{'room.' if place == 'inner' else ''}one.deep.a\n",
    }
    package = tmp_path / "timbrel_x"
    for name, text in files.items():
        path = package / inside / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for folder in {package, *(path.parent for path in package.rglob("*.py"))}:
        (folder / "__init__.py").touch()
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    [(one, two)] = House(tmp_path).two_way_pairs()
    assert (one.name, two.name) == ("one", "two")


def test_the_house_is_seen_in_an_sdist_which_has_no_git(tmp_path: Path) -> None:
    for name in ("server/timbrel_x/a.py", "clients/web/app.js", "tests/test_a.py", ".venv/lib/b.py"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).touch()
    assert [str(path) for path in product(tmp_path)] == ["clients/web/app.js", "server/timbrel_x/a.py"]


def test_lazy_and_dynamic_imports_are_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "lazy.py"
    source.write_text("def f():\n    import a.b\n    from c import d\n    importlib.import_module('e')\n")
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    assert [item.module for item in imports_of(source)] == ["a.b", "c.d", "e"]


def test_every_package_folder_is_built_and_typed() -> None:
    for package, rule in RULES.items():
        assert (ROOT / rule.folder).name == package
        assert (ROOT / rule.folder / "__init__.py").is_file()
        assert (ROOT / rule.folder / "py.typed").is_file(), f"{package} ships no py.typed marker"


BLOCKER = """
import sys
blocked = set({blocked!r})
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in blocked:
            raise ImportError(name + " is blocked")
sys.meta_path.insert(0, Blocker())
"""


def run_blocked(blocked: frozenset[str], code: str) -> subprocess.CompletedProcess[str]:
    """Runs code in a fresh interpreter in which importing any of the blocked packages fails."""
    script = BLOCKER.format(blocked=sorted(blocked)) + code
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)


def test_the_client_imports_without_a_runtime() -> None:
    """`import timbrel` needs the base dependencies only: no runtime, no server, no torch."""
    blocked = TORCH_WORLD | {"onnxruntime", "matplotlib", "swift_f0", "grpc_health", "grpc_reflection"}
    done = run_blocked(blocked | {"timbrel_server", "timbrel_training", "timbrel_export"}, "import timbrel")
    assert done.returncode == 0, done.stderr


IMPORT_ALL = """
import importlib, pkgutil
for package in {packages!r}:
    root = importlib.import_module(package)
    for module in pkgutil.walk_packages(root.__path__, package + "."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
"""


def test_serving_and_playing_never_load_torch() -> None:
    """Every module of the client, the server and the bundle imports where torch cannot be had."""
    packages = ["timbrel_protos", "timbrel_bundle", "timbrel_server", "timbrel"]
    done = run_blocked(TORCH_WORLD, IMPORT_ALL.format(packages=packages))
    assert done.returncode == 0, done.stderr
