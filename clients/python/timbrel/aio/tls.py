"""The encryption of a connection: files that are read and checked before gRPC is given them, which takes
anything and fails every connection later; and why a connection that could not be made was not."""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
from pathlib import Path

from timbrel.errors import refusal
from timbrel.settings import CA_VARIABLE, CERTIFICATE_VARIABLE, KEY_VARIABLE, SYSTEM, Security, parse_address

PROBE_SECONDS = 5.0
"""How long a server that was not available is asked why."""

_HTTP2 = ["h2"]

_SPEAKS_NO_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "UNEXPECTED_EOF_WHILE_READING")
"""Reasons of OpenSSL's, where what answers is no TLS."""

_OUT_OF_TIME = (9, 10)
"""OpenSSL's X509_V_ERR_CERT_NOT_YET_VALID and _HAS_EXPIRED."""


def read_pem(security: Security) -> tuple[bytes | None, bytes | None, bytes | None]:
    """Reads the files of the authorities, the key and the certificate; None where none is named, or the
    system's are meant. Raises InvalidRequestError: one cannot be read or is no PEM file, or key and
    certificate do not go together."""
    authorities = _system_authorities() if _is_system(security) else _read("ca", security.ca)
    key, certificate = _read("key", security.key), _read("certificate", security.certificate)
    _context(security)
    return authorities, key, certificate


async def why_unavailable(security: Security, address: str) -> str | None:
    """Asks a server, HOST:PORT, that gRPC could not reach, and says what does not fit; None where nothing can
    be told."""
    context = _context(security) if security.is_encrypted else _trusting_context()
    context.set_alpn_protocols(_HTTP2)
    at = parse_address(address)
    try:
        async with asyncio.timeout(PROBE_SECONDS):
            reader, writer = await asyncio.open_connection(at.host.strip("[]"), at.port, ssl=context)
            with contextlib.closing(writer):
                # A server that wants another certificate hangs up only now, in TLS 1.3; others say hello.
                hung_up = not await reader.read(1)
    except ssl.SSLError as error:
        return _reason(security, error)
    except (OSError, TimeoutError):
        return None
    if security.is_encrypted:
        return _wants_certificate(security) if hung_up else None
    return (
        f"it speaks TLS, and this client was not told to: set {CA_VARIABLE}, or Security(ca=...), to the file"
        f" of the authority that signed its certificate, or to {SYSTEM!r}"
    )


def _reason(security: Security, error: ssl.SSLError) -> str | None:
    """Says what OpenSSL's error means; None where that is of no help."""
    said = error.reason or ""
    if isinstance(error, ssl.SSLCertVerificationError):
        if "mismatch" in error.verify_message:
            return f"its certificate is of another name ({error.verify_message}): call it by one of its own"
        if error.verify_code in _OUT_OF_TIME:
            why = error.verify_message
            return f"its {why}: whoever runs it has to renew it, unless this computer's clock is wrong"
        return (
            f"its certificate cannot be trusted ({error.verify_message}): {CA_VARIABLE}, or Security(ca=...),"
            f" is {str(security.ca or SYSTEM)!r}, and must name the authority that signed it"
        )
    if "ALERT" in said and ("CERTIFICATE" in said or "UNKNOWN_CA" in said):
        return _wants_certificate(security)
    if security.is_encrypted and said in _SPEAKS_NO_TLS:
        field = "ca" if security.ca is not None else "certificate"
        return (
            f"it does not speak TLS, and this client was told to: unset {_VARIABLES[field]}, or leave out"
            f" Security({field}=...)"
        )
    return None


def _wants_certificate(security: Security) -> str:
    brought = "none was shown" if security.certificate is None else f"not {security.certificate}"
    return (
        "it hangs up, as servers do that ask their callers for a certificate of an authority of theirs"
        f" ({brought}): set {CERTIFICATE_VARIABLE} and {KEY_VARIABLE}, or Security's certificate and key"
    )


def _trusting_context() -> ssl.SSLContext:
    """Only to see whether what answers is TLS: nothing is sent."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _context(security: Security) -> ssl.SSLContext:
    """The like of what gRPC is to have; raises InvalidRequestError."""
    context = ssl.create_default_context()
    if not _is_system(security):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        try:
            context.load_verify_locations(security.ca)
        except ssl.SSLError:
            raise refusal(
                "ca",
                f"{security.ca} holds no certificate (PEM): {CA_VARIABLE}, or Security(ca=...), names the"
                " server's authority",
            ) from None
    if security.certificate is not None:
        try:
            # A key under a passphrase would ask for it on the terminal.
            context.load_cert_chain(security.certificate, security.key, password=lambda: "")
        except ssl.SSLError:
            raise refusal(
                "certificate",
                f"{security.certificate} and {security.key} are no certificate and its key (PEM, without a"
                f" passphrase): {CERTIFICATE_VARIABLE} and {KEY_VARIABLE}, or Security, name them",
            ) from None
    return context


def _system_authorities() -> bytes | None:
    """Reads those that this system trusts, PEM. None: it names no files of them, or gRPC's own variable does;
    then gRPC goes by a list that it brings, which knows no company's own authority."""
    paths = ssl.get_default_verify_paths()
    files = [Path(paths.cafile)] if paths.cafile else []
    if not files and paths.capath:
        files = sorted(Path(paths.capath).glob("*.[0-9]"))
    if not os.environ.get("GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"):
        with contextlib.suppress(OSError):
            return b"\n".join(file.read_bytes() for file in files) or None
    return None


def _is_system(security: Security) -> bool:
    return security.ca is None or security.ca == SYSTEM


_VARIABLES = {"ca": CA_VARIABLE, "certificate": CERTIFICATE_VARIABLE, "key": KEY_VARIABLE}


def _read(field: str, file: str | Path | None) -> bytes | None:
    try:
        return None if file is None else Path(file).read_bytes()
    except OSError as error:
        raise refusal(
            field, f"{file}: {error.strerror}; {_VARIABLES[field]}, or Security, names it"
        ) from None
