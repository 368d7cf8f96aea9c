"""Bearer tokens, and whose they are."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from pathlib import Path

from timbrel_server.settings.options import ConfigError

DEFAULT_CALLER = "default"
"""Whose a token is that was given without a name."""

SHORTEST_TOKEN = 8


class Tokens:
    """The tokens that are let in. They are kept as digests only.

    Every one is compared, in constant time: how long it takes tells nothing of any of them.
    """

    def __init__(self, by_name: Mapping[str, str]) -> None:
        self._names_by_digest = [(_digest(token.encode()), name) for name, token in by_name.items()]

    def find(self, presented: bytes) -> str | None:
        """The name of the caller whose token this is."""
        digest = _digest(presented)
        found: str | None = None
        for known, name in self._names_by_digest:
            if hmac.compare_digest(digest, known):
                found = name
        return found


def read_tokens(file: Path) -> Tokens:
    """Reads lines `NAME:TOKEN`; empty ones and those that begin with # are left out.

    Raises:
        ConfigError: a line is none, or there is none at all; no message holds a token.
        OSError: the file cannot be read.
    """
    by_name: dict[str, str] = {}
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, colon, token = (part.strip() for part in line.partition(":"))
        if not colon or not name:
            raise ConfigError(f"{file}, line {number}: expected NAME:TOKEN")
        if len(token) < SHORTEST_TOKEN or any(character.isspace() for character in token):
            raise ConfigError(
                f"{file}, line {number}: the token of {name!r} must have"
                f" {SHORTEST_TOKEN} characters at least, none of them blank"
            )
        if name in by_name:
            raise ConfigError(f"{file}, line {number}: {name!r} has a token already")
        by_name[name] = token
    if not by_name:
        raise ConfigError(f"{file}: the token file is empty: expected lines NAME:TOKEN")
    return Tokens(by_name)


def _digest(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()
