"""Which node made a response that the client may refer to: its state is there and nowhere else."""

from __future__ import annotations

from collections.abc import Collection

from slipstream.core.errors import AllFull, NothingUsable, ResponseNotFound
from slipstream.core.node_state import NodeState
from slipstream.core.recent import RecentMap

__all__ = ["REMEMBERED_S", "RESPONSES_REMEMBERED", "ResponseOwners"]

RESPONSES_REMEMBERED = 32_768
REMEMBERED_S = 12 * 3600.0
"""No response is remembered longer; all are at least half as long, unless half of the places are filled before."""

MAX_ID_CHARACTERS = 256
"""Ids are the nodes' own word: a longer one is no id, and is not kept."""


class ResponseOwners:
    """The owners of responses, by id. Bounded in number and in time."""

    __slots__ = ("_aged_at", "_owners")

    def __init__(self, now: float = 0.0) -> None:
        self._owners: RecentMap[str, NodeState] = RecentMap(RESPONSES_REMEMBERED)
        self._aged_at = now

    def remember(self, response_id: str, node: NodeState, now: float) -> None:
        """``node`` made this response."""
        self._age(now)
        if len(response_id) <= MAX_ID_CHARACTERS:
            self._owners.put(response_id, node)

    def owner(self, response_id: str, sequences: int, now: float, avoid: Collection[str] = ()) -> NodeState:
        """The node to which a request must go that refers to the response.

        Raises ResponseNotFound when it is not known or its node is out, AllFull when the node has no room for
        ``sequences``, NothingUsable when it is one of ``avoid``, that is, has just failed.
        """
        self._age(now)
        node = self._owners.get(response_id)
        shown = response_id[:100]
        if node is None:
            raise ResponseNotFound(
                f"No node is known to hold the response '{shown}': this gateway has not seen it made, or no longer "
                "remembers it.",
                "previous_response_id",
            )
        out = _out_because(node)
        if out is not None:
            raise ResponseNotFound(
                f"The response '{shown}' is held by node '{node.name}', which {out}.", "previous_response_id"
            )
        if node.name in avoid:
            raise NothingUsable(f"Node '{node.name}', which alone holds the response '{shown}', has just failed.")
        if node.refusing or not node.fits(sequences):
            raise AllFull(f"Node '{node.name}', which alone holds the response '{shown}', is at its limit.")
        return node

    def _age(self, now: float) -> None:
        if now - self._aged_at >= REMEMBERED_S / 2:
            if now - self._aged_at >= REMEMBERED_S:
                self._owners.age()
            self._owners.age()
            self._aged_at = now


def _out_because(node: NodeState) -> str | None:
    """Why a node can take no request whatever, as the end of a sentence; ``None`` when it can."""
    if node.group is None:
        return "has left the fleet"
    if not node.healthy:
        return "can not be reached"
    return "is being drained" if node.draining else None
