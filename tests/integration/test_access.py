"""Who may call: tokens, TLS, certificates; and what gRPC itself holds callers to."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import socket
import ssl
import threading
import urllib.request
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from queue import Queue
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from certificates import Authority, Pair
from cryptography import x509
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from prometheus_client.parser import text_string_to_metric_families
from server_process import ServerProcess
from waiting import wait_for

import timbrel
from timbrel.settings import Security
from timbrel_protos.inference import grpc_service_pb2 as oip
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb
from timbrel_protos.timbrel.v1 import synthesizer_pb2_grpc as pb_grpc
from timbrel_server.options import ConfigError
from timbrel_server.rpc import certificates as certificates_module
from timbrel_server.rpc.auth import read_tokens
from timbrel_server.rpc.certificates import Certificates

PATIENCE_SECONDS = 60.0
SERVING = health_pb2.HealthCheckResponse.SERVING

StartServer = Callable[..., ServerProcess]
Metadata = Sequence[tuple[str, str]]


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    file = tmp_path / "tokens"
    file.write_text("# name:token\n\nann:token-of-ann\nbob: token:of:bob\n")
    return file


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "pki")


def bearer(token: str) -> Metadata:
    return (("authorization", f"Bearer {token}"),)


def calls(channel: grpc.Channel, metadata: Metadata = ()) -> list[Callable[[], Any]]:
    """One call of every kind that must not be answered to a stranger."""
    stub: Any = pb_grpc.SynthesizerStub(channel)
    reflection: Any = reflection_pb2_grpc.ServerReflectionStub(channel)
    how: Any = {"metadata": metadata, "timeout": PATIENCE_SECONDS}
    note = pb.GenerateRequest(timbre=pb.Timbre(), pitch=60, seconds=0.2, seed=1)
    listing = reflection_pb2.ServerReflectionRequest(list_services="")
    return [
        lambda: stub.GetModel(pb.GetModelRequest(), **how),
        lambda: stub.GetModel(pb.GetModelRequest(bundle="no such bundle"), **how),
        lambda: stub.GetTimbreMap(pb.GetTimbreMapRequest(), **how),
        lambda: list(stub.GetFile(pb.GetFileRequest(name="timbre_map.json"), **how)),
        lambda: list(stub.Generate(note, **how)),
        lambda: list(stub.Generate(pb.GenerateRequest(pitch=9999), **how)),
        lambda: list(stub.Play(iter(()), **how)),
        lambda: stub.Locate(pb.LocateRequest(), **how),
        lambda: list(reflection.ServerReflectionInfo(iter([listing]), **how)),
    ]


def refused_with(call: Callable[[], Any]) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.RpcError) as caught:
        call()
    return caught.value.code(), caught.value.details() or ""


def model_name(channel: grpc.Channel, metadata: Metadata = ()) -> str:
    stub: Any = pb_grpc.SynthesizerStub(channel)
    reply = stub.GetModel(pb.GetModelRequest(), metadata=metadata, timeout=PATIENCE_SECONDS)
    return str(reply.manifest.name)


def health(channel: grpc.Channel, service: str = "") -> int:
    stub: Any = health_pb2_grpc.HealthStub(channel)
    return int(stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=PATIENCE_SECONDS).status)


def secure(server: ServerProcess, ca: Path, pair: Pair | None = None) -> grpc.Channel:
    key, chain = (pair.key.read_bytes(), pair.certificate.read_bytes()) if pair else (None, None)
    return grpc.secure_channel(server.address, grpc.ssl_channel_credentials(ca.read_bytes(), key, chain))


def tls_options(authority: Authority) -> list[str]:
    pair = authority.sign("server")
    return ["--tls-cert", str(pair.certificate), "--tls-key", str(pair.key)]


class TestTokens:
    def test_strangers_learn_nothing(self, start_server: StartServer, tokens: Path) -> None:
        server = start_server("--token-file", str(tokens))
        strangers: list[Metadata] = [
            (),
            bearer("wrong"),
            bearer(""),
            bearer("token-of-ann "),
            bearer("token-of-an"),
            (("authorization", "token-of-ann"),),
            (("authorization", "Basic token-of-ann"),),
            bearer("ann:token-of-ann"),
        ]
        with grpc.insecure_channel(server.address) as channel:
            answers = {refused_with(call) for who in strangers for call in calls(channel, who)}
            assert len(answers) == 1  # the same whatever was asked for: nothing to be learnt from it
            code, details = answers.pop()
            assert code is grpc.StatusCode.UNAUTHENTICATED
            assert "tiny" not in details
            assert health(channel) == SERVING

    def test_methods_that_there_are_not_are_calls_as_others(
        self, start_server: StartServer, tokens: Path
    ) -> None:
        server = start_server("--token-file", str(tokens), "--metrics-port", "0")
        paths = ["/timbrel.v1.Synthesizer/Nope", "/grpc.health.v1.Health/Nope", "/of-a-stranger/1", "/2"]
        codes = []
        with grpc.insecure_channel(server.address) as channel:
            for who in ((), bearer("token-of-ann")):
                for path in paths:
                    call: Any = channel.unary_unary(path)
                    with pytest.raises(grpc.RpcError) as caught:
                        call(b"", metadata=who, timeout=PATIENCE_SECONDS)
                    codes.append(caught.value.code())
        assert codes == [grpc.StatusCode.UNAUTHENTICATED] * 4 + [grpc.StatusCode.UNIMPLEMENTED] * 4
        wait_for(lambda: server.log().count("unknown UNIMPLEMENTED in") == 4, "a line for each call")
        with urllib.request.urlopen(f"http://{server.metrics_address}/metrics") as page:
            counted = [line for line in page.read().decode().splitlines() if "handled_total{" in line]
        assert [line.rpartition(" ")[2] for line in counted] == ["4.0", "4.0"]
        assert "stranger" not in "".join(counted) + server.log()

    def test_each_token_has_its_name(self, start_server: StartServer, tokens: Path) -> None:
        server = start_server("--token-file", str(tokens))
        with grpc.insecure_channel(server.address) as channel:
            assert model_name(channel, bearer("token-of-ann")) == "tiny"
            assert model_name(channel, (("authorization", "bearer token:of:bob"),)) == "tiny"
        server.signal(signal.SIGTERM)
        assert server.wait() == 0
        log = server.log()
        assert "for token:ann" in log
        assert "for token:bob" in log
        assert "token-of-ann" not in log
        assert "of:bob" not in log.replace("token:bob", "")

    def test_the_python_client_brings_its_token(self, start_server: StartServer, tokens: Path) -> None:
        server = start_server("--token-file", str(tokens))
        with timbrel.Client(server.address, token="token-of-ann") as client:
            assert client.model()
        for token, said in (("wrong", "does not know the token that was sent"), (None, "asks for a token")):
            with (
                timbrel.Client(server.address, token=token) as client,
                pytest.raises(timbrel.AuthenticationError, match=f"{said}: set TIMBREL_TOKEN"),
            ):
                client.model()

    def test_tokens_are_read_anew(self, start_server: StartServer, tokens: Path) -> None:
        server = start_server("--token-file", str(tokens))
        with grpc.insecure_channel(server.address) as channel:
            tokens.write_text("ann:another-token\n")
            server.signal(signal.SIGHUP)
            wait_for_log(server, "tokens: read anew")
            assert (
                refused_with(calls(channel, bearer("token-of-ann"))[0])[0] is grpc.StatusCode.UNAUTHENTICATED
            )
            assert model_name(channel, bearer("another-token")) == "tiny"
            tokens.write_text("no token here\n")
            server.signal(signal.SIGHUP)
            wait_for_log(server, "what is in use stays")
            assert model_name(channel, bearer("another-token")) == "tiny"
            assert "line 1" in server.log()
            assert "no token here" not in server.log()

    def test_a_token_that_was_taken_back_ends_its_streams(
        self, start_server: StartServer, tokens: Path
    ) -> None:
        server = start_server("--token-file", str(tokens))
        note = pb.GenerateRequest(timbre=pb.Timbre(), pitch=60, seconds=0.2, seed=1)
        listing = reflection_pb2.ServerReflectionRequest(list_services="")
        with grpc.insecure_channel(server.address) as channel:
            stub: Any = pb_grpc.SynthesizerStub(channel)
            reflection: Any = reflection_pb2_grpc.ServerReflectionStub(channel)
            streams = []
            for token in ("token-of-ann", "token:of:bob"):
                for begin, request in (
                    (stub.GenerateBatch, pb.GenerateBatchRequest(id=1, note=note)),
                    (stub.Play, pb.PlayRequest(id=1, note_on=pb.NoteOn(note=note))),
                    (reflection.ServerReflectionInfo, listing),
                ):
                    asked: Queue[Any] = Queue()
                    asked.put(request)
                    replies = begin(iter(asked.get, None), metadata=bearer(token), timeout=PATIENCE_SECONDS)
                    next(replies)
                    streams.append((asked, request, replies))
            tokens.write_text("bob: token:of:bob\n")
            server.signal(signal.SIGHUP)
            wait_for_log(server, "tokens: read anew")
            ends = []
            for asked, request, replies in streams:
                asked.put(request)
                asked.put(None)
                with contextlib.suppress(grpc.RpcError):
                    list(replies)
                ends.append(replies.code())
        assert ends == [grpc.StatusCode.UNAUTHENTICATED] * 3 + [grpc.StatusCode.OK] * 3

    def test_a_pipe_in_place_of_the_file_is_refused_and_nobody_waits_for_it(
        self, start_server: StartServer, tokens: Path
    ) -> None:
        server = start_server("--token-file", str(tokens))
        with grpc.insecure_channel(server.address) as channel:
            tokens.unlink()
            os.mkfifo(tokens)
            server.signal(signal.SIGHUP)
            wait_for_log(server, "is no regular file")
            assert model_name(channel, bearer("token-of-ann")) == "tiny"

    def test_a_folder_in_place_of_the_file_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(IsADirectoryError) as raised:
            read_tokens(tmp_path)
        assert raised.value.filename == str(tmp_path)

    def test_a_file_that_is_no_text_is_named(self, tokens: Path) -> None:
        tokens.write_bytes(b"ann:token-of-\xff")
        with pytest.raises(ConfigError, match=re.escape(f"{tokens} is no text in UTF-8: ")):
            read_tokens(tokens)

    def test_two_names_have_not_the_same_token(self, tokens: Path) -> None:
        """Whichever of them called would be taken for the other, and go on once its own line is gone."""
        tokens.write_text("ann:one-token-of-two\nbob:one-token-of-two\n")
        with pytest.raises(ConfigError, match="line 2: 'bob' has the token of 'ann'") as raised:
            read_tokens(tokens)
        assert "one-token" not in str(raised.value)

    def test_a_byte_order_mark_is_no_part_of_a_name(self, tokens: Path) -> None:
        tokens.write_text("ann:token-of-ann", encoding="utf-8-sig")
        assert read_tokens(tokens).find(b"token-of-ann") == "ann"

    def test_a_file_that_others_can_read_is_warned_of(self, start_server: StartServer, tokens: Path) -> None:
        tokens.chmod(0o640)
        server = start_server("--token-file", str(tokens))
        assert "can be read by everybody" not in server.log()
        tokens.chmod(0o644)
        server.signal(signal.SIGHUP)
        wait_for_log(server, "can be read by everybody")

    def test_so_is_a_file_of_options_that_holds_the_token(
        self, start_server: StartServer, tmp_path: Path
    ) -> None:
        options = tmp_path / "serve.toml"
        for text, mode, n_told in [
            ('token = "token-of-ann"', 0o640, 0),
            ("", 0o644, 0),
            ('token = "token-of-ann"', 0o644, 1),
        ]:
            options.write_text(text)
            options.chmod(mode)
            server = start_server("--config", str(options))
            assert server.log().count(f"{options} can be read by everybody on this machine") == n_told

    def test_a_token_goes_unencrypted_to_no_other_machine(self) -> None:
        client = timbrel.Client("203.0.113.1", token="secret", security=Security())
        with pytest.raises(timbrel.InvalidRequestError, match="unencrypted"):
            client.model()


class TestTls:
    def test_the_python_client_speaks_tls(
        self, start_server: StartServer, authority: Authority, tokens: Path
    ) -> None:
        server = start_server(*tls_options(authority), "--token-file", str(tokens))
        security = Security(ca=authority.certificate)
        with timbrel.Client(server.address, token="token-of-ann", security=security) as client:
            assert client.generate((0.0, 0.0), 60, seconds=0.2, seed=1).codes.size
        with (
            timbrel.Client(server.address, security=security) as client,
            pytest.raises(timbrel.AuthenticationError),
        ):
            client.model()

    @pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "SSL_CERT_DIR"])
    def test_system_means_the_authorities_that_this_system_trusts(
        self,
        start_server: StartServer,
        authority: Authority,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        variable: str,
    ) -> None:
        """A company's own among them, which gRPC's list has not."""
        server = start_server(*tls_options(authority))
        (tmp_path / "0a1b2c3d.0").symlink_to(authority.certificate)
        for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
            monkeypatch.setenv(name, str(tmp_path / "none"))
        monkeypatch.setenv(variable, str(tmp_path if variable.endswith("DIR") else authority.certificate))
        monkeypatch.delenv("GRPC_DEFAULT_SSL_ROOTS_FILE_PATH", raising=False)
        with timbrel.Client(server.address, security=Security("system")) as client:
            assert client.model().name == "tiny"

    def test_what_does_not_fit_is_said_in_one_line_and_so_is_what_to_set(
        self,
        start_server: StartServer,
        authority: Authority,
        tmp_path: Path,
        capfd: pytest.CaptureFixture[str],
    ) -> None:
        plain, encrypted = start_server(), start_server(*tls_options(authority))
        asking = start_server(*tls_options(authority), "--client-ca", str(authority.certificate))
        ca, other = authority.certificate, Authority(tmp_path / "other", "other")
        stranger = other.sign("stranger")
        late = authority.sign("late", expired=True)
        expired = start_server("--tls-cert", str(late.certificate), "--tls-key", str(late.key))
        by_other_name = f"127.0.0.2:{encrypted.address.rpartition(':')[2]}"
        note = tmp_path / "note.txt"
        note.write_text("no certificate")
        misfits = [
            (encrypted.address, Security(), "it speaks TLS.*TIMBREL_CA"),
            (plain.address, Security(ca), "it does not speak TLS.*unset TIMBREL_CA"),
            (encrypted.address, Security(other.certificate), "cannot be trusted.*TIMBREL_CA.*other.pem"),
            (encrypted.address, Security("system"), "cannot be trusted.*TIMBREL_CA, or .*, is 'system'"),
            (expired.address, Security(ca), "its certificate has expired: whoever runs it has to renew it"),
            (by_other_name, Security(ca), "another name|not available"),  # some systems have but 127.0.0.1
            (asking.address, Security(ca), "none was shown.*TIMBREL_CERT"),
            (
                asking.address,
                Security(ca, stranger.certificate, stranger.key),
                "not .*stranger.*TIMBREL_CERT",
            ),
            (encrypted.address, Security(note), "ca: .*note.txt holds no certificate.*TIMBREL_CA"),
            (encrypted.address, Security(tmp_path / "none"), "ca: .*none: No such file.*TIMBREL_CA"),
            (encrypted.address, Security(ca, stranger.certificate, note), "note.txt are no certificate"),
        ]
        for address, security, said in misfits:
            with (
                pytest.raises(timbrel.TimbrelError, match=said) as caught,
                timbrel.Client(address, security=security) as client,
            ):
                client.model()
            assert "\n" not in str(caught.value)
        logged = capfd.readouterr().err.splitlines()
        assert not [line for line in logged if line.startswith("E")]  # gRPC has no error to add

    def test_a_server_that_another_authority_signed_is_not_trusted(
        self, start_server: StartServer, authority: Authority, tmp_path: Path
    ) -> None:
        server = start_server(*tls_options(authority))
        other = Authority(tmp_path / "other", "other")
        with secure(server, other.certificate) as channel:
            assert refused_with(lambda: model_name(channel))[0] is grpc.StatusCode.UNAVAILABLE

    def test_an_expired_server_is_not_trusted(self, start_server: StartServer, authority: Authority) -> None:
        pair = authority.sign("server", expired=True)
        server = start_server("--tls-cert", str(pair.certificate), "--tls-key", str(pair.key))
        with secure(server, authority.certificate) as channel:
            assert refused_with(lambda: model_name(channel))[0] is grpc.StatusCode.UNAVAILABLE

    def test_callers_must_show_a_certificate(
        self, start_server: StartServer, authority: Authority, tmp_path: Path
    ) -> None:
        server = start_server(*tls_options(authority), "--client-ca", str(authority.certificate))
        with secure(server, authority.certificate, authority.sign("ann")) as channel:
            assert model_name(channel) == "tiny"
        impostor = Authority(tmp_path / "other", "other").sign("ann")
        for pair in (None, impostor, authority.sign("late", expired=True)):
            with secure(server, authority.certificate, pair) as channel:
                for call in (*calls(channel), lambda channel=channel: health(channel)):
                    code, details = refused_with(call)
                    assert code is grpc.StatusCode.UNAVAILABLE
                    assert "tiny" not in details
        server.signal(signal.SIGTERM)
        assert server.wait() == 0
        assert "for certificate:CN=ann;localhost;127.0.0.1" in server.log()

    def test_two_subjects_of_one_alternative_name_are_two_callers(
        self, start_server: StartServer, authority: Authority
    ) -> None:
        options = ("--client-ca", str(authority.certificate), "--max-item-streams", "8")
        server = start_server(*tls_options(authority), *options)
        over = threading.Event()

        def silent() -> Any:
            over.wait()
            yield from ()

        with (
            secure(server, authority.certificate, authority.sign("ann")) as anns,
            secure(server, authority.certificate, authority.sign("bob")) as bobs,
        ):
            ann, bob = pb_grpc.SynthesizerStub(anns), pb_grpc.SynthesizerStub(bobs)
            playing = [ann.Play(silent()) for _ in range(2)]
            for call in playing:
                call.initial_metadata()  # comes once the call has begun
            code, details = refused_with(lambda: list(ann.Play(iter(()), timeout=PATIENCE_SECONDS)))
            assert code is grpc.StatusCode.RESOURCE_EXHAUSTED and "has its share" in details
            assert list(bob.Play(iter(()), timeout=PATIENCE_SECONDS)) == []
            over.set()

    def test_a_key_under_a_passphrase_is_told_of(self, authority: Authority) -> None:
        pair = authority.sign("locked", passphrase="sesame")
        with pytest.raises(ConfigError, match=r"locked\.key are no .* the key without a passphrase"):
            Certificates(pair.certificate, pair.key, None)

    def test_certificates_are_told_once(self, authority: Authority) -> None:
        """What gRPC is told anew it makes anew, which takes longer than a handshake."""
        pair = authority.sign("server")
        certificates = Certificates(pair.certificate, pair.key, authority.certificate)
        assert [certificates.news() for _ in range(2)] == [None, None]
        certificates.reload()
        assert [certificates.news() is None for _ in range(3)] == [False, True, True]

    def test_files_that_are_replaced_while_they_are_read_are_read_again(
        self, authority: Authority, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pair, renewed = authority.sign("server"), authority.sign("renewed")
        certificates = Certificates(pair.certificate, pair.key, None)
        server = grpc.server(ThreadPoolExecutor(1))
        port = server.add_secure_port("127.0.0.1:0", certificates.credentials())
        server.start()
        read = certificates_module.read_file

        def read_amid(file: Path, **options: Any) -> bytes:
            """The old key has been read as both change: gRPC would go on with what it had, and not say so."""
            if file == pair.certificate:
                pair.key.write_bytes(renewed.key.read_bytes())
                pair.certificate.write_bytes(renewed.certificate.read_bytes())
            return read(file, **options)

        monkeypatch.setattr(certificates_module, "read_file", read_amid)
        certificates.reload()
        shown = ssl.get_server_certificate(("127.0.0.1", port), timeout=PATIENCE_SECONDS)
        server.stop(None)
        assert shown.strip() == renewed.certificate.read_text().strip()

    def test_the_certificate_is_read_anew(
        self, start_server: StartServer, authority: Authority, tmp_path: Path
    ) -> None:
        pair = authority.sign("server")
        server = start_server("--tls-cert", str(pair.certificate), "--tls-key", str(pair.key))
        before = ssl.get_server_certificate(address_of(server))
        renewed = authority.sign("renewed")
        pair.certificate.write_bytes(renewed.certificate.read_bytes())
        server.signal(signal.SIGHUP)  # the key is still the old one
        wait_for_log(server, "what is in use stays")
        assert ssl.get_server_certificate(address_of(server)) == before
        pair.key.write_bytes(renewed.key.read_bytes())
        server.signal(signal.SIGHUP)
        wait_for_log(server, "certificates: read anew")
        assert (
            ssl.get_server_certificate(address_of(server)).strip() == renewed.certificate.read_text().strip()
        )
        with secure(server, authority.certificate) as channel:
            assert model_name(channel) == "tiny"

    def test_what_was_renewed_is_read_without_a_signal(
        self, authority: Authority, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(certificates_module, "LOOK_SECONDS", 0.02)
        pair, renewed = authority.sign("server"), authority.sign("renewed")
        certificates = Certificates(pair.certificate, pair.key, None)
        outcomes: list[str] = []

        async def renew() -> None:
            try:
                certificates.reload()
                outcomes.append("renewed")
            except ConfigError:
                outcomes.append("half")

        async def until(n_outcomes: int) -> None:
            while len(outcomes) < n_outcomes:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.2)  # ten looks, by which nothing else is found

        async def rotate() -> None:
            watching = asyncio.create_task(certificates.watch(renew))
            await until(0)
            assert not outcomes
            pair.certificate.write_bytes(renewed.certificate.read_bytes())
            await until(1)
            pair.key.unlink()
            pair.key.symlink_to(renewed.key)
            await until(2)
            watching.cancel()

        asyncio.run(asyncio.wait_for(rotate(), PATIENCE_SECONDS))
        assert outcomes == ["half", "renewed"]
        assert certificates.validities["tls_cert"][0] == expiry(renewed)

    def test_what_has_expired_is_told_of_until_it_is_renewed(
        self, start_server: StartServer, authority: Authority
    ) -> None:
        pair = authority.sign("server", expired=True)
        options = ("--client-ca", str(authority.certificate), "--metrics-port", "0")
        server = start_server("--tls-cert", str(pair.certificate), "--tls-key", str(pair.key), *options)
        wait_for_log(server, f"{pair.certificate} expired at ")
        assert expiries(server) == {"tls_cert": expiry(pair), "client_ca": expiry(authority)}
        renewed = authority.sign("renewed")
        for old, new in ((pair.certificate, renewed.certificate), (pair.key, renewed.key)):
            old.write_bytes(new.read_bytes())
        server.signal(signal.SIGHUP)
        wait_for_log(server, "certificates: read anew")
        assert expiries(server)["tls_cert"] == expiry(renewed)
        assert server.log().count("renew it") == 1

    def test_what_expires_soon_is_told_of_once_and_once_more_when_it_has(
        self, authority: Authority, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        pair = authority.sign("server")  # valid for twenty days, ten of which are over
        certificates = Certificates(pair.certificate, pair.key, None)
        caplog.clear()
        for days_left, n_told in [(8, 0), (6, 1), (5, 1), (-1, 2), (-2, 2)]:
            now = expiry(pair) - days_left * 86_400
            monkeypatch.setattr(certificates_module, "time", SimpleNamespace(time=partial(float, now)))
            certificates.warn()
            assert len(caplog.messages) == n_told
        assert [record.levelname for record in caplog.records] == ["WARNING", "ERROR"]


class TestLimits:
    def test_a_message_above_the_limit(self, start_server: StartServer) -> None:
        server = start_server("--max-message-bytes", "4096")
        with grpc.insecure_channel(server.address) as channel:
            stub: Any = pb_grpc.SynthesizerStub(channel)
            long = pb.LocateRequest(bundle="x" * 5000)
            code, _ = refused_with(lambda: stub.Locate(long, timeout=PATIENCE_SECONDS))
            assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert model_name(channel) == "tiny"

    def test_streams_of_one_connection_wait_for_one_another(self, start_server: StartServer) -> None:
        server = start_server("--max-streams", "2")
        held = threading.Event()

        def silent() -> Any:
            held.wait()
            yield from ()

        with grpc.insecure_channel(server.address) as channel:
            stub: Any = pb_grpc.SynthesizerStub(channel)
            playing = [stub.Play(silent()) for _ in range(2)]
            for call in playing:
                call.initial_metadata()  # comes once the call has begun
            third = stub.GetModel.future(pb.GetModelRequest(), timeout=PATIENCE_SECONDS)
            with pytest.raises(grpc.FutureTimeoutError):
                third.result(timeout=0.5)
            with grpc.insecure_channel(server.address, (("grpc.use_local_subchannel_pool", 1),)) as other:
                assert model_name(other) == "tiny"
            held.set()
            assert third.result(timeout=PATIENCE_SECONDS).manifest.name == "tiny"

    @pytest.mark.slow
    def test_one_connection_bears_a_callers_share_of_calls(self, start_server: StartServer) -> None:
        """gRPC counts calls that have just ended beside those that took their place."""
        server = start_server("--queue", "2000", "--slots", "64", "--max-calls", "2800")
        n_at_once = 690  # of 700

        async def ask_again(stub: Any) -> None:
            for seed in range(3):
                note = pb.GenerateRequest(timbre=pb.Timbre(x=0, y=0.1), pitch=60, seconds=0.1, seed=seed)
                async for _ in stub.Generate(note, timeout=PATIENCE_SECONDS):
                    pass

        async def main() -> None:
            async with grpc.aio.insecure_channel(server.address) as channel:
                stub = pb_grpc.SynthesizerStub(channel)
                await asyncio.gather(*(ask_again(stub) for _ in range(n_at_once)))

        asyncio.run(main())

    def test_connections_beyond_the_limit_are_closed_and_those_within_are_served(
        self, start_server: StartServer
    ) -> None:
        # All are of one network: by a share of less than all, it would lose idle ones, the honest one first.
        server = start_server("--max-connections", "8", "--caller-share", "1")
        with grpc.insecure_channel(server.address) as channel, contextlib.ExitStack() as peers:
            assert model_name(channel) == "tiny"
            crowd = [peers.enter_context(greeted(address_of(server))) for _ in range(40)]
            wait_for(lambda: len(closed_by_peer(crowd)) >= 32, "32 of the crowd to be turned away")
            assert len(closed_by_peer(crowd)) < 40
            assert model_name(channel) == "tiny"
        with grpc.insecure_channel(server.address, (("grpc.use_local_subchannel_pool", 1),)) as fresh:
            stub: Any = pb_grpc.SynthesizerStub(fresh)
            model = stub.GetModel(pb.GetModelRequest(), timeout=PATIENCE_SECONDS, wait_for_ready=True)
            assert model.manifest.name == "tiny"

    def test_a_server_that_may_open_few_files_keeps_some_for_itself(self, start_server: StartServer) -> None:
        limited = (
            "import resource, sys; from timbrel_server.__main__ import main;"
            " resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200)); sys.exit(main())"
        )
        server = start_server(program=("-c", limited))
        assert "max_connections is 136, and not 4096: this process may open 200 files" in server.log()
        with grpc.insecure_channel(server.address) as channel, contextlib.ExitStack() as peers:
            assert model_name(channel) == "tiny"
            crowd = [peers.enter_context(greeted(address_of(server))) for _ in range(300)]
            wait_for(lambda: len(closed_by_peer(crowd)) > 100, "100 of the crowd to be turned away")
            stub: Any = pb_grpc.SynthesizerStub(channel)
            asked = pb.GetFileRequest(name="timbre_map.json")
            # Its own connection may have been among those on which no call was; then it makes another.
            told = stub.GetFile(asked, timeout=PATIENCE_SECONDS, wait_for_ready=True)
            assert b"".join(reply.data for reply in told)

    def test_an_operators_limits(self, start_server: StartServer) -> None:
        options = ("--slots", "1", "--queue", "100", "--queue-frames", "100")
        server = start_server(*options, "--max-seconds", "1.5", "--max-in-flight", "7", "--max-batch", "3")
        with grpc.insecure_channel(server.address) as channel:
            stub: Any = pb_grpc.SynthesizerStub(channel)
            model = stub.GetModel(pb.GetModelRequest(), timeout=PATIENCE_SECONDS)
            assert model.manifest.ranges.seconds_max == 1.5
            assert model.engine.max_in_flight == 7

            long = pb.GenerateRequest(timbre=pb.Timbre(), pitch=60, seconds=1.6, seed=1)
            code, details = refused_with(lambda: list(stub.Generate(long, timeout=PATIENCE_SECONDS)))
            assert code is grpc.StatusCode.INVALID_ARGUMENT and "1.5" in details
            # 75 frames each: the slot takes one, the queue one more, long before it has a hundred.
            notes = [pb.GenerateRequest(timbre=pb.Timbre(), pitch=60, seconds=1.5, seed=n) for n in range(20)]
            streams = [stub.Generate(note, timeout=PATIENCE_SECONDS) for note in notes]
            codes = Counter(end_of(each) for each in streams)
            assert set(codes) == {grpc.StatusCode.OK, grpc.StatusCode.RESOURCE_EXHAUSTED}

            infer: Any = channel.unary_unary(
                "/inference.GRPCInferenceService/ModelInfer",
                oip.ModelInferRequest.SerializeToString,
                oip.ModelInferResponse.FromString,
            )
            many = oip.ModelInferRequest(model_name="tiny")
            for name, datatype, width, size in (
                *(("TIMBRE", "FP32", 2, 4), ("PITCH", "INT32", 1, 4), ("VELOCITY", "INT32", 1, 4)),
                *(("SECONDS", "FP32", 1, 4), ("SEED", "UINT64", 1, 8)),
            ):
                many.inputs.add(name=name, datatype=datatype, shape=(4, width))
                many.raw_input_contents.append(bytes(4 * width * size))
            code, details = refused_with(lambda: infer(many, timeout=PATIENCE_SECONDS))
            assert code is grpc.StatusCode.INVALID_ARGUMENT and "1 to 3" in details


def greeted(address: tuple[str, int]) -> socket.socket:
    """A connection that says hello, and nothing else."""
    peer = socket.create_connection(address, PATIENCE_SECONDS)
    with contextlib.suppress(OSError):  # it may have been closed already
        peer.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0")
    peer.setblocking(False)
    return peer


def closed_by_peer(crowd: Sequence[socket.socket]) -> list[socket.socket]:
    """Those at whose other end nobody is any more."""
    return [peer for peer in crowd if _is_closed(peer)]


def _is_closed(peer: socket.socket) -> bool:
    try:
        while peer.recv(65536):
            pass
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


def end_of(call: Any) -> grpc.StatusCode:
    with contextlib.suppress(grpc.RpcError):
        list(call)
    code: grpc.StatusCode = call.code()
    return code


def address_of(server: ServerProcess) -> tuple[str, int]:
    host, _, port = server.address.rpartition(":")
    return host, int(port)


def expiries(server: ServerProcess) -> dict[str, float]:
    """What /metrics says of them, by option."""
    with urllib.request.urlopen(f"http://{server.metrics_address}/metrics") as reply:
        families = {each.name: each for each in text_string_to_metric_families(reply.read().decode())}
    samples = families["timbrel_certificate_expiry_timestamp_seconds"].samples
    return {sample.labels["option"]: sample.value for sample in samples}


def expiry(signed: Authority | Pair) -> float:
    return x509.load_pem_x509_certificate(signed.certificate.read_bytes()).not_valid_after_utc.timestamp()


def wait_for_log(server: ServerProcess, text: str) -> None:
    wait_for(lambda: text in server.log(), f"{text!r} in the log", seen=server.log)
