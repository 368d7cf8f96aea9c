"""How a connection is kept private, and how each end proves who it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import grpc

from timbrel.core.address import parse_address
from timbrel.errors import FieldViolation, InvalidRequestError

CA_VARIABLE = "TIMBREL_CA"
"""Environment variable: file of the authorities that servers are trusted by; `system`: the usual ones."""

CERTIFICATE_VARIABLE = "TIMBREL_CERT"
"""Environment variable: file of the certificate that shows who is calling, PEM."""

KEY_VARIABLE = "TIMBREL_KEY"
"""Environment variable: file of its private key, PEM."""

INSECURE_VARIABLE = "TIMBREL_INSECURE"
"""Environment variable: 1 lets a token travel unencrypted."""

SYSTEM = "system"


@dataclass(frozen=True)
class Security:
    """Without `ca` and `certificate` connections are not encrypted."""

    ca: str | Path | None = None
    """File of the authorities that servers are trusted by, PEM; "system" for the usual ones."""

    certificate: str | Path | None = None
    """File of the certificate that shows who is calling, PEM: for servers that ask for one (mutual TLS)."""

    key: str | Path | None = None
    """File of its private key, PEM."""

    insecure: bool = False
    """Let a token travel unencrypted, though not on the loopback: where the network itself can be trusted."""

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.key is None):
            raise InvalidRequestError.of(
                [FieldViolation("certificate", "goes with a key: give both or none")]
            )

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Security:
        """What TIMBREL_CA, TIMBREL_CERT, TIMBREL_KEY and TIMBREL_INSECURE say."""
        return cls(
            environment.get(CA_VARIABLE) or None,
            environment.get(CERTIFICATE_VARIABLE) or None,
            environment.get(KEY_VARIABLE) or None,
            environment.get(INSECURE_VARIABLE, "").lower() in ("1", "true", "yes"),
        )

    def channel(self, address: str, token: str | None) -> grpc.Channel:
        """A connection to HOST:PORT.

        Raises:
            InvalidRequestError: a file cannot be read, or the token would travel unencrypted.
        """
        if self.ca is not None or self.certificate is not None:
            return grpc.secure_channel(address, self._credentials())
        if token and not self.insecure and not parse_address(address).is_loopback:
            raise InvalidRequestError.of(
                [
                    FieldViolation(
                        "token",
                        f"it would travel unencrypted to {address}: name the server's authority"
                        f" ({CA_VARIABLE}), or say that the network can be trusted ({INSECURE_VARIABLE}=1)",
                    )
                ]
            )
        return grpc.insecure_channel(address)

    def _credentials(self) -> grpc.ChannelCredentials:
        roots = None if self.ca is None or self.ca == SYSTEM else _read("ca", self.ca)
        if self.certificate is None or self.key is None:
            return grpc.ssl_channel_credentials(roots)
        return grpc.ssl_channel_credentials(
            roots, _read("key", self.key), _read("certificate", self.certificate)
        )


def _read(field: str, file: str | Path) -> bytes:
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise InvalidRequestError.of([FieldViolation(field, f"{file}: {error.strerror}")]) from None
