"""Whole notes, written by an engine without a server."""

from __future__ import annotations

import queue
from collections.abc import Sequence
from functools import partial

import numpy as np
import numpy.typing as npt
from benchmarks.harness.streams import Deliveries

from timbrel_bundle.bundle import Bundle
from timbrel_server.decoder.runner import Runner
from timbrel_server.decoder.sessions import DecoderSessions
from timbrel_server.engine.engine_pool import EnginePool
from timbrel_server.engine.request import Delivery, Frame, NoteRequest, RequestHandle
from timbrel_server.served_bundles.served_bundle import token_layout


def write_notes(
    bundle: Bundle, sessions: DecoderSessions, requests: Sequence[NoteRequest], n_slots: int
) -> list[npt.NDArray[np.int64]]:
    """The codes [T, K] of each request's note, in their order."""
    runner = Runner(sessions, bundle.manifest, n_slots)
    frames: list[list[Frame]] = [[] for _ in requests]
    ended: queue.SimpleQueue[int] = queue.SimpleQueue()

    def post(deliveries: Deliveries) -> None:
        for ticket, delivery in deliveries:
            ticket.receive(delivery)

    def receive(number: int, delivery: Delivery) -> None:
        frames[number].extend(delivery.frames)
        if delivery.error is not None or delivery.finish is not None:
            ended.put(number)

    engine = EnginePool([runner], token_layout(bundle.manifest), len(requests), post)
    engine.start()
    for number, request in enumerate(requests):
        engine.accept(RequestHandle(request, partial(receive, number)))
    for _ in requests:
        ended.get()
    engine.stop()
    n_codebooks = bundle.manifest.codec.n_codebooks
    return [np.array(each, dtype=np.int64).reshape(-1, n_codebooks) for each in frames]
