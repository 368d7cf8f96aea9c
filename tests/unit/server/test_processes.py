"""What each of several processes is started with."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

import pytest

from timbrel_server.config import BundleSource, ServerConfig
from timbrel_server.options import add_flags, flags_of, gather
from timbrel_server.processes import share_out


def of_each(**options: Any) -> list[tuple[tuple[int, ...], int]]:
    """Devices and threads."""
    return [(each.devices, each.n_threads) for each in share_out(ServerConfig(**options))]


@pytest.mark.parametrize(
    ("n", "devices", "expected"),
    [
        (2, (0,), [(0,), (0,)]),
        (2, (0, 1), [(0,), (1,)]),
        (2, (3, 4, 5), [(3, 5), (4,)]),
        (4, (0, 1), [(0,), (1,), (0,), (1,)]),
    ],
)
def test_devices_are_shared_out(n: int, devices: tuple[int, ...], expected: list[tuple[int, ...]]) -> None:
    assert [given for given, _ in of_each(n_processes=n, devices=devices)] == expected


def test_cores_are_shared_out_unless_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: range(8), raising=False)
    assert [n for _, n in of_each(n_processes=3)] == [2, 2, 2]
    assert [n for _, n in of_each(n_processes=20)] == [1] * 20
    assert [n for _, n in of_each(n_processes=2, n_threads=5)] == [5, 5]


def test_a_configuration_is_what_its_flags_make() -> None:
    config = ServerConfig(
        bundles=(BundleSource(Path("/a b"), "piano"), BundleSource(Path("-c"))),
        port=0,
        devices=(1, 2),
        caller_share=0.125,
        token="a secret",
        token_file=None,
        max_seconds=3.5,
        metrics_port=0,
        reuse_port=True,
    )
    flags = flags_of(config)
    assert not any("secret" in flag for flag in flags)
    parser = argparse.ArgumentParser()
    add_flags(parser, ServerConfig)
    read = gather(parser.parse_args(flags), ServerConfig, {"TIMBREL_TOKEN": "a secret"})
    assert read.config == config
    assert flags_of(ServerConfig()) == []
