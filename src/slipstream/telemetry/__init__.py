"""Metrics and logs: what the gateway counts, the page it is read from, and how log lines look."""

from slipstream.telemetry.instruments import Instruments
from slipstream.telemetry.logs import configure_logs
from slipstream.telemetry.snapshot import CONTENT_TYPE, Snapshot, render, take_snapshot

__all__ = ["CONTENT_TYPE", "Instruments", "Snapshot", "configure_logs", "render", "take_snapshot"]
