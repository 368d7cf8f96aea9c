"""The servers of a job: one, several that share the work, or a private one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType

from timbrel.client import Client
from timbrel.errors import DeadlineExceededError, OverloadedError, UnavailableError
from timbrel.library.source import ClientSource, said_of
from timbrel.settings import SERVER_VARIABLE, parse_address

SILENT_SECONDS = 30.0
"""A server that gives nothing for so long is away: what it owes goes to others."""

Connect = Callable[[str | None], Client]
"""Makes the client of a server's address; of None: of a private server."""


class JobServers:
    """A client for each server of a job, as a context manager."""

    def __init__(self, addresses: Sequence[str], connect: Connect, tell: Callable[[str], None]) -> None:
        """
        Args:
            addresses: none means a private server.
            tell: called with one line for each server that is not there to begin with.
        """
        self._clients = {name or "the private server": connect(name) for name in addresses or (None,)}
        self._tell = tell
        self._first: Client | None = None
        self.own = not addresses
        """Whether the server is a private one, which nobody brings back."""

    def __enter__(self) -> JobServers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with ExitStack() as stack:
            for client in self._clients.values():
                stack.callback(client.close)

    @property
    def client(self) -> Client:
        """The first that answers: it tells of the bundle, and brings the codec.

        Raises:
            TimbrelError: none does.
        """
        if self._first is None:
            self._first = self._find()
        return self._first

    def source(self, patience_seconds: float) -> ClientSource:
        """Where the job's notes come from: all servers."""
        return ClientSource(
            self._clients, patience_seconds=0.0 if self.own else patience_seconds, tell=self._tell
        )

    def _find(self) -> Client:
        absent: list[Exception] = []
        for name, client in self._clients.items():
            try:
                client.model()
            except (UnavailableError, OverloadedError, DeadlineExceededError) as error:
                absent.append(error)
                if len(absent) == len(self._clients):
                    raise
                self._tell(f"{said_of(name, error)}; beginning without it")
            else:
                return client
        raise absent[-1]


def server_addresses(given: Iterable[str] | None, environment: Mapping[str, str]) -> list[str]:
    """HOST:PORT of each server: of the options, else of TIMBREL_SERVER. Both may join several by commas.

    Raises:
        InvalidRequestError: one makes no sense.
    """
    texts = list(given or [environment.get(SERVER_VARIABLE, "")])
    parts = [part.strip() for text in texts for part in text.split(",")]
    wanted = [part for part in parts if part] if given is None else parts
    return list(dict.fromkeys(str(parse_address(part)) for part in wanted))
