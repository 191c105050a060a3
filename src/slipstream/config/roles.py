"""When nodes change their roles: the section that a fleet and a scenario's policies share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from slipstream.config.document import Path, Report, value_at
from slipstream.config.section import Count, Seconds, Section
from slipstream.core.errors import ConfigProblem
from slipstream.core.roles import RoleSettings

__all__ = ["RolesSection", "check_minimums", "check_watermarks"]

Ratio = Annotated[float, Field(ge=0, le=100)]
Duration = Annotated[float, Field(ge=0, le=1e9)]
Nodes = Annotated[int, Field(ge=0, le=1_000_000)]
_USUAL = RoleSettings()


class RolesSection(Section):
    """When a node lays its speculator down, or takes it up. Load is the share of the fleet's room that is taken:
    sequences on its nodes and in the queue, over the ceilings of speculative nodes and what standard ones run at once.
    """

    high_watermark: Ratio = Field(
        default=_USUAL.high_watermark, description="Load above which a speculative node is to become standard."
    )
    low_watermark: Ratio = Field(
        default=_USUAL.low_watermark,
        description="A standard node is to speculate where load would stay below that with it.",
    )
    high_for_s: Duration = Field(default=_USUAL.high_for_s, description="For so long load is above the high mark.")
    low_for_s: Duration = Field(default=_USUAL.low_for_s, description="For so long load is below the low mark.")
    minimum_dwell_s: Duration = Field(default=_USUAL.minimum_dwell_s, description="So long a node keeps a role.")
    minimum_speculative: Nodes = Field(
        default=_USUAL.minimum_speculative, description="So many nodes stay speculative at least."
    )
    minimum_standard: Nodes = Field(
        default=_USUAL.minimum_standard, description="So many nodes stay standard at least."
    )
    expected_high_s: Seconds = Field(
        default=_USUAL.expected_high_s, description="How long a surge lasts, until some have been seen."
    )
    expected_low_s: Seconds = Field(
        default=_USUAL.expected_low_s, description="How long quiet lasts, until some has been seen."
    )
    transition_s: Seconds = Field(
        default=_USUAL.transition_s, description="How long a change takes, until some were measured."
    )
    surge_ceiling: Count | None = Field(
        default=_USUAL.surge_ceiling,
        description="Ceiling of speculative nodes in a surge that does not pay for a change; left out = as ever.",
    )
    surge_gain: Ratio = Field(
        default=_USUAL.surge_gain,
        description="Share by which a full node without speculator makes more tokens, where no profile is known.",
    )
    quiet_gain: Ratio = Field(
        default=_USUAL.quiet_gain,
        description="Share by which a node with speculator makes more in quiet, where no profile is known.",
    )

    def settings(self) -> RoleSettings:
        """For the controller."""
        return RoleSettings(**self.model_dump(include=set(RoleSettings.__dataclass_fields__)))


def check_minimums(data: object, path: Path, nodes: int, report: Report) -> Iterator[ConfigProblem]:
    """Minimums of the pools that so many nodes can never fill both."""
    given = {key: value_at(data, *path, key) for key in ("minimum_speculative", "minimum_standard")}
    speculative, standard = given.values()
    speculative = _USUAL.minimum_speculative if speculative is None else speculative
    standard = _USUAL.minimum_standard if standard is None else standard
    if isinstance(speculative, int) and isinstance(standard, int) and speculative + standard > nodes:
        key = next((key for key, value in given.items() if value is not None), "minimum_standard")
        found = f"{speculative} speculative and {standard} standard at least"
        yield report((*path, key), found, f"at most {nodes} together, as many as there are nodes")


def check_watermarks(data: object, path: Path, report: Report) -> Iterator[ConfigProblem]:
    """Watermarks between which a fleet would change its roles to and fro."""
    low = value_at(data, *path, "low_watermark")
    high = value_at(data, *path, "high_watermark")
    low = _USUAL.low_watermark if low is None else low
    high = _USUAL.high_watermark if high is None else high
    if isinstance(low, int | float) and isinstance(high, int | float) and low >= high:
        key = "low_watermark" if value_at(data, *path, "low_watermark") is not None else "high_watermark"
        allowed = f"less than the high one, {high}" if key == "low_watermark" else f"more than the low one, {low}"
        yield report((*path, key), str(low if key == "low_watermark" else high), allowed)
