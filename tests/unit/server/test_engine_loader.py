"""What is said where an engine cannot be loaded."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from timbrel_bundle.errors import BundleError
from timbrel_server.config import BundleSource, ServerConfig
from timbrel_server.served_bundles import engine_loader
from timbrel_server.served_bundles.engine_loader import EngineLoader, open_bundle

ARENA = "void* onnxruntime::BFCArena::AllocateRawInternal(size_t, bool) Failed to allocate memory for"


@pytest.mark.parametrize(
    "error",
    [
        MemoryError("Unable to allocate 117. MiB"),
        RuntimeError(f"Error in execution: Non-zero status code. Status Message: {ARENA} requested buffer"),
        RuntimeError("Error in execution: Non-zero status code. Status Message: std::bad_alloc"),
        RuntimeError("CUDA failure 2: out of memory ; GPU=0"),
    ],
)
def test_where_memory_ends_fewer_slots_are_the_remedy(
    error: Exception, tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise error  # as onnxruntime and numpy do where `ulimit -v` is low, or a device is full

    async def load() -> None:
        loader = EngineLoader(ServerConfig(n_slots=7), lambda served: None)
        await loader.start(open_bundle(BundleSource(tiny_bundle)))

    monkeypatch.setattr(engine_loader, "Runner", fail)
    with pytest.raises(BundleError, match=r"7 of its notes do not fit .*; serve it with fewer --slots"):
        asyncio.run(load())
