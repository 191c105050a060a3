"""Certificates and authorities in a configuration: files that are there, fit and have an effect."""

from __future__ import annotations

from pathlib import Path

import pytest

from slipstream.config import load, node_specs
from slipstream.config.loading import parse
from slipstream.config.sources import files_of
from slipstream.core.errors import ConfigError
from tls_files import AUTHORITY, STRANGER, chain_and_key

CHAIN, KEY = chain_and_key("server")
NODE = "nodes: [{name: a, url: 'https://a', pool: standard%s}]\n"


def problems(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse(text, "f")
    return list(map(str, caught.value.problems))


def test_files_are_relative_to_the_configuration_and_part_of_it(tmp_path: Path) -> None:
    for name, source in ("chain.pem", CHAIN), ("key.pem", KEY), ("ca.pem", AUTHORITY):
        (tmp_path / name).write_bytes(Path(source).read_bytes())
    file = tmp_path / "fleet.yaml"
    tls = "tls: {certificate: chain.pem, key: key.pem}"
    file.write_text(f"gateway: {{{tls}}}\nadmin: {{{tls}}}\n" + NODE % ", ca: ca.pem")
    config = load(file)
    for section in config.gateway, config.admin:
        assert section.tls is not None
        assert (section.tls.certificate, section.tls.key) == (str(tmp_path / "chain.pem"), str(tmp_path / "key.pem"))
    (node,) = node_specs(config)
    assert (node.url, node.authorities) == ("https://a:443", str(tmp_path / "ca.pem"))
    assert {tmp_path / "chain.pem", tmp_path / "key.pem"} <= set(files_of(file, config))


@pytest.mark.parametrize(
    ("chain", "key", "reason"),
    [
        ("/nowhere.pem", KEY, "a file that can be read (/nowhere.pem: No such file or directory)"),
        (CHAIN, "/nowhere.key", "a file that can be read (/nowhere.key: No such file or directory)"),
        (CHAIN, chain_and_key("renewed")[1], "a PEM certificate and its key"),
        (KEY, KEY, "a PEM certificate and its key"),
        (CHAIN, "/dev/zero", "no regular file"),
    ],
)
@pytest.mark.parametrize("section", ["gateway", "admin"])
def test_a_certificate_that_can_not_be_used_is_a_problem(section: str, chain: str, key: str, reason: str) -> None:
    (problem,) = problems(f"{section}: {{tls: {{certificate: {chain}, key: {key}}}}}\n" + NODE % "")
    assert problem.startswith(f"f:1: {section}.tls: found no usable certificate; allowed: ")
    assert reason in problem


def test_a_key_in_place_of_its_file_is_not_repeated() -> None:
    text = Path(KEY).read_text()
    (problem,) = problems(f"gateway: {{tls: {{certificate: {CHAIN}, key: {text!r}}}}}\n".replace("'", '"') + NODE % "")
    assert "the key itself does not belong here" in problem
    assert text.splitlines()[1] not in problem


@pytest.mark.parametrize(
    ("ca", "reason"), [("/nowhere.pem", "No such file or directory"), (KEY, "a file with PEM certificates")]
)
def test_authorities_that_can_not_be_used_are_a_problem(ca: str, reason: str) -> None:
    (problem,) = problems(NODE % f", ca: {ca}")
    assert problem.startswith("f:1: nodes[0].ca: found no usable authorities; allowed: ")
    assert reason in problem


def test_authorities_without_tls_are_a_key_without_effect() -> None:
    (problem,) = problems(NODE.replace("https:", "http:") % f", ca: {STRANGER}")
    assert problem.startswith("f:1: nodes[0].ca: found a key without effect;")
