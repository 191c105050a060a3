"""The sections of a scenario's fleet: what nodes are made of, how many there are, and how their engines speculate."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from slipstream.config.section import Count, NodeName, PoolName, Section, Share

__all__ = ["CapacityChange", "DraftRange", "NodeGroupSection", "ProfileSection", "ScenarioSpeculator", "Speculating"]

Moment = Annotated[float, Field(ge=0, le=1e9)]
CacheTokens = Annotated[int, Field(ge=1, le=10**12)]
DraftLength = Annotated[int, Field(ge=0, le=64)]


class ScenarioSpeculator(Section):
    """What drafts beside the model, in the words of `slipstream crossover`."""

    kind: Literal["draft-model", "eagle", "eagle3", "medusa", "mtp", "block", "ngram"] = Field(
        description="A draft model, trained heads, or n-gram lookup."
    )
    model: str | None = Field(
        default=None, description="The draft model: a name of the catalogue or a path. For `draft-model` alone."
    )
    sharded: bool = Field(
        default=True,
        description="Whether a draft model is split over the GPUs of the node rather than whole on each.",
    )
    proposing_share: Share | None = Field(
        default=None,
        description="Share of a request's steps that propose anything; left out = 1. `ngram` needs it: 0.1 to 0.4 was "
        "measured.",
    )


class ProfileSection(Section):
    """What a node is, and so what its steps take: computed from a model and its hardware, or read from a file."""

    model: str | None = Field(default=None, description="The model: a name of the catalogue or a path.")
    hardware: str | None = Field(default=None, description="Its GPU: a name of the catalogue or a JSON file.")
    tensor_parallel: Annotated[int, Field(ge=1, le=1024)] = Field(
        default=1, description="GPUs of a node, which share the model."
    )
    engine: str = Field(
        default="vllm", description="Whose overheads a step has: a name of the catalogue or a JSON file."
    )
    weight_dtype: str | None = Field(
        default=None, description="Data type of the weights, such as fp8; left out = as the model is published."
    )
    kv_dtype: str = Field(default="bf16", description="Data type of keys and values.")
    memory_share: Annotated[float, Field(gt=0, le=1)] = Field(
        default=0.9, description="Share of the GPUs' memory for weights, keys and values."
    )
    speculator: ScenarioSpeculator | None = Field(
        default=None, description="What drafts on a node that speculates; left out = no such node can."
    )
    file: str | None = Field(
        default=None,
        description="In place of model and hardware: a linear or table profile, a JSON file relative to the scenario, "
        "or `article-1`, the first article's.",
    )
    kv_tokens: CacheTokens | None = Field(
        default=None,
        description="Tokens whose keys and values fit on a node; left out = what the memory has room for, or no limit "
        "with a file.",
    )
    speculative_kv_tokens: CacheTokens | None = Field(
        default=None, description="The same beside a speculator; left out = likewise."
    )


class DraftRange(Section):
    """Batch sizes that get drafts of one length."""

    up_to: Count = Field(description="Largest batch size that gets them; above the last range nothing is drafted.")
    k: DraftLength = Field(description="Tokens drafted a verify step.")


class Speculating(Section):
    """How an engine speculates, where it does."""

    k: DraftLength = Field(default=4, description="Tokens drafted a verify step.")
    schedule: Annotated[tuple[DraftRange, ...], Field(strict=False)] = Field(
        default=(), description="Draft lengths by batch size, in place of `k`."
    )
    drop_below: Annotated[float, Field(ge=1, le=65)] | None = Field(
        default=None,
        description="Recent mean acceptance length under which the engine drafts no more for a sequence; left out = "
        "it always does.",
    )
    zero_draft_tax: Share = Field(
        default=0.12, description="What a step that drafts nothing costs more than a standard engine's, as a share."
    )
    account: Literal["independent", "first-article"] = Field(
        default="independent",
        description="Whether acceptance is independent of the batch, as measurements show, or falls with it, with "
        "mixed lengths and with the drafter's cache, as the first article reports.",
    )


class CapacityChange(Section):
    """A time from which another number of a group's nodes is there."""

    at_s: Moment = Field(description="Seconds since the start, warm-up included.")
    count: Annotated[int, Field(ge=0, le=10_000)] = Field(
        description="Nodes that are there from then on; those that go finish what they have."
    )


class NodeGroupSection(Section):
    """Nodes that are alike."""

    name: NodeName = Field(description="Unique name; its nodes are called by it, a dash and a number from 0.")
    count: Annotated[int, Field(ge=1, le=10_000)] = Field(default=1, description="How many there are.")
    pool: PoolName = Field(description="The pool they belong to.")
    model: str = Field(default="model", description="Name of the model that requests ask for.")
    profile: str = Field(description="What they are: a name of `profiles`.")
    slots: Count = Field(default=256, description="Sequences that an engine runs at once at most; others wait in it.")
    step_tokens: Annotated[int, Field(ge=1, le=10_000_000)] = Field(
        default=8192, description="Tokens that a step processes at most; prompts come in chunks beside decodes."
    )
    block_tokens: Annotated[int, Field(ge=1, le=65_536)] = Field(
        default=16, description="Tokens of a block of the cache of keys and values."
    )
    queue_limit: Annotated[int, Field(ge=0, le=1_000_000)] | None = Field(
        default=None, description="Sequences that may wait in an engine, more are refused; left out = any number."
    )
    ceiling: Count | None = Field(
        default=None, description="Their own ceiling in sequences; left out = that of the speculative pool."
    )
    gpus: Count | None = Field(
        default=None, description="GPUs a node, for figures a GPU; left out = the profile's `tensor_parallel`."
    )
    speculation: Speculating = Field(
        default=Speculating(),
        description="How their engines speculate: in the speculative pool, or under a policy by which every node does.",
    )
    capacity: Annotated[tuple[CapacityChange, ...], Field(strict=False)] = Field(
        default=(), description="Changes of how many of the nodes are there, in the order of time."
    )
