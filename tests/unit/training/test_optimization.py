"""The arithmetic that trainings are done in."""

from __future__ import annotations

import pytest
import torch

from timbrel_training.optimization import AUTO, BFLOAT16, FLOAT32, autocast

CPU = torch.device("cpu")


def computed_in(precision: str) -> torch.dtype:
    with autocast(CPU, precision):
        return (torch.ones(2, 2) @ torch.ones(2, 2)).dtype


def test_what_is_asked_for() -> None:
    assert computed_in(FLOAT32) == torch.float32
    assert computed_in(BFLOAT16) == torch.bfloat16


@pytest.mark.parametrize(
    ("capabilities", "expected"),
    [
        ({"avx512_f": True, "amx_bf16": False}, torch.float32),
        ({"avx512_f": True, "amx_bf16": True}, torch.bfloat16),
        ({"avx512_bf16": True}, torch.bfloat16),
        ({}, torch.float32),
    ],
)
def test_auto_is_what_the_processor_is_built_for(
    capabilities: dict[str, bool], expected: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities, raising=False)
    assert computed_in(AUTO) == expected


def test_auto_without_a_word_from_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch.cpu, "get_capabilities", raising=False)
    assert computed_in(AUTO) == torch.float32
