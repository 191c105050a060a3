"""What the core tells of itself, in the log: it knows no log, so it is handed these."""

from __future__ import annotations

import structlog

from slipstream.core.circuit import CircuitState
from slipstream.core.node_state import NodeState
from slipstream.core.overrides import Change, Override

__all__ = ["log_calibration", "log_circuit", "log_override"]

_log = structlog.get_logger()


def log_override(change: Change, override: Override) -> None:
    """An operator's override was set, replaced, cleared or expired. A key is named by its id."""
    lasts = None if override.expires_at is None else round(override.expires_at - override.set_at, 3)
    _log.info(
        f"override.{change}",
        kind=override.kind,
        subject=override.subject,
        value=override.value,
        for_s=lasts,
        note=override.note,
    )


def log_circuit(node: NodeState) -> None:
    """A node's circuit changed its state."""
    state, ejections = node.circuit.state, node.circuit.ejections
    if state is CircuitState.OPEN:
        _log.warning("node.ejected", node=node.name, ejections=ejections)
    elif state is CircuitState.CLOSED:
        _log.info("node.readmitted", node=node.name, ejections=ejections)


def log_calibration(node: NodeState) -> None:
    """A node's calibration no longer holds, or holds again."""
    recheck = node.recheck
    if recheck.stale:
        because = "; ".join(([recheck.change] if recheck.change else []) + list(recheck.departed.values()))
        _log.warning(
            "calibration.stale", node=node.name, because=because, ceiling=node.ceiling, fallen_back=recheck.fallen_back
        )
    else:
        _log.info("calibration.holds", node=node.name, ceiling=node.ceiling)
