"""The page about emulated nodes has a row for everything that can be sent and asked."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from emulated_client import ask, draft, state
from slipstream.emulate import emulated
from slipstream.emulate.dialects import DIALECTS
from slipstream.emulate.faults import Fault
from slipstream.emulate.record import Seen

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "emulate.md").read_text()


def rows(section: str) -> dict[str, str]:
    """The tables of a section: each name of a first cell, and the rest of its row."""
    text = PAGE.split(f"\n{section}\n")[1].split("\n## ")[0]
    found = re.findall(r"^\| (`[^|]*`) \|(.*)$", text, re.MULTILINE)
    return {name: rest for names, rest in found for name in re.findall(r"`([^`]+)`", names)}


def test_every_fault_has_a_row_with_its_fields() -> None:
    told = {kind: set(re.findall(r"`(\w+)`", rest.split("|")[0])) for kind, rest in rows("## Faults").items()}
    told.pop("kind")
    real = {one.__struct_config__.tag: set(one.__struct_fields__) for one in get_args(Fault)}
    assert told == real


@pytest.mark.parametrize("fault", get_args(Fault), ids=lambda fault: fault.__name__)
def test_defaults_of_faults_are_told(fault: type[msgspec.Struct]) -> None:
    row = rows("## Faults")[str(fault.__struct_config__.tag)]
    for field in msgspec.structs.fields(fault):
        default = field.default if field.default is not msgspec.NODEFAULT else None
        if isinstance(default, bool | int | float):
            assert f"`{field.name}` {str(default).lower()}" in row


async def test_every_key_of_the_state_has_a_row() -> None:
    async with emulated("vllm", draft()) as node:
        await ask(node)
        told = await state(node)
    known = rows("## What the node has seen")
    assert told.keys() | {field.name for field in fields(Seen)} == known.keys() - {"Key"}


def test_every_dialect_has_a_row_with_its_pages() -> None:
    known = {name: set(re.findall(r"`(/[\w/]+)`", rest.split("|")[0])) for name, rest in rows("## Dialects").items()}
    known.pop("--dialect")
    assert known == {name: set(dialect.pages) for name, dialect in DIALECTS.items()}


def test_every_path_that_is_answered_has_a_row() -> None:
    known = rows("## Paths")
    for dialect in DIALECTS.values():
        assert dialect.answers.keys() == known.keys()
