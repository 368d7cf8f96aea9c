"""The arithmetic that trainings are done in.

torch is imported when it is needed, for `--help` to be quick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from timbrel_training.errors import ConfigError

if TYPE_CHECKING:
    import torch

AUTO, FLOAT32, BFLOAT16 = "auto", "float32", "bfloat16"
PRECISIONS = (AUTO, FLOAT32, BFLOAT16)

FAST_ON_CPU = ("amx_bf16", "avx512_bf16")
"""What a CPU has one of, by torch's names, if it multiplies in bfloat16 faster than in float32. One that has
none takes three times as long (measured on one with AVX-512 alone)."""


def check_precision(precision: str) -> None:
    """Raises ConfigError for what is none of PRECISIONS."""
    if precision not in PRECISIONS:
        raise ConfigError(f"precision: {precision!r}, expected {AUTO}, {FLOAT32} or {BFLOAT16}")


def autocast(device: torch.device, precision: str) -> torch.autocast:
    """The context in which losses are computed.

    Args:
        precision: one of PRECISIONS; AUTO is bfloat16 where the device is the faster for it.
    """
    import torch

    enabled = precision == BFLOAT16 or (precision == AUTO and _is_fast_in_bfloat16(device))
    return torch.autocast(device.type, torch.bfloat16, enabled=enabled)


def _is_fast_in_bfloat16(device: torch.device) -> bool:
    import torch

    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    capabilities: dict[str, object] = getattr(torch.cpu, "get_capabilities", dict)()  # newer torches
    return device.type == "cpu" and any(capabilities.get(name) for name in FAST_ON_CPU)
