"""Without an ONNX runtime everything imports, and decoding names the extra that brings one."""

from __future__ import annotations

import pkgutil
import subprocess
import sys
from types import ModuleType

import pytest

import timbrel_bundle
from timbrel_bundle.errors import RuntimeMissingError
from timbrel_bundle.runtime import load_runtime

MODULES = [f"timbrel_bundle.{module.name}" for module in pkgutil.iter_modules(timbrel_bundle.__path__)]


def test_no_module_imports_onnxruntime() -> None:
    program = f"import sys, {', '.join(MODULES)}; sys.exit('onnxruntime' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@pytest.mark.parametrize("found", [None, ModuleType("onnxruntime")], ids=["absent", "a husk"])
def test_a_missing_runtime_names_the_extras(
    monkeypatch: pytest.MonkeyPatch, found: ModuleType | None
) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", found)
    load_runtime.cache_clear()
    with pytest.raises(RuntimeMissingError) as error:
        load_runtime()
    load_runtime.cache_clear()
    message = "onnxruntime is not installed: pip install 'timbrel[cpu]', or 'timbrel[gpu]' for an NVIDIA GPU"
    assert str(error.value) == message
    assert isinstance(error.value, ValueError) and isinstance(error.value, ImportError)
