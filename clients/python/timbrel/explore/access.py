"""Decides who may ask the explorer, and what browsers may do with its answers.

Against DNS rebinding: the Host must be one of ours. Against other sites in the same browser: the Origin,
where a browser states it, must be the Host's; a WebSocket must state it; and /api answers no request that the
browser says was made by another site. Links from anywhere to the page itself are fine.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterable
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from timbrel.explore.http_common import ErrorReply
from timbrel.settings import is_loopback

POLICY = "; ".join(
    (
        "default-src 'self'",
        "img-src 'self' blob: data:",
        "media-src 'self' blob: data:",
        "worker-src 'self' blob:",
        "object-src 'none'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
"""Content-Security-Policy: nothing from elsewhere, nothing inline, in nobody's frame."""

SECURITY_HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "permissions-policy": "camera=(), geolocation=(), microphone=(), midi=(self)",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}

OURS = ("same-origin", "none")
"""Values of Sec-Fetch-Site: our own page, or the user's own doing."""

_HOST = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]+\]|[^\s:/\[\]@]+)(?::(?P<port>\d{1,5}))?")


class AllowedHosts:
    """Knows the names that a request's Host may have.

    Always those of the loopback, the host that was asked for, and further names. Where the host is every
    address of the machine, also plain addresses and the machine's own name: a foreign site cannot pose as an
    address, for its pages have its own name in their Host, whatever DNS resolves that to.
    """

    def __init__(self, host: str, further: Iterable[str] = ()) -> None:
        """`host` is listened on: a name, an address, or 0.0.0.0 or :: for all. `further` names are those
        of a reverse proxy, say."""
        self._everywhere = is_wildcard(host)
        own = {host.lower(), *(name.lower() for name in further)}
        if self._everywhere:
            name = socket.gethostname().lower()
            own |= {name, f"{name.partition('.')[0]}.local"}
        self._own = own

    def allows(self, header: str) -> bool:
        """Tells whether a Host header names us. The port is nobody's proof, and forwarded ports change it."""
        match = _HOST.fullmatch(header.strip())
        if match is None:
            return False
        name = match["name"].strip("[]").lower().rstrip(".")
        if name in self._own or is_loopback(name):
            return True
        return self._everywhere and _address(name) is not None


def is_wildcard(host: str) -> bool:
    """Tells whether it stands for every address of the machine."""
    address = _address(host)
    return address is not None and address.is_unspecified


class AccessMiddleware:
    """Stands before the whole application, refuses other sites, and adds the security headers."""

    def __init__(self, app: ASGIApp, hosts: AllowedHosts) -> None:
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        reason = self._objection(scope)
        if scope["type"] == "websocket":
            if reason is None:
                await self._app(scope, receive, send)
            else:
                await receive()
                await send({"type": "websocket.close", "code": 1008})  # before it is accepted: 403
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS.items():
                    headers[name] = value
            await send(message)

        app = self._app if reason is None else ErrorReply("invalid_request", reason, 403).to_response()
        await app(scope, receive, send_guarded)

    def _objection(self, scope: Scope) -> str | None:
        """Says why this request is refused; None where it is not."""
        headers = Headers(scope=scope)
        named = headers.getlist("host")
        if len(named) != 1 or not self._hosts.allows(named[0]):
            return (
                "the Host is not the explorer's: open the address that `timbrel explore` printed, or tell it"
                " by --allow-host NAME what else it is called"
            )
        origins = headers.getlist("origin")
        if not origins and scope["type"] == "websocket":
            return "a WebSocket has to state its Origin"
        if any(not _is_origin_of(origin, named[0]) for origin in origins):
            return "the Origin is another site"
        site = headers.get("sec-fetch-site", "none")
        if site not in OURS and str(scope["path"]).startswith("/api"):
            return "another site asks"
        return None


def _is_origin_of(origin: str, host: str) -> bool:
    """Tells whether pages of this Origin came from this Host."""
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and parts.netloc.lower() == host.strip().lower()


def _address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None
