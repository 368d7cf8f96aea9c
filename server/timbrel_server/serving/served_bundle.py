"""A bundle that is being served: its files, the engine that writes its notes, and what runs beside it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from timbrel_bundle.bundle import Bundle
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb
from timbrel_server.api.codec_decoding import CodecDecoding
from timbrel_server.api.locator import Locator
from timbrel_server.decoder.sessions import DecoderSessions
from timbrel_server.engine.engine_pool import EnginePool
from timbrel_server.errors import UnavailableError
from timbrel_server.settings.options import ConfigError


class ServedBundle:
    """One bundle and all that works for it. Without an engine until `attach`."""

    def __init__(self, bundle: Bundle, name: str = "", max_seconds: float | None = None) -> None:
        """
        Args:
            name: what requests call it; by default the manifest's own.
            max_seconds: keys may be held for no longer; None where only the bundle's own range says so.

        Raises:
            ConfigError: the bundle has no notes that are so short.
        """
        self.bundle = bundle
        self.manifest = _shortened(bundle.manifest, max_seconds)
        self.name = name or bundle.manifest.name
        self.locator = Locator(bundle)
        self.decoding = CodecDecoding(bundle)
        self.engine: EnginePool | None = None
        self._sessions: DecoderSessions | None = None
        self._n_in_hand = 0

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
        return self._n_in_hand + n_notes + self.locator.n_in_hand + self.decoding.n_streams > 0

    @contextlib.contextmanager
    def in_hand(self) -> Iterator[None]:
        """Keeps it from being freed, though another may have taken its place: a note that was asked of it is
        written, decoded and answered by it alone. For one event loop."""
        self._n_in_hand += 1
        try:
            yield
        finally:
            self._n_in_hand -= 1

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


def _shortened(manifest: pb.Manifest, max_seconds: float | None) -> pb.Manifest:
    """The manifest as callers see it: requests are held against its ranges."""
    if max_seconds is None or max_seconds >= manifest.ranges.seconds_max:
        return manifest
    if max_seconds < manifest.ranges.seconds_min:
        raise ConfigError(
            f"max_seconds {max_seconds:g} is too short for {manifest.name}, whose notes are held for"
            f" {manifest.ranges.seconds_min:g} seconds at least"
        )
    lowered = pb.Manifest()
    lowered.CopyFrom(manifest)
    lowered.ranges.seconds_max = max_seconds
    return lowered
