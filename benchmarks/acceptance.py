"""What acceptance costs on the gateway's hot path: one look-up a decision, one credit a response.

Run it with ``python benchmarks/acceptance.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter_ns

from slipstream.core.acceptance import AcceptanceBook, AcceptancePrior, SpeculationSample
from slipstream.core.node import Speculator, SpeculatorKind

CALLS = 50_000
ROUNDS = 5


def nanoseconds_per_call(call: Callable[[int], object]) -> float:
    """Least mean of several rounds: what the machine's other work adds is not the call's."""
    rounds = []
    for _ in range(ROUNDS):
        start = perf_counter_ns()
        for i in range(CALLS):
            call(i)
        rounds.append((perf_counter_ns() - start) / CALLS)
    return min(rounds)


def main() -> None:
    speculator = Speculator(SpeculatorKind.DRAFT, 4)
    categories = ("code", "edit", "structured", "summarization", "retrieval", "translation", "math", "chat")
    samples = [
        SpeculationSample(
            drafted=80 + i % 17, accepted=40 + i % 13, verify_steps=20 + i % 5, output_tokens=61 + i % 13 + i % 5
        )
        for i in range(997)
    ]
    book = AcceptanceBook(AcceptancePrior())

    def credit(i: int) -> None:
        book.credit("model", speculator, categories[i & 7], f"node-{i & 3}", samples[i % 997], i * 0.01, 1 + i % 16)

    def timed(i: int) -> None:
        book.timed(f"node-{i & 3}", 1 + i % 16, 0.02 + 1e-5 * (i % 997), i * 0.01)

    credited = nanoseconds_per_call(credit)
    looked_up = nanoseconds_per_call(lambda i: book.estimate("model", speculator, categories[i & 7]))
    nothing = nanoseconds_per_call(lambda i: categories[i & 7])
    print(f"estimate {looked_up - nothing:8.0f} ns")
    print(f"credit   {credited - nothing:8.0f} ns")
    print(f"timed    {nanoseconds_per_call(timed) - nothing:8.0f} ns")


if __name__ == "__main__":
    main()
