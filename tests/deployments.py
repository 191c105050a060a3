"""Deployments that the tests of the cost model share."""

from __future__ import annotations

from slipstream.costmodel.catalogue import engine_named, hardware_named, model_named
from slipstream.costmodel.costs import RooflineCosts
from slipstream.costmodel.roofline import Deployment
from slipstream.costmodel.speculator import Speculator, eagle_head


def deployed(
    model: str = "Llama-3.1-8B",
    hardware: str = "H100",
    engine: str = "vllm",
    *,
    gpus: int = 1,
    weights: str | None = None,
) -> Deployment:
    return Deployment(model_named(model), hardware_named(hardware), engine_named(engine), gpus, weights)


def costs_of(deployment: Deployment, speculator: Speculator | None = None) -> RooflineCosts:
    return RooflineCosts(deployment, speculator or eagle_head(deployment.model))
