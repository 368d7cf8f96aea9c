"""A bundle that is being served: its files, the engine that writes its notes, and what runs beside it."""

from __future__ import annotations

from timbrel_bundle.bundle import Bundle
from timbrel_server.api.codec_decoding import CodecDecoding
from timbrel_server.api.locator import Locator
from timbrel_server.decoder.sessions import DecoderSessions
from timbrel_server.engine.engine_pool import EnginePool
from timbrel_server.errors import UnavailableError


class ServedBundle:
    """One bundle and all that works for it. Without an engine until `attach`."""

    def __init__(self, bundle: Bundle, name: str = "") -> None:
        """
        Args:
            name: what requests call it; by default the manifest's own.
        """
        self.bundle = bundle
        self.manifest = bundle.manifest
        self.name = name or bundle.manifest.name
        self.locator = Locator(bundle)
        self.decoding = CodecDecoding(bundle)
        self.engine: EnginePool | None = None
        self._sessions: DecoderSessions | None = None

    @property
    def sessions(self) -> DecoderSessions:
        """What the engine runs. Raises UnavailableError before `attach`."""
        if self._sessions is None:
            raise UnavailableError("the server is starting")
        return self._sessions

    @property
    def in_use(self) -> bool:
        """Whether some request still needs it."""
        n_notes = self.engine.n_occupied + self.engine.n_waiting if self.engine is not None else 0
        return n_notes + self.locator.n_in_hand + self.decoding.n_streams > 0

    def attach(self, engine: EnginePool, sessions: DecoderSessions) -> None:
        """Gives it its engine. Requests that need one are refused until then."""
        self._sessions = sessions
        self.engine = engine

    def require_engine(self) -> EnginePool:
        """Raises UnavailableError before `attach`."""
        if self.engine is None:
            raise UnavailableError("the server is starting")
        return self.engine

    def close(self, engine_seconds: float | None = None) -> None:
        """Gives up what is in hand and frees everything; threads have ended when this returns.

        Args:
            engine_seconds: wait so long for the engine's thread, which may have stalled.
        """
        self.locator.close()
        self.decoding.close()
        if self.engine is not None:
            self.engine.stop(engine_seconds)
