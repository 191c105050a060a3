"""What the core tells of itself, as lines of the log."""

from __future__ import annotations

from structlog.testing import capture_logs

from fleets import standard
from slipstream.core.node_state import NodeState
from slipstream.telemetry.events import log_circuit


def test_a_node_is_told_to_be_ejected_and_readmitted_and_its_trials_are_not() -> None:
    node = NodeState(standard("t"), 0.0)
    with capture_logs() as logs:
        node.circuit.open(0.0)
        log_circuit(node)
        node.circuit.half_open()
        log_circuit(node)
        node.circuit.close(1.0)
        log_circuit(node)
    assert logs == [
        {"event": "node.ejected", "log_level": "warning", "node": "t", "ejections": 1},
        {"event": "node.readmitted", "log_level": "info", "node": "t", "ejections": 1},
    ]
