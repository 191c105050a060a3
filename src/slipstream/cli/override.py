"""``slipstream override``: change a running fleet for a while, without its configuration."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from textwrap import fill
from typing import Annotated, Any
from urllib.parse import quote

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from slipstream.cli.admin_client import (
    DEFAULT_URL,
    AsJson,
    TokenFile,
    Url,
    fetch,
    reading,
    sentences,
)
from slipstream.core.request import Pool

__all__ = ["duration", "override_app", "seconds_of", "sentence"]

WAIT_INTERVAL_S = 0.5
_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}

override_app = typer.Typer(
    help="Change a running fleet without its configuration: until cleared, for a time, or until the gateway ends.",
    no_args_is_help=True,
)

For = Annotated[
    str | None,
    typer.Option("--for", help="Ends by itself after so long: 90s, 30m, 2h or 1d. Left out = until it is cleared."),
]
Note = Annotated[str, typer.Option(help="Why, for whoever finds it later.")]


@override_app.command()
def pin(
    pool: Annotated[str, typer.Argument(help="The pool: speculative or standard.")],
    category: Annotated[str | None, typer.Option(help="The category whose requests go there.")] = None,
    key: Annotated[str | None, typer.Option(help="The id of the API key whose requests go there.")] = None,
    lasts: For = None,
    note: Note = "",
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    token_file: TokenFile = None,
) -> None:
    """Send all requests of a category, or with a key, to one pool. A key's pin wins over a category's."""
    if pool not in tuple(Pool):
        raise typer.BadParameter(f"a pin needs a pool: {' or '.join(Pool)}")
    subject = _one_of("--category", category, "--key", key)
    kind = "pin_category" if key is None else "pin_key"
    _set(url, token_file, as_json, kind=kind, subject=subject, value=pool, lasts=lasts, note=note)


@override_app.command()
def ceiling(
    sequences: Annotated[int, typer.Argument(min=1, help="Sequences from which a node takes no new request.")],
    node: Annotated[str | None, typer.Option(help="The speculative node whose ceiling it is.")] = None,
    pool: Annotated[str | None, typer.Option(help="speculative: of all its nodes without one of their own.")] = None,
    lasts: For = None,
    note: Note = "",
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    token_file: TokenFile = None,
) -> None:
    """Set the ceiling of one speculative node or of all. Above what an engine takes at once it has no effect."""
    subject = _one_of("--node", node, "--pool", pool)
    kind = "node_ceiling" if pool is None else "pool_ceiling"
    _set(url, token_file, as_json, kind=kind, subject=subject, value=sequences, lasts=lasts, note=note)


@override_app.command()
def drain(
    node: Annotated[str, typer.Argument(help="The node.")],
    wait: Annotated[bool, typer.Option("--wait", help="Return when nothing of this gateway runs there.")] = False,
    lasts: For = None,
    note: Note = "",
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    token_file: TokenFile = None,
) -> None:
    """Give a node no new requests; its running ones end as ever."""
    _set(url, token_file, as_json, kind="drain", subject=node, lasts=lasts, note=note)
    if wait:
        with sentences(), reading(url):
            _wait(url, token_file, node, quiet=as_json)


@override_app.command()
def resume(
    node: Annotated[str, typer.Argument(help="The node.")],
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    token_file: TokenFile = None,
) -> None:
    """End the draining of a node."""
    _clear(url, token_file, as_json, f"/{_quoted('drain', node)}")


@override_app.command()
def speculation(
    state: Annotated[str, typer.Argument(help="on or off.")],
    lasts: For = None,
    note: Note = "",
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    token_file: TokenFile = None,
) -> None:
    """Turn routing to the speculative pool off, or on again. While it is off, all requests go to the standard pool."""
    if state not in {"on", "off"}:
        raise typer.BadParameter("it is turned on or off")
    if state == "off":
        _set(url, token_file, as_json, kind="speculation", subject="fleet", lasts=lasts, note=note)
    elif lasts is not None or note:
        raise typer.BadParameter("--for and --note belong to off: on is what it is without an override")
    else:
        _clear(url, token_file, as_json, f"/{_quoted('speculation', 'fleet')}")


@override_app.command("list")
def list_all(as_json: AsJson = False, url: Url = DEFAULT_URL, token_file: TokenFile = None) -> None:
    """Show the overrides in force."""
    with sentences(), reading(url):
        answer = fetch(url, "/overrides", token_file)
        found = answer["overrides"]
        if as_json:
            print(json.dumps(answer, indent=2))
        else:
            _say([sentence(one) for one in found] or ["no override is in force"])


@override_app.command()
def clear(
    kind: Annotated[
        str | None, typer.Argument(help="pin_category, pin_key, node_ceiling, pool_ceiling, drain or speculation.")
    ] = None,
    subject: Annotated[str | None, typer.Argument(help="What it is about: a category, a node, …")] = None,
    everything: Annotated[bool, typer.Option("--all", help="All of them.")] = False,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    token_file: TokenFile = None,
) -> None:
    """End an override, or all: what is configured holds again."""
    if everything and kind is None:
        _clear(url, token_file, as_json, "")
    elif kind is not None and subject is not None and not everything:
        _clear(url, token_file, as_json, f"/{_quoted(kind, subject)}")
    else:
        raise typer.BadParameter("give KIND and SUBJECT, or --all")


def sentence(override: dict[str, Any]) -> str:
    """An override of the admin API that is in force, in a sentence."""
    ends = override["ends_in_s"]
    return _noted(
        f"{_what(override)}, {'until it is cleared' if ends is None else f'for {duration(ends)} more'}", override
    )


def _ended(override: dict[str, Any]) -> str:
    """One that is no longer in force."""
    ends = override["ends_in_s"]
    return _noted(f"cleared: {_what(override)}" + ("" if ends is None else f", with {duration(ends)} left"), override)


def _noted(said: str, override: dict[str, Any]) -> str:
    return f"{said} ({override['note']})" if override["note"] else said


def _what(override: dict[str, Any]) -> str:
    subject, value, limit = override["subject"], override["value"], override.get("limit")
    what = {
        "pin_category": f"requests of category {subject} go to the {value} pool",
        "pin_key": f"requests with key {subject} go to the {value} pool",
        "node_ceiling": f"the ceiling of {subject} is {value}",
        "pool_ceiling": f"the ceiling of the {subject} pool is {value}",
        "drain": f"{subject} takes no new requests",
        "speculation": "speculation is off: all requests go to the standard pool",
    }[override["kind"]]
    if limit is None or value <= limit:
        return str(what)
    takes = "that its engine takes" if override["kind"] == "node_ceiling" else "that any of its engines takes"
    return f"{what}, with effect up to the {limit} {takes} at once"


def duration(seconds: float) -> str:
    """Seconds in the unit that keeps them short: 45 s, 10 min, 1.5 h."""
    for limit, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= limit:
            return f"{seconds / limit:.3g} {unit}"
    return f"{seconds:.0f} s"


def seconds_of(text: str) -> float:
    """What ``90s``, ``30m``, ``2h`` or ``1d`` is in seconds. Raises ``typer.BadParameter``."""
    found = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)([smhd])", text)
    if found is None:
        raise typer.BadParameter(f"{text!r} is no duration: write 90s, 30m, 2h or 1d")
    return float(found[1]) * _UNITS[found[2]]


def _one_of(first: str, one: str | None, second: str, other: str | None) -> str:
    if (one is None) == (other is None):
        raise typer.BadParameter(f"give {first} or {second}, and not both")
    return one if one is not None else str(other)


def _quoted(kind: str, subject: str) -> str:
    return "/".join(quote(part, safe="", errors="surrogateescape") for part in (kind, subject))


def _set(url: str, token_file: Path | None, as_json: bool, *, lasts: str | None, **fields: str | int) -> None:
    body = fields | ({} if lasts is None else {"for_s": seconds_of(lasts)})
    with sentences(), reading(url):
        answer = fetch(url, "/overrides", token_file, method="POST", body=body)
        override = answer["override"]
        if as_json:
            print(json.dumps(answer, indent=2))
        else:
            _say([sentence(override)])


def _clear(url: str, token_file: Path | None, as_json: bool, path: str) -> None:
    with sentences(), reading(url):
        answer = fetch(url, f"/overrides{path}", token_file, method="DELETE")
        cleared = answer["cleared"]
        if as_json:
            print(json.dumps(answer, indent=2))
        else:
            _say([_ended(one) for one in cleared] or ["there was no such override"])


def _say(sentences: list[str]) -> None:
    """Each on lines of its own, as wide as the terminal, or 80 characters."""
    for one in sentences:
        print(fill(one, Console().width, subsequent_indent="  ", break_on_hyphens=False))


def _wait(url: str, token_file: Path | None, node: str, *, quiet: bool) -> None:
    """Until nothing of the gateway runs on ``node``. Interrupted, the node goes on draining."""
    console = Console(stderr=True, quiet=quiet)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[left]} left"),
        TimeElapsedColumn(),
    )
    left = most = _own(url, token_file, node)
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task(node, total=most or 1, left=left)
        while left:
            time.sleep(WAIT_INTERVAL_S)
            left = _own(url, token_file, node)
            most = max(most, left)
            progress.update(bar, total=most, completed=most - left, left=left)
        progress.update(bar, total=most or 1, completed=most or 1, left=0)
    if not quiet:
        print(f"{node} has drained: nothing of this gateway runs on it")


def _own(url: str, token_file: Path | None, node: str) -> int:
    """Sequences of the gateway on a node; 0 when the fleet no longer has it."""
    nodes = fetch(url, "/fleet", token_file)["nodes"]
    return next((int(one["own"]) for one in nodes if one["name"] == node), 0)
