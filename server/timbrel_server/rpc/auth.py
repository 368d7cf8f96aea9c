"""Authentication: callers prove who they are by bearer tokens and certificates."""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import ssl
import stat
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import grpc

from timbrel_server.config import ServerConfig, check_token
from timbrel_server.errors import UnauthenticatedError
from timbrel_server.options import ConfigError
from timbrel_server.rpc.call_context import name_by_certificate, name_by_host, network_of, set_caller
from timbrel_server.rpc.handlers import Answer, Context, Method, Middleware

_SCHEME = b"bearer "

DEFAULT_CALLER = "default"
"""The caller that a token without a name belongs to."""

LARGEST_FILE_BYTES = 1 << 20
"""Of a file of tokens or certificates."""

MOST_READINGS = 5
"""Of certificates that are being replaced."""

_log = logging.getLogger(__name__)


class AuthInterceptor(Middleware):
    """Lets in calls that bring `authorization: Bearer TOKEN`, and health checks; says who is calling.

    Without tokens everybody who could connect comes in.
    """

    def __init__(self, config: ServerConfig) -> None:
        """
        Raises:
            ConfigError: the token file makes no sense.
            OSError: it cannot be read.
        """
        self._config = config
        self._tokens = self._read()

    @property
    def has_file(self) -> bool:
        """Whether there is a token file, which may be read anew: a token that is an option stays."""
        return self._config.token_file is not None

    def reload(self) -> None:
        """Reads the token file anew; where that fails, as the constructor may, the old tokens stay."""
        self._tokens = self._read()

    def around(self, answer: Answer, method: Method) -> Answer:
        async def authenticated(request: Any, context: Context) -> Any:
            tokens = self._tokens
            if tokens is None or method.is_health_check:
                self._set_caller_by_connection(context)
            elif (name := tokens.find(presented := _presented(context))) is not None:
                set_caller(f"token:{name}")
                if not method.takes_one_request:
                    request = self._while_known(request, tokens, presented)
            else:
                self._set_caller_by_connection(context)
                raise UnauthenticatedError("this server asks for a token: authorization: Bearer TOKEN")
            return await answer(request, context)

        return authenticated

    async def _while_known(
        self, bodies: AsyncIterator[bytes], tokens: Tokens, presented: bytes
    ) -> AsyncIterator[bytes]:
        """Passes on what a stream brings. Raises UnauthenticatedError once its token has been taken back."""
        async for body in bodies:
            if self._tokens is not tokens:
                if self._tokens is not None and self._tokens.find(presented) is None:
                    raise UnauthenticatedError("the token of this stream has been taken back")
                tokens = self._tokens or tokens
            yield body

    def _read(self) -> Tokens | None:
        if self._config.token_file is not None:
            return read_tokens(self._config.token_file)
        if self._config.token is not None:
            return Tokens({DEFAULT_CALLER: self._config.token})
        return None

    def _set_caller_by_connection(self, context: Context) -> None:
        """To ask what a connection has brought costs; only one that was asked has any."""
        if self._config.client_authority is not None and (name := name_by_certificate(context)):
            set_caller(name)
        else:
            set_caller(host := name_by_host(context), network_of(host))


class Tokens:
    """The tokens that are let in. They are kept as digests only.

    Every one is compared, in constant time: how long it takes tells nothing of any of them.
    """

    def __init__(self, by_name: Mapping[str, str]) -> None:
        self._names_by_digest = [(_digest(token.encode()), name) for name, token in by_name.items()]

    def find(self, presented: bytes) -> str | None:
        """Returns the name of the caller whose token this is."""
        digest = _digest(presented)
        found: str | None = None
        for known, name in self._names_by_digest:
            if hmac.compare_digest(digest, known):
                found = name
        return found


def read_tokens(file: Path) -> Tokens:
    """Reads lines `NAME:TOKEN`; empty ones and those that begin with # are left out.

    Raises:
        ConfigError: a line is none, or there is none at all; no message holds a token.
        OSError: the file cannot be read.
    """
    by_name: dict[str, str] = {}
    try:
        text = _read_file(file, is_secret=True).decode("utf-8")
    except UnicodeDecodeError:
        raise ConfigError(f"{file} is no text in UTF-8: expected lines NAME:TOKEN") from None
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, colon, token = (part.strip() for part in line.partition(":"))
        if not colon or not name:
            raise ConfigError(f"{file}, line {number}: expected NAME:TOKEN")
        check_token(token, f"{file}, line {number}: the token of {name!r}")
        if name in by_name:
            raise ConfigError(f"{file}, line {number}: {name!r} has a token already")
        by_name[name] = token
    if not by_name:
        raise ConfigError(f"{file}: the token file is empty: expected lines NAME:TOKEN")
    return Tokens(by_name)


def _read_file(file: Path, *, is_secret: bool = False) -> bytes:
    """Reads a regular file: of a pipe, say, one could wait for the end for ever.

    Args:
        is_secret: whether to warn where others can read it.

    Raises:
        ConfigError: it is none, or too large.
        OSError: it cannot be read.
    """
    at_once = getattr(os, "O_NONBLOCK", 0)
    with open(file, "rb", opener=lambda path, flags: os.open(path, flags | at_once)) as opened:
        status = os.fstat(opened.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise ConfigError(f"{file} is no regular file")
        if status.st_size > LARGEST_FILE_BYTES:
            raise ConfigError(f"{file} has {status.st_size} bytes; {LARGEST_FILE_BYTES} at most are read")
        if is_secret and os.name == "posix" and status.st_mode & stat.S_IROTH:
            _log.warning("%s can be read by everybody on this machine: chmod o-r", file)
        return opened.read(LARGEST_FILE_BYTES)


class Certificates:
    """The certificates that a TLS connection begins with. What was read last counts for every connection made
    from then on."""

    def __init__(self, certificate: Path, key: Path, client_authority: Path | None) -> None:
        """
        Raises:
            ConfigError: a file is no PEM file, or key and certificate do not belong together.
            OSError: a file cannot be read.
        """
        self._certificate = certificate
        self._key = key
        self._client_authority = client_authority
        self._current = self._told = self._read()

    @classmethod
    def of(cls, config: ServerConfig) -> Certificates | None:
        """Reads those that the configuration names; None where it names none."""
        if config.tls_certificate is None or config.tls_key is None:
            return None
        return cls(config.tls_certificate, config.tls_key, config.client_authority)

    def reload(self) -> None:
        """Reads the files anew; where that fails, as the constructor may, the old ones stay."""
        self._current = self._read()

    def credentials(self) -> grpc.ServerCredentials:
        """Returns what to listen with."""
        return grpc.dynamic_ssl_server_credentials(
            self._current, self.news, require_client_authentication=self._client_authority is not None
        )

    def news(self) -> Any:  # grpc-stubs does not know that it may be None
        """Returns what was read since this was asked last, or None: gRPC asks for every connection, and makes
        everything anew of what it gets."""
        current = self._current
        if current is self._told:
            return None
        self._told = current
        return current

    def _read(self) -> grpc.ServerCertificateConfiguration:
        """Files are not replaced in one go: only what is there still after the check is what was checked."""
        for _ in range(MOST_READINGS):
            key, certificate, authority = read = self._read_files(warns=True)
            self._check()
            if self._read_files(warns=False) == read:
                return grpc.ssl_server_certificate_configuration([(key, certificate)], authority)
        raise ConfigError(f"{self._certificate} and {self._key} change while they are read")

    def _read_files(self, *, warns: bool) -> tuple[bytes, bytes, bytes | None]:
        """Reads the key, the certificate and the authority; may warn where others can read the key."""
        authority = _read_file(self._client_authority) if self._client_authority is not None else None
        return _read_file(self._key, is_secret=warns), _read_file(self._certificate), authority

    def _check(self) -> None:
        """Checks the files: gRPC takes anything, and fails every connection later."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            # A key under a passphrase would ask for it on the terminal.
            context.load_cert_chain(self._certificate, self._key, password=lambda: "")
        except ssl.SSLError as error:
            raise ConfigError(
                f"{self._certificate} and {self._key} are no certificate and its key: {error}"
            ) from None
        if self._client_authority is not None:
            try:
                context.load_verify_locations(self._client_authority)
            except ssl.SSLError as error:
                raise ConfigError(f"{self._client_authority} holds no certificate: {error}") from None


def _presented(context: Context) -> bytes:
    """Returns the token that a call brings; empty where it brings none."""
    metadata: Any = context.invocation_metadata()
    given = next((value for key, value in metadata or () if key == "authorization"), b"")
    header: bytes = given if isinstance(given, bytes) else given.encode(errors="replace")
    return header[len(_SCHEME) :] if header[: len(_SCHEME)].lower() == _SCHEME else b""


def _digest(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()
