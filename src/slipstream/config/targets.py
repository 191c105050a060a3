"""The sections that say which latencies count as good, by class of traffic."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from slipstream.config.section import Section
from slipstream.core.goodput import Target
from slipstream.core.request import TrafficClass

__all__ = ["FleetTargets", "TargetSection", "Targets", "targets_by_class"]

Milliseconds = Annotated[float, Field(gt=0, le=1e12)]


class TargetSection(Section):
    """Latencies that a request must not exceed, all of those given."""

    ttft_ms: Milliseconds | None = Field(default=None, description="Milliseconds from its arrival to its first token.")
    tpot_ms: Milliseconds | None = Field(default=None, description="Milliseconds a token after the first, on average.")
    e2e_ms: Milliseconds | None = Field(default=None, description="Milliseconds from its arrival to its last token.")


class Targets(Section):
    """Targets by class; a request of a class without any has met them when it ends."""

    interactive: TargetSection | None = Field(default=None, description="Of requests for which a person waits.")
    bulk: TargetSection | None = Field(default=None, description="Of requests of jobs.")


class FleetTargets(Targets):
    """Targets by class, by which policy `predictive` chooses nodes."""

    interactive: TargetSection | None = Field(
        default=TargetSection(ttft_ms=1000.0, tpot_ms=50.0),
        description="Of requests for which a person waits; left out = `ttft_ms: 1000` and `tpot_ms: 50`, and what is "
        "written here replaces both.",
    )
    bulk: TargetSection | None = Field(
        default=None, description="Of requests of jobs; left out = none: they go where they take least from the others."
    )


def targets_by_class(section: Targets) -> dict[TrafficClass, Target]:
    """The targets of the classes that have any, in seconds."""
    return {
        traffic_class: _target(given)
        for traffic_class, given in (
            (TrafficClass.INTERACTIVE, section.interactive),
            (TrafficClass.BULK, section.bulk),
        )
        if given is not None
    }


def _target(section: TargetSection) -> Target:
    return Target(_seconds(section.ttft_ms), _seconds(section.tpot_ms), _seconds(section.e2e_ms))


def _seconds(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000.0
