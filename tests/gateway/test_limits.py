"""How many clients there may be."""

from __future__ import annotations

import resource

import pytest

from slipstream.config.loading import parse
from slipstream.gateway.limits import connections_allowed
from slipstream.settings import settings_of

NODES = 'nodes: [{name: a, url: "http://a", pool: standard}]\n'


@pytest.mark.parametrize(
    ("descriptors", "connections"), [(1024, 480), (20_000, 9968), (10, 1), (2**40, 999_968), (-1, 1_000_000)]
)
def test_each_client_may_need_a_descriptor_more_for_a_node(
    descriptors: int, connections: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (descriptors, descriptors))
    assert connections_allowed() == connections


def test_the_configuration_may_allow_fewer_or_more() -> None:
    assert settings_of(parse(NODES, "f")).limits.max_connections == connections_allowed()
    limits = settings_of(parse(NODES + "gateway: {max_connections: 7, timeouts: {client_head_s: 3}}", "f")).limits
    assert (limits.max_connections, limits.client_head_s) == (7, 3.0)
