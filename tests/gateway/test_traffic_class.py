"""Who says whether a person waits: the key, then a header where it is believed, then the body."""

from __future__ import annotations

import json

import pytest

from slipstream.core.category import Categorizer, CategoryRule
from slipstream.core.keys import KeyPolicy
from slipstream.core.request import Pool, RequestShape, TrafficClass
from slipstream.gateway.headers import RequestHead
from slipstream.gateway.reading import RequestReader

INTERACTIVE, BULK = TrafficClass
PATH = "/v1/chat/completions"


def read(
    policy: KeyPolicy | None = None,
    *,
    header: str | None = None,
    tier: str | None = None,
    trusting: bool = False,
    category: str | None = None,
) -> RequestShape:
    categorizer = Categorizer([CategoryRule("code", pattern="def ")], "chat")
    names = frozenset({"code", "chat"})
    reader = RequestReader(categorizer, names, {"code": Pool.SPECULATIVE}, trusting=trusting, trusting_class=trusting)
    headers = [(b"X-Slipstream-Class", header.encode())] if header is not None else []
    headers += [(b"x-slipstream-category", category.encode())] if category is not None else []
    body = {"model": "m", "messages": [{"role": "user", "content": "hello"}], "service_tier": tier}
    return reader.read(PATH, json.dumps(body).encode(), RequestHead(headers), policy)


@pytest.mark.parametrize(
    ("policy", "header", "tier", "trusting", "expected"),
    [
        (None, None, None, False, INTERACTIVE),
        (None, None, "flex", False, BULK),
        (None, None, "priority", False, INTERACTIVE),
        (None, "bulk", None, False, INTERACTIVE),
        (None, "bulk", None, True, BULK),
        (None, "interactive", "flex", True, INTERACTIVE),
        (None, "batch", "flex", True, BULK),
        (KeyPolicy("k", traffic_class=BULK), "interactive", None, True, BULK),
        (KeyPolicy("k", traffic_class=INTERACTIVE), None, "flex", True, INTERACTIVE),
        (KeyPolicy("k", trusts_class=True), "bulk", None, False, BULK),
        (KeyPolicy("k", trusts_class=False), "bulk", None, True, INTERACTIVE),
        (KeyPolicy("k"), "bulk", None, True, BULK),
    ],
)
def test_the_key_then_a_believed_header_then_the_body(
    policy: KeyPolicy | None, header: str | None, tier: str | None, trusting: bool, expected: TrafficClass
) -> None:
    assert read(policy, header=header, tier=tier, trusting=trusting).traffic_class is expected


@pytest.mark.parametrize(
    ("policy", "trusting", "expected"),
    [
        (None, False, "chat"),
        (None, True, "code"),
        (KeyPolicy("k", trusts_category=True), False, "code"),
        (KeyPolicy("k", trusts_category=False), True, "chat"),
        (KeyPolicy("k"), True, "code"),
    ],
)
def test_a_category_is_believed_as_the_key_says(policy: KeyPolicy | None, trusting: bool, expected: str) -> None:
    assert read(policy, category="code", trusting=trusting).category == expected
    assert read(policy, category="unheard-of", trusting=True).category == "chat"


def test_the_pool_of_a_key_goes_before_that_of_the_category() -> None:
    assert read(category="code", trusting=True).pinned_pool is Pool.SPECULATIVE
    assert read(KeyPolicy("k"), category="code", trusting=True).pinned_pool is Pool.SPECULATIVE
    pinned = KeyPolicy("k", pinned_pool=Pool.STANDARD)
    assert read(pinned, category="code", trusting=True).pinned_pool is Pool.STANDARD
