"""What affinity costs: reading a request's keys, by the size of its prompt, and deciding with them, by their number.

python -m benchmarks affinity
"""

from __future__ import annotations

import json
from collections.abc import Callable

from benchmarks.decision import CATEGORIES, busy_dispatcher, cpu_us
from slipstream.core.outcome import Ending, Outcome
from slipstream.core.request import RequestShape
from slipstream.gateway.cache_keys import cache_keys, session_number

PROMPT_NAME = b'"messages"'


def _read(body: bytes, session: bytes | None) -> Callable[[int], object]:
    def read(_n: int) -> object:
        number = None if session is None else session_number(session)
        return cache_keys("m", number, None, None, PROMPT_NAME, body)

    return read


def _placed(keys: int) -> float:
    """``place`` plus ``settle`` of requests with so many keys, of a few thousand conversations."""
    dispatcher = busy_dispatcher(100)
    shapes = [
        RequestShape("m", CATEGORIES[n & 3], cache_keys=tuple(1_000 * n + key for key in range(keys)))
        for n in range(4096)
    ]
    outcome = Outcome(Ending.COMPLETED, 200)
    return cpu_us(lambda n: dispatcher.settle(dispatcher.place(shapes[n & 4095], "request", 1.0), outcome, 1.0))


def main() -> None:
    """Print both tables."""
    print(f"{'prompt bytes':>14}{'keys µs':>10}{'with session µs':>18}")
    for size in (300, 1_500, 4_000, 20_000):
        body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "x" * size}]}).encode()
        print(f"{size:>14}{cpu_us(_read(body, None)):>10.2f}{cpu_us(_read(body, b'conversation')):>18.2f}")
    print(f"\n{'keys':>6}{'place + settle µs':>20}")
    for keys in (0, 1, 3, 10):
        print(f"{keys:>6}{_placed(keys):>20.2f}")


if __name__ == "__main__":
    main()
