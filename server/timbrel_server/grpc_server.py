"""The gRPC server: its services, the middleware around every call, and its address."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, text_format
from google.protobuf.descriptor import FileDescriptor
from grpc_reflection.v1alpha import reflection, reflection_pb2

from timbrel_protos.inference import grpc_service_pb2 as oip
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb
from timbrel_server.config import ServerConfig
from timbrel_server.limits import Limit, Limits
from timbrel_server.open_inference.service import InferenceService
from timbrel_server.rpc.admission import Admission
from timbrel_server.rpc.auth import AuthInterceptor
from timbrel_server.rpc.call_recorder import CallObserver, CallRecorder, CallsInProgress, CallTracer
from timbrel_server.rpc.certificates import Certificates
from timbrel_server.rpc.connections import Connections
from timbrel_server.rpc.handlers import MiddlewareInterceptor, add_service
from timbrel_server.rpc.health import Health
from timbrel_server.rpc.listener import join_address, listen, server_options
from timbrel_server.served_bundles.served_bundle import BundleRegistry
from timbrel_server.signals import StopSignal
from timbrel_server.synthesizer.service import SynthesizerService

_log = logging.getLogger(__name__)

SYNTHESIZER = pb.DESCRIPTOR.services_by_name["Synthesizer"]
INFERENCE = oip.DESCRIPTOR.services_by_name["GRPCInferenceService"]

NOTES = ("Generate", "GenerateBatch", "Play")
"""Methods that are not kept waiting by a flood of calls of others."""

REFLECTION_V1 = "grpc.reflection.v1.ServerReflection"
"""The same messages as v1alpha's under the name that newer tools ask for, some of them for no other."""

LINGER_SECONDS = 1.0
"""Last bytes have this time to arrive, once every call has ended."""


def _admission(
    limits: Limits, connections: Connections, calls: CallsInProgress, bundles: BundleRegistry
) -> Admission:
    synthesizer, inference = f"/{SYNTHESIZER.full_name}", f"/{INFERENCE.full_name}"
    reflections = (f"/{name}/ServerReflectionInfo" for name in (reflection.SERVICE_NAME, REFLECTION_V1))
    return Admission(
        limits,
        connections,
        calls,
        checks={f"{synthesizer}/Generate": bundles.check_room},
        # Who calls these would rather know.
        refusing={name: limits.streams for name in (f"{synthesizer}/Play", *reflections)},
        queueing={
            f"{synthesizer}/GenerateBatch": limits.streams,
            f"{inference}/ModelStreamInfer": limits.streams,
            f"{synthesizer}/Locate": limits.locates,
            f"{synthesizer}/GetFile": limits.files,
        },
    )


class _Symbols:
    """The descriptors that reflection tells of. protobuf's own look-up finds everything but methods, which
    tools ask for, too."""

    def __init__(self) -> None:
        self._pool = descriptor_pool.Default()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pool, name)

    def FindFileContainingSymbol(self, symbol: str) -> FileDescriptor:
        """Raises KeyError where there is no such symbol."""
        try:
            return self._pool.FindFileContainingSymbol(symbol)
        except KeyError:
            return self._pool.FindMethodByName(symbol).containing_service.file


def _reflection_v1(names: Sequence[str]) -> Any:
    servicer = reflection.aio.ReflectionServicer(names, _Symbols())  # type: ignore[attr-defined]  # not in its __all__
    method = grpc.stream_stream_rpc_method_handler(
        servicer.ServerReflectionInfo,
        reflection_pb2.ServerReflectionRequest.FromString,
        reflection_pb2.ServerReflectionResponse.SerializeToString,
    )
    _describe_reflection_v1()
    return grpc.method_handlers_generic_handler(REFLECTION_V1, {"ServerReflectionInfo": method})


def _describe_reflection_v1() -> None:
    """Adds its descriptor to those that reflection tells, where no package has: tools give up at a service
    that is listed and not known."""
    pool = descriptor_pool.Default()
    try:
        pool.FindServiceByName(REFLECTION_V1)
    except KeyError:
        alpha = descriptor_pb2.FileDescriptorProto()
        reflection_pb2.DESCRIPTOR.CopyToProto(alpha)
        described = text_format.MessageToString(alpha).replace("v1alpha", "v1")
        pool.Add(text_format.Parse(described, descriptor_pb2.FileDescriptorProto()))


class GrpcServer:
    """Answers calls from the registered bundles."""

    def __init__(
        self,
        config: ServerConfig,
        bundles: BundleRegistry,
        observer: CallObserver | None,
        tracer: CallTracer | None = None,
    ) -> None:
        """
        Raises:
            ConfigError: tokens or certificates make no sense.
            OSError: they cannot be read.
        """
        self._config = config
        self._calls = CallsInProgress()
        self.auth = AuthInterceptor(config)
        self.certificates = Certificates.of(config)
        limits = Limits(config)
        self._connections = Connections(config)
        self.limits: Sequence[Limit] = (*limits, self._connections)
        """What is told of in the metrics."""
        admission = _admission(limits, self._connections, self._calls, bundles)
        recorder = CallRecorder(self._calls, self._connections, observer, tracer)
        middleware = (recorder, self.auth, admission)
        interceptor = MiddlewareInterceptor(middleware)
        self._server = grpc.aio.server(
            interceptors=(interceptor,), options=server_options(config, self._connections.most)
        )
        self._synthesizer = SynthesizerService(bundles, limits, config.max_in_flight)
        self._inference = InferenceService(bundles, limits, config.max_batch, config.max_in_flight)
        add_service(self._server, SYNTHESIZER, self._synthesizer, NOTES)
        add_service(self._server, INFERENCE, self._inference)
        names = (SYNTHESIZER.full_name, INFERENCE.full_name)
        self.health = Health(self._server, names)
        listed = (*names, "grpc.health.v1.Health", reflection.SERVICE_NAME, REFLECTION_V1)
        symbols: Any = _Symbols()  # stands for a DescriptorPool
        reflection.enable_server_reflection(listed, self._server, symbols)
        self._server.add_generic_rpc_handlers((_reflection_v1(listed),))
        self._watching: asyncio.Task[None] | None = None
        self.address = ""
        """HOST:PORT, once started."""

    async def start(self) -> None:
        """Listens; nothing is said to be served as yet.

        Raises:
            ListenError: the address cannot be listened on.
        """
        config = self._config
        credentials = self.certificates.credentials() if self.certificates is not None else None
        port = listen(self._server, config.host, config.port, credentials, shared=config.reuse_port)
        self.address = join_address(config.host, port)
        await self._server.start()
        self._watching = asyncio.create_task(self._connections.watch(port))

    async def drain(self, stop: StopSignal) -> None:
        """Takes no more calls; gives those in hand the grace period, or none in a hurry."""
        grace = self._config.grace_seconds
        if self.health.is_ready:
            _log.info("no more calls are taken; %d are in hand, and have %g s to end", self._calls.n, grace)
        self.health.drain()
        self._calls.close()
        self._synthesizer.drain()
        self._inference.drain()
        ended = asyncio.create_task(self._calls.wait_for_none())
        hurry = asyncio.create_task(stop.hurry.wait())
        await asyncio.wait((ended, hurry), timeout=grace, return_when=asyncio.FIRST_COMPLETED)
        in_hurry = hurry.done() or not ended.done()
        for task in (ended, hurry):
            task.cancel()
        await asyncio.wait((ended, hurry))
        if not in_hurry:
            await self._calls.wait_for_quiet()
        elif self._calls.n:
            _log.warning("%d calls are cut, for they have not ended in time", self._calls.n)
        # Who watches the health service never hangs up, and tools keep reflection open: such calls are all
        # that is left now, but for a hurry.
        self._calls.are_cut = True
        await self._server.stop(0.0 if in_hurry else LINGER_SECONDS)
        if self._watching is not None:
            self._watching.cancel()
