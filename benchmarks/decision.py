"""One routing decision, and all that placing and settling a request costs the core, at 10 and at 1,000 nodes.

python -m benchmarks.decision
"""

from __future__ import annotations

from itertools import cycle
from time import process_time

from slipstream.core.acceptance import AcceptanceBook, AcceptancePrior
from slipstream.core.dispatch import Dispatcher
from slipstream.core.evidence import CategoryEvidence
from slipstream.core.fleet import Fleet
from slipstream.core.node import NodeReport, NodeSpec
from slipstream.core.outcome import Ending, Outcome
from slipstream.core.policy import ThresholdPolicy, ThresholdSettings
from slipstream.core.request import Pool, RequestShape

CATEGORIES = ("code", "chat", "math", "summarization")
DRAWS = tuple((n * 0.618033988749895) % 1.0 for n in range(997))


def busy_dispatcher(nodes: int) -> Dispatcher:
    """Half speculative, half standard nodes, about half full."""
    specs = [
        NodeSpec(
            f"n{n}", f"http://127.0.0.1:{10_000 + n}", Pool.SPECULATIVE if n % 2 else Pool.STANDARD, "vllm", ("m",)
        )
        for n in range(nodes)
    ]
    fleet = Fleet(specs, 0.0, stale_after_s=1e9)
    for spec in specs:
        fleet.report(spec.name, 0.0, 0.0, NodeReport(running=0, speculating=spec.pool is Pool.SPECULATIVE, k=4))
    evidence = CategoryEvidence(AcceptanceBook(AcceptancePrior()))
    draws = cycle(DRAWS)
    dispatcher = Dispatcher(fleet, evidence, ThresholdPolicy(ThresholdSettings(), evidence), lambda: next(draws))
    for n in range(nodes * 3):
        dispatcher.place(RequestShape("m", CATEGORIES[n % 4]), "warm", 0.0)
    return dispatcher


def measure(nodes: int, rounds: int = 40_000) -> tuple[float, float]:
    """Microseconds of CPU per ``decide``, and per ``place`` plus ``settle``; the best of five."""
    dispatcher = busy_dispatcher(nodes)
    shapes = [RequestShape("m", category) for category in CATEGORIES]
    decide, fleet = dispatcher.policy.decide, dispatcher.fleet
    outcome = Outcome(Ending.CLIENT_GONE)
    deciding, whole = [], []
    for _ in range(5):
        start = process_time()
        for n in range(rounds):
            decide(fleet, shapes[n & 3], 1.0, DRAWS[n % 997])
        deciding.append(process_time() - start)
        start = process_time()
        for n in range(rounds):
            dispatcher.settle(dispatcher.place(shapes[n & 3], "request", 1.0), outcome, 1.0)
        whole.append(process_time() - start)
    return min(deciding) / rounds * 1e6, min(whole) / rounds * 1e6


def main() -> None:
    """Print the table."""
    print(f"{'nodes':>6}  {'decide µs':>10}  {'place + settle µs':>18}")
    for nodes in (10, 100, 1000):
        decide, whole = measure(nodes)
        print(f"{nodes:>6}  {decide:>10.2f}  {whole:>18.2f}")


if __name__ == "__main__":
    main()
