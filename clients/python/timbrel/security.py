"""How a connection is kept private, and how each end proves who it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

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
    """How a connection is encrypted; without `ca` and `certificate` it is not.

    >>> timbrel.Client("synth.example:443", token="s3cret", security=timbrel.Security(ca="system"))
    <timbrel.client.Client object at 0x...>
    """

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

    @property
    def is_encrypted(self) -> bool:
        """Whether connections are."""
        return self.ca is not None or self.certificate is not None
