from __future__ import annotations

from pathlib import Path

import pytest

from slipstream.core.request import Pool
from slipstream.embedded.errors import ModelNotFound, UnusableSpec
from slipstream.embedded.model import find_model
from slipstream.embedded.node import EmbeddedNodeSpec
from slipstream.embedded.speculator import SpeculatorChoice, parse_speculator


@pytest.mark.parametrize("text", ["none", "ngram", f"draft:{find_model()}"])
def test_words_and_speculators_are_one_to_one(text: str) -> None:
    assert str(parse_speculator(text)) == text


def test_a_draft_model_is_checked_when_it_is_named(tmp_path: Path) -> None:
    assert parse_speculator(f"draft:{find_model()}").choice is SpeculatorChoice.DRAFT
    with pytest.raises(ModelNotFound):
        parse_speculator(f"draft:{tmp_path}/absent.gguf")


@pytest.mark.parametrize("text", ["", "eagle", "draft", "draft:", "ngram:5", "NGRAM"])
def test_anything_else_is_refused_with_what_is_allowed(text: str) -> None:
    with pytest.raises(UnusableSpec, match=r"use ngram or draft:PATH\.gguf"):
        parse_speculator(text)


@pytest.mark.parametrize(
    ("field", "value"), [("slots", 0), ("threads", 0), ("context_per_slot", 8), ("port", 0), ("port", 65536)]
)
def test_a_figure_out_of_range_is_refused_by_name(field: str, value: int) -> None:
    with pytest.raises(UnusableSpec, match=f"std-0: {field} is {value}"):
        EmbeddedNodeSpec("std-0", Pool.STANDARD, Path("model.gguf"), **{field: value})  # type: ignore[arg-type]  # int
