"""A note that comes as fast as it is written: clicks, previews, paths."""

from __future__ import annotations

import contextlib

from timbrel.errors import ServerError, TimbrelError
from timbrel.explore.outbox import StalledError
from timbrel.explore.sounding import Sounding
from timbrel.explore.upstream import Upstream
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb


async def preview(upstream: Upstream, sounding: Sounding, request: pb.GenerateRequest) -> None:
    """Runs until the note is over. Cancelling this task cancels the note at the server.

    Raises:
        StalledError: the page does not take it.
    """
    try:
        async with contextlib.aclosing(upstream.generate(request)) as replies:
            async for reply in replies:
                await sounding.take(reply)
        if not sounding.is_over:
            raise ServerError("the server ended the stream before the note was finished")
    except StalledError:
        raise
    except TimbrelError as error:
        await sounding.fail(error)
