"""``slipstream crossover qualify``: whether a draft model may draft for a target, each condition with its reason."""

from __future__ import annotations

from os.path import isdir
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from slipstream.cli.option_values import share_of
from slipstream.costmodel.catalogue import engine_named, hardware_named
from slipstream.costmodel.errors import ImpossibleInput
from slipstream.costmodel.gguf_model import model_from_gguf
from slipstream.costmodel.huggingface import model_from_config, read_json
from slipstream.costmodel.model import Model
from slipstream.costmodel.profiles import TableCosts, profile_of
from slipstream.costmodel.qualify import Finding, alpha_finding, qualification_of, speed_finding, tokenizer_finding
from slipstream.costmodel.roofline import Deployment, pass_s
from slipstream.costmodel.tokenizers import read_tokenizer

__all__ = ["qualification", "qualification_report"]

CONTEXT = 1024
"""Cached tokens at which the two passes are compared, at batch size 1."""
DEFAULT_K = 4


def qualification(
    target: Path,
    draft: Path,
    *,
    alpha: float | None,
    k: int | None,
    node: str | None,
    profile: Path | None,
    hardware: str | None,
    gpus: int,
) -> dict[str, Any]:
    """The verdict and its reasons as a document. Raises `ImpossibleInput` for what can not be read or computed."""
    tokenizer = tokenizer_finding(read_tokenizer(target), read_tokenizer(draft))
    document = None if profile is None else read_json(profile)
    found = qualification_of(
        tokenizer,
        _alpha(alpha, k, node, document, profile),
        _speed(target, draft, document, profile, hardware, gpus),
    )
    return {
        "target": str(target),
        "draft": str(draft),
        "verdict": found.verdict.value,
        "findings": [{"check": one.check, "passed": one.passed, "reason": one.reason} for one in found.findings],
    }


def qualification_report(answer: dict[str, Any]) -> RenderableType:
    """The verdict, and a line for each condition."""
    marks = {True: ("✓", "green"), False: ("✗", "red"), None: ("?", "yellow")}
    lines = []
    for finding in answer["findings"]:
        mark, style = marks[finding["passed"]]
        lines.append(Text.assemble((f"{mark} {finding['check']}: ", style), finding["reason"]))
    return Group(Text(answer["verdict"].capitalize(), "bold"), *lines)


def _alpha(
    alpha: float | None, k: int | None, node: str | None, document: dict[str, Any] | None, profile: Path | None
) -> Finding:
    if alpha is not None and node is not None:
        raise ImpossibleInput("give --alpha or --node, not both")
    if alpha is not None:
        return alpha_finding(alpha, k or DEFAULT_K, "given")
    if node is not None:
        from slipstream.cli.node_counters import counted_by  # engines and their connections, for those who ask one

        counted = counted_by(node)
        return alpha_finding(counted.alpha, counted.k, counted.source)
    if document is not None and "alpha" in document:
        told = document["alpha"]
        if isinstance(told, bool) or not isinstance(told, int | float):
            raise ImpossibleInput(f"{profile}: alpha must be a number, not {told!r}")
        return alpha_finding(share_of(f"{profile}: alpha", told), k or DEFAULT_K, str(profile))
    return alpha_finding(None, k or DEFAULT_K, "give --alpha, --node, or a --profile that tells alpha")


def _speed(
    target: Path, draft: Path, document: dict[str, Any] | None, profile: Path | None, hardware: str | None, gpus: int
) -> Finding:
    if document is not None:
        costs = profile_of(document, str(profile))
        if isinstance(costs, TableCosts):
            batch = costs.batch_range[0]
            k = max(costs.step_s)
            standard = float(costs.standard_s(batch, costs.context_tokens or CONTEXT))
            more = float(costs.speculative_s(batch, k, costs.context_tokens or CONTEXT)) - standard
            return speed_finding(
                standard, more / k if k and more > 0.0 else None, f"{costs.provenance}; verification in it"
            )
        step = costs.draft_pass_s + costs.draft_token_s
        return speed_finding(float(costs.standard_s(1, CONTEXT)), step or None, str(costs.provenance))
    if hardware is None:
        return speed_finding(None, None, "give --hardware or --profile")
    on, engine = hardware_named(hardware), engine_named("vllm")
    times = [float(pass_s(Deployment(_local(path), on, engine, gpus), 1, 1, CONTEXT)) for path in (target, draft)]
    return speed_finding(times[0], times[1], f"computed for {gpus} × {on.name}")


def _local(path: Path) -> Model:
    return model_from_config(path) if isdir(path) else model_from_gguf(path)
