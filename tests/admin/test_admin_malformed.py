"""Bytes that are no request: answered as everything here is, and written to no log, since they may hold a token."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from fleets import dispatcher_of, fleet_of
from no_requests import NO_REQUESTS, answer_to
from slipstream.admin import Admin, serve_admin
from slipstream.telemetry import FleetCollector, Instruments


@pytest.mark.parametrize("data", NO_REQUESTS.values(), ids=NO_REQUESTS.keys())
async def test_bytes_that_are_no_request_are_a_400_and_in_no_log(data: bytes, caplog: pytest.LogCaptureFixture) -> None:
    dispatcher = dispatcher_of(fleet_of())
    collector = FleetCollector(dispatcher, Instruments(), ["chat"], lambda: 0.5, lambda: None)
    admin = Admin(dispatcher, collector, lambda: 0.5, version="1")
    with capture_logs() as logged:
        async with serve_admin(admin, "127.0.0.1", 0) as url:
            status, body = await answer_to(url, data.replace(b"/COMMAND", b"/overrides"))
    assert status == 400
    assert list(body["error"]) == ["message"]
    assert "secret" not in body["error"]["message"]
    assert (caplog.records, logged) == ([], [])
