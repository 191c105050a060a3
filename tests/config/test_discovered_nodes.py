"""Nodes from a second file are nodes like others, and what is wrong with them is said with their own file and line."""

from __future__ import annotations

from pathlib import Path

import pytest

from slipstream.config import load, node_specs, node_templates, warnings
from slipstream.config.sources import files_named, files_of
from slipstream.core.errors import ConfigError

OWN = 'nodes:\n  - {name: own, url: "http://10.0.0.1:1", pool: standard}\n'
MORE = 'nodes:\n  - {name: more, url: "http://10.0.0.2:1", pool: speculative}\n'


def fleet(directory: Path, text: str, more: str | None = None) -> Path:
    if more is not None:
        (directory / "nodes.yaml").write_text(more)
    path = directory / "fleet.yaml"
    path.write_text(text)
    return path


def problems_of(path: Path) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(path)
    return [str(problem).removeprefix(f"{path.parent}/") for problem in caught.value.problems]


def test_they_stand_behind_the_nodes_of_the_first_file(tmp_path: Path) -> None:
    config = load(fleet(tmp_path, "discovery: {file: nodes.yaml}\n" + OWN, MORE))
    assert [spec.name for spec in node_specs(config)] == ["own", "more"]


@pytest.mark.parametrize("more", ["", "nodes:\n", "nodes: []\n"])
def test_the_second_file_may_have_no_node_and_then_there_is_a_warning(tmp_path: Path, more: str) -> None:
    config = load(fleet(tmp_path, "discovery: {file: nodes.yaml}\n", more))
    assert config.nodes == ()
    assert warnings(config) == (f"{tmp_path}/nodes.yaml names no node yet, so every request is refused",)


def test_problems_of_both_files_are_told_at_once_each_with_its_own_line(tmp_path: Path) -> None:
    text = "gateway: {retries: -1}\ndiscovery: {file: nodes.yaml}\n" + OWN
    more = MORE + "  - {name: own, url: 'http://h', pool: fast, ceiling: 0}\nlog: {level: debug}\nlog: 3\n"
    assert problems_of(fleet(tmp_path, text, more)) == [
        "fleet.yaml:1: gateway.retries: found -1; allowed: at least 0",
        'nodes.yaml:3: nodes[1].pool: found "fast"; allowed: one of speculative, standard',
        "nodes.yaml:3: nodes[1].ceiling: found 0; allowed: at least 1",
        'nodes.yaml:3: nodes[1].name: found "own", as in nodes[0]; allowed: a name of its own',
        "nodes.yaml:4: log: found a key that does not belong here; allowed: nodes",
        "nodes.yaml:5: log: found the key twice, first on line 4; allowed: each key once",
    ]


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        (None, "fleet.yaml:1: discovery.file: found {}/nodes.yaml: No such file or directory; allowed: a file with"),
        ("- 1\n", "nodes.yaml:1: found no keys with values; allowed: `nodes`"),
        ("nodes: 3\n", "nodes.yaml:1: nodes: found no list; allowed: a list"),
        ("nodes: [\n", "nodes.yaml:2: found text that can not be read"),
    ],
)
def test_a_second_file_that_can_not_be_used_says_why(tmp_path: Path, more: str | None, problem: str) -> None:
    (found,) = problems_of(fleet(tmp_path, "discovery: {file: nodes.yaml}\n", more))
    assert found.startswith(problem.format(tmp_path))


def test_a_second_file_that_is_no_text_says_so(tmp_path: Path) -> None:
    path = fleet(tmp_path, "discovery: {file: nodes.yaml}\n")
    (tmp_path / "nodes.yaml").write_bytes(b"\xff")
    assert "bytes that are not UTF-8" in problems_of(path)[0]


def test_nodes_that_are_no_list_are_told_beside_a_second_file(tmp_path: Path) -> None:
    path = fleet(tmp_path, "nodes: 3\ndiscovery: {file: nodes.yaml}\n", MORE)
    assert problems_of(path) == ["fleet.yaml:1: nodes: found 3; allowed: a list"]


def test_key_files_are_relative_to_the_file_that_names_them_and_all_files_read_are_known(tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "nodes.yaml").write_text(
        'nodes: [{name: more, url: "http://10.0.0.2:1", pool: standard, api_key: {file: key}}]'
    )
    (tmp_path / "more" / "key").write_text("the-nodes-own\n")
    path = fleet(tmp_path, "discovery: {file: more/nodes.yaml}\n" + OWN)
    config = load(path)
    assert node_specs(config)[1].api_key == "the-nodes-own"
    assert files_of(path, config) == (path, tmp_path / "more" / "nodes.yaml", tmp_path / "more" / "key")


def test_addresses_can_not_be_checked_by_a_certificate_of_their_name(tmp_path: Path) -> None:
    path = fleet(tmp_path, "nodes: [{name: spec, url: 'https://spec:1', pool: speculative, resolve: all}]")
    (problem,) = problems_of(path)
    assert problem.startswith("fleet.yaml:1: nodes[0].url: found https:// beside `resolve: all`; allowed: http://, or")


def test_a_node_to_be_resolved_is_a_template_and_no_node(tmp_path: Path) -> None:
    config = load(fleet(tmp_path, OWN + '  - {name: spec, url: "http://spec:1", pool: speculative, resolve: all}\n'))
    assert [spec.name for spec in node_specs(config)] == ["own"]
    assert [spec.url for spec in node_templates(config)] == ["http://spec:1"]


WITH_FILES = """
gateway: {keys_file: keys.yaml, tls: {certificate: chain.pem, key: chain.key}}
admin: {token: {file: token}}
discovery: {file: more/nodes.yaml}
nodes: [{name: own, url: "https://10.0.0.1", pool: standard, ca: ca.pem, api_key: {file: ""}}, no node]
record: {file: written.jsonl}
mistake: {}
"""


def test_the_files_that_a_configuration_names_are_known_whatever_is_wrong_with_it(tmp_path: Path) -> None:
    file = fleet(tmp_path, WITH_FILES)
    named = ["fleet.yaml", "more/nodes.yaml", "keys.yaml", "ca.pem", "chain.pem", "chain.key", "token"]
    assert files_named(file) == tuple(tmp_path / name for name in named)
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "nodes.yaml").write_text("nodes: [{api_key: {file: secret}}]")
    (tmp_path / "keys.yaml").write_text("keys: [{file: key}]")
    assert set(files_named(file)) == {tmp_path / name for name in (*named, "more/secret", "key")}


def test_of_a_configuration_that_can_not_be_read_only_itself_is_known(tmp_path: Path) -> None:
    file = fleet(tmp_path, "{")
    assert files_named(file) == (file,)
    file.unlink()
    assert files_named(file) == (file,)
