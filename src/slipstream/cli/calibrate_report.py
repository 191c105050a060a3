"""The answer of ``slipstream calibrate`` as tables of 80 columns. In brackets: the 95 % interval."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.text import Text

from slipstream.cli.tables import Column, FittingTable, number, share

__all__ = ["calibrate_report"]


def calibrate_report(answer: Mapping[str, Any]) -> RenderableType:
    """Curves, acceptance, what was admitted, and the ceiling."""
    parts: list[RenderableType] = [Text(answer["title"], "bold"), Text("")]
    for curve in answer["curves"]:
        if curve["rows"]:
            parts += [_curve_table(curve), Text(_crossing(curve)), Text("")]
    for name, categories in answer["acceptance"].items():
        if categories:
            parts += [_acceptance_table(name, categories), Text("")]
    admitted = answer["admitted"]
    parts.append(
        Text(
            f"Ran at once (p95): {number(admitted['standard'])} on the standard node, "
            f"{number(admitted['speculative'])} on the speculative one."
        )
    )
    linear, table = answer["fits"]["linear"], answer["fits"]["table"]
    if linear is not None and table is not None:
        parts.append(
            Text(
                f"Residuals of the fits: line {linear['residual']:.1%} (at most {linear['largest_residual']:.1%}), "
                f"table {table['residual']:.1%}."
            )
        )
    parts += [Text(answer["recommendation"], "bold"), Text("")]
    run = answer["run"]
    ended = f"; {run['ended']}" if run["ended"] else ""
    parts.append(Text(f"plan {answer['plan']}, {run['wall_s']:.0f} s{ended}. (…): 95 % interval", "dim"))
    return Group(*parts)


def _curve_table(curve: Mapping[str, Any]) -> FittingTable:
    table = FittingTable(
        f"{curve['speculator']}, prompts of {curve['context_tokens']} tokens",
        Column("at once", 0, right=True),
        Column("step ms", 2, right=True),
        Column("verify ms", 2, right=True),
        Column("tok/step", 3, right=True),
        Column("tok/s", 4, right=True),
        Column("with draft", 4, right=True),
        Column("speedup", 0, right=True),
    )
    for row in curve["rows"]:
        ends = row["speedup_interval"]
        interval = "" if ends is None else f" ({ends[0]:.2f}…{ends[1]:.2f})"
        table.add_row(
            str(row["batch_size"]),
            number(row["standard_step_ms"], 2),
            number(row["speculative_step_ms"], 2),
            number(row["tokens_per_step"], 2),
            number(row["standard_tps"], 1),
            number(row["speculative_tps"], 1),
            f"{row['speedup']:.2f}{interval}",
            style="bold" if row["batch_size"] == curve["ceiling"] else None,
        )
    return table


def _crossing(curve: Mapping[str, Any]) -> str:
    at = ", ".join(f"{crossover:.1f}" for crossover in curve["crossovers"])
    return f"Speedup: {curve['shape']}" + (f", at a batch of {at}." if at else ".")


def _acceptance_table(name: str, categories: Mapping[str, Mapping[str, Any]]) -> FittingTable:
    table = FittingTable(
        f"Acceptance on {escape(name)}",
        Column("category", 0, gives=True),
        Column("alpha", 0, right=True),
        Column("tau", 1, right=True),
        Column("tok/step", 2, right=True),
        Column("proposing", 4, right=True),
        Column("samples", 3, right=True),
    )
    for category, figures in categories.items():
        ends = figures["alpha_interval"]
        interval = "" if ends is None else f" ({ends[0]:.2f}…{ends[1]:.2f})"
        table.add_row(
            escape(category),
            f"{number(figures['alpha'], 2)}{interval}",
            number(figures["tau"], 2),
            number(figures["tokens_per_step"], 2),
            share(figures["proposing_share"]),
            number(figures["requests"]),
        )
    return table
