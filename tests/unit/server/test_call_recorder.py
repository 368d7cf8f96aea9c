"""What becomes of calls that the server's end comes amid."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import pytest

from timbrel_server.config import ServerConfig
from timbrel_server.errors import presentable
from timbrel_server.rpc.call_recorder import CallObserver, CallRecorder, CallsInProgress
from timbrel_server.rpc.connections import Connections
from timbrel_server.rpc.handlers import Method, Sender


class Codes(CallObserver):
    """Keeps the statuses of calls that have ended."""

    def __init__(self) -> None:
        self.codes: asyncio.Queue[str] = asyncio.Queue()

    def call_began(self, service: str, method: str, kind: str) -> None:
        pass

    def call_ended(self, service: str, method: str, kind: str, code: str, seconds: float) -> None:
        self.codes.put_nowait(code)


async def read(context: Any) -> None:
    await context.read()


async def answer_an_item(context: Any) -> None:
    try:
        await Sender(context)(b"")
    except Exception as error:
        presentable(error, "Method")  # which tells the log


@pytest.mark.parametrize("go_on", [read, answer_an_item])
def test_a_call_that_goes_on_for_a_moment_after_grpc_has_stopped_was_cut(
    go_on: Callable[[Any], Awaitable[None]], caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> str:
        calls, observer = CallsInProgress(), Codes()
        begun, stopped = asyncio.Event(), asyncio.Event()

        async def answer(bodies: Any, context: Any) -> None:
            begun.set()
            with contextlib.suppress(asyncio.CancelledError):  # which may come late: the loop has much to do
                await asyncio.sleep(60.0)
            await stopped.wait()
            async with asyncio.TaskGroup():  # as streams of requests are answered
                await go_on(context)

        recorder = CallRecorder(calls, Connections(ServerConfig()), observer)
        recorded = recorder.around(answer, Method("/some.Service/Method", "stream_stream"))
        server = grpc.aio.server()
        handlers = {"Method": grpc.stream_stream_rpc_method_handler(recorded)}
        server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("some.Service", handlers)])
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        channel: Any = grpc.aio.insecure_channel(f"127.0.0.1:{port}")
        async with channel:
            call = channel.stream_stream("/some.Service/Method")()
            await begun.wait()
            calls.are_cut = True
            await server.stop(0.0)
            stopped.set()
            code = await observer.codes.get()
            call.cancel()
        return code

    assert asyncio.run(asyncio.wait_for(test(), 60.0)) == "UNAVAILABLE"
    assert "internal error" not in caplog.text
