"""Envoy as server/deploy/envoy configures it, before servers of this machine."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path

from server_process import ServerProcess
from waiting import wait_for

CONFIG = Path(__file__).resolve().parents[1] / "server" / "deploy" / "envoy" / "envoy.yaml"
STOP_SECONDS = 60.0


def find_envoy() -> str | None:
    """The program; None where it is not installed."""
    return shutil.which("envoy", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))


class Balancer:
    """Envoy with deploy's configuration, but for its addresses."""

    def __init__(
        self, envoy: str, servers: list[ServerProcess], folder: Path, *, is_hasty: bool = False
    ) -> None:
        """
        Args:
            is_hasty: whether pings go out each second, and are to be answered within three.
        """
        import yaml  # type: ignore[import-untyped]

        text = CONFIG.read_text()
        if is_hasty:
            text = text.replace("{interval: 30s, timeout: 10s}", "{interval: 1s, timeout: 3s}")
        config = yaml.safe_load(text)
        # Envoy takes ports that are free when it listens, which one found before may not be any more.
        config["admin"]["address"]["socket_address"]["port_value"] = 0
        listener = config["static_resources"]["listeners"][0]
        listener["address"]["socket_address"] = {"address": "127.0.0.1", "port_value": 0}
        [cluster] = config["static_resources"]["clusters"]
        cluster["load_assignment"]["endpoints"][0]["lb_endpoints"] = [
            {"endpoint": {"address": {"socket_address": _socket_address(server)}}} for server in servers
        ]
        file = folder / "envoy.yaml"
        file.write_text(yaml.safe_dump(config))
        self._log = (folder / "envoy.log").open("w")
        admin = folder / "admin"
        command = [envoy, "--config-path", str(file), "--concurrency", "1", "--disable-hot-restart"]
        command += ["--admin-address-path", str(admin)]
        self._process = subprocess.Popen(command, stdout=self._log, stderr=subprocess.STDOUT)
        try:
            self.admin = wait_for(
                lambda: admin.read_text() if admin.exists() else "", "Envoy to listen"
            ).strip()
            self.port = wait_for(self._listening, "Envoy to take calls")
        except AssertionError:
            self.close()
            raise AssertionError(f"Envoy says: {(folder / 'envoy.log').read_text()[-2000:]}") from None

    def n_healthy(self) -> int:
        """Servers that it sends calls to."""
        try:
            return self._stat("cluster.timbrel.membership_healthy")
        except OSError:
            return 0

    def n_turned_away(self) -> int:
        """Connections that were one too many."""
        return self._stat("local_rate_limit.grpc.rate_limited")

    def n_closed_for_resets(self) -> int:
        """Connections that took back too many calls."""
        return self._stat("http.grpc.downstream_rq_too_many_premature_resets")

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(STOP_SECONDS)
        self._log.close()

    def _stat(self, name: str) -> int:
        lines = self._ask(f"stats?filter={name}").splitlines()
        return int(next(line for line in lines if line.startswith(f"{name}:")).split()[-1])

    def _listening(self) -> int:
        """The port that calls come to; 0 while there is none."""
        found = json.loads(self._ask("listeners?format=json")).get("listener_statuses", [])
        return int(found[0]["local_address"]["socket_address"]["port_value"]) if found else 0

    def _ask(self, path: str) -> str:
        with urllib.request.urlopen(f"http://{self.admin}/{path}") as reply:
            return str(reply.read(), "utf-8")


def _socket_address(server: ServerProcess) -> dict[str, object]:
    host, _, port = server.address.rpartition(":")
    return {"address": host, "port_value": int(port)}
