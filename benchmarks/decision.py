"""One routing decision, and all that placing and settling a request costs the core, at 10 to 1,000 nodes; and the same
under policy `predictive`, which looks at every node.

python -m benchmarks.decision
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle
from time import process_time

from slipstream.core.acceptance import AcceptanceBook, AcceptancePrior
from slipstream.core.dispatch import Dispatcher
from slipstream.core.evidence import CategoryEvidence
from slipstream.core.fleet import Fleet
from slipstream.core.forecast import Forecast
from slipstream.core.goodput import Target
from slipstream.core.node import NodeReport, NodeSpec
from slipstream.core.outcome import Ending, Outcome
from slipstream.core.policy import PredictivePolicy, ThresholdPolicy, ThresholdSettings
from slipstream.core.request import Pool, RequestShape, TrafficClass

CATEGORIES = ("code", "chat", "math", "summarization")
TARGETS = {TrafficClass.INTERACTIVE: Target(ttft_s=2.0, tpot_s=0.04)}
STEPS = tuple(((0.02 + 0.001 * n,) * 2) for n in range(1, 257))
STANDARD = Forecast((0.0, 1000.0), STEPS, (0,) * 256, 0.0, (0.0, 0.05), None)
SPECULATIVE = Forecast((0.0, 1000.0), STEPS, (4,) * 256, 1.0, (0.0, 0.05), None)
DRAWS = tuple((n * 0.618033988749895) % 1.0 for n in range(997))


def busy_dispatcher(nodes: int, *, saturated: bool = False, predictive: bool = False) -> Dispatcher:
    """Half speculative, half standard nodes, about half full; or the speculative ones at their ceilings. By rules, or
    with a forecast of each node.
    """
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
    policy = ThresholdPolicy(ThresholdSettings(), evidence)
    if predictive:
        policy = PredictivePolicy(
            ThresholdSettings(),
            evidence,
            lambda node: SPECULATIVE if node.pool is Pool.SPECULATIVE else STANDARD,
            TARGETS,
        )
    dispatcher = Dispatcher(fleet, evidence, policy, lambda: next(draws))
    for n in range(nodes * (8 if saturated else 3)):
        dispatcher.place(RequestShape("m", "code" if saturated else CATEGORIES[n % 4]), "warm", 0.0)
    return dispatcher


def cpu_us(call: Callable[[int], object], rounds: int = 40_000) -> float:
    """Microseconds of CPU per call, the best of five runs."""
    best = float("inf")
    for _ in range(5):
        start = process_time()
        for n in range(rounds):
            call(n)
        best = min(best, process_time() - start)
    return best / rounds * 1e6


def measure(nodes: int) -> tuple[float, float, float, float, float]:
    """CPU per decision, per decision with every speculative node saturated, and per ``place`` plus ``settle``; then the
    first and the last under `predictive`.
    """
    dispatcher, saturated = busy_dispatcher(nodes), busy_dispatcher(nodes, saturated=True)
    predictive = busy_dispatcher(nodes, predictive=True)
    shapes = [RequestShape("m", category) for category in CATEGORIES]
    outcome = Outcome(Ending.CLIENT_GONE)

    def whole(n: int) -> None:
        dispatcher.settle(dispatcher.place(shapes[n & 3], "request", 1.0), outcome, 1.0)

    return (
        cpu_us(lambda n: dispatcher.policy.decide(dispatcher.fleet, shapes[n & 3], 1.0, DRAWS[n % 997])),
        cpu_us(lambda n: saturated.policy.decide(saturated.fleet, shapes[n & 3], 1.0, DRAWS[n % 997])),
        cpu_us(whole),
        cpu_us(lambda n: predictive.policy.decide(predictive.fleet, shapes[n & 3], 1.0, DRAWS[n % 997]), 4_000),
        cpu_us(lambda n: predictive.settle(predictive.place(shapes[n & 3], "request", 1.0), outcome, 1.0), 4_000),
    )


def main() -> None:
    """Print the table."""
    print(
        f"{'nodes':>6}{'decide µs':>12}{'saturated µs':>14}{'place + settle µs':>19}"
        f"{'predictive µs':>15}{'whole µs':>10}"
    )
    for nodes in (10, 100, 1000):
        decide, saturated, whole, predictive, predictive_whole = measure(nodes)
        print(f"{nodes:>6}{decide:>12.2f}{saturated:>14.2f}{whole:>19.2f}{predictive:>15.2f}{predictive_whole:>10.2f}")


if __name__ == "__main__":
    main()
