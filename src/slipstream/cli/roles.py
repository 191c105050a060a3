"""``slipstream roles``: which nodes speculate, and changing that by hand."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from slipstream.cli.admin_client import DEFAULT_URL, AsJson, TokenFile, Url, fetch, reading, sentences
from slipstream.core.request import Pool

__all__ = ["roles_app", "roles_report"]

CHANGES_SHOWN = 10

roles_app = typer.Typer(help="Which nodes speculate, how that changed, and changing it by hand.", no_args_is_help=True)


@roles_app.command("list")
def list_roles(as_json: AsJson = False, url: Url = DEFAULT_URL, token_file: TokenFile = None) -> None:
    """Show each node's role, what the fleet's load calls for, and the last changes."""
    with sentences(), reading(url):
        answer = fetch(url, "/roles", token_file)
        answer["nodes"] = [
            {key: node[key] for key in ("name", "pool", "state", "occupancy")}
            for node in fetch(url, "/fleet", token_file)["nodes"]
        ]
        report = roles_report(answer)
        if as_json:
            print(json.dumps(answer, indent=2))
        else:
            Console().print(report)


@roles_app.command("set")
def set_role(
    node: Annotated[str, typer.Argument(help="The node.")],
    pool: Annotated[str, typer.Argument(help="Its role from now on: speculative or standard.")],
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    token_file: TokenFile = None,
) -> None:
    """Change the role of a node: it drains, its engine restarts with or without its speculator, and it comes back."""
    if pool not in tuple(Pool):
        raise typer.BadParameter(f"a role is {' or '.join(Pool)}")
    with sentences(), reading(url):
        answer = fetch(url, "/roles", token_file, method="POST", body={"node": node, "pool": pool})
        if as_json:
            print(json.dumps(answer, indent=2))
        else:
            by = answer["change"]["node"]
            print(f"{by} becomes {pool}: it drains, then its engine restarts. See `slipstream roles list`.")


def roles_report(answer: dict[str, Any]) -> RenderableType:
    """The answer of the admin API's ``/roles``, with the ``nodes`` of ``/fleet``, as tables."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("node", "role", "state"):
        table.add_column(heading, overflow="fold")
    table.add_column("occupancy", justify="right")
    for node in answer["nodes"]:
        table.add_row(node["name"], node["pool"], node["state"], str(node["occupancy"]))
    parts: list[RenderableType] = [table, Text(""), Text(_verdict(answer["verdict"]))]
    changes = answer["changes"][:CHANGES_SHOWN]
    if changes:
        parts += [Text(""), _changes(changes)]
    return Group(*parts)


def _verdict(verdict: dict[str, Any] | None) -> str:
    if verdict is None:
        return "Roles change by hand alone: the configuration has no section `roles`."
    said = (
        f"Load {verdict['load']:.0%} of the fleet's room: {verdict['wanted']} of its nodes should be speculative, "
        f"{verdict['speculative']} are ({verdict['reason']})."
    )
    payoff = verdict["payoff"]
    if payoff is not None:
        said += (
            f" A change would gain {payoff['gain_tps']:.0f} tokens/s for {payoff['dwell_s']:.0f} s and lose "
            f"{payoff['lost_tps']:.0f} for {payoff['transition_s']:.0f} s."
        )
    return said + (" Ceilings are raised meanwhile." if verdict["raised"] else "")


def _changes(changes: list[dict[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("changed", "to", "by"):
        table.add_column(heading, overflow="fold")
    for heading in ("ago s", "took s"):
        table.add_column(heading, justify="right")
    table.add_column("what came of it", overflow="fold")
    for change in changes:
        came = {None: "runs", True: "done", False: change["why"] or "kept its role"}[change["ok"]]
        # An engine's last words may be in it: [brackets] are no markup, and no terminal is to obey them.
        shown = Text("".join(character if character.isprintable() else " " for character in came))
        table.add_row(
            change["node"], change["pool"], change["by"], f"{change['age_s']:.0f}", f"{change['took_s']:.0f}", shown
        )
    return table
