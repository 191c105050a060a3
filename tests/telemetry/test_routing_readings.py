"""What the metrics page says of affinity, of observing and of the queue."""

from __future__ import annotations

import re

from fleets import dispatcher_of, fleet_of, shape, speculative, standard
from slipstream.core.outcome import Ending, Outcome
from slipstream.core.policy import ThresholdSettings
from slipstream.core.request import TrafficClass
from slipstream.telemetry import FleetCollector, Instruments, render
from slipstream.telemetry.routing_readings import routing_readings

INTERACTIVE, BULK = TrafficClass


def page(instruments: Instruments, settings: ThresholdSettings, *categories: str) -> dict[str, float]:
    """The page after two requests of each category, of the same conversation."""
    dispatcher = dispatcher_of(fleet_of(speculative("s"), standard("t")), settings)
    for category in categories:
        for _ in range(2):
            placement = dispatcher.place(shape(category, cache_keys=(7,)), "r", 0.1)
            dispatcher.settle(placement, Outcome(Ending.COMPLETED, 200), 0.2)
    shown = ["code", "chat"]
    readings = routing_readings(dispatcher, instruments, lambda: shown, lambda: {INTERACTIVE: 3, BULK: 0})
    collector = FleetCollector(dispatcher, instruments, shown, lambda: 0.5, lambda: None, readings)
    text = render(collector.snapshot()).decode()
    return {name: float(value) for name, value in re.findall(r"^(slipstream_\S+) (\S+)$", text, re.MULTILINE)}


def test_series_are_there_before_anything_happened() -> None:
    samples = page(Instruments(), ThresholdSettings())
    for match in ("held", "fuller", "closed", "unknown"):
        assert samples[f'slipstream_affinity_requests_total{{match="{match}"}}'] == 0
    for traffic_class in TrafficClass:
        assert samples[f'slipstream_queue_timeouts_total{{class="{traffic_class}"}}'] == 0
        assert samples[f'slipstream_queue_wait_seconds_count{{class="{traffic_class}"}}'] == 0
    name = 'slipstream_intended_requests_total{category="chat",pool="standard",reason="below_floor"}'
    assert samples[name] == 0


def test_waits_are_counted_by_class_and_by_whether_they_were_in_vain() -> None:
    instruments = Instruments()
    instruments.waited(INTERACTIVE, 0.2, served=True)
    instruments.waited(INTERACTIVE, 4.0, served=True)
    instruments.waited(BULK, 10.0, served=False)
    samples = page(instruments, ThresholdSettings())
    assert samples['slipstream_queue_requests{class="interactive"}'] == 3
    assert samples['slipstream_queue_wait_seconds_bucket{class="interactive",le="0.25"}'] == 1
    assert samples['slipstream_queue_wait_seconds_sum{class="interactive"}'] == 4.2
    assert samples['slipstream_queue_wait_seconds_count{class="bulk"}'] == 0
    assert samples['slipstream_queue_timeouts_total{class="bulk"}'] == 1


def test_requests_with_something_cached_are_counted_by_what_came_of_it() -> None:
    samples = page(Instruments(), ThresholdSettings(), "code")
    assert samples['slipstream_affinity_requests_total{match="unknown"}'] == 1
    assert samples['slipstream_affinity_requests_total{match="held"}'] == 1


def test_what_is_only_observed_is_counted_as_it_would_have_been_placed() -> None:
    samples = page(Instruments(), ThresholdSettings(observe=True), "code", "chat")
    intended = "slipstream_intended_requests_total"
    assert samples[f'{intended}{{category="code",pool="speculative",reason="speculative"}}'] == 2
    assert samples[f'{intended}{{category="chat",pool="standard",reason="below_floor"}}'] == 2
    observed = [name for name, value in samples.items() if 'reason="observe"' in name and value]
    assert all(name.startswith("slipstream_requests_total") for name in observed)
    assert sum(samples[name] for name in observed) == 4
