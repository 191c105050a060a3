"""What clients say makes no series: labels are names that the configuration has, or that the program has."""

from __future__ import annotations

import re

from live_service import Live, eventually, live
from test_service import CODE, config_of
from test_service_keys import keys
from vllm_like_node import MODEL, Drafts, vllm_like


async def strange_requests(fleet: Live, start: int) -> None:
    """Requests with a word of their own, in everything that a client may choose."""
    for number in range(start, start + 20):
        word = f"word{number}"
        headers = {
            "authorization": f"Bearer {'ANY' if number % 2 else word}",
            "x-slipstream-category": word,
            "x-slipstream-class": word,
            "x-request-id": word,
            "x-session-id": word,
            "user-agent": word,
        }
        body = {"model": MODEL if number % 3 else word, "messages": [{"role": word, "content": CODE}], "user": word}
        for path in ("/v1/chat/completions", f"/v1/{word}", f"/{word}"):
            async with fleet.session.post(f"{fleet.service.gateway_url}{path}", json=body, headers=headers) as response:
                await response.read()


async def page(fleet: Live) -> str:
    async with fleet.session.get(fleet.service.admin_url + "/metrics") as response:
        return await response.text()


def series(text: str) -> set[str]:
    return {line.rpartition(" ")[0] for line in text.splitlines() if not line.startswith("#")}


async def test_no_word_of_a_client_is_a_label_and_more_clients_make_no_more_series() -> None:
    async with (
        vllm_like(Drafts(20, 60)) as spec,
        vllm_like() as std,
        live(config_of(spec, std, gateway=keys(any={}, other={}))) as fleet,
    ):
        await strange_requests(fleet, 0)
        await eventually(lambda: fleet.service.lag.worst_s is not None)  # it has a series once it is known
        first = await page(fleet)
        await strange_requests(fleet, 100)
        second = await page(fleet)
        categories = set(fleet.service.config.categories)
    assert "word" not in first + second
    assert series(first) == series(second)
    for label, names in (("node", {"spec-0", "std-0"}), ("key", {"any", "other"})):
        assert set(re.findall(rf'[{{,]{label}="([^"]*)"', second)) == names
    assert set(re.findall(r'[{,]category="([^"]*)"', second)) <= categories
