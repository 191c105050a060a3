"""The hardware, models and engines that ship with the package, and how others are read from a file."""

from __future__ import annotations

import json
from dataclasses import MISSING, fields
from functools import cache
from importlib.resources import files
from os.path import isdir
from pathlib import Path
from typing import Any, TypeVar

from slipstream.costmodel.engine import Engine
from slipstream.costmodel.errors import ImpossibleInput
from slipstream.costmodel.gguf_model import model_from_gguf
from slipstream.costmodel.hardware import Hardware
from slipstream.costmodel.huggingface import model_from_config, read_json
from slipstream.costmodel.model import Model

__all__ = ["any_model", "engine_named", "engines", "hardware", "hardware_named", "model_named", "models"]

_Entry = TypeVar("_Entry", Hardware, Model, Engine)


def _entries(name: str) -> list[dict[str, Any]]:
    text = (files("slipstream.costmodel") / "data" / f"{name}.json").read_text(encoding="utf-8")
    return list(json.loads(text))


@cache
def hardware() -> dict[str, Hardware]:
    """GPUs by name, in the order of the catalogue."""
    return {entry["name"]: Hardware(**_without_aliases(entry)) for entry in _entries("hardware")}


@cache
def models() -> dict[str, Model]:
    """Models by name, in the order of the catalogue."""
    return {entry["name"]: Model(**_without_aliases(entry)) for entry in _entries("models")}


@cache
def engines() -> dict[str, Engine]:
    """Engines by name."""
    return {entry["name"]: Engine(**entry) for entry in _entries("engines")}


def hardware_named(name: str) -> Hardware:
    """A GPU of the catalogue, by name or alias in any case, or one from a JSON file of that path.

    Raises ImpossibleInput, with the names there are, if it is neither.
    """
    if name.endswith(".json"):
        return _from_file(Hardware, Path(name))
    found = _aliases("hardware").get(_plain(name))
    if found is None:
        raise ImpossibleInput(f"no hardware is called {name}; known are {', '.join(hardware())}, or give a JSON file")
    return hardware()[found]


def model_named(name: str) -> Model:
    """A model of the catalogue, by name or alias, or from a path: a folder or file of a Hugging Face ``config.json``,
    or a JSON file with the fields of `Model`. Raises ImpossibleInput if it is none of these."""
    found = _aliases("models").get(_plain(name.rsplit("/", 1)[-1]))
    if found is not None:
        return models()[found]
    path = Path(name)
    if (name and isdir(path)) or path.name == "config.json":
        return model_from_config(path)
    if path.suffix == ".json":
        if "num_hidden_layers" in read_json(path):
            return model_from_config(path)
        return _from_file(Model, path)
    known = ", ".join(models())
    raise ImpossibleInput(f"no model is called {name}; known are {known}, or give a folder with a config.json")


def any_model(name: str) -> Model:
    """As `model_named`, or of a GGUF file."""
    return model_from_gguf(Path(name)) if name.endswith(".gguf") else model_named(name)


def engine_named(name: str) -> Engine:
    """Constants of an engine. Raises ImpossibleInput, with the names there are, if unknown."""
    if name.endswith(".json"):
        return _from_file(Engine, Path(name))
    try:
        return engines()[name.lower()]
    except KeyError:
        raise ImpossibleInput(f"no engine is called {name}; known are {', '.join(engines())}") from None


def _from_file(kind: type[_Entry], path: Path) -> _Entry:
    entry = read_json(path)
    known = {field.name for field in fields(kind)}
    needed = [field.name for field in fields(kind) if field.default is MISSING]
    if missing := [name for name in needed if name not in entry]:
        raise ImpossibleInput(f"{path} is incomplete: {', '.join(missing)} must be told")
    if unknown := sorted(set(entry) - known):
        raise ImpossibleInput(f"{path} has unknown keys {', '.join(unknown)}; known are {', '.join(sorted(known))}")
    try:
        return kind(**entry)
    except (TypeError, AttributeError) as error:
        raise ImpossibleInput(f"{path} holds something of another kind: {error}") from None


def _without_aliases(entry: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in entry.items() if key != "aliases"}


@cache
def _aliases(name: str) -> dict[str, str]:
    return {
        _plain(alias): entry["name"] for entry in _entries(name) for alias in (entry["name"], *entry.get("aliases", ()))
    }


def _plain(name: str) -> str:
    plain = name.lower().replace(" ", "-").removeprefix("meta-")
    for ending in ("-hf", "-instruct", "-chat", "-it", "-instruct-2507", "-fp8"):
        plain = plain.removesuffix(ending)
    return plain
