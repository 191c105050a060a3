"""``slipstream config``: is this file usable, and what may stand in it."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from slipstream import config
from slipstream.core.errors import ConfigError

__all__ = ["config_app"]

config_app = typer.Typer(help="Check a configuration file, or print what may stand in one.", no_args_is_help=True)

DEFAULT_FILE = Path("fleet.yaml")


@config_app.command()
def check(
    file: Annotated[Path | None, typer.Argument(help="Configuration file.", show_default="fleet.yaml")] = None,
    option: Annotated[
        Path | None, typer.Option("--config", "-c", help="The same, as `slipstream serve` takes it.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the verdict as JSON.")] = False,
) -> None:
    """Say whether a configuration can be used; exit status 1 when not. Nothing is bound or contacted.

    What can be used and is hardly meant, such as a fleet with one pool only, gets a warning.
    """
    path = option or file or DEFAULT_FILE
    try:
        checked = config.load(path)
        if checked.routing.policy == "predictive" or checked.roles is not None:
            from slipstream.settings import profiles_of  # the parts that foretell take long to load

            profiles_of(checked)
    except ConfigError as error:
        if as_json:
            problems = [asdict(problem) for problem in error.problems]
            print(json.dumps({"file": str(path), "ok": False, "problems": problems, "warnings": []}, indent=2))
        else:
            print(error)
            print(f"{path}: {len(error.problems)} {'problem' if len(error.problems) == 1 else 'problems'}")
        raise typer.Exit(1) from None
    warnings = config.warnings(checked)
    pools = Counter(node.pool for node in checked.nodes)
    if as_json:
        verdict = {"file": str(path), "ok": True, "problems": [], "warnings": warnings, "nodes": dict(pools)}
        print(json.dumps(verdict, indent=2))
        return
    nodes = ", ".join(f"{count} {pool}" for pool, count in sorted(pools.items()))
    print(f"{path}: good ({nodes}; gateway on {checked.gateway.listen}, admin on {checked.admin.listen})")
    for warning in warnings:
        print(f"{path}: warning: {warning}")


@config_app.command()
def schema(
    scenario: Annotated[bool, typer.Option("--scenario", help="Of a scenario, in place of a configuration.")] = False,
) -> None:
    """Print the JSON schema of a configuration file, for editors and other checks."""
    if scenario:
        from slipstream.config.scenario import ScenarioConfig  # a fleet that serves does without

        print(json.dumps(config.json_schema(ScenarioConfig), indent=2))
    else:
        print(json.dumps(config.json_schema(), indent=2))
