"""What metrics cost: per request on the hot path, and per scrape of a large fleet.

Run it with ``python benchmarks/telemetry.py``. The hot path has a budget of 3 µs a request.
"""

from __future__ import annotations

from time import perf_counter

from slipstream.core.acceptance import AcceptanceBook, AcceptancePrior
from slipstream.core.dispatch import Dispatcher
from slipstream.core.evidence import CategoryEvidence
from slipstream.core.fleet import Fleet
from slipstream.core.latency import Latency
from slipstream.core.node import NodeReport, NodeSpec
from slipstream.core.outcome import Ending, Outcome
from slipstream.core.policy import ThresholdPolicy, ThresholdSettings
from slipstream.core.request import Pool, RequestShape
from slipstream.telemetry import FleetCollector, Instruments, render

CALLS = 100_000
ROUNDS = 5
CATEGORIES = ("code", "edit", "structured", "summarization", "retrieval", "translation", "math", "chat")


def dispatcher_of(nodes: int) -> Dispatcher:
    pools = (Pool.SPECULATIVE, Pool.STANDARD)
    specs = [NodeSpec(f"node-{i}", f"http://node-{i}:1", pools[i % 2], "vllm", ("m",)) for i in range(nodes)]
    fleet = Fleet(specs, 0.0)
    for spec in specs:
        fleet.report(spec.name, 0.0, 0.0, NodeReport(1, 0, 0.5, None, spec.pool is Pool.SPECULATIVE, 4))
    evidence = CategoryEvidence(AcceptanceBook(AcceptancePrior()))
    return Dispatcher(fleet, evidence, ThresholdPolicy(ThresholdSettings(), evidence), lambda: 0.5)


def microseconds_per_request(dispatcher: Dispatcher, instruments: Instruments) -> float:
    placement = dispatcher.place(RequestShape("m", "code"), "r", 0.1)
    outcome = Outcome(Ending.COMPLETED, 200, Latency(0.12, 0.021, 1.7), 120, 76)
    rounds = []
    for _ in range(ROUNDS):
        start = perf_counter()
        for _ in range(CALLS):
            instruments.decided(6e-6)
            instruments.finished(placement, outcome, 1.8)
        rounds.append((perf_counter() - start) / CALLS * 1e6)
    return min(rounds)


def main() -> None:
    """Print the figures."""
    instruments = Instruments()
    print(f"metrics of a request  {microseconds_per_request(dispatcher_of(2), instruments):6.2f} µs (budget 3)")
    for nodes in (10, 1_000):
        collector = FleetCollector(dispatcher_of(nodes), instruments, CATEGORIES, lambda: 0.5, lambda: 0.0)
        start = perf_counter()
        snapshot = collector.snapshot()
        taken = perf_counter()
        page = render(snapshot)
        print(
            f"scrape, {nodes:5d} nodes   {(taken - start) * 1e3:6.2f} ms on the loop, "
            f"{(perf_counter() - taken) * 1e3:6.1f} ms in a thread, {len(page) / 1e3:.0f} kB"
        )


if __name__ == "__main__":
    main()
