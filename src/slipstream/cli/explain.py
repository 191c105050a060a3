"""``slipstream explain``: why a request went where it went."""

from __future__ import annotations

import json
from typing import Annotated, Any
from urllib.parse import quote

import typer
from rich.console import Console, Group, RenderableType
from rich.text import Text

from slipstream.cli.admin_client import DEFAULT_URL, AdminUnreachable, fetch
from slipstream.cli.tables import candidate_table, number

__all__ = ["attempt_report", "explain"]


def explain(
    request_id: Annotated[str, typer.Argument(help="The x-request-id of the answer.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
    url: Annotated[str, typer.Option(help="Address of the admin API.")] = DEFAULT_URL,
) -> None:
    """Show where a request went and why, and why every other node did not get it."""
    try:
        answer = fetch(url, f"/decisions/{quote(request_id, safe='')}")
    except AdminUnreachable as error:
        typer.echo(error, err=True)
        raise typer.Exit(1) from None
    if as_json:
        print(json.dumps(answer, indent=2))
        return
    console = Console()
    for attempt in answer["attempts"]:
        console.print(attempt_report(attempt))


def attempt_report(attempt: dict[str, Any]) -> RenderableType:
    """One attempt of the admin API's ``/decisions/{request_id}`` as text and a table."""
    candidates = attempt["candidates"]
    return Group(
        Text.assemble((attempt["request_id"], "bold"), f", {number(attempt['age_s'])} s ago: {_request(attempt)}"),
        Text.assemble("to ", (attempt["node"], "bold"), f" ({attempt['pool']}), because ", (attempt["reason"], "bold")),
        Text(_outcome(attempt)),
        Text("how other nodes looked then is no longer known", "dim")
        if candidates is None
        else candidate_table(candidates),
        Text(""),
    )


def _request(attempt: dict[str, Any]) -> str:
    limit = attempt["output_limit"]
    parts = [
        attempt["category"],
        attempt["model"],
        attempt["class"],
        "streamed" if attempt["streamed"] else "not streamed",
        f"at most {limit} tokens" if limit is not None else "no token limit",
    ]
    if attempt["sequences"] > 1:
        parts.append(f"{attempt['sequences']} sequences")
    return ", ".join(parts)


def _outcome(attempt: dict[str, Any]) -> str:
    if attempt["ending"] is None:
        return "still running"
    parts = [attempt["ending"].replace("_", " ")]
    if attempt["status"] is not None:
        parts.append(f"status {attempt['status']}")
    for key, name, unit in (
        ("ttft_ms", "TTFT", " ms"),
        ("tpot_ms", "TPOT", " ms"),
        ("e2e_ms", "E2E", " ms"),
        ("output_tokens", "output tokens", ""),
    ):
        if attempt[key] is not None:
            parts.append(f"{name} {attempt[key]:.4g}{unit}")
    if attempt["drafted"]:
        parts.append(f"{attempt['accepted']} of {attempt['drafted']} draft tokens accepted")
    return ", ".join(parts)
