"""Who is calling, for whoever shares things out between callers, and for the log."""

from __future__ import annotations

from contextvars import ContextVar

from timbrel_server.wire.grpc_types import Context

_caller: ContextVar[str] = ContextVar("caller", default="")


def current_caller() -> str:
    """Whom the call that is being answered here comes from: `token:NAME`, `certificate:SUBJECT`, `peer:HOST`.

    Empty outside of a call.
    """
    return _caller.get()


def set_caller(name: str) -> None:
    """Says for this task whom its call comes from."""
    _caller.set(name)


def name_by_certificate(context: Context) -> str | None:
    """The subject of the caller's certificate; None where its connection brought none."""
    presented = context.auth_context() or {}
    for key in ("x509_subject_alternative_name", "x509_common_name"):
        if values := presented.get(key):
            return f"certificate:{next(iter(values)).decode(errors='replace')}"
    return None


def name_by_host(context: Context) -> str:
    """Where the caller's connection comes from."""
    return f"peer:{peer_host(context.peer() or '')}"


def peer_host(peer: str) -> str:
    """The host of gRPC's `ipv4:HOST:PORT`, `ipv6:[HOST]:PORT` or `unix:PATH`."""
    kind, _, address = peer.partition(":")
    return address.rpartition(":")[0].replace("%5B", "").replace("%5D", "") if kind != "unix" else "unix"
