"""Which path takes which method."""

from __future__ import annotations

import pytest

from slipstream.core.errors import UnknownPath, WrongMethod
from slipstream.gateway.routes import Endpoint, allowed_methods, endpoint_of


@pytest.mark.parametrize(
    ("method", "path", "endpoint"),
    [
        ("POST", "/v1/chat/completions", Endpoint.READ),
        ("POST", "/v1/completions", Endpoint.READ),
        ("GET", "/v1/models", Endpoint.MODELS),
        ("HEAD", "/v1/models", Endpoint.MODELS),
        ("GET", "/v1/models/org/name", Endpoint.MODEL),
        ("GET", "/health", Endpoint.HEALTH),
        ("GET", "/ready", Endpoint.READY),
        ("POST", "/v1/embeddings", Endpoint.READ),
        ("POST", "/v1/messages", Endpoint.READ),
        ("POST", "/v1/responses", Endpoint.READ),
        ("DELETE", "/v1/files/a.b..c", Endpoint.PASSED_THROUGH),
        ("GET", "/v1/files/..a;b%20c", Endpoint.PASSED_THROUGH),
        ("POST", "/v1/messages/count_tokens", Endpoint.PASSED_THROUGH),
        ("POST", "/v1/rerank", Endpoint.PASSED_THROUGH),
        ("DELETE", "/v1/responses/resp_1", Endpoint.PASSED_THROUGH),
    ],
)
def test_known_paths(method: str, path: str, endpoint: Endpoint) -> None:
    assert endpoint_of(method, path) is endpoint
    assert method in allowed_methods(path)


@pytest.mark.parametrize(
    "path",
    [
        "/", "", "*", "/v1", "/v1x", "/metrics", "/V1/models", "/health/",
        "/v1/../sleep", "/v1/x/..", "/v1/./x", "/v1//x", "/v1/%2e%2e/sleep",
        "/v1/%2E./x", "/v1/a%2Fb", "/v1/a\\b", "/v1/a%5cb", "/v1/..;/sleep", "/v1/x/.;a=b", "/v1/;/x", "/v1/..%3b/x",
        "/v1/a\x00b", "/v1/a\tb", "/v1/a\x7f", "/v1/a%00b", "/v1/a%0D%0Ab", "/v1/a%7Fb",
    ],
)  # fmt: skip
def test_other_paths_and_ways_out_of_v1_are_unknown(path: str) -> None:
    with pytest.raises(UnknownPath, match="no endpoint"):
        endpoint_of("POST", path)


@pytest.mark.parametrize(("method", "path"), [("GET", "/v1/completions"), ("POST", "/v1/models"), ("TRACE", "/v1/x")])
def test_wrong_methods_say_which_are_right(method: str, path: str) -> None:
    with pytest.raises(WrongMethod) as caught:
        endpoint_of(method, path)
    assert caught.value.allowed == allowed_methods(path)
    assert method in str(caught.value)
