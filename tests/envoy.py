"""Envoy as server/deploy/envoy configures it, before servers of this machine."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

from server_process import ServerProcess

CONFIG = Path(__file__).resolve().parents[1] / "server" / "deploy" / "envoy" / "envoy.yaml"
STOP_SECONDS = 60.0


def find_envoy() -> str | None:
    """The program; None where it is not installed."""
    return shutil.which("envoy", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


class Balancer:
    """Envoy with deploy's configuration, but for its addresses."""

    def __init__(self, envoy: str, servers: list[ServerProcess], folder: Path) -> None:
        import yaml  # type: ignore[import-untyped]

        config = yaml.safe_load(CONFIG.read_text())
        self.admin = free_port()
        self.port = free_port()
        config["admin"]["address"]["socket_address"]["port_value"] = self.admin
        listener = config["static_resources"]["listeners"][0]
        listener["address"]["socket_address"] = {"address": "127.0.0.1", "port_value": self.port}
        [cluster] = config["static_resources"]["clusters"]
        cluster["load_assignment"]["endpoints"][0]["lb_endpoints"] = [
            {"endpoint": {"address": {"socket_address": _socket_address(server)}}} for server in servers
        ]
        file = folder / "envoy.yaml"
        file.write_text(yaml.safe_dump(config))
        self._log = (folder / "envoy.log").open("w")
        command = [envoy, "--config-path", str(file), "--concurrency", "1", "--disable-hot-restart"]
        self._process = subprocess.Popen(command, stdout=self._log, stderr=subprocess.STDOUT)

    def n_healthy(self) -> int:
        """Servers that it sends calls to."""
        try:
            return self._stat("cluster.timbrel.membership_healthy")
        except OSError:
            return 0

    def n_turned_away(self) -> int:
        """Connections that were one too many."""
        return self._stat("local_rate_limit.grpc.rate_limited")

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(STOP_SECONDS)
        self._log.close()

    def _stat(self, name: str) -> int:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.admin}/stats?filter={name}") as reply:
            lines = reply.read().decode().splitlines()
        return int(next(line for line in lines if line.startswith(f"{name}:")).split()[-1])


def _socket_address(server: ServerProcess) -> dict[str, object]:
    host, _, port = server.address.rpartition(":")
    return {"address": host, "port_value": int(port)}
