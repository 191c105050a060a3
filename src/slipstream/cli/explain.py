"""``slipstream explain``: why a request went where it went."""

from __future__ import annotations

import json
from typing import Annotated, Any
from urllib.parse import quote

import typer
from rich.console import Console, Group, RenderableType
from rich.text import Text

from slipstream.cli.admin_client import DEFAULT_URL, AdminUnreachable, TokenFile, fetch, reading
from slipstream.cli.override import duration
from slipstream.cli.tables import candidate_table, number

__all__ = ["attempt_report", "explain"]


def explain(
    request_id: Annotated[str, typer.Argument(help="The x-request-id of the answer.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
    url: Annotated[str, typer.Option(help="Address of the admin API.")] = DEFAULT_URL,
    token_file: TokenFile = None,
) -> None:
    """Show where a request went and why, and why every other node did not get it."""
    try:
        # An argument that is not UTF-8 keeps its bytes, and is then no request's id.
        answer = fetch(url, f"/decisions/{quote(request_id, safe='', errors='surrogateescape')}", token_file)
        with reading(url):
            attempts = answer["attempts"]
            if as_json:
                print(json.dumps(answer, indent=2))
            else:
                numbered = zip(attempts, _numbering(attempts), strict=True)
                Console().print(Group(*(attempt_report(attempt, which) for attempt, which in numbered)))
    except AdminUnreachable as error:
        typer.echo(error, err=True)
        raise typer.Exit(1) from None


def attempt_report(attempt: dict[str, Any], which: str) -> RenderableType:
    """One attempt of the admin API's ``/decisions/{request_id}`` as text and a table.

    ``which`` tells it from others under the same id; empty when there are none.
    """
    candidates = attempt["candidates"]
    return Group(
        Text.assemble(
            (attempt["request_id"], "bold"), f"{which}, {number(attempt['age_s'])} s ago: {_request(attempt)}"
        ),
        *_wait(attempt.get("queued_ms")),
        *_verdict(attempt),
        *_pin(attempt),
        *(Text(_acceptance(attempt["category"], figure)) for figure in attempt["acceptance"] or ()),
        Text("how other nodes looked then is no longer known", "dim")
        if candidates is None
        else candidate_table(candidates, refused=attempt["refusal"] is not None),
        Text(""),
    )


def _numbering(attempts: list[dict[str, Any]]) -> list[str]:
    """Which request under this id, and which attempt of it. A number that does not go up starts another request."""
    requests: list[list[int]] = []
    for attempt in attempts:
        number_of = attempt["attempt"]
        if not requests or number_of <= requests[-1][-1]:
            requests.append([])
        requests[-1].append(number_of)
    named = []
    for place, numbers in enumerate(requests, start=1):
        request = f", request {place} of {len(requests)} with this id" if len(requests) > 1 else ""
        last = numbers[-1]
        named += [request + (f", attempt {number_of} of {last}" if last > 1 else "") for number_of in numbers]
    return named


def _wait(queued_ms: float | None) -> list[Text]:
    return [] if queued_ms is None else [Text(f"waited {_duration(queued_ms)} for a node with room")]


def _verdict(attempt: dict[str, Any]) -> list[Text]:
    refusal = attempt["refusal"]
    if refusal is not None:
        return [Text.assemble("refused, because ", (refusal["sentence"], "bold"))]
    node, reason = (attempt["node"], "bold"), (attempt["reason"], "bold")
    verdict = Text.assemble("to ", node, f" ({attempt['pool']}), because ", reason)
    if attempt["by_affinity"]:
        verdict.append("; not the least full node, but the one that has it in the cache")
    lines = [verdict]
    intended = attempt["intended"]
    if intended is not None:
        wanted, why = (intended["node"], "bold"), (intended["reason"], "bold")
        lines.append(Text.assemble("would have gone to ", wanted, f" ({intended['pool']}), because ", why))
    return [*lines, Text(_outcome(attempt))]


def _pin(attempt: dict[str, Any]) -> list[Text]:
    """What fixed the pool of a request. Where routing only observes, no more than what was configured."""
    fixed = "would have been fixed" if attempt["intended"] is not None else "was fixed"
    match attempt.get("pinned_by"):
        case "configuration":
            return [Text(f"its pool {fixed} by routing.pins, for category {attempt['category']}")]
        case "key":
            return [Text(f"its pool {fixed} by the pool of key {attempt['key_id']}, in gateway.keys")]
    override = attempt.get("override")
    if override is None:
        return []
    note = f" ({override['note']})" if override["note"] else ""
    set_ago = duration(override["age_s"])
    return [Text(f"its pool was fixed by override {override['kind']} {override['subject']}, set {set_ago} ago{note}")]


def _acceptance(category: str, figure: dict[str, Any]) -> str:
    name, value, floor = figure["measure"].replace("_", " "), figure["value"], figure["floor"]
    found = f"{category} with {figure['speculator']}: {name}"
    if value is None:
        return f"{found} unknown, floor {floor:g}"
    side = "above" if value > floor else "not above"
    return f"{found} {value:.3g} ({figure['source']}), {side} the floor {floor:g}"


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
    if attempt["key_id"] is not None:
        parts.append(f"key {attempt['key_id']}")
    return ", ".join(parts)


def _outcome(attempt: dict[str, Any]) -> str:
    if attempt["ending"] is None:
        return "still running"
    parts = [attempt["ending"].replace("_", " ")]
    if attempt["status"] is not None:
        parts.append(f"status {attempt['status']}")
    for key, name in (("ttft_ms", "TTFT"), ("tpot_ms", "TPOT"), ("e2e_ms", "E2E")):
        if attempt[key] is not None:
            parts.append(f"{name} {_duration(attempt[key])}")
    if attempt["output_tokens"] is not None:
        parts.append(f"output tokens {attempt['output_tokens']}")
    if attempt["drafted"]:
        parts.append(f"{attempt['accepted']} of {attempt['drafted']} draft tokens accepted")
    return ", ".join(parts)


def _duration(milliseconds: float) -> str:
    if milliseconds >= 10_000:
        return f"{milliseconds / 1e3:.1f} s"
    return f"{milliseconds:.0f} ms" if milliseconds >= 100 else f"{round(milliseconds, 1):g} ms"
