"""What server/deploy/ holds, checked without Docker: recipes, manifests, the entry point."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import urllib.request
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import grpc
import pytest
from requirements_gate import give_up, require_module, require_system

from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb
from timbrel_protos.timbrel.v1 import synthesizer_pb2_grpc as pb_grpc

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "server" / "deploy"
DOCKERFILES = sorted((DEPLOY / "docker").glob("*.Dockerfile"))
UNIT = DEPLOY / "systemd" / "timbrel.service"
MANIFESTS = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
PATIENCE_SECONDS = 120.0
NOBODY = 65532


def tool(name: str, extra: str = "dev") -> str:
    """The path of a tool that a Python package brings."""
    path = shutil.which(name, path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    if path is None:
        give_up(f"needs {name} (pip install 'timbrel[{extra}]')")
    return path


def checked(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def instructions(file: Path) -> list[tuple[str, str]]:
    """Of a Dockerfile's last stage: (instruction, arguments)."""
    text = file.read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    split = [(line.split(maxsplit=1)[0], line.split(maxsplit=1)[1].strip()) for line in lines]
    last = max(index for index, (name, _) in enumerate(split) if name == "FROM")
    return split[last:]


def environment_of(file: Path) -> dict[str, str]:
    variables = [words for name, words in instructions(file) if name == "ENV"]
    pairs = [pair.split("=", 1) for words in variables for pair in shlex.split(words)]
    return {name: value for name, value in pairs}


@pytest.mark.parametrize("file", DOCKERFILES, ids=lambda file: file.name)
class TestDockerfiles:
    def test_a_linter_finds_nothing(self, file: Path) -> None:
        checked(tool("hadolint"), "--failure-threshold", "info", str(file))

    def test_it_can_be_stopped_as_soon_as_it_starts(
        self, file: Path, tiny_bundle: Path, tmp_path: Path
    ) -> None:
        require_user_namespaces()
        command = [
            *("bwrap", "--unshare-user", "--unshare-pid", "--as-pid-1", "--die-with-parent"),
            *("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"),
            *(sys.executable, "-m", "timbrel_server", "--port", "0", "--bundle", str(tiny_bundle)),
        ]
        # Held where nothing is lost: of some hundred first moments there is one, amid the callback of a weak
        # reference, at which Python itself says "Exception ignored" of an interrupt.
        with held_at_its_start(command, tmp_path, stderr=subprocess.DEVNULL) as process:
            try:
                assert process.stdout is not None and process.stdout.readline() == "begun\n"
                os.kill(child_of(process.pid), signal.Signals[dict(instructions(file))["STOPSIGNAL"]])
                process.wait(PATIENCE_SECONDS)
            finally:
                process.kill()

    def test_it_runs_as_nobody_and_says_how_it_is(self, file: Path) -> None:
        found = dict(instructions(file))
        assert found["USER"] == f"{NOBODY}:{NOBODY}"
        assert "health_check.py" in found["HEALTHCHECK"]
        assert json.loads(found["ENTRYPOINT"]) == ["timbrel", "serve"]

    def test_every_variable_is_an_option(self, file: Path) -> None:
        from timbrel_server.config import ServerConfig
        from timbrel_server.options import options_of

        known = {option.variable for option in options_of(ServerConfig)}
        ours = {name for name in environment_of(file) if name.startswith("TIMBREL_")}
        assert ours
        assert ours <= known

    def test_the_builder_asks_the_index_that_it_is_told(self, file: Path) -> None:
        build, _, _ = file.read_text().rpartition("\nFROM ")
        assert "\nARG PIP_INDEX_URL\n" in build.partition("\nRUN ")[0]
        assert "PIP_INDEX_URL" not in str(instructions(file))

    def test_what_it_copies_is_sent_to_the_builder(self, file: Path) -> None:
        lines = (ROOT / ".dockerignore").read_text().splitlines()
        kept = {line[1:] for line in lines if line.startswith("!")}
        assert "server/deploy/docker/health_check.py" in kept
        assert all((ROOT / path).exists() for path in kept)


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a builder gets of the repository: what .dockerignore lets through."""
    folder = tmp_path_factory.mktemp("context")
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        if line.startswith("!"):
            source, target = ROOT / line[1:], folder / line[1:]
            target.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():  # in which other tests may have modules compiled meanwhile
                shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(source, target)
    return folder


def test_the_package_can_be_built_of_what_the_builder_gets(context: Path, tmp_path: Path) -> None:
    require_module("build", "dev")
    checked(
        *(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(context))
    )
    [wheel] = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        assert "timbrel_server/bundles/default/manifest.json" in archive.namelist()


@pytest.mark.acceptance
@pytest.mark.parametrize("file", DOCKERFILES, ids=lambda file: file.name)
def test_the_build_steps_find_all_they_ask_for(file: Path, context: Path, tmp_path: Path) -> None:
    """In a new environment; of the gpu image only that all can be had, for CUDA's libraries are large."""
    steps = file.read_text().replace("\\\n", " ")
    [step] = [line for line in steps.splitlines() if line.startswith("RUN ")]
    home = str(tmp_path / "timbrel")
    for command in step.removeprefix("RUN ").split("&&"):
        words = shlex.split(command.replace("/opt/timbrel", home))
        words[0] = words[0].replace("python", sys.executable) if words[0] == "python" else words[0]
        if file.name == "gpu.Dockerfile" and "install" in words:
            words += ["--dry-run"]
        done = subprocess.run(words, cwd=context, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    if file.name == "cpu.Dockerfile":
        checked(f"{home}/bin/timbrel", "serve", "--help")
        checked(f"{home}/bin/python", "-c", "from timbrel_server.observability import metrics, tracing")


def test_the_compose_file_is_one() -> None:
    checked(
        tool("check-jsonschema"),
        "--builtin-schema",
        "vendor.compose-spec",
        str(DEPLOY / "compose/compose.yaml"),
    )


@pytest.mark.parametrize("file", MANIFESTS, ids=lambda file: file.name)
def test_the_manifests_fit_their_schemas(file: Path) -> None:
    checked(tool("kubernetes-validate"), "--strict", str(file))


def deployment() -> dict[str, Any]:
    require_module("yaml", "dev")
    import yaml

    documents = [each for file in MANIFESTS for each in yaml.safe_load_all(file.read_text())]
    return next(each for each in documents if each["kind"] == "Deployment")


def test_the_pod_has_time_to_drain() -> None:
    pod = deployment()["spec"]["template"]["spec"]
    [container] = pod["containers"]
    grace = float(container["args"][container["args"].index("--grace") + 1])
    before = container["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert before + grace + 5 <= pod["terminationGracePeriodSeconds"]
    assert pod["enableServiceLinks"] is False


def test_a_container_has_time_to_drain() -> None:
    from timbrel_server.config import ServerConfig

    texts = [file.read_text() for file in (*DOCKERFILES, DEPLOY / "compose/compose.yaml")]
    commands = [command for text in texts for command in re.findall(r"docker run.*", text)]
    times = [command.partition("--stop-timeout ")[2].partition(" ")[0] for command in commands]
    times += re.findall(r"stop_grace_period: (\d+)s", texts[-1])
    times += re.findall(r"^TimeoutStopSec=(\d+)$", UNIT.read_text(), re.MULTILINE)
    assert len(times) == 6
    assert all(int(time) >= ServerConfig().grace_seconds + 10 for time in times)


def test_a_service_may_be_reloaded_from_its_first_moment_on(tiny_bundle: Path, tmp_path: Path) -> None:
    options = tmp_path / "serve.toml"
    options.write_text(f'bundle = "{tiny_bundle}"\nport = 0\nthreads = 1\n')
    [line] = re.findall("^ExecStart=(.*)$", UNIT.read_text(), re.MULTILINE)
    places = {"/opt/timbrel/bin/timbrel": tool("timbrel"), "/etc/timbrel/serve.toml": str(options)}
    words = [places.get(word, word) for word in shlex.split(line)]
    assert set(places.values()) <= set(words)
    with held_at_its_start(words, tmp_path, stderr=subprocess.DEVNULL) as process:
        try:
            assert process.stdin is not None and process.stdout is not None
            assert process.stdout.readline() == "begun\n"
            assert has(process.pid, "SigIgn", signal.SIGHUP)
            process.send_signal(signal.SIGHUP)
            process.stdin.write("\n")
            process.stdin.flush()
            assert process.stdout.readline().startswith("timbrel ready on ")
            assert has(process.pid, "SigCgt", signal.SIGHUP)
        finally:
            process.kill()


def test_nothing_that_is_copied_lets_strangers_in() -> None:
    texts = {file: file.read_text() for file in MANIFESTS}
    assert not any("kind: Secret" in text or "--insecure" in text for text in texts.values())
    for file in DOCKERFILES:
        for command in re.findall(r"docker run(?:.*\\\n)*.*", file.read_text()):
            assert "TIMBREL_TOKEN=" not in command
            assert "--tls-cert" in command if "--insecure" not in command else "127.0.0.1:50051" in command


def test_the_pods_options_are_ones() -> None:
    import argparse

    from timbrel_server.cli import command
    from timbrel_server.config import ServerConfig, is_loopback
    from timbrel_server.options import gather

    [container] = deployment()["spec"]["template"]["spec"]["containers"]
    parser = argparse.ArgumentParser(allow_abbrev=False)
    command.configure(parser)
    variables = environment_of(DEPLOY / "docker" / "cpu.Dockerfile")
    config = gather(parser.parse_args(container["args"]), ServerConfig, variables).config
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert (config.port, config.metrics_port) == (ports["grpc"], ports["metrics"])
    assert not is_loopback(config.host)


def require_user_namespaces() -> None:
    require_system("bubblewrap")
    if subprocess.run(["bwrap", "--ro-bind", "/", "/", "--unshare-user", "true"], check=False).returncode:
        give_up("needs user namespaces (sysctl kernel.unprivileged_userns_clone=1)")


@pytest.fixture
def contained(tiny_bundle: Path, tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], str, str]]:
    """The cpu image's entry point with its environment, as its user; nothing but /tmp can be written."""
    require_user_namespaces()
    image = environment_of(DEPLOY / "docker" / "cpu.Dockerfile")
    kept = {name: value for name, value in image.items() if name not in ("PATH", "TIMBREL_METRICS_PORT")}
    entry = [sys.executable, "-m", "timbrel_server"]  # what `timbrel serve` is, without the client
    options = ["--bundle", str(tiny_bundle), "--port", "0", "--metrics-port", "0", "--threads", "1"]
    process = subprocess.Popen(
        [
            *("bwrap", "--unshare-user", "--unshare-pid", "--uid", str(NOBODY), "--gid", str(NOBODY)),
            *("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp"),
            *("--ro-bind", str(ROOT), str(ROOT), "--ro-bind", str(tiny_bundle), str(tiny_bundle)),
            *("--cap-drop", "ALL", "--clearenv"),
            *("--setenv", "PATH", "/usr/bin:/bin", "--setenv", "OMP_NUM_THREADS", "1"),
            *(word for name, value in kept.items() for word in ("--setenv", name, value)),
            *("--setenv", "TIMBREL_TOKEN", "a-secret-token", "--die-with-parent"),
            *("--", *entry, *options, "--insecure"),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line.startswith("timbrel ready on "):
        process.kill()
        pytest.fail(f"{line!r}: {process.communicate()[1]}")
    words = line.split()
    yield process, words[3].rpartition(":")[2], words[-1].rpartition(":")[2]
    process.kill()
    process.communicate()


def test_the_entry_point_runs_as_nobody_on_a_read_only_root(
    contained: tuple[subprocess.Popen[str], str, str],
) -> None:
    process, port, metrics_port = contained
    who = (("authorization", "Bearer a-secret-token"),)
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        stub: Any = pb_grpc.SynthesizerStub(channel)
        note = pb.GenerateRequest(timbre=pb.Timbre(), pitch=60, seconds=0.5, seed=1)
        assert list(stub.Generate(note, metadata=who, timeout=PATIENCE_SECONDS))
        name = next(iter(stub.GetModel(pb.GetModelRequest(), metadata=who).manifest.files)).name
        assert name
    check = [sys.executable, str(DEPLOY / "docker" / "health_check.py")]
    assert subprocess.run(check, env={"TIMBREL_METRICS_PORT": metrics_port}, check=False).returncode == 0
    server = child_of(process.pid)
    assert user_of(server) == os.getuid()  # the user namespace's nobody
    os.kill(server, signal.SIGTERM)
    assert process.wait(PATIENCE_SECONDS) == 0
    gone = subprocess.run(check, env={"TIMBREL_METRICS_PORT": metrics_port}, check=False)
    assert gone.returncode == 1


def test_nothing_but_tmp_can_be_written(contained: tuple[subprocess.Popen[str], str, str]) -> None:
    process, _, metrics_port = contained
    server = child_of(process.pid)
    mounts = Path(f"/proc/{server}/mounts").read_text().splitlines()
    by_place = {line.split()[1]: line.split()[3].split(",") for line in mounts}
    assert "ro" in by_place["/"]
    assert "rw" in by_place["/tmp"]
    with urllib.request.urlopen(f"http://127.0.0.1:{metrics_port}/readyz") as reply:
        assert reply.status == 200


def held_at_its_start(command: Sequence[str], folder: Path, **options: Any) -> subprocess.Popen[str]:
    """Starts a program of Python's that says "begun" before it runs anything of its own, and goes on once it
    is given a line."""
    (folder / "sitecustomize.py").write_text("import sys; print('begun', flush=True); sys.stdin.readline()")
    paths = [str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env, **options
    )


def child_of(pid: int) -> int:
    """The innermost of bubblewrap's processes: the server, once it has begun."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended between two looks
        while children := Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            pid = int(children[0])
    return pid


def has(pid: int, which: str, number: int) -> bool:
    """Whether a signal is among those that the process ignores ("SigIgn") or has a handler for ("SigCgt")."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):  # both come of its end
        return False
    found = re.search(rf"^{which}:\s*(\w+)", status, re.MULTILINE)
    return found is not None and bool(int(found[1], 16) >> (number - 1) & 1)


def user_of(pid: int) -> int:
    return os.stat(f"/proc/{pid}").st_uid
