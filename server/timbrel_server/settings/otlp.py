"""Whether OpenTelemetry's own variables ask for traces, and to where."""

from __future__ import annotations

from collections.abc import Mapping

ENDPOINT_VARIABLES = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
PROTOCOL_VARIABLES = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
EXPORTER_VARIABLE = "OTEL_TRACES_EXPORTER"
DISABLED_VARIABLE = "OTEL_SDK_DISABLED"

PROTOCOL = "grpc"
EXPORTER = "otlp"


def are_forbidden(environment: Mapping[str, str]) -> bool:
    """Whether they want none, whoever else does."""
    return (
        environment.get(DISABLED_VARIABLE, "").strip().lower() == "true"
        or environment.get(EXPORTER_VARIABLE, "").strip().lower() == "none"
    )


def are_asked_for(environment: Mapping[str, str]) -> bool:
    """Whether they name a collector, or the exporter that knows where one is."""
    named = any(environment.get(variable, "").strip() for variable in ENDPOINT_VARIABLES)
    exporters = [each.strip() for each in environment.get(EXPORTER_VARIABLE, "").split(",")]
    return named or EXPORTER in exporters


def other_protocol(environment: Mapping[str, str]) -> str:
    """The protocol that they ask for, where it is another than the one spoken here; else empty."""
    asked = next((environment[name] for name in PROTOCOL_VARIABLES if environment.get(name)), PROTOCOL)
    return "" if asked == PROTOCOL else asked
