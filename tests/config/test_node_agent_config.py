"""What `slipstream node` is told: by a file, by options, and what does not go together."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from slipstream.config import node_specs
from slipstream.config.loading import parse
from slipstream.config.node_agent import NodeAgentConfig, node_agent_config
from slipstream.config.reference import tables
from slipstream.core.errors import ConfigError
from slipstream.core.request import Pool

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "agent.md"

FILE = """
name: spec-0
listen: "0.0.0.0:9100"
token: {file: token}
engine_url: http://127.0.0.1:8000
command: [vllm, serve, big-model]
speculative_args: [--speculative-config, '{"method": "ngram"}']
role: standard
drain_timeout_s: 30
"""

FLEET = """
nodes:
  - {name: a, url: "http://10.0.0.1:8000", pool: speculative, agent: "http://10.0.0.1:9100", agent_token: {file: TOKEN}}
"""


def problems(options: Mapping[str, object], path: Path | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        node_agent_config(path, options)
    return str(caught.value)


def test_options_alone_are_a_configuration() -> None:
    told = node_agent_config(None, {"command": ("vllm", "serve"), "speculative_args": ("--x",), "name": None})
    assert (told.name, told.command, told.role, told.address.port) == (
        "node",
        ("vllm", "serve"),
        Pool.SPECULATIVE,
        9100,
    )
    assert node_agent_config(None, {}).command == ()


def test_options_go_before_the_file_whose_names_are_relative_to_it(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret\n")
    file = tmp_path / "node.yaml"
    file.write_text(FILE + "\nrun_file: engine.json\n")
    told = node_agent_config(file, {"name": "spec-1", "standard_args": ()})
    assert told.run_file == str(tmp_path / "engine.json")
    assert (told.name, told.role, told.drain_timeout_s) == ("spec-1", Pool.STANDARD, 30)
    assert told.speculative_args == ("--speculative-config", '{"method": "ngram"}')
    assert told.token is not None
    assert told.token.reveal() == "secret"


def test_every_problem_is_told_with_its_place(tmp_path: Path) -> None:
    file = tmp_path / "node.yaml"
    file.write_text("comand: [vllm]\nrole: both\n")
    told = problems({"ceiling": 0}, file)
    assert f'{file}:1: comand: found an unknown key (did you mean "command"?)' in told
    assert f'{file}:2: role: found "both"; allowed: ' in told
    assert "ceiling: found 0; allowed: at least 1" in told
    file.write_text("- vllm\n")
    assert "found no keys with values" in problems({}, file)
    assert "no such file" in problems({}, tmp_path / "nowhere.yaml")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"listen": "0.0.0.0:9100"}, 'options: listen: found "0.0.0.0:9100"; allowed: an address on loopback'),
        ({"command": ("vllm",), "switch_command": ("switch",)}, "switch_command: found a hook beside a command"),
        ({"command": ("vllm",), "switch_url": "http://x/y"}, "switch_url: found a hook beside a command"),
        ({"switch_command": ("switch",), "switch_url": "http://x/y"}, "switch_url: found two hooks"),
        ({"speculative_args": ("--x",)}, "speculative_args: found a key without effect"),
        ({"run_file": "e.json"}, "run_file: found a key without effect"),
        ({"engine_outlives_agent": False}, "engine_outlives_agent: found a key without effect"),
        (
            {"command": ("vllm",), "engine_outlives_agent": False, "run_file": "e.json"},
            "run_file: found a key without effect; allowed: engine_outlives_agent: true besides",
        ),
        ({"command": ("vllm",), "run_file": "a\0b"}, "run_file: found "),
        *(({"command": ("vllm",), "run_file": name}, "allowed: the name of a file") for name in ("", ".", "..", "/")),
        ({"command": ("", "vllm")}, 'command: found ""'),
        ({"switch_url": "somewhere"}, "switch_url: found "),
        ({"token": {"file": "/nowhere/token"}}, "token: found no usable key"),
        ({"engine": "lmdeploy"}, "engine: found "),
    ],
)
def test_what_does_not_go_together_is_told(options: dict[str, object], sentence: str) -> None:
    assert sentence in problems(options)


def test_the_page_holds_the_table_of_the_keys() -> None:
    assert tables(NodeAgentConfig) in PAGE.read_text()


def test_a_node_of_the_fleet_has_the_address_of_its_agent_and_what_that_wants(tmp_path: Path) -> None:
    (tmp_path / "TOKEN").write_text("secret")
    (spec,) = node_specs(parse(FLEET, "fleet.yaml", tmp_path))
    assert (spec.agent, spec.agent_token) == ("http://10.0.0.1:9100", "secret")
    assert "secret" not in repr(spec)


@pytest.mark.parametrize(
    ("before", "after", "sentence"),
    [
        ('agent: "http://10.0.0.1:9100", ', "", "nodes[0].agent_token: found a key without effect"),
        ("{file: TOKEN}", "secret", "nodes[0].agent_token: found a value that is not shown"),
        ("{file: TOKEN}", "{file: NOWHERE}", "nodes[0].agent_token.file: found no usable key"),
        ("pool: sp", "resolve: all, pool: sp", "nodes[0].agent: found an agent beside `resolve: all`"),
    ],
)
def test_an_agent_that_can_not_be_is_told(tmp_path: Path, before: str, after: str, sentence: str) -> None:
    (tmp_path / "TOKEN").write_text("secret")
    with pytest.raises(ConfigError) as caught:
        parse(FLEET.replace(before, after), "fleet.yaml", tmp_path)
    assert sentence in str(caught.value)


NODE = '{name: NAME, url: "http://NAME:8000", pool: speculative, agent: "http://AGENT:9100"}'


def roles(settings: str, *agents: str) -> str:
    entries = ", ".join(NODE.replace("NAME", f"n{i}").replace("AGENT", one) for i, one in enumerate(agents))
    return f"roles: {{{settings}}}\nnodes: [{entries}]\n"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (roles("", "a", "a"), 'nodes[1].agent: found "http://a:9100", as in nodes[0]; allowed: an agent of its own'),
        (roles("minimum_speculative: 2", "a", "b"), "roles.minimum_speculative: found 2 speculative and 1 standard at"),
        (roles("minimum_standard: 3", "a", "b"), "at least; allowed: at most 2 together, as many as there are nodes"),
        (roles("low_watermark: 0.9", "a", "b"), "roles.low_watermark: found 0.9; allowed: less than the high one, 0.9"),
    ],
)
def test_roles_that_can_not_be_are_told(text: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(text, "fleet.yaml")
    (problem,) = caught.value.problems
    assert sentence in str(problem)


def test_minimums_that_just_fit_or_of_nodes_that_are_found_are_as_given(tmp_path: Path) -> None:
    assert parse(roles("minimum_speculative: 1", "a", "b"), "fleet.yaml").roles is not None
    (tmp_path / "nodes.yaml").write_text(f"nodes: [{NODE}]")
    found = "discovery: {file: nodes.yaml}\nroles: {minimum_speculative: 9}\n"
    assert parse(found, "fleet.yaml", tmp_path).roles is not None
