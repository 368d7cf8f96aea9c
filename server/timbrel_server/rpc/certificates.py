"""The certificates of TLS: read, read anew, and told of before they expire."""

from __future__ import annotations

import asyncio
import binascii
import contextlib
import logging
import re
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grpc

from timbrel_server.config import ServerConfig
from timbrel_server.options import ConfigError
from timbrel_server.rpc.auth import read_file

MOST_READINGS = 5
"""Of certificates that are being replaced."""

LOOK_SECONDS = 30.0
"""The pause between two looks at whether a certificate is about to expire, or was renewed."""

EARLIEST_WARNING_SECONDS = 30 * 86_400.0
"""Before a certificate expires, or the last third of its life where that is less: by then it has been
renewed, unless something is wrong."""

_PEM = re.compile(rb"-----BEGIN CERTIFICATE-----(.+?)-----END CERTIFICATE-----", re.DOTALL)
_VALIDITY = re.compile(rb"(?:\x17\x0d|\x18\x0f)(\d{12,14})Z" * 2)
"""In a certificate's DER: from when until when, the first times there are; a year has two digits or four."""

_log = logging.getLogger(__name__)


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
        self.validities: Mapping[str, tuple[float, float]] = {}
        """By option, until when and from when what is in use is valid, in seconds since 1970; of several
        authorities the one that expires last."""
        self._warned: set[tuple[str, float, bool]] = set()
        self._seen = self._stamps()
        self._current = self._told = self._read()

    @classmethod
    def of(cls, config: ServerConfig) -> Certificates | None:
        """Reads those that the configuration names; None where it names none."""
        if config.tls_certificate is None or config.tls_key is None:
            return None
        return cls(config.tls_certificate, config.tls_key, config.client_authority)

    def reload(self) -> None:
        """Reads the files anew; where that fails, as the constructor may, the old ones stay."""
        self._seen = self._stamps()
        self._current = self._read()
        self._warned.clear()
        self.warn()

    async def watch(self, renew: Callable[[], Awaitable[object]]) -> None:
        """Warns whenever it is time to, and awaits `renew` once for files that are others than were read: as
        soon as two looks see the same, for a key is not replaced together with its certificate."""
        before = self._seen
        while True:
            self.warn()
            await asyncio.sleep(LOOK_SECONDS)
            now = await asyncio.to_thread(self._stamps)
            if now == before != self._seen:
                self._seen = now
                await renew()
            before = now

    def _stamps(self) -> list[tuple[int, int, int] | None]:
        """Returns what is another for a file that was written or replaced; None of one that is not there."""
        found: list[tuple[int, int, int] | None] = []
        for file in (self._certificate, self._key, self._client_authority):
            found.append(None)
            with contextlib.suppress(OSError):
                if file is not None:
                    told = file.stat()
                    found[-1] = told.st_ino, told.st_mtime_ns, told.st_size
        return found

    def warn(self) -> None:
        """Tells the log, once, of what expires soon, and once of what has."""
        for option, (ends, begins) in self.validities.items():
            left = ends - time.time()
            told = (option, ends, left < 0)
            if told in self._warned or left > min(EARLIEST_WARNING_SECONDS, (ends - begins) / 3):
                continue
            self._warned.add(told)
            file = self._certificate if option == "tls_cert" else self._client_authority
            date = datetime.fromtimestamp(ends, UTC).strftime("%Y-%m-%d %H:%M UTC")
            if left < 0:
                _log.error("%s expired at %s, and connections fail: renew it", file, date)
            else:
                _log.warning("%s expires at %s: renew it", file, date)

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
                found = {"tls_cert": _validities(certificate)[:1], "client_ca": _validities(authority or b"")}
                self.validities = {option: max(each) for option, each in found.items() if each}
                return grpc.ssl_server_certificate_configuration([(key, certificate)], authority)
        raise ConfigError(f"{self._certificate} and {self._key} change while they are read")

    def _read_files(self, *, warns: bool) -> tuple[bytes, bytes, bytes | None]:
        """Reads the key, the certificate and the authority; may warn where others can read the key."""
        authority = read_file(self._client_authority) if self._client_authority is not None else None
        return read_file(self._key, is_secret=warns), read_file(self._certificate), authority

    def _check(self) -> None:
        """Checks the files: gRPC takes anything, and fails every connection later."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            # A key under a passphrase would ask for it on the terminal.
            context.load_cert_chain(self._certificate, self._key, password=lambda: "")
        except ssl.SSLError as error:
            raise ConfigError(
                f"{self._certificate} and {self._key} are no certificate and its key (PEM, the key without a"
                f" passphrase: `openssl pkey` takes it off): {error}"
            ) from None
        if self._client_authority is not None:
            try:
                context.load_verify_locations(self._client_authority)
            except ssl.SSLError as error:
                raise ConfigError(f"{self._client_authority} holds no certificate: {error}") from None


def _validities(pem: bytes) -> list[tuple[float, float]]:
    """Until when and from when each certificate of a file is valid, in seconds since 1970."""
    found = []
    for block in _PEM.findall(pem):
        # What OpenSSL takes is served, whether it can be told of or not.
        with contextlib.suppress(ValueError):
            if times := _VALIDITY.search(binascii.a2b_base64(block)):
                found.append((_seconds(times[2]), _seconds(times[1])))
    return found


def _seconds(written: bytes) -> float:
    """Reads ASN.1's time; two digits of a year are 1950 to 2049."""
    text = written.decode()
    if len(text) == 12:
        text = f"{19 if text >= '5' else 20}{text}"
    return datetime.strptime(text, "%Y%m%d%H%M%S").replace(tzinfo=UTC).timestamp()
