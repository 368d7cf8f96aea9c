"""The metrics that Prometheus reads. The only module that knows it.

Names follow the field's: calls as `grpc_server_*`, as other gRPC servers count theirs; the engines' as
`timbrel_*`, in base units, with a label for the bundle. No label names a caller: there is no end to them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from types import SimpleNamespace
from typing import Any
from weakref import WeakSet

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from timbrel_server import own_version
from timbrel_server.engine.request import Delivery, EngineObserver, RequestHandle
from timbrel_server.limits import Limit
from timbrel_server.observability.logs import DroppingHandler
from timbrel_server.rpc.call_recorder import CallObserver
from timbrel_server.rpc.certificates import Certificates
from timbrel_server.served_bundles.served_bundle import BundleRegistry

STEP_BUCKETS = (0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 1.0, 4.0)
WAIT_BUCKETS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
CALL_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
NOTES_BUCKETS = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 128, 256, 512, 1024)

READY, READY_TEXT = "timbrel_ready", "1 while notes are written."
NOT_READY = f"# HELP {READY} {READY_TEXT}\n# TYPE {READY} gauge\n{READY} 0\n"

RELOAD_PARTS = ("tokens", "certificates", "bundle")
RELOAD_OUTCOMES = ("ok", "unchanged", "failed")


class Metrics:
    """All metrics of one server."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        self.calls: CallObserver = CallMetrics(self.registry)
        self._engines = _EngineFamilies(self.registry)
        self.registry.register(_Gathered(_log_metrics))
        self.reloads = Counter(
            "timbrel_reloads", "Attempts to read a part anew.", ["part", "outcome"], registry=self.registry
        )
        for labels in product(RELOAD_PARTS, RELOAD_OUTCOMES):
            self.reloads.labels(*labels)  # from 0, so that the first one is an increase

    def engine_observer(self, bundle: str) -> EngineObserver:
        """Makes the observer of the engine of the bundle of this name."""
        return EngineMetrics(self._engines, bundle)

    def watch(
        self,
        bundles: BundleRegistry,
        limits: Sequence[Limit],
        is_ready: Callable[[], bool],
        certificates: Certificates | None,
    ) -> None:
        """Tells of the registered bundles, the limits and the certificates, too, from now on."""
        self.registry.register(_Gathered(partial(_bundle_metrics, bundles, is_ready, own_version())))
        self.registry.register(_Gathered(partial(_limit_metrics, limits)))
        if certificates is not None:
            self.registry.register(_Gathered(partial(_certificate_metrics, certificates)))

    def exposition(self) -> bytes:
        """Returns the text that Prometheus reads."""
        return generate_latest(self.registry)


def merged(texts: Mapping[int, str]) -> bytes:
    """Returns what several processes say, each sample with the label `process`: the number of who says it. Of
    one that says nothing, for it is dead, stuck or not ready, that it writes no notes.

    They are not summed up: a counter of a process that was started again begins at 0, which Prometheus' rate
    of a sum would take for a rate of its own.
    """
    families: dict[str, Metric] = {}
    for number, text in texts.items():
        for family in text_string_to_metric_families(text or NOT_READY):
            known = families.setdefault(family.name, Metric(family.name, family.documentation, family.type))
            for sample in family.samples:
                known.samples.append(sample._replace(labels={**sample.labels, "process": str(number)}))
    registry: Any = SimpleNamespace(collect=families.values)
    return generate_latest(registry)


class CallMetrics(CallObserver):
    """Counts calls, by service, method and status code."""

    def __init__(self, registry: CollectorRegistry) -> None:
        of = ["grpc_type", "grpc_service", "grpc_method"]
        self._started = Counter("grpc_server_started", "Calls that began.", of, registry=registry)
        self._handled = Counter(
            "grpc_server_handled", "Calls that ended.", [*of, "grpc_code"], registry=registry
        )
        self._seconds = Histogram(
            "grpc_server_handling_seconds",
            "How long calls took.",
            of,
            buckets=CALL_BUCKETS,
            registry=registry,
        )

    def call_began(self, service: str, method: str, kind: str) -> None:
        """A call is being answered."""
        self._started.labels(_KINDS[kind], service, method).inc()

    def call_ended(self, service: str, method: str, kind: str, code: str, seconds: float) -> None:
        """It has ended."""
        self._handled.labels(_KINDS[kind], service, method, _camel(code)).inc()
        self._seconds.labels(_KINDS[kind], service, method).observe(seconds)


_KINDS = {
    "unary_unary": "unary",
    "unary_stream": "server_stream",
    "stream_unary": "client_stream",
    "stream_stream": "bidi_stream",
}


def _camel(code: str) -> str:
    """Spells "NOT_FOUND" as other servers' metrics do: "NotFound"."""
    return "OK" if code == "OK" else "".join(part.capitalize() for part in code.split("_"))


class _EngineFamilies:
    """The metrics of engines, before a bundle is chosen."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, text: str) -> Counter:
            return Counter(name, text, ["bundle"], registry=registry)

        def histogram(name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
            return Histogram(name, text, ["bundle"], buckets=buckets, registry=registry)

        self.accepted = counter("timbrel_notes_accepted", "Notes accepted.")
        self.finished = counter("timbrel_notes_finished", "Notes written to their end.")
        self.refused = counter(
            "timbrel_notes_refused", "Notes refused: the queue was full, or time too short."
        )
        self.cancelled = counter("timbrel_notes_cancelled", "Notes given up by their callers.")
        self.failed = counter("timbrel_notes_failed", "Notes given up because the engine ended.")
        self.frames = counter("timbrel_frames", "Codec frames written.")
        self.wait = histogram("timbrel_queue_wait_seconds", "From acceptance to a slot.", WAIT_BUCKETS)
        self.first_chunk = histogram(
            "timbrel_first_chunk_seconds", "From acceptance to the first frames.", WAIT_BUCKETS
        )
        self.step = histogram("timbrel_step_seconds", "How long a step took.", STEP_BUCKETS)
        self.batch = histogram("timbrel_batch_notes", "Notes that a step moved on.", NOTES_BUCKETS)


class EngineMetrics(EngineObserver):
    """Counts the notes and steps of one bundle's engine."""

    def __init__(self, families: _EngineFamilies, bundle: str) -> None:
        self._accepted = families.accepted.labels(bundle)
        self._refused = families.refused.labels(bundle)
        self._cancelled = families.cancelled.labels(bundle)
        self._wait = families.wait.labels(bundle)
        self._step = families.step.labels(bundle)
        self._batch = families.batch.labels(bundle)
        self._finished = families.finished.labels(bundle)
        self._failed = families.failed.labels(bundle)
        self._frames = families.frames.labels(bundle)
        self._first_chunk = families.first_chunk.labels(bundle)
        self._unheard: WeakSet[RequestHandle] = WeakSet()  # of which no frames have been delivered
        self._live: WeakSet[RequestHandle] = WeakSet()  # which have not ended

    def accepted(self, handle: RequestHandle) -> None:
        """Counts a note, and from now on what its reader gets. Of a header nothing is counted: it is part of
        the note that moves."""
        if handle.request.is_header:
            return
        self._accepted.inc()
        self._unheard.add(handle)
        self._live.add(handle)

    def delivered(self, handle: RequestHandle, delivery: Delivery) -> None:
        """Counts the frames, how long the first were waited for, and the end."""
        if delivery.frames and not handle.request.is_header:
            self._frames.inc(len(delivery.frames))
            if handle in self._unheard and not delivery.finish:  # else it was asked for in one piece
                self._first_chunk.observe(time.monotonic() - handle.submitted)
                self._unheard.discard(handle)
        if handle in self._live and (delivery.finish or delivery.error):
            self._live.discard(handle)
            (self._finished if delivery.finish else self._failed).inc()

    def cancelled(self, handle: RequestHandle) -> None:
        """Counts a note that had not ended."""
        if handle in self._live:
            self._live.discard(handle)
            self._cancelled.inc()

    def refused(self) -> None:
        """Counts a request that was refused."""
        self._refused.inc()

    def admitted(self, handle: RequestHandle) -> None:
        """Counts how long a note waited."""
        if handle.waited_seconds is not None and not handle.request.is_header:
            self._wait.observe(handle.waited_seconds)

    def stepped(self, seconds: float, n_notes: int) -> None:
        """Counts how long a step took, for how many notes."""
        self._step.observe(seconds)
        self._batch.observe(n_notes)


class _Gathered(Collector):
    """Metrics that are looked up when Prometheus asks."""

    def __init__(self, gather: Callable[[], Iterator[Metric]]) -> None:
        self._gather = gather

    def collect(self) -> Iterator[Metric]:
        return self._gather()


def _bundle_metrics(bundles: BundleRegistry, is_ready: Callable[[], bool], version: str) -> Iterator[Metric]:
    """Yields whether notes are written; queue, slots and what runs of the bundles that have an engine."""
    queue = _gauge("timbrel_queue_notes", "Notes that wait for a slot.")
    active = _gauge("timbrel_slots_active", "Slots in use.")
    slots = _gauge("timbrel_slots", "Slots.")
    info = GaugeMetricFamily(
        "timbrel_engine_info",
        "What runs: always 1.",
        labels=["bundle", "bundle_hash", "provider", "precision", "decoder_graph", "version"],
    )
    for served in bundles:
        if served.engine is None:
            continue
        queue.add_metric([served.name], served.engine.n_waiting)
        active.add_metric([served.name], served.engine.n_occupied)
        slots.add_metric([served.name], served.engine.n_slots)
        bundle_hash, runs = served.manifest.bundle_hash, served.sessions
        engine = (runs.provider, runs.precision, runs.decoder_graph)
        info.add_metric([served.name, bundle_hash, *engine, version], 1)
    yield from (GaugeMetricFamily(READY, READY_TEXT, value=is_ready()), queue, active, slots, info)


def _log_metrics() -> Iterator[Metric]:
    """Yields how much of the log was lost."""
    text = "Lines of the log that were dropped, since nobody read them, or that could not be written."
    yield CounterMetricFamily("timbrel_log_lines_lost", text, value=DroppingHandler.n_lost)


def _limit_metrics(limits: Sequence[Limit]) -> Iterator[Metric]:
    """Yields how much of each limit is taken: four families, by limit."""
    most = _gauge("timbrel_limit", "How much there is for all callers.", "limit")
    in_use = _gauge("timbrel_limit_in_use", "How much of it is taken.", "limit")
    waiting = _gauge("timbrel_limit_waiting", "How many wait for their part.", "limit")
    refused = CounterMetricFamily("timbrel_limit_refused", "How many were sent away.", labels=["limit"])
    for limit in limits:
        most.add_metric([limit.name], limit.most)
        in_use.add_metric([limit.name], limit.in_use)
        waiting.add_metric([limit.name], limit.n_waiting)
        refused.add_metric([limit.name], limit.n_refused)
    yield from (most, in_use, waiting, refused)


def _certificate_metrics(certificates: Certificates) -> Iterator[Metric]:
    """Yields when the certificates in use expire, by the option that names the file."""
    name = "timbrel_certificate_expiry_timestamp_seconds"
    expiry = _gauge(name, "When what is in use expires, in seconds since 1970.", "option")
    for option, (ends, _) in certificates.validities.items():
        expiry.add_metric([option], ends)
    yield expiry


def _gauge(name: str, text: str, label: str = "bundle") -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, labels=[label])
