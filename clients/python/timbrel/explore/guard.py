"""Who may ask the explorer, and what browsers may do with its answers.

Against DNS rebinding: the Host must be one of ours. Against other sites in the same browser: the Origin,
where a browser states it, must be the Host's; a WebSocket must state it; and /api answers no request that the
browser says was made by another site. Links from anywhere to the page itself are fine.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from timbrel.explore.faults import Fault
from timbrel.explore.hosts import AllowedHosts

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


class Guard:
    """Stands before the whole application."""

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

        if reason is None:
            await self._app(scope, receive, send_guarded)
        else:
            refusal = Fault("invalid_request", reason, 403)
            await JSONResponse(refusal.to_json(), refusal.status)(scope, receive, send_guarded)

    def _objection(self, scope: Scope) -> str | None:
        """Why this request is refused; None where it is not."""
        headers = Headers(scope=scope)
        named = headers.getlist("host")
        if len(named) != 1 or not self._hosts.allows(named[0]):
            return "the Host is not the explorer's: open the address that `timbrel explore` printed"
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
    """Whether pages of this Origin came from this Host."""
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and parts.netloc.lower() == host.strip().lower()
