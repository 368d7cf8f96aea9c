"""The call that is being answered: its id, whom it comes from, and how its notes fare."""

from __future__ import annotations

import ipaddress
import itertools
import re
import secrets
import time
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache

from timbrel_server.engine.request import Delivery, RequestHandle
from timbrel_server.rpc.handlers import Context

REQUEST_ID_KEY = "x-request-id"
"""Metadata: an id that the caller chose; one is made where there is none. It comes back with the status."""

_VALID_ID = re.compile(r"[A-Za-z0-9._:/+=@-]{1,128}")

_PROCESS = secrets.token_hex(6)
_NUMBERS = itertools.count(1)
"""Together they make ids: to ask the system for random bytes at each call takes longer than all else here."""

_request_id: ContextVar[str] = ContextVar("request_id", default="")
_caller: ContextVar[str] = ContextVar("caller", default="")
_account: ContextVar[str] = ContextVar("account", default="")


def current_request_id() -> str:
    """Returns the id of the call that is being answered here; empty outside of one."""
    return _request_id.get()


def begin_request(given: str) -> str:
    """Makes this task's log lines belong to a request; returns its id.

    Args:
        given: the caller's own id. One that could forge a log line, or is empty or long, is replaced.
    """
    request_id = given if _VALID_ID.fullmatch(given) else f"{_PROCESS}-{next(_NUMBERS):x}"
    _request_id.set(request_id)
    return request_id


def current_caller() -> str:
    """Returns whom the call that is being answered here comes from: `token:NAME`, `certificate:SUBJECT`,
    `peer:HOST`.

    Empty outside of a call.
    """
    return _caller.get()


def current_account() -> str:
    """Returns what the call is put down to where callers take turns and have their shares: the caller, but
    of strangers the network they come from (`network_of`), for addresses cost nothing."""
    return _account.get()


def set_caller(name: str, account: str | None = None) -> None:
    """Says for this task whom its call comes from, and what it is put down to: by default the caller."""
    _caller.set(name)
    _account.set(name if account is None else account)


def name_by_certificate(context: Context) -> str | None:
    """Returns the subject and the alternative names of the caller's certificate, for several may have either;
    None where its connection brought none."""
    presented = context.auth_context() or {}
    keys = ("x509_subject", "x509_subject_alternative_name")
    names = [name.decode(errors="replace") for key in keys for name in presented.get(key, ()) if name]
    return f"certificate:{';'.join(names)}" if names else None


@lru_cache(maxsize=1024)
def network_of(name: str) -> str:
    """Returns the network of a `peer:HOST`: the /24 of an IPv4 address, the /64 of an IPv6 one; what has no
    address stays as it is."""
    kind, _, host = name.partition(":")
    try:
        address: ipaddress.IPv4Address | ipaddress.IPv6Address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return name
    if isinstance(address, ipaddress.IPv6Address):
        address = address.ipv4_mapped or address
    n_bits = 24 if address.version == 4 else 64
    return f"{kind}:{ipaddress.ip_network((address, n_bits), strict=False)}"


def name_by_host(context: Context) -> str:
    """Returns where the connection comes from: gRPC has `ipv4:HOST:PORT` or `ipv6:[HOST]:PORT`."""
    _, _, address = (context.peer() or "").partition(":")
    host = address.rpartition(":")[0].replace("%5B", "").replace("%5D", "")
    return f"peer:{host}"


@dataclass
class CallFacts:
    """Counts the notes of one call, and says how long its caller was kept waiting: where a call has many
    notes, by the slowest. In seconds from a note's acceptance on; None where no note came so far.

    For one event loop.
    """

    n_notes: int = 0
    """Notes that were answered with anything at all."""

    n_frames: int = 0

    queue_wait_seconds: float | None = None
    """Until it had a slot."""

    first_chunk_seconds: float | None = None
    """Until its first frames were on their way."""

    def count(self, handle: RequestHandle, delivery: Delivery, *, first: bool) -> None:
        """A note's reader takes a delivery.

        Args:
            first: whether it is the note's first.
        """
        self.n_frames += len(delivery.frames)
        if first:
            self.n_notes += 1
            waited = time.monotonic() - handle.submitted
            self.first_chunk_seconds = max(self.first_chunk_seconds or 0.0, waited)
            if handle.waited_seconds is not None:
                self.queue_wait_seconds = max(self.queue_wait_seconds or 0.0, handle.waited_seconds)


_facts: ContextVar[CallFacts | None] = ContextVar("call_facts", default=None)


def begin_facts() -> CallFacts:
    """Has the notes that this task and its children ask for be counted from now on."""
    facts = CallFacts()
    _facts.set(facts)
    return facts


def current_facts() -> CallFacts | None:
    """Returns those of the call that is being answered here; None where nobody wants to know."""
    return _facts.get()
