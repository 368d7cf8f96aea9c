"""Builds the stand-in for CUDA's libraries, and reads what it has counted.

python tests/cuda_check/stand_in.py HEADERS FOLDER

HEADERS is a folder with CUDA's headers, FOLDER where the libraries go. A process that is to use them has that
folder in LD_LIBRARY_PATH before it starts, and onnxruntime-gpu.
"""

from __future__ import annotations

import ctypes
import importlib.util
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

SOURCE = Path(__file__).with_name("cuda_stand_in.cpp")

RUNTIME, DRIVER = "libcudart.so.13", "libcuda.so.1"


def build(headers: Path, folder: Path) -> None:
    """Compiles all libraries that onnxruntime's CUDA provider asks for.

    Functions that tell nothing are made from the provider's own list of what it lacks: they return 0.
    """
    folder.mkdir(parents=True, exist_ok=True)
    needed = _needed_symbols(_provider_library())
    defined = set(re.findall(r"\b(\w+)\(", SOURCE.read_text(encoding="utf-8")))
    silent = [name for name in needed.pop(RUNTIME) if name not in defined]
    _compile(folder, RUNTIME, silent, [str(SOURCE), "-std=c++17", f"-I{headers}"])
    for library in ("libcublas.so.13", "libcublasLt.so.13", "libcurand.so.10"):
        _compile(folder, library, needed[library], [str(folder / RUNTIME)])
    _compile(folder, DRIVER, ["cuInit", *(name for name in needed[""] if name.startswith("cu"))], [])


def _provider_library() -> Path:
    found = importlib.util.find_spec("onnxruntime")
    assert found is not None and found.origin is not None
    return Path(found.origin).parent / "capi" / "libonnxruntime_providers_cuda.so"


def _needed_symbols(library: Path) -> defaultdict[str, list[str]]:
    """Names of what it wants of other libraries, by theirs; "" where it names none."""
    listed = subprocess.run(
        ["nm", "--dynamic", "--undefined-only", str(library)], capture_output=True, text=True, check=True
    )
    symbols: defaultdict[str, list[str]] = defaultdict(list)
    for line in listed.stdout.splitlines():
        name, _, origin = line.split()[-1].partition("@")
        symbols[origin].append(name)
    return symbols


def _stub(name: str) -> str:
    """The C function of this name: it makes a handle, counts a product, or does nothing."""
    if name.endswith(("Create", "Create_v2")):
        return f"long {name}(void** handle) {{ static char thing[64]; *handle = thing; return 0; }}\n"
    if name == "cublasLtMatmulAlgoGetHeuristic":
        given = "void* a, void* b, void* c, void* d, void* e, void* f, void* g, int n, void* h, int* n_found"
        return f"long {name}({given}) {{ *n_found = 1; return 0; }}\n"
    is_work = re.search(r"[gG]emm|[gG]eam|[A-Z](copy|scal)|(Matmul|Transform)$", name)
    work = f'stand_in_product("{name}"); ' if is_work else ""
    return f"long {name}() {{ {work}return 0; }}\n"


def _compile(folder: Path, library: str, silent: Sequence[str], arguments: Sequence[str]) -> None:
    stubs, versions = folder / f"{library}.c", folder / f"{library}.map"
    stubs.write_text("void stand_in_product(const char*);\n" + "".join(map(_stub, silent)), encoding="utf-8")
    versions.write_text(f"{library} {{ global: *; }};\n", encoding="utf-8")
    subprocess.run(["gcc", "-c", "-fPIC", "-w", str(stubs), "-o", str(stubs) + ".o"], check=True)
    named = [] if library == DRIVER else [f"-Wl,--version-script={versions}"]
    options = ["-shared", "-fPIC", "-O1", *named, f"-Wl,-soname,{library}", "-o", str(folder / library)]
    subprocess.run(["g++", f"{stubs}.o", *arguments, *options], check=True)


@dataclass
class Counts:
    """What a piece of work has cost, by the stand-in's names."""

    by_name: dict[str, int] = field(default_factory=dict)
    launched: list[str] = field(default_factory=list)
    """Names of kernels and products, in their order."""

    def __getitem__(self, name: str) -> int:
        return self.by_name.get(name, 0)


class StandIn:
    """The stand-in that this process has loaded."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(RUNTIME)
        for name in ("counts", "captures", "launched"):
            getattr(self._library, f"stand_in_{name}").restype = ctypes.c_char_p

    def _text(self, name: str) -> str:
        return bytes(getattr(self._library, f"stand_in_{name}")()).decode()

    @property
    def totals(self) -> Counts:
        """Everything since the process began."""
        pairs = (line.split() for line in self._text("counts").splitlines())
        return Counts({name: int(number) for name, number in pairs})

    @property
    def captures(self) -> list[tuple[int, int]]:
        """The thread of each capture, and the kernels in it."""
        return [
            (int(thread), int(n))
            for thread, n in (line.split() for line in self._text("captures").splitlines())
        ]

    @contextmanager
    def counting(self) -> Iterator[Counts]:
        """Counts what is done within; filled in at the end."""
        self._text("launched")
        before, found = self.totals, Counts()
        yield found
        after = self.totals
        found.by_name = {
            name: after[name] - before[name] for name in after.by_name if after[name] != before[name]
        }
        found.launched = self._text("launched").splitlines()


if __name__ == "__main__":
    build(Path(sys.argv[1]), Path(sys.argv[2]))
