"""The locator finds recordings on the timbre map: beside the engine, one at a time."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from timbrel_bundle.bundle import Bundle
from timbrel_bundle.errors import AudioError
from timbrel_bundle.timbre_encoder import Heard, TimbreEncoder
from timbrel_server.errors import InvalidRequestError
from timbrel_server.limits import Quota


@dataclass(frozen=True, eq=False)
class LocateRequest:
    """A recording to be found on the timbre map. Whether there is a note in it is not known yet."""

    audio: npt.NDArray[np.float32]  # [samples], at least 1

    sample_rate: int
    """Hz."""


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
        self._n_in_hand = 0

    @property
    def n_in_hand(self) -> int:
        """Recordings that are waiting or being worked on."""
        return self._n_in_hand

    async def locate(self, request: LocateRequest, account: str = "") -> Heard:
        """Finds the point of a recording, and what it may be of.

        A caller that gives up before its turn costs nothing.

        Args:
            account: whose turn it takes.

        Raises:
            InvalidRequestError: the recording is silent or too short.
        """
        self._n_in_hand += 1
        try:
            with await self._turns.wait(account):
                return await asyncio.get_running_loop().run_in_executor(self._thread, self._locate, request)
        except AudioError as error:
            raise InvalidRequestError([("audio", str(error))]) from None
        finally:
            self._n_in_hand -= 1

    def close(self) -> None:
        """Waits for the one being worked on."""
        self._thread.shutdown(wait=True, cancel_futures=True)

    def _locate(self, request: LocateRequest) -> Heard:
        """Locates one, on the thread."""
        if self._encoder is None:
            self._encoder = TimbreEncoder(self._bundle, n_threads=1)
        return self._encoder.hear(request.audio, request.sample_rate)
