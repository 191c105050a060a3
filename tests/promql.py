"""A small part of PromQL: enough to evaluate the alert rules on made-up series, as `promtool test rules` does.

Times are seconds. Instant vectors are dictionaries from labels to values. Rates are those of whole windows, without
Prometheus' extrapolation to its edges, which no rule here depends on.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise

import promql_parser as promql

__all__ = ["Labels", "Series", "Vector", "evaluate", "parsed_series", "selectors"]

Labels = frozenset[tuple[str, str]]
Samples = Sequence[tuple[float, float]]
Series = Mapping[Labels, Samples]
Vector = dict[Labels, float]

LOOKBACK_S = 300.0
NAME = "__name__"

_COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    ">": operator.gt,
    "<": operator.lt,
    "==": operator.eq,
}
_ARITHMETIC: dict[str, Callable[[float, float], float]] = {
    "+": operator.add,
    "/": lambda one, other: one / other if other else (math.inf if one > 0 else math.nan),
}
_AGGREGATIONS: dict[str, Callable[[list[float]], float]] = {
    "sum": sum,
    "avg": lambda values: sum(values) / len(values),
}


def selectors(expression: promql.Expr) -> Iterator[promql.VectorSelector]:
    """Every selector in an expression."""
    match expression:
        case promql.VectorSelector():
            yield expression
        case promql.MatrixSelector(vector_selector=selector):
            yield selector
        case promql.Call(args=parts):
            for part in parts:
                yield from selectors(part)
        case promql.BinaryExpr(lhs=left, rhs=right):
            yield from selectors(left)
            yield from selectors(right)
        case promql.AggregateExpr(expr=inner) | promql.ParenExpr(expr=inner):
            yield from selectors(inner)


def parsed_series(text: str, values: str, interval_s: float) -> tuple[Labels, Samples]:
    """A series in promtool's notation: ``a+bxn`` is a, a+b, … (n + 1 values), ``axn`` the same value n + 1 times."""
    (selector,) = selectors(promql.parse(text))
    labels = {(matcher.name, matcher.value) for matcher in selector.matchers.matchers} | {(NAME, str(selector.name))}
    numbers: list[float] = []
    for item in values.split():
        match = re.fullmatch(r"([\d.]+)(?:\+([\d.]+))?(?:x(\d+))?", item)
        assert match is not None, item
        start, step, repeats = float(match[1]), float(match[2] or 0), int(match[3] or 0)
        numbers += [start + step * index for index in range(repeats + 1)]
    return frozenset(labels), [(index * interval_s, number) for index, number in enumerate(numbers)]


def evaluate(expression: promql.Expr, series: Series, now: float) -> Vector | float:
    """The value of an expression at ``now``."""
    match expression:
        case promql.NumberLiteral(val=value):
            return float(value)
        case promql.ParenExpr(expr=inner):
            return evaluate(inner, series, now)
        case promql.VectorSelector():
            found = _selected(expression, series, now - LOOKBACK_S, now)
            return {labels: samples[-1][1] for labels, samples in found.items()}
        case promql.Call(func=function, args=(argument,)):
            return _call(function.name, argument, series, now)
        case promql.AggregateExpr(op=operation, expr=inner, modifier=modifier):
            assert modifier is not None
            assert modifier.type == promql.AggModifierType.By
            groups: dict[Labels, list[float]] = {}
            for labels, value in _vector(inner, series, now).items():
                key = frozenset(pair for pair in labels if pair[0] in modifier.labels)
                groups.setdefault(key, []).append(value)
            return {labels: _AGGREGATIONS[str(operation)](values) for labels, values in groups.items()}
        case promql.BinaryExpr(op=operation, lhs=left, rhs=right):
            return _binary(str(operation), evaluate(left, series, now), evaluate(right, series, now))
    raise AssertionError(f"no rule needed this before: {expression}")


def _vector(expression: promql.Expr, series: Series, now: float) -> Vector:
    value = evaluate(expression, series, now)
    assert isinstance(value, dict)
    return value


def _call(function: str, argument: promql.Expr, series: Series, now: float) -> Vector:
    if function == "absent":
        return {} if _vector(argument, series, now) else {frozenset(): 1.0}
    assert function in {"rate", "increase"}
    assert isinstance(argument, promql.MatrixSelector)
    window = argument.range.total_seconds()
    found = _selected(argument.vector_selector, series, now - window, now)
    grown = {_nameless(labels): _growth(samples) for labels, samples in found.items() if len(samples) > 1}
    return {labels: growth / window if function == "rate" else growth for labels, growth in grown.items()}


def _growth(samples: Samples) -> float:
    """Of a counter, which begins again at 0 when it falls."""
    values = [value for _, value in samples]
    return sum(after - before if after >= before else after for before, after in pairwise(values))


def _binary(operation: str, left: Vector | float, right: Vector | float) -> Vector | float:
    if operation in _COMPARISONS:
        assert isinstance(left, dict)
        assert isinstance(right, float)
        compare = _COMPARISONS[operation]
        return {labels: value for labels, value in left.items() if compare(value, right)}
    if operation == "and":
        assert isinstance(left, dict)
        assert isinstance(right, dict)
        there = {_nameless(labels) for labels in right}
        return {labels: value for labels, value in left.items() if _nameless(labels) in there}
    compute = _ARITHMETIC[operation]
    match left, right:
        case dict(), dict():
            others = {_nameless(labels): value for labels, value in right.items()}
            pairs = ((_nameless(labels), value) for labels, value in left.items())
            return {labels: compute(value, others[labels]) for labels, value in pairs if labels in others}
        case float(), dict():
            return {_nameless(labels): compute(left, value) for labels, value in right.items()}
    raise AssertionError(f"no rule needed this before: {left} {operation} {right}")


def _selected(selector: promql.VectorSelector, series: Series, after: float, until: float) -> dict[Labels, Samples]:
    found: dict[Labels, Samples] = {}
    for labels, samples in series.items():
        values = dict(labels)
        inside = [sample for sample in samples if after < sample[0] <= until]
        if (
            inside
            and values[NAME] == selector.name
            and all(_matches(one, values) for one in selector.matchers.matchers)
        ):
            found[labels] = inside
    return found


def _matches(matcher: promql.Matcher, labels: Mapping[str, str]) -> bool:
    value = labels.get(matcher.name, "")
    match matcher.op:
        case promql.MatchOp.Equal:
            return value == matcher.value
        case promql.MatchOp.Re:
            return re.fullmatch(matcher.value, value) is not None
    raise AssertionError(f"no rule needed this before: {matcher}")


def _nameless(labels: Labels) -> Labels:
    return frozenset(pair for pair in labels if pair[0] != NAME)
