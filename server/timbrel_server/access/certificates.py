"""The server's certificate, and whose certificates it accepts."""

from __future__ import annotations

import ssl
from pathlib import Path

import grpc

from timbrel_server.settings.config import ServerConfig
from timbrel_server.settings.options import ConfigError


class Certificates:
    """What a TLS connection begins with. What was read last counts for every connection made from then on."""

    def __init__(self, certificate: Path, key: Path, client_authority: Path | None) -> None:
        """
        Raises:
            ConfigError: a file is no PEM file, or key and certificate do not belong together.
            OSError: a file cannot be read.
        """
        self._certificate = certificate
        self._key = key
        self._client_authority = client_authority
        self._current = self._read()

    @classmethod
    def of(cls, config: ServerConfig) -> Certificates | None:
        """Those that the configuration names; None where it names none."""
        if config.tls_certificate is None or config.tls_key is None:
            return None
        return cls(config.tls_certificate, config.tls_key, config.client_authority)

    def reload(self) -> None:
        """Reads the files anew; where that fails, as the constructor may, the old ones stay."""
        self._current = self._read()

    def credentials(self) -> grpc.ServerCredentials:
        """What to listen with."""
        return grpc.dynamic_ssl_server_credentials(
            self._current,
            lambda: self._current,
            require_client_authentication=self._client_authority is not None,
        )

    def _read(self) -> grpc.ServerCertificateConfiguration:
        self._check()
        authority = self._client_authority.read_bytes() if self._client_authority is not None else None
        pair = (self._key.read_bytes(), self._certificate.read_bytes())
        return grpc.ssl_server_certificate_configuration([pair], authority)

    def _check(self) -> None:
        """gRPC takes anything, and fails every connection later."""
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
