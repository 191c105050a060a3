"""A plan's columns belong together."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from slipstream.workload.arrivals import ConstantArrivals
from slipstream.workload.lengths import FixedLengths
from slipstream.workload.mix import CategoryTraffic, Mix, make_plan
from slipstream.workload.plan import Plan

CATEGORY = CategoryTraffic("chat", 1.0, FixedLengths(10), FixedLengths(20))
PLAN = make_plan(Mix(ConstantArrivals(2.0), (CATEGORY,), (("m", 1.0),), requests=5), 1)


def none_of(plan: Plan) -> Plan:
    columns = {name: getattr(plan, name)[:0] for name in Plan.__slots__ if name not in ("categories", "models")}
    return replace(plan, **columns)


def test_its_duration_is_when_the_last_request_arrives() -> None:
    assert (len(PLAN), PLAN.duration_s) == (5, 2.0)
    assert (len(none_of(PLAN)), none_of(PLAN).duration_s) == (0, 0.0)


def test_columns_of_different_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="of one length"):
        replace(PLAN, quantile=np.array([0.5]))


def test_requests_that_are_not_in_the_order_of_time_are_refused() -> None:
    with pytest.raises(ValueError, match="sorted by arrival"):
        replace(PLAN, arrival_s=PLAN.arrival_s[::-1])
