"""The house in figures: how many files and lines, how they hang together, and whether that is still liveable.

Examples:
    python tests/benchmarks/house.py                  the figures of this checkout beside their bars
    python tests/benchmarks/house.py --list           with every file, pair and folder behind a figure
    python tests/benchmarks/house.py --root ../other  another checkout's
    python tests/benchmarks/house.py --list --under server/timbrel_server    of one folder

Counted is product code: Python and JavaScript outside tests/, without what is generated from protos. All is
read as text, nothing is imported. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import ast
import itertools
import json
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[2]

MOST_LINES = 45_000
MOST_FILES = 430
MOST_OWN_IMPORTS = 15
MOST_SMALL_FILES = 15
MOST_IMPORT_SHARE = 0.07

SMALL_LINES = 60
"""A file of so many lines or less, with a single importer, is a hop and not a room."""

FRAGMENT = re.compile(r"(What|How|Who|Whose|Which|Of|Those|Likewise)\b")
"""Openings of a docstring that is no sentence: "What a note costs" for "A note costs ..."."""

JS_IMPORT = re.compile(r"""^import\b(?:[^;'"]*?\bfrom\b)?\s*["']([^"']+)["']""", re.MULTILINE)


@dataclass(frozen=True)
class SourceFile:
    """One file of product code."""

    path: PurePosixPath
    """From the repository's root."""

    text: str

    @property
    def n_lines(self) -> int:
        return len(self.text.splitlines())

    @property
    def is_entry(self) -> bool:
        """Whether it is a package's own file (`__init__`, `__main__`), which nobody imports by name."""
        return self.path.stem.startswith("__")

    @cached_property
    def statements(self) -> list[ast.Import | ast.ImportFrom]:
        """Every import statement of a Python file, those inside functions too."""
        found = ast.walk(ast.parse(self.text, str(self.path)))
        return [node for node in found if isinstance(node, ast.Import | ast.ImportFrom)]

    @property
    def fragments(self) -> list[str]:
        """The docstrings of modules, classes and functions that do not begin as a sentence does."""
        if self.path.suffix == ".js":
            return []
        kinds = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
        nodes = (node for node in ast.walk(ast.parse(self.text)) if isinstance(node, kinds))
        found = ((getattr(node, "lineno", 1), ast.get_docstring(node) or "") for node in nodes)
        return [f"{self.path}:{line}: {text.splitlines()[0]}" for line, text in found if FRAGMENT.match(text)]

    @property
    def n_import_lines(self) -> int:
        if self.path.suffix == ".js":
            return sum(match.group().count("\n") + 1 for match in JS_IMPORT.finditer(self.text))
        return sum((node.end_lineno or node.lineno) - node.lineno + 1 for node in self.statements)


class House:
    """All files of product code, and which of them imports which.

    Args:
        root: of a checkout; its files are those that git tracks, or would.
        under: leaves out what lies elsewhere, though what imports from there still counts as an importer.
    """

    def __init__(self, root: Path, under: PurePosixPath | None = None) -> None:
        self.files = {path: SourceFile(path, (root / path).read_text("utf-8")) for path in product(root)}
        self._modules = {module_name(path): path for path in self.files if path.suffix == ".py"}
        self.imports = {path: set(self._imported(file)) - {path} for path, file in self.files.items()}
        self.shown = {path: file for path, file in self.files.items() if path.is_relative_to(under or "")}

    def _imported(self, file: SourceFile) -> Iterator[PurePosixPath]:
        """The files of the house that a file imports."""
        if file.path.suffix == ".js":
            for match in JS_IMPORT.finditer(file.text):
                target = normalised(file.path.parent, match.group(1))
                if target in self.files:
                    yield target
            return
        for node in file.statements:
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif node.module and not node.level:
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            else:
                names = []
            for name in names:
                if path := self._modules.get(name) or self._modules.get(name.rpartition(".")[0]):
                    yield path

    def package_of(self, path: PurePosixPath) -> PurePosixPath:
        """The outermost importable folder that a file lies in; of JavaScript the page's."""
        folders = path.parents if path.suffix == ".py" else ()
        packages = [folder for folder in folders if folder / "__init__.py" in self.files]
        return packages[-1] if packages else PurePosixPath(*path.parts[:2])

    def own_imports(self) -> dict[PurePosixPath, int]:
        """How many files of its own package each file imports."""
        return {
            path: sum(self.package_of(other) == self.package_of(path) for other in imported)
            for path, imported in self.imports.items()
            if path in self.shown
        }

    def small_files(self) -> list[PurePosixPath]:
        """The files that are short and have one importer."""
        importers = defaultdict(set)
        for path, imported in self.imports.items():
            for other in imported:
                importers[other].add(path)
        return sorted(
            path
            for path, file in self.shown.items()
            if not file.is_entry and file.n_lines <= SMALL_LINES and len(importers[path]) == 1
        )

    def rooms(self) -> dict[tuple[PurePosixPath, PurePosixPath], set[tuple[PurePosixPath, PurePosixPath]]]:
        """Arrows between neighbours: folders, or a folder and a file beside it, of one package.

        Each arrow (from, to) comes with its imports: `a/b/c.py` importing `a/d/e.py` draws b -> d.
        An `__init__.py` belongs to the folder around it and draws no arrow there.
        """
        arrows = defaultdict(set)
        for path, imported in self.imports.items():
            for other in imported:
                if self.package_of(path) != self.package_of(other) or path.suffix != other.suffix:
                    continue
                one, two = neighbours(path, other)
                if one != two and not (one.suffix and two.suffix) and "__init__" not in (one.stem, two.stem):
                    arrows[one, two].add((path, other))
        return dict(arrows)

    def two_way_pairs(self) -> list[tuple[PurePosixPath, PurePosixPath]]:
        """The neighbours that import each other."""
        arrows = self.rooms()
        pairs = [(one, two) for one, two in arrows if one < two and (two, one) in arrows]
        return sorted(
            pair for pair in pairs if any(path.is_relative_to(pair[0].parent) for path in self.shown)
        )

    def floors(self) -> list[tuple[str, str]]:
        """The arrows (from, to) between top folders that are part of a circle."""
        arrows = {
            (path.parts[0], other.parts[0])
            for path, imported in self.imports.items()
            for other in imported
            if path.parts[0] != other.parts[0]
        }
        reached = set(arrows)
        while more := {(a, d) for (a, b), (c, d) in itertools.product(reached, arrows) if b == c} - reached:
            reached |= more
        return sorted(arrow for arrow in arrows if arrow[::-1] in reached)


def product(root: Path) -> Iterable[PurePosixPath]:
    """Python and JavaScript outside tests/ that is not generated."""
    if (root / ".git").exists():
        command = ["git", "-C", str(root), "ls-files", "--cached", "--others", "--exclude-standard"]
        listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    else:  # an sdist, unpacked
        inside = (path.relative_to(root) for path in root.rglob("*.*"))
        listed = [str(path) for path in inside if not any(part.startswith(".") for part in path.parts)]
    for path in sorted(map(PurePosixPath, set(listed))):
        generated = "timbrel_protos" in path.parts or path.parts[0] in ("tests", "benchmarks")
        if path.suffix in (".py", ".js") and not generated and (root / path).is_file():
            yield path


def module_name(path: PurePosixPath) -> str:
    """The name that a Python file is imported by: from the folder named timbrel... on."""
    parts = list(path.with_suffix("").parts)
    starts = [index for index, part in enumerate(parts[:-1]) if part.startswith("timbrel")]
    parts = parts[starts[0] :] if starts else parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def normalised(folder: PurePosixPath, target: str) -> PurePosixPath:
    """A relative import of JavaScript as a path from the root."""
    parts = list(folder.parts)
    for part in PurePosixPath(target).parts:
        if part == "..":
            parts.pop()
        elif part != ".":
            parts.append(part)
    return PurePosixPath(*parts)


def neighbours(one: PurePosixPath, two: PurePosixPath) -> tuple[PurePosixPath, PurePosixPath]:
    """Of two files the outermost folders, or the files themselves, that lie side by side."""
    for depth, (a, b) in enumerate(zip(one.parts, two.parts, strict=False)):
        if a != b:
            return PurePosixPath(*one.parts[: depth + 1]), PurePosixPath(*two.parts[: depth + 1])
    return one, two


def main() -> int:
    """Prints the figures; 1 where one misses its bar."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--root", type=Path, default=ROOT, help="the checkout (default: this one)")
    parser.add_argument("--list", action="store_true", help="name what is behind each figure")
    parser.add_argument("--under", default=".", metavar="FOLDER", help="show the figures of this folder only")
    args = parser.parse_args()
    house = House(args.root, PurePosixPath(args.under))
    n_lines = sum(file.n_lines for file in house.shown.values())
    own_imports = house.own_imports()
    figures: dict[str, tuple[float, float, list[str]]] = {
        "lines": (n_lines, MOST_LINES, []),
        "files": (len(house.shown), MOST_FILES, []),
        "most_own_imports": (
            max(own_imports.values()),
            MOST_OWN_IMPORTS,
            [f"{path}: {n}" for path, n in own_imports.items() if n > MOST_OWN_IMPORTS],
        ),
        "small_files_with_one_importer": (
            len(house.small_files()),
            MOST_SMALL_FILES,
            [f"{path}: {house.files[path].n_lines}" for path in house.small_files()],
        ),
        "two_way_pairs": (
            len(house.two_way_pairs()),
            0,
            [f"{one} <-> {two.name}" for one, two in house.two_way_pairs()],
        ),
        "import_share": (
            round(sum(file.n_import_lines for file in house.shown.values()) / n_lines, 4),
            MOST_IMPORT_SHARE,
            [],
        ),
        "docstrings_that_are_no_sentence": (
            sum(len(file.fragments) for file in house.shown.values()),
            0,
            [line for file in house.shown.values() for line in file.fragments],
        ),
        "arrows_that_run_back_up": (
            len(house.floors()),
            0,
            [f"{one} -> {two}" for one, two in house.floors()],
        ),
    }
    for name, (value, bar, behind) in figures.items():
        print(
            f"{name.replace('_', ' '):32s} {value:>8g}   at most {bar:<8g} {'' if value <= bar else 'MISSED'}"
        )
        for line in behind if args.list else []:
            print(f"    {line}")
    missed = [name for name, (value, bar, _) in figures.items() if value > bar]
    print(json.dumps({**{name: value for name, (value, _, _) in figures.items()}, "missed": missed}))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
