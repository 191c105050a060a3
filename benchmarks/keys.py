"""What a request costs more because it bears an API key: on a connection that goes on, and on one that is new.

python -m benchmarks.keys
"""

from __future__ import annotations

from benchmarks.decision import cpu_us
from slipstream.core.keys import KeyPolicy, digest_of
from slipstream.gateway.headers import RequestHead
from slipstream.gateway.keys import KeyRing

KEY = b"sk-slipstream-0123456789abcdefghijklmnopqrstuvwxyzABCDEFG"
OTHERS = 1000


def measure(policy: KeyPolicy) -> tuple[float, float]:
    """CPU to let a request in and be done with it: with a head that the ring knows, and with one that it does not."""
    others = [(digest_of(b"other %d" % number), KeyPolicy(f"other-{number}")) for number in range(OTHERS)]
    ring = KeyRing([*others, (digest_of(KEY), policy)])
    head = RequestHead([(b"authorization", b"Bearer " + KEY)])

    def known(number: int) -> None:
        ring.admit(head, number / 1e3).end()

    def unknown(number: int) -> None:
        head.known_to = None
        ring.admit(head, number / 1e3).end()

    return cpu_us(known), cpu_us(unknown)


def main() -> None:
    print(f"{OTHERS + 1} keys, CPU in µs a request      repeated head    new head")
    for name, policy in (
        ("without limits", KeyPolicy("team-a")),
        ("both limits", KeyPolicy("team-a", max_in_flight=8, requests_per_minute=1_000_000)),
    ):
        repeated, new = measure(policy)
        print(f"{name:32} {repeated:13.2f} {new:11.2f}")


if __name__ == "__main__":
    main()
