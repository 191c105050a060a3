"""Every error has its status, and every body is an OpenAI error object."""

from __future__ import annotations

import json

import pytest

from slipstream.core import errors
from slipstream.core.errors import SlipstreamError
from slipstream.gateway.problems import ROWS, problem_body, problem_headers, row_of

NAMED = [getattr(errors, name) for name in errors.__all__]
TREE = [kind for kind in NAMED if issubclass(kind, SlipstreamError)]
LEAVES = [kind for kind in TREE if not any(kind in other.__bases__ for other in TREE)]


def test_the_tree_has_leaves_in_every_branch() -> None:
    assert {errors.InvalidBody, errors.AllFull, errors.EngineGarbage, errors.MalformedRequest} <= set(LEAVES)


@pytest.mark.parametrize("kind", LEAVES)
def test_every_leaf_of_the_error_tree_has_a_row_of_its_own(kind: type[SlipstreamError]) -> None:
    assert kind in ROWS


def test_codes_are_unique_and_statuses_are_errors() -> None:
    assert len({row.code for row in ROWS.values()}) == len(ROWS)
    assert all(400 <= row.status < 600 for row in ROWS.values())


def test_an_error_without_a_row_takes_that_of_its_nearest_ancestor() -> None:
    class Special(errors.AllFull):
        pass

    class Foreign(SlipstreamError):
        pass

    assert row_of(Special("x")).status == 429
    assert row_of(Foreign("x")).status == 500


def test_the_body_names_the_field_to_blame() -> None:
    body = json.loads(problem_body(errors.InvalidField("The field 'n' is odd: \u00e9 \"quoted\".", "n")))
    assert body == {
        "error": {
            "message": "The field 'n' is odd: \u00e9 \"quoted\".",
            "type": "invalid_request_error",
            "param": "n",
            "code": "invalid_field",
        }
    }
    assert json.loads(problem_body(errors.AllFull("x")))["error"]["param"] is None


def test_headers_say_when_to_come_back_and_which_methods_to_use() -> None:
    assert problem_headers(errors.AllFull("x", 7)) == b"retry-after: 7\r\n"
    assert problem_headers(errors.NothingUsable("x", 2)) == b"retry-after: 2\r\n"
    assert problem_headers(errors.UpstreamFailed("x")) == b""
    assert problem_headers(errors.WrongMethod("x", ("GET", "HEAD"))) == b"allow: GET, HEAD\r\n"
    assert problem_headers(errors.InvalidBody("x")) == b""
