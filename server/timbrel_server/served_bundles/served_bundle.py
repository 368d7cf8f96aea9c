"""The bundles that are being served, by name: each with its files, its engine and what runs beside it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from timbrel_bundle.bundle import Bundle
from timbrel_bundle.manifest import codebook_delay, release_frames
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb
from timbrel_server.decoder.sessions import DecoderSessions
from timbrel_server.engine.engine_pool import EnginePool
from timbrel_server.engine.progress import TokenLayout
from timbrel_server.errors import BundleMismatchError, NotFoundError, UnavailableError, shortened
from timbrel_server.options import ConfigError
from timbrel_server.served_bundles.codec_decoding import CodecDecoding
from timbrel_server.served_bundles.locator import Locator


class OpenFiles:
    """The files of a folder, each opened once for all who read it. From any thread."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._descriptors: dict[str, int] = {}

    def read(self, name: str, offset: int, n_bytes: int) -> bytes:
        """Reads so many bytes from an offset on; fewer at the end. Raises OSError."""
        with self._lock:
            descriptor = self._descriptors.get(name)
            if descriptor is None:
                flags = os.O_RDONLY | getattr(os, "O_BINARY", 0)
                descriptor = self._descriptors[name] = os.open(self._folder / name, flags)
            if not hasattr(os, "pread"):  # Windows: one after the other
                os.lseek(descriptor, offset, os.SEEK_SET)
                return os.read(descriptor, n_bytes)
        return os.pread(descriptor, n_bytes, offset)

    async def read_soon(self, name: str, offset: int, n_bytes: int) -> bytes:
        """Reads as `read` does: at once what is in memory, and on a thread what is not."""
        descriptor = self._descriptors.get(name)
        if descriptor is not None and hasattr(os, "RWF_NOWAIT"):
            data = bytearray(n_bytes)
            with contextlib.suppress(OSError):
                return bytes(data[: os.preadv(descriptor, [data], offset, os.RWF_NOWAIT)])
        return await asyncio.to_thread(self.read, name, offset, n_bytes)

    def close(self) -> None:
        """Closes them all."""
        with self._lock:
            for descriptor in self._descriptors.values():
                os.close(descriptor)
            self._descriptors.clear()


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
        self.max_seconds = max_seconds
        """For how long any key may be held; None where the server does not bound it."""
        self.name = name or bundle.manifest.name
        self.locator = Locator(bundle)
        self.decoding = CodecDecoding(bundle)
        self.files = OpenFiles(bundle.path)
        self.engine: EnginePool | None = None
        self._sessions: DecoderSessions | None = None
        self._n_in_hand = 0

    @property
    def sessions(self) -> DecoderSessions:
        """The graphs that the engine runs. Raises UnavailableError before `attach`."""
        if self._sessions is None:
            raise UnavailableError("the server is starting")
        return self._sessions

    @property
    def in_use(self) -> bool:
        """Whether some request still needs it."""
        return self._n_in_hand > 0

    @contextlib.contextmanager
    def in_hand(self) -> Iterator[None]:
        """Keeps it from being freed, though another may have taken its place: whatever was asked of it is
        written, decoded, located and answered by it alone. For one event loop."""
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
        """Returns the engine. Raises UnavailableError before `attach`."""
        if self.engine is None:
            raise UnavailableError("the server is starting")
        return self.engine

    def close(self) -> None:
        """Gives up what is in hand and frees everything. Threads have ended when this returns: never, where
        one has stalled."""
        self.locator.close()
        self.decoding.close()
        self.files.close()
        if self.engine is not None:
            self.engine.stop()


class BundleRegistry:
    """Finds the bundle of a request. The first is meant where a request names none.

    A bundle may be replaced between two look-ups: a call looks its bundle up once and keeps to it.
    For one event loop.
    """

    def __init__(self, bundles: Sequence[ServedBundle]) -> None:
        """
        Args:
            bundles: at least one, of different names.
        """
        self._by_name = {served.name: served for served in bundles}
        self.replaced: set[ServedBundle] = set()
        """Those whose place others have taken, until they are forgotten."""

    def __iter__(self) -> Iterator[ServedBundle]:
        return iter(tuple(self._by_name.values()))

    def find(self, name: str = "", bundle_hash: str = "") -> ServedBundle:
        """Returns the bundle of this name, or the first.

        Raises:
            NotFoundError: none has that name.
            BundleMismatchError: it has another hash than expected.
        """
        first = next(iter(self._by_name.values()))
        served = self._by_name.get(name) if name else first
        if served is None:
            names = ", ".join(repr(known) for known in self._by_name)
            raise NotFoundError(f"there is no bundle {shortened(name)!r}; {names} is being served")
        if bundle_hash not in ("", served.manifest.bundle_hash):
            raise BundleMismatchError(expected=bundle_hash, served=served.manifest.bundle_hash)
        return served

    def check_room(self, caller: str) -> None:
        """Raises OverloadedError where any note of this caller would be refused. Where there are several
        bundles, only a request says which queue it is for."""
        first, *others = self._by_name.values()
        if first.engine is not None and not others:
            first.engine.check_room(caller)

    def replace(self, served: ServedBundle) -> None:
        """Puts a bundle in the place of the one of its name, which may still be in use."""
        self.replaced.add(self._by_name[served.name])
        self._by_name[served.name] = served

    def forget(self, served: ServedBundle) -> None:
        """Says that one that was replaced is no longer in use."""
        self.replaced.discard(served)


def frame_rate(manifest: pb.Manifest) -> float:
    """Returns the frames per second."""
    return manifest.codec.sample_rate / manifest.codec.hop_length


def token_layout(manifest: pb.Manifest) -> TokenLayout:
    """Returns what the tokens of this bundle's decoder mean."""
    return TokenLayout(
        n_codebooks=manifest.codec.n_codebooks,
        bos_id=manifest.model.bos_id,
        eos_id=manifest.model.eos_id,
        max_frames=manifest.model.max_frames,
        codes_per_semitone=manifest.model.codes_per_semitone,
        code_offset=manifest.model.code_offset,
        codebook_delay=codebook_delay(manifest.model),
        release_frames=release_frames(manifest.model),
    )


def _shortened(manifest: pb.Manifest, max_seconds: float | None) -> pb.Manifest:
    """Returns the manifest as callers see it: requests are held against its ranges."""
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
