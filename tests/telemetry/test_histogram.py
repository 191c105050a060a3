"""The histogram counts as Prometheus' own does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry
from prometheus_client import Histogram as PrometheusHistogram

from slipstream.telemetry.histogram import Histogram

BOUNDS = (0.1, 0.5, 2.0)


@given(st.lists(st.sampled_from([*BOUNDS, 0.0, 0.05, 0.3, 1.0, 9.0])))
def test_buckets_and_sum_agree_with_the_library(values: list[float]) -> None:
    ours, registry = Histogram(BOUNDS), CollectorRegistry()
    theirs = PrometheusHistogram("h", "h", registry=registry, buckets=BOUNDS)
    for value in values:
        ours.observe(value)
        theirs.observe(value)
    assert ours.total == pytest.approx(sum(values))
    for bound, count in ours.buckets():
        assert registry.get_sample_value("h_bucket", {"le": bound}) == count
