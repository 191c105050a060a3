"""What a fleet tells about itself where requests say nothing: splits of node counters."""

from __future__ import annotations

import pytest

from fleets import MODEL, dispatcher_of, fleet_of, speculative
from slipstream.core.acceptance import CounterDelta
from slipstream.core.node import Speculator, SpeculatorKind
from slipstream.core.summary import category_summaries, node_summaries

DRAFT = Speculator(SpeculatorKind.DRAFT, 4)


def test_a_category_is_shown_by_the_split_of_counters_when_no_request_told_anything() -> None:
    dispatcher = dispatcher_of(fleet_of(speculative("s")))
    book = dispatcher.evidence.book
    for window in range(40):
        code = 0.2 + 0.6 * (window % 4) / 3
        steps = 1000.0
        accepted = steps * (code * 2.4 + (1 - code) * 0.6)
        delta = CounterDelta(10.0, False, 4 * steps, accepted, steps, steps + accepted, None)
        book.attribute(MODEL, DRAFT, "s", delta, {"code": code * 10, "chat": (1 - code) * 10}, window * 10.0)
    code_row, chat_row, math_row = category_summaries(dispatcher, ["code", "chat", "math"])
    assert code_row.tau == pytest.approx(3.4, abs=0.1)
    assert chat_row.tau == pytest.approx(1.6, abs=0.1)
    assert (code_row.drafted, code_row.evidence_requests) == (None, 0)
    assert (math_row.tau, math_row.alpha, math_row.interval) == (None, None, None)


def test_a_node_says_nothing_of_itself_before_its_first_report() -> None:
    (row,) = node_summaries(dispatcher_of(fleet_of(speculative("s"), report_all=False)), 0.0)
    assert (row.state, row.occupancy, row.capacity_left, row.report_age_s) == ("unhealthy", None, None, None)
    assert (row.drafted, row.tau, row.saturated_share) == (None, None, None)
