"""The reference can not fall behind the sections."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import jsonschema  # type: ignore[import-untyped]  # its stubs are not installed
import pytest
import yaml

from slipstream.config import FleetConfig, json_schema, reference
from slipstream.config.reference import keys, tables
from slipstream.config.scenario import ScenarioConfig
from slipstream.config.section import Section

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "config.md"
EXAMPLE = yaml.safe_load(PAGE.read_text().split("```yaml\n")[1].split("```")[0])


def test_the_page_holds_the_tables_of_the_schema() -> None:
    assert tables() in PAGE.read_text(), "write the output of `python -m slipstream.config.reference` into the page"


def test_every_key_has_a_description_and_a_unit_or_words_for_its_kind() -> None:
    found = {key.name: key for key in keys()}
    assert {"gateway.timeouts.idle_s", "nodes[].api_key.env", "categories.<name>.prior_alpha", "routing.pins"} <= set(
        found
    )
    assert [name for name, key in found.items() if not key.description] == []
    assert found["nodes[].name"].default == "required"
    assert found["nodes[].models"].kind == "list of: text"
    assert found["routing.pins"].kind == "names, each with: `speculative` or `standard`"
    assert found["control.poll_interval_s"].kind == "number, at least 0.01, at most 60"


def test_the_schema_accepts_the_smallest_file_and_refuses_an_unknown_key() -> None:
    jsonschema.Draft202012Validator.check_schema(json_schema())
    jsonschema.validate(EXAMPLE, json_schema())
    with pytest.raises(jsonschema.ValidationError, match="celing"):
        jsonschema.validate(EXAMPLE | {"pools": {"speculative": {"celing": 8}}}, json_schema())


@pytest.mark.parametrize(("words", "root"), [([], FleetConfig), (["scenario"], ScenarioConfig)])
def test_the_tables_can_be_printed(
    words: list[str], root: type[Section], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["reference", *words])
    runpy.run_path(str(reference.__file__), run_name="__main__")
    assert capsys.readouterr().out == tables(root)
