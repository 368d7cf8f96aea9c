"""The locator finds recordings on the timbre map: beside the engine, one at a time."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

from timbrel_bundle.bundle import Bundle
from timbrel_bundle.codec import Audio
from timbrel_bundle.errors import AudioError
from timbrel_bundle.timbre_encoder import Heard, TimbreEncoder
from timbrel_server.errors import InvalidRequestError
from timbrel_server.limits import Quota


class Locator:
    """Runs the timbre encoder on a thread of its own, off the event loop. For one event loop.

    One thread, and one thread within its operators, so that the engine keeps the other cores. The graphs are
    loaded with the first recording, and kept.
    """

    def __init__(self, bundle: Bundle) -> None:
        self._bundle = bundle
        self._turns = Quota("recordings being worked on", 1, 1.0)
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="timbrel-locator")
        self._encoder: TimbreEncoder | None = None

    async def locate(self, audio: Audio, sample_rate: int, account: str = "") -> Heard:
        """Finds the point of a recording, and what it may be of.

        A caller that gives up before its turn costs nothing.

        Args:
            audio: float32 [samples], at least 1.
            sample_rate: Hz.
            account: whose turn it takes.

        Raises:
            InvalidRequestError: the recording is silent or too short.
        """
        try:
            with await self._turns.wait(account):
                loop = asyncio.get_running_loop()
                return await loop.run_in_executor(self._thread, self._locate, audio, sample_rate)
        except AudioError as error:
            raise InvalidRequestError([("audio", str(error))]) from None

    def close(self) -> None:
        """Waits for the one being worked on."""
        self._thread.shutdown(wait=True, cancel_futures=True)

    def _locate(self, audio: Audio, sample_rate: int) -> Heard:
        """Locates one, on the thread."""
        if self._encoder is None:
            self._encoder = TimbreEncoder(self._bundle, n_threads=1)
        return self._encoder.hear(audio, sample_rate)
