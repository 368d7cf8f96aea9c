"""A server's memory over many reloads, each of which puts a bundle in another's place.

Examples:
    python tests/benchmarks/reload.py                  the bundle that ships, 30 reloads; two minutes or so
    python tests/benchmarks/reload.py --quick          6 reloads

rss_over_first compares what the process holds after the last reloads with what it held after the first ones,
the least of three in both places: near 1, what was replaced is freed. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.pop(0)  # this folder, whose profile.py would stand before Python's own
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import grpc
from benchmarks.harness.processes import BenchServer
from benchmarks.harness.report import Bar, Report, usable_cores

from timbrel_bundle.manifest import bundle_hash, load_manifest, save_manifest
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb
from timbrel_protos.timbrel.v1 import synthesizer_pb2_grpc as pb_grpc
from timbrel_server.config import default_bundle_path

N_RELOADS, QUICK_RELOADS = 30, 6
N_COMPARED = 3
"""Looks at each end: one that something still used is freed with the next."""
LOOK_SECONDS = 0.05
PATIENCE_SECONDS = 120.0


def renew(bundle: Path, copy: Path) -> Path:
    """The same bundle under another hash."""
    shutil.copytree(bundle, copy)
    chart = copy / "timbre_map.json"
    chart.write_text(chart.read_text() + "\n")
    manifest = load_manifest(copy / "manifest.json")
    for file in manifest.files:
        if file.name == chart.name:
            file.size, file.sha256 = chart.stat().st_size, hashlib.sha256(chart.read_bytes()).hexdigest()
    manifest.bundle_hash = bundle_hash(manifest.files)
    save_manifest(manifest, copy / "manifest.json")
    return copy


def resident_bytes(pid: int) -> int:
    """What the process holds."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def measure(bundle: Path, n_reloads: int, folder: Path) -> list[int]:
    """Bytes held after each reload."""
    folders = (renew(bundle, folder / "renewed"), bundle.resolve())
    link = folder / "current"
    link.symlink_to(folders[1])
    server = BenchServer(link, usable_cores(), "--provider", "cpu")
    held = []
    try:
        with grpc.insecure_channel(server.address) as channel:
            stub: Any = pb_grpc.SynthesizerStub(channel)
            for number in range(n_reloads):
                target = folders[number % 2]
                turned = link.with_name("turned")
                turned.symlink_to(target)
                turned.replace(link)
                os.kill(server.pid, signal.SIGHUP)
                wanted = load_manifest(target / "manifest.json").bundle_hash
                end = time.monotonic() + PATIENCE_SECONDS
                while stub.GetModel(pb.GetModelRequest()).manifest.bundle_hash != wanted:
                    if time.monotonic() > end:
                        raise SystemExit("the server does not take the other bundle up")
                    time.sleep(LOOK_SECONDS)
                time.sleep(10 * LOOK_SECONDS)  # what was replaced is freed a little later
                held.append(resident_bytes(server.pid))
                print(f"reload {number + 1}: {held[-1] / 1e6:.1f} MB", flush=True)
    finally:
        server.close()
    return held


def main() -> None:
    """Parses the command line and reloads."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_RELOADS} reloads")
    parser.add_argument("--bundle", type=Path, default=None, help="default: the one that ships")
    args = parser.parse_args()
    report = Report("reload", quick=args.quick)
    with tempfile.TemporaryDirectory() as folder:
        n_reloads = QUICK_RELOADS if args.quick else N_RELOADS
        held = measure(args.bundle or default_bundle_path(), n_reloads, Path(folder))
    ratio = min(held[-N_COMPARED:]) / min(held[:N_COMPARED])
    figures = {"reloads": n_reloads, "rss_mb": round(held[-1] / 1e6, 1), "rss_over_first": round(ratio, 4)}
    report.finish(figures, [Bar("rss_over_first", ratio, 1.05, at_most=True)])


if __name__ == "__main__":
    main()
