"""Where ``slipstream simulate`` writes what happens: one file, or one for each run where there are several."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from slipstream.costmodel.errors import ImpossibleInput
from slipstream.sim.scenario import Policy, PolicyKind, Scenario

__all__ = ["event_files"]


def event_files(file: Path | None, scenario: Scenario, source: Path) -> Callable[[int, Policy, int], Path | None]:
    """The file of each run of the first point: ``file`` if there is one run, else with policy and seed in its name.

    Raises `ImpossibleInput` where one can not be written or is ``source``, the scenario's own, and for a scenario of
    which nothing is simulated.
    """
    names: dict[tuple[str, int], Path] = {}
    if file is not None:
        simulated = [policy.name for policy in scenario.policies if policy.kind is not PolicyKind.BOUND]
        runs = [(name, seed) for name in simulated for seed in scenario.seeds]
        if not runs:
            raise ImpossibleInput("--events is of simulated policies, and the bound is computed")
        if not file.name or (len(runs) > 1 and file.exists() and not file.is_file()):
            raise ImpossibleInput(f"--events names a file for each run by this one, and {str(file)!r} is no file")
        for name, seed in runs:
            own = file.with_name(f"{file.stem}-{name}-{seed}{file.suffix}") if len(runs) > 1 else file
            try:
                if own.exists() and own.samefile(source):
                    raise ImpossibleInput(f"--events would overwrite the scenario, {source}")
                own.write_bytes(b"")
            except OSError as error:
                raise ImpossibleInput(f"events can not be written to {own}: {error.strerror}") from None
            names[name, seed] = own

    def of(point: int, policy: Policy, seed: int) -> Path | None:
        return names.get((policy.name, seed)) if point == 0 else None

    return of
