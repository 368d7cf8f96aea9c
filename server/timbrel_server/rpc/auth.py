"""Authentication: callers prove who they are by bearer tokens and certificates."""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import stat
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

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
        text = read_file(file, is_secret=True).decode("utf-8-sig")
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
        if twin := next((other for other, its in by_name.items() if its == token), None):
            raise ConfigError(f"{file}, line {number}: {name!r} has the token of {twin!r}, and needs its own")
        by_name[name] = token
    if not by_name:
        raise ConfigError(f"{file}: the token file is empty: expected lines NAME:TOKEN")
    return Tokens(by_name)


def warn_if_public(file: Path, status: os.stat_result) -> None:
    """Tells the log where others can read a file that holds a secret."""
    if os.name == "posix" and status.st_mode & stat.S_IROTH:
        _log.warning("%s can be read by everybody on this machine: chmod o-r", file)


def read_file(file: Path, *, is_secret: bool = False) -> bytes:
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
        if is_secret:
            warn_if_public(file, status)
        return opened.read(LARGEST_FILE_BYTES)


def _presented(context: Context) -> bytes:
    """Returns the token that a call brings; empty where it brings none."""
    metadata: Any = context.invocation_metadata()
    given = next((value for key, value in metadata or () if key == "authorization"), b"")
    header: bytes = given if isinstance(given, bytes) else given.encode(errors="replace")
    return header[len(_SCHEME) :] if header[: len(_SCHEME)].lower() == _SCHEME else b""


def _digest(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()
