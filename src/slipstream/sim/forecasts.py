"""What the gateway knows beforehand of simulated nodes, were each measured: forecasts out of their own step times."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from slipstream.core.forecast import Forecast
from slipstream.core.node_state import NodeState
from slipstream.costmodel.errors import ImpossibleInput
from slipstream.enginemodel.step_times import KNOTS
from slipstream.sim.scenario import Equipment, NodeGroup

__all__ = ["forecast_of", "forecasts_of"]

BESIDE: Final = 16
"""Query tokens of the step that a prompt is added to: how many hardly matters, if not none."""


def forecasts_of(
    groups: Iterable[NodeGroup], equipment_of: Callable[[NodeGroup], Equipment], error: float = 1.0
) -> Callable[[NodeState], Forecast | None]:
    """The forecast of each node, by its name. ``error``: times as foretold over times as they are."""
    known: dict[str, Forecast | None] = {}
    for group in groups:
        forecast = forecast_of(equipment_of(group), error)
        known.update((f"{group.name}-{number}", forecast) for number in range(group.count))
    return lambda node: known.get(node.name)


def forecast_of(equipment: Equipment, error: float = 1.0) -> Forecast | None:
    """Of a node so equipped, up to its slots or as far as its profile has times for; ``None`` where it has none."""
    settings, rows = equipment.settings, equipment.rows
    speculation = settings.speculation
    steps: list[tuple[float, ...]] = []
    drafts: list[int] = []
    for occupancy in range(1, settings.slots + 1):
        k = 0 if speculation is None else speculation.k_at(occupancy)
        share = 0.0 if speculation is None else speculation.proposing_share
        drafting = round(share * occupancy) if k > 0 else 0
        try:
            row = rows.decode_row(occupancy, drafting, k)
        except ImpossibleInput:
            break
        tax = 1.0 + speculation.zero_draft_tax if speculation is not None and drafting == 0 else 1.0
        steps.append(tuple(error * tax * seconds for seconds in row))
        drafts.append(k)
    if not steps:
        return None
    prefill = rows.prefill_row(BESIDE)
    if speculation is not None:
        prefill = tuple(one + other for one, other in zip(prefill, rows.drafter_prefill_row(), strict=True))
    return Forecast(
        tuple(float(tokens) for tokens in KNOTS),
        tuple(steps),
        tuple(drafts),
        0.0 if speculation is None else speculation.proposing_share,
        tuple(error * seconds for seconds in prefill),
        settings.kv_tokens,
    )
