"""API keys: who may ask, and how much at once. A key itself is never kept, only its digest."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from math import ceil, inf

from slipstream.core.errors import InvalidField, TooManyInFlight, TooManyRequests
from slipstream.core.request import Pool, TrafficClass

__all__ = ["Key", "KeyPolicy", "KeyUsage", "Lease", "digest_of", "is_bearer"]

_ROUNDING = 1e-9


def digest_of(key: bytes) -> bytes:
    """SHA-256 of a key, 32 bytes: what is kept of it.

    Keys are drawn at random with 256 bits, so there is nothing to guess that a slow hash would protect: to try one of
    2^256 costs the same whether it takes a microsecond or a second. For what people think up, SHA-256 would be wrong.
    """
    return hashlib.sha256(key).digest()


def is_bearer(authorization: str, key: str) -> bool:
    """Whether the header ``authorization`` (empty = there is none) bears ``key``.

    Digests are compared, in constant time: how long it takes tells neither the key's length nor its beginning.
    """
    scheme, _, presented = authorization.partition(" ")
    borne = presented.strip().encode(errors="surrogateescape") if scheme.lower() == "bearer" else b""
    return hmac.compare_digest(digest_of(borne), digest_of(key.encode()))


@dataclass(frozen=True, slots=True)
class KeyPolicy:
    """What the holder of a key may do.

    ``key_id`` is its public name. ``traffic_class`` is that of all its requests, ``None`` = as the request says.
    ``pinned_pool`` is where all its requests go, ``None`` = routing is free. ``trusts_category`` and ``trusts_class``:
    whether ``x-slipstream-category`` and ``x-slipstream-class`` are believed, ``None`` = as for requests without a key.
    ``max_in_flight`` is the most sequences at once, ``requests_per_minute`` the most requests; ``None`` = no limit.
    """

    key_id: str
    traffic_class: TrafficClass | None = None
    pinned_pool: Pool | None = None
    trusts_category: bool | None = None
    trusts_class: bool | None = None
    max_in_flight: int | None = None
    requests_per_minute: int | None = None


class KeyUsage:
    """What a key has in flight and how fast it has been asking. It outlives a change of the key's policy.

    ``in_flight`` counts sequences; ``admitted``, ``over_in_flight`` and ``over_rate`` count requests since the start.
    """

    __slots__ = ("_at", "_tokens", "admitted", "in_flight", "over_in_flight", "over_rate")

    def __init__(self) -> None:
        self.in_flight = self.admitted = self.over_in_flight = self.over_rate = 0
        self._tokens = inf  # a bucket is full at first, whatever its size
        self._at = 0.0

    def take(self, per_minute: int, now: float) -> float:
        """Take a request's token from the bucket: 0, or how many seconds it is until there is one.

        The bucket holds a minute's tokens and fills evenly, so ``per_minute`` requests may come at once after a pause,
        and over any ``t`` seconds at most ``per_minute * (1 + t / 60)``.
        """
        rate = per_minute / 60.0
        passed = now - self._at
        if passed > 0.0:  # a request that has waited behind another is older than those that came after it
            self._at = now
        else:
            passed = 0.0
        tokens = min(self._tokens + passed * rate, float(per_minute))
        if tokens < 1.0 - _ROUNDING:
            self._tokens = tokens
            return (1.0 - tokens) / rate
        self._tokens = tokens - 1.0
        return 0.0


class Key:
    """One key, known by its digest."""

    __slots__ = ("digest", "policy", "usage")

    def __init__(self, digest: bytes, policy: KeyPolicy, usage: KeyUsage) -> None:
        self.digest = digest
        self.policy = policy
        self.usage = usage

    def admit(self, now: float) -> Lease:
        """Let a request in, as one sequence until more is known of it. Raises TooManyInFlight or TooManyRequests."""
        policy, usage = self.policy, self.usage
        most = policy.max_in_flight
        if most is not None and usage.in_flight >= most:
            usage.over_in_flight += 1
            raise _too_many_in_flight(policy.key_id, most)
        self.ask(now)
        usage.in_flight += 1
        return Lease(self)

    def ask(self, now: float) -> None:
        """Let in a request that is no sequence of any node's. Raises TooManyRequests."""
        policy, usage = self.policy, self.usage
        per_minute = policy.requests_per_minute
        if per_minute is not None:
            wait = usage.take(per_minute, now)
            if wait > 0.0:
                usage.over_rate += 1
                message = f"The API key '{policy.key_id}' is limited to {per_minute} requests per minute."
                raise TooManyRequests(message, ceil(wait))
        usage.admitted += 1

    def check(self, sequences: int) -> None:
        """Raises InvalidField for a request of more sequences than the key may ever have."""
        most = self.policy.max_in_flight
        if most is not None and sequences > most:
            raise InvalidField(
                f"The request asks for {sequences} answers, but its API key may have {most} in flight.", "n"
            )


class Lease:
    """A request's share of its key's limit, from its admission to its end."""

    __slots__ = ("_sequences", "key")

    def __init__(self, key: Key) -> None:
        self.key = key
        self._sequences = 1

    def widen(self, sequences: int) -> None:
        """The request turns out to be for so many sequences. Nothing happens when it is over.

        Raises TooManyInFlight, or InvalidField when they are more than the key may ever have.
        """
        if sequences == self._sequences or not self._sequences:
            return
        policy, usage = self.key.policy, self.key.usage
        most = policy.max_in_flight
        more = sequences - self._sequences
        if most is not None and usage.in_flight + more > most:
            self.key.check(sequences)
            usage.over_in_flight += 1
            raise _too_many_in_flight(policy.key_id, most)
        usage.in_flight += more
        self._sequences = sequences

    def end(self) -> None:
        """The request is over. A second time does nothing."""
        self.key.usage.in_flight -= self._sequences
        self._sequences = 0


def _too_many_in_flight(key_id: str, most: int) -> TooManyInFlight:
    return TooManyInFlight(f"The API key '{key_id}' is limited to {most} sequences in flight; wait for one to end.")
