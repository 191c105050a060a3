"""The sections of a scenario's traffic: when requests come, how long they are, and how much of a draft they keep."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, PlainValidator, WithJsonSchema, model_validator

from slipstream.config.schema import CategoryName
from slipstream.config.section import ClassName, Section, Share
from slipstream.core.request import TrafficClass

__all__ = ["ArrivalsSection", "LengthsSection", "RatePoint", "ScenarioCategory", "TraceSection", "WorkloadSection"]

Rate = Annotated[float, Field(ge=0, le=1e9)]
Duration = Annotated[float, Field(gt=0, le=1e9)]
Tokens = Annotated[int, Field(ge=1, le=100_000_000)]
TokenCount = Annotated[float, Field(ge=1, le=100_000_000)]


class RatePoint(Section):
    """A rate of arrivals at a time."""

    at_s: Annotated[float, Field(ge=0, le=1e9)] = Field(description="Seconds since the start, warm-up included.")
    per_s: Rate = Field(description="Requests a second.")


class ArrivalsSection(Section):
    """When requests arrive."""

    process: Literal["constant", "poisson", "gamma", "bursts", "rates"] = Field(
        description="`constant`: evenly; `poisson`: independent of one another; `gamma`: in clusters or more evenly, "
        "by `cv`; `bursts`: Poisson with bursts; `rates`: Poisson, at a rate that changes."
    )
    per_s: Rate | None = Field(
        default=None, description="Requests a second; of bursts, between them. All but `rates` need it."
    )
    cv: Annotated[float, Field(ge=0.01, le=100)] | None = Field(
        default=None,
        description="Of `gamma`: coefficient of variation of the gaps; 1 is Poisson, more comes in clusters.",
    )
    burst_per_s: Annotated[float, Field(gt=0, le=1e9)] | None = Field(
        default=None, description="Of `bursts`: requests a second in a burst."
    )
    burst_s: Duration | None = Field(default=None, description="Of `bursts`: seconds that one lasts.")
    every_s: Duration | None = Field(
        default=None, description="Of `bursts`: seconds from one to the next; a burst is at the end of each period."
    )
    rates: Annotated[tuple[RatePoint, ...], Field(strict=False)] = Field(
        default=(),
        description="Of `rates`: points in their order, straight lines between them; two at once are a step.",
    )


class TraceSection(Section):
    """Recorded arrivals and lengths."""

    file: str = Field(description="File of the trace, relative to the scenario.")
    format: Literal["azure", "mooncake", "burstgpt"] | None = Field(
        default=None, description="Whose format it has; left out = told by its first line."
    )
    speed: Annotated[float, Field(gt=0, le=1e6)] = Field(
        default=1.0, description="How many times as fast as recorded the requests come."
    )
    repeat: bool = Field(
        default=False,
        description="Whether the trace begins again when it ends before the window does.",
    )


class LengthsSection(Section):
    """How long prompts or answers are: always `tokens`; `least` to `most`, each as often; a `mean` alone, exponential;
    a `mean` and a `p95`, lognormal; or one of `values`. In place of the section, a number: always so many.
    """

    tokens: Tokens | None = Field(default=None, description="The one length.")
    least: Tokens | None = Field(default=None, description="Shortest of even lengths.")
    most: Tokens | None = Field(default=None, description="Longest of even lengths.")
    mean: TokenCount | None = Field(default=None, description="Mean length.")
    p95: TokenCount | None = Field(default=None, description="Length that 95 % stay under, 1 to 3.87 times the mean.")
    maximum: Tokens | None = Field(default=None, description="Beside a mean: longer ones are cut to it.")
    values: Annotated[tuple[Tokens, ...], Field(strict=False)] = Field(
        default=(), description="Lengths that were seen, each as likely."
    )

    @model_validator(mode="before")
    @classmethod
    def _one_number(cls, data: object) -> object:
        return {"tokens": data} if isinstance(data, int) and not isinstance(data, bool) else data

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: Any, handler: Any) -> dict[str, Any]:
        reference: dict[str, Any] = handler(core_schema)
        handler.resolve_ref_schema(reference).update({"type": ["integer", "object"], "minimum": 1})
        return reference


def _output_limit(given: object) -> object:
    if given in ("exact", "none") or (isinstance(given, int) and not isinstance(given, bool) and given >= 1):
        return given
    raise ValueError("exact, none or a number of tokens from 1 on")


class ScenarioCategory(Section):
    """Requests alike in length, class and acceptance."""

    share: Annotated[float, Field(ge=0, le=1e9)] = Field(
        default=1.0, description="How much of the traffic it is, beside the shares of the others."
    )
    alpha: Share | None = Field(default=None, description="Per-token acceptance of its requests, or give `survival`.")
    survival: Annotated[tuple[Share, ...], Field(strict=False)] = Field(
        default=(),
        description="In place of `alpha`: share of verify steps in which each draft position is accepted. Further "
        "positions are accepted as often as the last one, given the one before.",
    )
    spread: Annotated[float, Field(ge=0, le=0.5)] = Field(
        default=0.0, description="Standard deviation of alpha between its requests."
    )
    prior_alpha: Share | None = Field(
        default=None,
        description="Per-token acceptance that the gateway assumes before it has measured; left out = the default "
        "category's of that name, else 0.6.",
    )
    traffic_class: ClassName = Field(default=TrafficClass.INTERACTIVE, description="Class of its requests.")
    prompt_tokens: LengthsSection | None = Field(default=None, description="Lengths of prompts, unless of a trace.")
    output_tokens: LengthsSection | None = Field(default=None, description="Lengths of answers, unless of a trace.")
    output_limit: Annotated[
        int | str,
        PlainValidator(_output_limit),
        WithJsonSchema({"type": ["integer", "string"], "minimum": 1, "pattern": "^(exact|none)$"}),
    ] = Field(
        default="none",
        description="Token limit that requests come with: `none`, `exact` (the answer's own length) or a number, which "
        "longer answers are cut to.",
    )


class WorkloadSection(Section):
    """What arrives: either arrivals that are drawn, or a trace."""

    arrivals: ArrivalsSection | None = Field(default=None, description="When requests arrive.")
    trace: TraceSection | None = Field(default=None, description="Recorded arrivals and lengths.")
    models: dict[str, Annotated[float, Field(ge=0, le=1e9)]] = Field(
        default_factory=dict,
        description="Models that requests ask for and their shares; left out = the one that nodes serve, if they all "
        "serve one.",
    )
    context_tokens: Annotated[int, Field(ge=2, le=100_000_000)] | None = Field(
        default=None,
        description="Longest context that is asked for: prompts are cut to leave room for a token, answers to what is "
        "left; left out = any.",
    )
    categories: dict[CategoryName, ScenarioCategory] = Field(
        description="What requests there are, at least one kind; each request's is drawn by the shares."
    )
