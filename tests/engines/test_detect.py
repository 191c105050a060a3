"""Which engine a node runs is told from its pages, and not guessed."""

from __future__ import annotations

import pytest

from recorded_engine import llamacpp_pages, sglang_pages, trtllm_pages, vllm_pages
from slipstream.engines.catalogue import ENGINES
from slipstream.engines.detect import PROBE_PATHS, detect

LLAMACPP = llamacpp_pages()
VLLM = vllm_pages()
SGLANG = sglang_pages()
TRTLLM = trtllm_pages()
FOREIGN = {
    "/v1/models": b'{"object":"list","data":[{"id":"m","object":"model","owned_by":"lmdeploy"}]}',
    "/metrics": b"lmdeploy:num_requests_running 1\n",
    "/props": b"{}",
    "/version": b'{"version":"0.5.23"}',
}


@pytest.mark.parametrize(
    ("pages", "engine"),
    [
        (LLAMACPP, "llamacpp"),
        (VLLM, "vllm"),
        ({"/metrics": LLAMACPP["/metrics"]}, "llamacpp"),
        ({"/metrics": VLLM["/metrics"]}, "vllm"),
        ({"/v1/models": VLLM["/v1/models"]}, "vllm"),
        ({"/props": LLAMACPP["/props"]}, "llamacpp"),
        ({"/v1/models": SGLANG["/v1/models"]}, "sglang"),
        ({"/metrics": SGLANG["/metrics"]}, "sglang"),
        ({"/v1/models": TRTLLM["/v1/models"]}, "trtllm"),
        # A proxy that renames the owner of models still passes the metrics on.
        ({"/v1/models": FOREIGN["/v1/models"], "/metrics": VLLM["/metrics"]}, "vllm"),
        # Pages of two engines behind one address: the first page that speaks for just one decides.
        ({"/v1/models": VLLM["/v1/models"] + LLAMACPP["/v1/models"], "/metrics": LLAMACPP["/metrics"]}, "llamacpp"),
    ],
)
def test_an_engine_is_known_by_its_pages(pages: dict[str, bytes], engine: str) -> None:
    assert detect(pages) is ENGINES[engine]


@pytest.mark.parametrize(
    "pages",
    [
        {},
        FOREIGN,
        {"/version": VLLM["/version"]},
        {"/metrics": VLLM["/metrics"] + LLAMACPP["/metrics"]},
        {"/metrics": b'proxy_upstream{name="vllm:8000"} 1\n'},
        {"/v1/models": b'{"data":[{"id":"owned_by vllm","owned_by":"me"}]}'},
        {"/v1/models": b"<html>llamacpp</html>"},
    ],
)
def test_an_engine_without_marks_of_its_own_stays_unknown(pages: dict[str, bytes]) -> None:
    assert detect(pages) is None


def test_every_mark_is_on_a_page_that_is_fetched() -> None:
    assert {path for engine in ENGINES.values() for path in engine.marks} == set(PROBE_PATHS)
