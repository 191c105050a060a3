"""Nodes as engines: what their steps take, what their memory has room for, and how they speculate."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from slipstream.config.document import Path as Place
from slipstream.config.scenario import ScenarioConfig
from slipstream.config.scenario_nodes import DraftRange, NodeGroupSection, ProfileSection, ScenarioSpeculator
from slipstream.core.request import Pool
from slipstream.costmodel.catalogue import any_model, engine_named, hardware_named
from slipstream.costmodel.costs import RooflineCosts
from slipstream.costmodel.errors import ImpossibleInput
from slipstream.costmodel.memory import kv_token_capacity
from slipstream.costmodel.model import Model
from slipstream.costmodel.profiles import LinearCosts, article_1, read_profile
from slipstream.costmodel.roofline import Deployment
from slipstream.costmodel.speculator import HEADS, Speculator, draft_model, ngram
from slipstream.costmodel.steps import step_rows
from slipstream.enginemodel.settings import Account, EngineSettings, Speculation
from slipstream.enginemodel.step_times import StepRows
from slipstream.scenarios.problems import Problems
from slipstream.sim.scenario import Equipment, NodeGroup, Policy

__all__ = ["Profile", "check_drafts", "group_of", "longest_draft", "profile_of", "schedule_of"]

ARTICLE_1 = "article-1"
"""In place of a profile's file: the line through the first article's figures."""


@dataclass(frozen=True, slots=True)
class Profile:
    """Step times and room of a kind of node, without and with a speculator.

    ``speculative_rows`` ``None``: nothing to draft with. Room in tokens of keys and values, ``None`` = no limit.
    ``proposing_share`` 0..1; ``gpus`` of a node.
    """

    rows: StepRows
    speculative_rows: StepRows | None
    kv_tokens: int | None
    speculative_kv_tokens: int | None
    proposing_share: float
    gpus: int


def profile_of(section: ProfileSection, directory: Path) -> Profile:
    """Raises ImpossibleInput for what no catalogue has, and for what does not fit."""
    if section.file is not None:
        costs = article_1() if section.file == ARTICLE_1 else read_profile(directory / section.file)
        rows = step_rows(costs)
        drafts = isinstance(costs, LinearCosts) or any(k > 0 for k in costs.step_s)
        standard, speculative = section.kv_tokens, section.speculative_kv_tokens or section.kv_tokens
        return Profile(rows, rows if drafts else None, standard, speculative, costs.proposing_share, 1)
    assert section.model is not None
    assert section.hardware is not None
    model = any_model(_named(section.model, directory))
    if model.heads % section.tensor_parallel:
        raise ImpossibleInput(
            f"{model.name} has {model.heads} attention heads, which {section.tensor_parallel} GPUs can not share: "
            "tensor_parallel divides them"
        )
    deployment = Deployment(
        model,
        hardware_named(_named(section.hardware, directory)),
        engine_named(_named(section.engine, directory)),
        section.tensor_parallel,
        section.weight_dtype,
        section.kv_dtype,
    )
    room = kv_token_capacity(deployment, None, usable_share=section.memory_share)
    standard = section.kv_tokens or room
    if section.speculator is None:
        return Profile(step_rows(deployment), None, standard, None, 1.0, section.tensor_parallel)
    speculator = _speculator(section.speculator, model, directory)
    beside = kv_token_capacity(deployment, speculator, usable_share=section.memory_share)
    return Profile(
        step_rows(deployment),
        step_rows(RooflineCosts(deployment, speculator)),
        standard,
        section.speculative_kv_tokens or min(standard, beside),
        speculator.proposing_share,
        section.tensor_parallel,
    )


def _speculator(section: ScenarioSpeculator, target: Model, directory: Path) -> Speculator:
    if section.kind == "ngram":
        return ngram(section.proposing_share or 0.0)
    if section.kind in HEADS:
        made = HEADS[section.kind](target)
    else:
        made = draft_model(any_model(_named(section.model or "", directory)), sharded=section.sharded)
    return made if section.proposing_share is None else replace(made, proposing_share=section.proposing_share)


def _named(name: str, directory: Path) -> str:
    """A file beside the scenario by its path, any other name as it is."""
    try:
        return str(directory / name) if (directory / name).exists() else name
    except OSError:  # too long for a file's name, say
        return name


def group_of(
    section: NodeGroupSection, profile: Profile, config: ScenarioConfig, problems: Problems, place: Place
) -> NodeGroup:
    """Nodes alike, equipped either way. ``place`` is where they stand in the file; what is wrong with single keys of
    theirs goes into ``problems``. Raises ImpossibleEngine for an engine that can not be.
    """
    speculating = section.speculation
    speculation = Speculation(
        k=speculating.k,
        proposing_share=profile.proposing_share,
        schedule=schedule_of(speculating.schedule),
        drop_below=speculating.drop_below,
        zero_draft_tax=speculating.zero_draft_tax,
        account=Account(speculating.account),
    )
    with problems.at(*place, "slots"):
        for batch in (1, section.slots):
            profile.rows.decode_row(batch, 0, 0)
    standard = Equipment(_engine(section, profile.kv_tokens), profile.rows)
    speculative = None
    if profile.speculative_rows is not None:
        settings = replace(_engine(section, profile.speculative_kv_tokens), speculation=speculation)
        speculative = Equipment(settings, profile.speculative_rows)
        with problems.at(*place, "speculation"):
            check_drafts(speculative, speculation)
    elif section.pool is Pool.SPECULATIVE:
        found = f"a pool whose nodes speculate, and the profile {section.profile} has no speculator"
        problems.found.append(problems.report((*place, "pool"), found, "standard, or a profile with a speculator"))
    return NodeGroup(
        name=section.name,
        count=section.count,
        pool=section.pool,
        model=section.model,
        standard=standard,
        speculative=speculative,
        gpus=section.gpus or profile.gpus,
        ceiling=section.ceiling or config.pools.speculative.ceiling,
        capacity_changes=tuple((change.at_s, change.count) for change in section.capacity),
    )


def _engine(section: NodeGroupSection, kv_tokens: int | None) -> EngineSettings:
    return EngineSettings(
        slots=section.slots,
        kv_tokens=kv_tokens,
        block_tokens=section.block_tokens,
        step_tokens=section.step_tokens,
        queue_limit=section.queue_limit,
    )


def check_drafts(equipment: Equipment, speculation: Speculation) -> None:
    """Raises ImpossibleInput where a batch would draft what the profile has no times for."""
    slots = equipment.settings.slots
    for batch in sorted({1, slots, *(min(size, slots) for size, _ in speculation.schedule)}):
        k = speculation.k_at(batch)
        equipment.rows.decode_row(batch, batch, k)
        equipment.rows.decode_row(batch, 1, k)


def schedule_of(ranges: tuple[DraftRange, ...]) -> tuple[tuple[int, int], ...]:
    """Pairs of batch size and draft length, as `Speculation` and `Policy` have them."""
    return tuple((one.up_to, one.k) for one in ranges)


def longest_draft(groups: Iterable[NodeGroup], policies: tuple[Policy, ...]) -> int:
    """The longest draft of any node under any policy, at least 1."""
    of_nodes = [
        group.speculative.settings.speculation.longest
        for group in groups
        if group.speculative is not None and group.speculative.settings.speculation is not None
    ]
    return max([*of_nodes, *(k for policy in policies for _, k in policy.schedule), 1])
