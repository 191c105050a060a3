"""What differs between two configurations is said in their own keys."""

from __future__ import annotations

import pytest

from slipstream.config import parse
from slipstream.config.difference import differences

NODE = 'nodes: [{name: a, url: "http://h:1", pool: speculative}]\n'


KEYS = "gateway: {{keys: [{}]}}\n"
ONE, OTHER = "sha256:" + "0" * 64, "sha256:" + "1" * 64


@pytest.mark.parametrize(
    ("after", "words"),
    [
        (NODE, []),
        (NODE + "pools: {speculative: {ceiling: 12}}\n", ["pools.speculative.ceiling 8 → 12"]),
        (
            NODE + "log: {level: debug}\nrouting: {pins: {chat: standard}}\n",
            [
                "routing.pins.chat left out → standard",
                "log.level info → debug",
            ],
        ),
        (NODE + "category_rules: [{category: chat, words: [hello]}]\n", ["category_rules changed"]),
        (NODE + "categories: {sql: }\n", ["categories.sql changed"]),
        (
            NODE.replace("h:1", "h:2").replace("}]", ", models: [m]}, {name: b, url: 'http://i', pool: standard}]"),
            ["node a url http://h:1 → http://h:2", "node a models changed", "node b added"],
        ),
        ('nodes: [{name: b, url: "http://h:1", pool: speculative}]', ["node b added", "node a removed"]),
        (
            NODE + KEYS.format(f"{{id: a, hash: {ONE}}}, {{id: b, hash: {OTHER}}}"),
            ["gateway.keys a added", "gateway.keys b added"],
        ),
        (NODE.replace("}", ", api_key: {env: PATH}}"), ["node a api_key changed"]),
    ],
)
def test_each_key_and_node_that_differs_is_named(after: str, words: list[str]) -> None:
    assert list(differences(parse(NODE, "f"), parse(after, "f"))) == words


@pytest.mark.parametrize(
    ("after", "words"),
    [
        (f"{{id: a, hash: {ONE}}}", ["gateway.keys b removed"]),
        (f"{{id: b, hash: {OTHER}}}, {{id: a, hash: {ONE}}}", ["gateway.keys in another order"]),
        (
            f"{{id: a, hash: {OTHER}}}, {{id: c, hash: {ONE}}}",
            ["gateway.keys a changed", "gateway.keys c added", "gateway.keys b removed"],
        ),
        (
            f"{{id: a, hash: {ONE}, max_in_flight: 2}}, {{id: b, hash: {OTHER}}}",
            ["gateway.keys a changed"],
        ),
    ],
)
def test_keys_that_differ_are_named_by_their_ids_and_no_hash_is_told(after: str, words: list[str]) -> None:
    before = f"{{id: a, hash: {ONE}}}, {{id: b, hash: {OTHER}}}"
    assert list(differences(*(parse(NODE + KEYS.format(keys), "f") for keys in (before, after)))) == words
