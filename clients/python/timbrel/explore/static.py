"""Sends the page and its assets: small files, compressed, asked for again only where they have changed."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from timbrel.errors import NotFoundError
from timbrel.explore.options import INDEX

MEDIA_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
"""Endings of what is served; other files of the folder are not."""

_NAME = re.compile(r"(\w[\w.-]*/)*\w[\w.-]*", re.ASCII)
"""Names that are looked for: relative ones. Of a network name that is looked at, Windows logs in there."""

SMALLEST_COMPRESSED = 512

ICON = "icon.svg"
NO_PAGE = "The explorer's page is not installed: index.html is missing."


@dataclass(frozen=True)
class _Asset:
    """Holds a file as it is sent."""

    content: bytes
    compressed: bytes | None
    media_type: str
    etag: str


class WebFolder:
    """Sends the files of a folder. A file that changes there is seen at once.

    Starlette's StaticFiles with its GZipMiddleware would send compressed to callers that refuse it (`q=0`),
    and guess media types from the machine's own table, which may say that scripts are plain text.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder.resolve()

    def identity(self) -> str:
        """Tells this page from another, wherever it lies: a hash of all that is served, as it is now."""
        told = hashlib.sha256()
        for name in sorted(each.relative_to(self._folder).as_posix() for each in self._folder.rglob("*")):
            with contextlib.suppress(OSError, NotFoundError):
                path = self._find(name)
                facts = path.stat()
                told.update(f"{name}\n{_read(path, facts.st_mtime_ns, facts.st_size).etag}\n".encode())
        return told.hexdigest()[:20]

    def index(self, request: Request) -> Response:
        """Sends the page."""
        try:
            return self._respond(request, INDEX)
        except NotFoundError:
            return PlainTextResponse(NO_PAGE)

    def favicon(self, request: Request) -> Response:
        """Sends the page's icon, which browsers ask for unasked."""
        try:
            return self._respond(request, ICON)
        except NotFoundError:
            return Response(status_code=204)

    def asset(self, request: Request) -> Response:
        """Sends a file below the folder; raises NotFoundError where none of this name is to be served."""
        return self._respond(request, request.path_params["path"])

    def _respond(self, request: Request, name: str) -> Response:
        try:
            path = self._find(name)
            facts = path.stat()
            asset = _read(path, facts.st_mtime_ns, facts.st_size)
        except OSError:
            raise _missing(name) from None
        headers = {"etag": asset.etag, "cache-control": "no-cache", "vary": "accept-encoding"}
        if _knows(request.headers.get("if-none-match", ""), asset.etag):
            return Response(status_code=304, headers=headers)
        content = asset.content
        if asset.compressed is not None and _takes_gzip(request.headers.get("accept-encoding", "")):
            content, headers["content-encoding"] = asset.compressed, "gzip"
        return Response(content, headers={**headers, "content-type": asset.media_type})

    def _find(self, name: str) -> Path:
        """Finds a path within the folder, whatever the name tries."""
        if _NAME.fullmatch(name):
            path = (self._folder / name).resolve()
            if path.is_relative_to(self._folder) and path.suffix in MEDIA_TYPES and path.is_file():
                return path
        raise _missing(name)


@lru_cache(maxsize=256)
def _read(path: Path, _modified: int, _n_bytes: int) -> _Asset:
    """Reads a file, again only where its time or size is another."""
    content = path.read_bytes()
    return _Asset(
        content=content,
        compressed=gzip.compress(content, mtime=0) if len(content) >= SMALLEST_COMPRESSED else None,
        media_type=MEDIA_TYPES[path.suffix],
        etag=f'W/"{hashlib.sha256(content).hexdigest()[:20]}"',
    )


def _missing(name: str) -> NotFoundError:
    return NotFoundError(f"there is no /static/{name[:80]}")


def _knows(header: str, etag: str) -> bool:
    """Tells whether If-None-Match names this version; compared weakly, as RFC 9110 (13.1.2) asks."""
    named = [each.strip() for each in header.split(",")]
    return "*" in named or etag in named or etag.removeprefix("W/") in named


def _takes_gzip(header: str) -> bool:
    """Tells whether Accept-Encoding allows gzip."""
    for part in header.lower().split(","):
        name, _, parameters = part.partition(";")
        if name.strip() in ("gzip", "*"):
            return parameters.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False
