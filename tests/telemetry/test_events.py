"""What the core tells of itself, as lines of the log."""

from __future__ import annotations

from structlog.testing import capture_logs

from fleets import standard
from slipstream.core.node_state import NodeState
from slipstream.core.overrides import FLEET, Change, Override, OverrideKind
from slipstream.telemetry.events import log_calibration, log_circuit, log_override


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


def test_an_override_is_told_to_last_what_was_asked_for() -> None:
    set_at = 4_099.1
    ends = set_at + 3_600.1
    assert ends - set_at != 3_600.1
    with capture_logs() as logs:
        log_override(Change.SET, Override(OverrideKind.SPECULATION, FLEET, None, "", set_at, ends))
    assert [line["for_s"] for line in logs] == [3_600.1]


def test_a_calibration_that_no_longer_holds_is_told_with_why_and_with_the_ceiling() -> None:
    node = NodeState(standard("t"), 0.0)
    with capture_logs() as logs:
        log_calibration(node)
        node.recheck.departed = {"time": "it is slower"}
        log_calibration(node)
        node.recheck.change = "version 1 became 2"
        node.recheck.fallen_back = True
        log_calibration(node)
    holds, slower, other = logs
    assert holds == {"event": "calibration.holds", "log_level": "info", "node": "t", "ceiling": 8}
    assert (slower["event"], slower["log_level"], slower["because"]) == (
        "calibration.stale",
        "warning",
        "it is slower",
    )
    assert (other["because"], other["fallen_back"]) == ("version 1 became 2; it is slower", True)
