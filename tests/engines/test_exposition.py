"""Reading named series agrees with the reference parser, and never takes a missing or broken one for a number."""

from __future__ import annotations

import math
from collections.abc import Iterable
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Gauge, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from slipstream.core.errors import EngineGarbage
from slipstream.engines.exposition import MAX_LINE_BYTES, MAX_LINES, check_page, samples, samples_by_label

NAMES = ("load", "load_total", "load_by_reason", "x:load", "other")
VALUES = st.floats(width=32) | st.integers(0, 2**53).map(float)
LABEL_VALUES = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)


@st.composite
def pages(draw: st.DrawFn) -> bytes:
    """A page as the reference client writes it: names that are prefixes of one another, awkward label values."""
    registry = CollectorRegistry()
    for name in draw(st.permutations(NAMES)):
        labelled = draw(st.booleans())
        gauge = Gauge(name, draw(LABEL_VALUES), ["model", "position"] if labelled else [], registry=registry)
        if not labelled:
            gauge.set(draw(VALUES))
            continue
        for model, position in draw(st.sets(st.tuples(LABEL_VALUES, st.integers(0, 3)), max_size=4)):
            gauge.labels(model, str(position)).set(draw(VALUES))
    return generate_latest(registry)


@pytest.mark.no_cover
@given(pages(), st.sampled_from((*NAMES, "loa", "load_", "absent")))
def test_every_value_of_a_metric_is_read_as_the_reference_parser_reads_it(page: bytes, name: str) -> None:
    families = text_string_to_metric_families(page.decode())
    expected = [sample.value for family in families for sample in family.samples if sample.name == name]
    check_page(page)
    assert _comparable(samples(page, name.encode())) == _comparable(expected)


@pytest.mark.no_cover
@given(pages(), st.sampled_from(NAMES))
def test_positions_are_summed_as_the_reference_parser_reads_them(page: bytes, name: str) -> None:
    expected: dict[bytes, float] = {}
    for family in text_string_to_metric_families(page.decode()):
        for sample in family.samples:
            if sample.name == name and "position" in sample.labels:
                key = sample.labels["position"].encode()
                expected[key] = expected.get(key, 0.0) + sample.value
    found = samples_by_label(page, name.encode(), b"position")
    assert found.keys() == expected.keys()
    assert _comparable(found[key] for key in expected) == _comparable(expected.values())


def _comparable(values: Iterable[float]) -> list[str]:
    """Values as text, in which one NaN is like another."""
    return [repr(value) for value in values]


@pytest.mark.parametrize(
    ("written", "value"),
    [(b"84.0", 84.0), (b"1.7960213911289616e+09", 1796021391.1289616), (b"+Inf", math.inf), (b"3 1796021391000", 3.0)],
)
def test_values_are_read_as_the_format_allows_them(written: bytes, value: float) -> None:
    assert samples(b"running " + written + b"\n", b"running") == [value]


def test_nan_is_read_as_nan() -> None:
    assert math.isnan(samples(b"running NaN\n", b"running")[0])


@pytest.mark.parametrize(
    "page",
    [
        b"",
        b"# HELP running of running\n# TYPE running gauge\n",
        b"running_total 1\n",
        b"running_created 1.7e9\n",
        b"vllm:running 1\n",
        b'other{name="running"} 1\n',
        b'other{name="\\nrunning 7"} 1\n',
    ],
)
def test_a_metric_that_is_not_there_has_no_samples(page: bytes) -> None:
    check_page(page)
    assert samples(page, b"running") == []


def test_a_longer_name_before_the_wanted_one_is_passed_over() -> None:
    page = b'waiting_by_reason{reason="capacity"} 5\nwaiting_total 6\nwaiting{engine="0"} 2\nwaiting{engine="1"} 3\n'
    assert samples(page, b"waiting") == [2.0, 3.0]


def test_a_label_value_that_looks_like_a_label_is_not_taken_for_one() -> None:
    page = b'accepted{model="a,position=\\"9\\"} ",position="0"} 4\naccepted{model="b",position="0"} 5\n'
    assert samples_by_label(page, b"accepted", b"position") == {b"0": 9.0}


@pytest.mark.parametrize("labels", [b"a" * 16_000, b'a="' * 5_000, b"a =" * 5_000, b"{," * 8_000, b'a="\\' * 4_000])
def test_a_label_block_that_is_none_costs_a_look_at_each_byte_and_no_more(labels: bytes) -> None:
    """256 such lines fit in a page. With a search that begins anew at each byte they take minutes."""
    line = b"accepted{" + labels + b"} 30\n"
    assert samples_by_label(line * 256, b"accepted", b"position") == {}


@given(st.binary(max_size=60), st.sampled_from((b"", b'position="1"', b'a="b",position="1"')))
def test_no_label_block_raises_anything_but_garbage(noise: bytes, label: bytes) -> None:
    with suppress(EngineGarbage):
        samples_by_label(b"accepted{" + noise + label + b"} 30\n", b"accepted", b"position")


@pytest.mark.parametrize("size", [MAX_LINE_BYTES + 1, 400_000])
def test_a_wanted_line_that_is_too_long_is_garbage(size: int) -> None:
    line = b"accepted{" + b"a" * (size - len(b"accepted{} 30")) + b"} 30\n"
    with pytest.raises(EngineGarbage, match=f"a line of {size} bytes for the metric accepted"):
        samples_by_label(line, b"accepted", b"position")


def test_the_longest_line_that_may_be_is_read() -> None:
    line = b'accepted{position="0",model="%s"} 30\n'
    page = line % (b"a" * (MAX_LINE_BYTES + 1 - len(line % b"")))
    assert samples_by_label(page, b"accepted", b"position") == {b"0": 30.0}


def test_as_many_lines_of_a_metric_as_no_engine_has_are_garbage() -> None:
    assert samples(b"running 1\n" * MAX_LINES + b"waiting 2\n", b"running") == [1.0] * MAX_LINES
    with pytest.raises(EngineGarbage, match="more than 10000 lines of the metric running"):
        samples(b"running 1\n" * (MAX_LINES + 1), b"running")


def test_a_long_line_that_nobody_asked_for_is_passed_over() -> None:
    assert samples(b"# HELP running " + b"a" * 400_000 + b"\nrunning 1\n", b"running") == [1.0]


@pytest.mark.parametrize("line", [b"running \n", b"running{\n", b'running{a="b"}\n', b"running idle\n"])
def test_a_wanted_line_without_a_number_is_garbage(line: bytes) -> None:
    with pytest.raises(EngineGarbage, match="running"):
        samples(b"other 1\n" + line, b"running")


def test_a_last_line_without_its_end_is_still_read() -> None:
    assert samples(b"running 1\nwaiting 2", b"waiting") == [2.0]


@pytest.mark.parametrize(
    "page",
    [
        b"<!doctype html><html><body>It works</body></html>\n",
        b'{"error":"loading model"}\n',
        b"Not Found\n",
        b"\x89PNG\r\n\x1a\n\x00\x00",
    ],
)
def test_what_is_not_a_page_of_metrics_is_garbage(page: bytes) -> None:
    with pytest.raises(EngineGarbage, match="begins with"):
        check_page(page)


def test_a_page_cut_off_in_a_line_is_garbage() -> None:
    with pytest.raises(EngineGarbage, match=r"cut off.*waiting 1"):
        check_page(b"running 1\nwaiting 1")
