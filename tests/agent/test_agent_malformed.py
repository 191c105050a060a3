"""Bytes that are no request: the agent answers as ever, and writes them to no log, since they may hold its token."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from agent_rig import rig
from no_requests import NO_REQUESTS, answer_to


@pytest.mark.parametrize("data", NO_REQUESTS.values(), ids=NO_REQUESTS.keys())
async def test_bytes_that_are_no_command_are_a_400_and_in_no_log(data: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async with rig(serve=True) as one:
        with capture_logs() as logged:
            status, body = await answer_to(one.url, data.replace(b"/COMMAND", b"/speculation"))
    assert status == 400
    assert body["error"]["code"] in ("invalid_request", "invalid_body")
    assert "secret" not in body["error"]["message"]
    assert (caplog.records, logged) == ([], [])
