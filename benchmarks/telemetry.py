"""What being seen costs: metrics, access log, recording and traces per request, and a scrape of a large fleet.

Run it with ``python -m benchmarks telemetry``. The budgets are for the compiled build.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter, time  # noqa: TID251 - a benchmark is its own composition root

from slipstream.core.acceptance import AcceptanceBook, AcceptancePrior, SpeculationSample
from slipstream.core.dispatch import Dispatcher
from slipstream.core.evidence import CategoryEvidence
from slipstream.core.fleet import Fleet
from slipstream.core.history import Attempt, History
from slipstream.core.latency import Latency
from slipstream.core.node import NodeReport, NodeSpec
from slipstream.core.outcome import Ending, Outcome
from slipstream.core.policy import ThresholdPolicy, ThresholdSettings
from slipstream.core.request import Pool, RequestShape
from slipstream.telemetry import FleetCollector, Instruments, render
from slipstream.telemetry.access_log import AccessLog
from slipstream.telemetry.recorder import Recorder
from slipstream.telemetry.tracing import Tracer

CALLS = 100_000
ROUNDS = 5
SHORT_ROUNDS = 20, 100
"""Calls a round, and rounds. Fewer than the 2,048 spans that may wait to be sent."""
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


def history_of(dispatcher: Dispatcher) -> Callable[[], History]:
    """What makes the history of a request, as the gateway does when one has ended."""
    shape = RequestShape("m", "code")
    placement = dispatcher.place(shape, "0123456789ab1", 0.1)
    sample = SpeculationSample(100, 60, 25, 76)
    placement.outcome = Outcome(Ending.COMPLETED, 200, Latency(0.12, 0.021, 1.7), 120, 76, sample)

    def history() -> History:
        attempts = (Attempt(placement),)
        return History("0123456789ab1", "POST", "/v1/chat/completions", None, 0.1, 1.8, shape, attempts, 200, None)

    return history


def microseconds(call: Callable[[], object], calls: int, repeats: int) -> float:
    """The least of many short rounds: one that nothing else disturbed."""
    rounds = []
    for _ in range(repeats):
        start = perf_counter()
        for _ in range(calls):
            call()
        rounds.append((perf_counter() - start) / calls * 1e6)
    return min(rounds)


def seeing() -> dict[str, tuple[Callable[[], object], str]]:
    """What each way to be seen costs a request, the making of its history included, and its budget."""
    history = history_of(dispatcher_of(2))
    log = AccessLog()
    recorder = Recorder(0.0)
    tracer = Tracer("http://127.0.0.1:9", version="0", draw=lambda: 0.5, wall_clock=time)
    lines = b"accept: */*\r\ncontent-type: application/json\r\nuser-agent: x\r\n"

    def traced() -> None:
        tracer.sample = 1.0
        trace = tracer.begin(lines, 0.0)
        assert trace is not None
        trace.end(history())

    def untraced() -> None:
        tracer.sample = 0.0
        tracer.begin(lines, 0.0)

    return {
        "access log": (lambda: log.line(history(), time()), "budget 4"),
        "recording": (lambda: recorder.line(history(), time()), "no budget"),
        "not traced": (untraced, "no budget"),
        "traced": (traced, "no budget; by default of one request in a hundred"),
    }


def main() -> None:
    """Print the figures."""
    instruments = Instruments()
    for name, (call, budget) in seeing().items():
        print(f"{name:20}  {microseconds(call, *SHORT_ROUNDS):6.2f} µs ({budget})")
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
