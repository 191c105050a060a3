"""Metrics and logs: what the gateway counts, the page it is read from, and how log lines look."""

from slipstream.telemetry.collector import FleetCollector
from slipstream.telemetry.instruments import Instruments
from slipstream.telemetry.logs import configure_logs
from slipstream.telemetry.snapshot import CONTENT_TYPE, Snapshot, render

__all__ = ["CONTENT_TYPE", "FleetCollector", "Instruments", "Snapshot", "configure_logs", "render"]
