"""``slipstream crossover --list``: what the roofline knows by name."""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.text import Text

from slipstream.cli.tables import Column, FittingTable, number
from slipstream.costmodel.catalogue import engines, hardware, models
from slipstream.costmodel.speculator import HEADS

__all__ = ["catalogue", "catalogue_report"]


def catalogue() -> dict[str, Any]:
    """Hardware, models, engines, speculators and profiles, with the sources of the figures."""
    return {
        "hardware": [
            {
                "name": gpu.name,
                "memory_bytes": gpu.memory_bytes,
                "memory_bytes_per_s": gpu.memory_bytes_per_s,
                "bf16_flops": gpu.flops["bf16"],
                "source": gpu.source,
            }
            for gpu in hardware().values()
        ],
        "models": [
            {
                "name": model.name,
                "parameters": model.parameters,
                "active_parameters": model.active_parameters,
                "layers": model.layers,
                "kv_bytes_per_token": model.kv_bytes_per_token(),
                "weight_dtype": model.weight_dtype,
                "source": model.source,
            }
            for model in models().values()
        ],
        "engines": list(engines()),
        "speculators": [*HEADS, "ngram"],
        "profiles": ["article-1"],
    }


def catalogue_report(known: dict[str, Any]) -> RenderableType:
    """The same as tables."""
    gpus = FittingTable(
        "Hardware (dense BF16)",
        Column("name", 0),
        Column("GB", 0, right=True),
        Column("TB/s", 0, right=True),
        Column("TFLOPS", 0, right=True),
        Column("source", 1, gives=True),
    )
    for gpu in known["hardware"]:
        gpus.add_row(
            escape(gpu["name"]),
            number(gpu["memory_bytes"] / 1e9),
            number(gpu["memory_bytes_per_s"] / 1e12, 2),
            number(gpu["bf16_flops"] / 1e12),
            escape(gpu["source"]),
        )
    cards = FittingTable(
        "Models",
        Column("name", 0),
        Column("parameters", 0, right=True),
        Column("active", 2, right=True),
        Column("layers", 4, right=True),
        Column("KV kB/token", 3, right=True),
        Column("weights", 1),
    )
    for model in known["models"]:
        cards.add_row(
            escape(model["name"]),
            number(model["parameters"]),
            number(model["active_parameters"]),
            number(model["layers"]),
            number(model["kv_bytes_per_token"] / 1e3, 1),
            model["weight_dtype"],
        )
    lines = [
        f"Speculators: {', '.join(known['speculators'])}, or a draft model of the names above.",
        f"Engines: {', '.join(known['engines'])}. Profiles: {', '.join(known['profiles'])}.",
        "Others: a JSON file of hardware; a model's folder with its config.json, or that file.",
    ]
    return Group(gpus, Text(""), cards, Text(""), *map(Text, lines))
