"""The ring of keys: from what a request bears to who it is.

A key is looked up by the first bytes of its digest, and then the whole digest is compared in constant time. What the
look-up can tell by its time is whether some key's SHA-256 begins with these eight bytes; to make use of that, one would
have to find keys to chosen digests, which is what SHA-256 is there to prevent.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable
from typing import Final

from slipstream.core.errors import Unauthenticated
from slipstream.core.keys import Key, KeyPolicy, KeyUsage, Lease, digest_of
from slipstream.gateway.headers import RequestHead

__all__ = ["KeyRing"]

_INDEXED_BYTES: Final = 8


class KeyRing:
    """All keys that are let in. To change them, make another ring from this one."""

    __slots__ = ("_by_beginning", "_usages", "keys")

    def __init__(self, keys: Iterable[tuple[bytes, KeyPolicy]], previous: KeyRing | None = None) -> None:
        """Digest and policy of each key, no digest and no id twice.

        What is in flight under an id in ``previous``, and how fast it has been asking, is taken over; also when the id
        was taken away and comes back, since its requests may still be running.
        """
        self._usages: dict[str, KeyUsage] = {} if previous is None else dict(previous._usages)
        ring: list[Key] = []
        for digest, policy in keys:
            usage = self._usages.get(policy.key_id)
            if usage is None:
                usage = self._usages[policy.key_id] = KeyUsage()
            ring.append(Key(digest, policy, usage))
        self.keys: tuple[Key, ...] = tuple(ring)
        by_beginning: dict[bytes, tuple[Key, ...]] = {}
        for key in self.keys:
            beginning = key.digest[:_INDEXED_BYTES]
            by_beginning[beginning] = (*by_beginning.get(beginning, ()), key)
        self._by_beginning = by_beginning

    def find(self, credential: bytes) -> Key | None:
        """The key that a request bears, ``None`` when it is not on the ring."""
        digest = digest_of(credential)
        for key in self._by_beginning.get(digest[:_INDEXED_BYTES], ()):
            if hmac.compare_digest(key.digest, digest):
                return key
        return None

    def admit(self, head: RequestHead, now: float) -> Lease:
        """Let a request in. Raises Unauthenticated, TooManyInFlight or TooManyRequests.

        A head remembers its key, since on a kept-alive connection it is often the head of many requests; not beyond
        this ring, so that a key that has been taken away is not let in by an old connection.
        """
        return self._known(head).admit(now)

    def ask(self, head: RequestHead, now: float) -> None:
        """Let in a request that the gateway answers itself. Raises Unauthenticated or TooManyRequests."""
        self._known(head).ask(now)

    def check(self, head: RequestHead, sequences: int) -> None:
        """Raises InvalidField for a request of more sequences than its key may ever have."""
        self._known(head).check(sequences)

    def objection(self, head: RequestHead) -> Unauthenticated | None:
        """Why a request would not be let in at all, whatever its key's limits; ``None`` if it would."""
        known = head.key if head.known_to is self else self._identify(head)
        return _unauthenticated(head.credential) if known is None else None

    def _known(self, head: RequestHead) -> Key:
        key = head.key if head.known_to is self else self._identify(head)
        if key is None:
            raise _unauthenticated(head.credential)
        return key

    def _identify(self, head: RequestHead) -> Key | None:
        head.key = None if head.credential is None else self.find(head.credential)
        head.known_to = self
        return head.key


def _unauthenticated(credential: bytes | None) -> Unauthenticated:
    if credential is None:
        return Unauthenticated("An API key is needed: send it as 'authorization: Bearer …' or as 'x-api-key: …'.")
    return Unauthenticated("The API key that was sent is not known here.")
