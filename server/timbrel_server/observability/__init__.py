"""Observability: logs, metrics, traces, the status page, and the watchdog of engines."""
