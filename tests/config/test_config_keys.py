"""Keys of clients and the admin's token: by hash or by reference, never shown, each one's own."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from slipstream.config import admin_token, api_keys, load, parse, warnings
from slipstream.config.sources import files_of
from slipstream.core.errors import ConfigError
from slipstream.core.keys import KeyPolicy, digest_of
from slipstream.core.request import Pool, TrafficClass

NODES = 'nodes: [{name: a, url: "http://h:1", pool: standard}, {name: b, url: "http://h:2", pool: speculative}]\n'
LONG = "a-key-that-nobody-guesses-0123456789abcdef"
HASH = f"sha256:{hashlib.sha256(LONG.encode()).hexdigest()}"


def problems_of(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse(NODES + text, "fleet.yaml")
    return [str(problem) for problem in caught.value.problems]


def test_without_keys_none_is_needed() -> None:
    assert api_keys(parse(NODES, "f")) == ()
    assert admin_token(parse(NODES, "f")) is None


def test_a_key_is_known_by_hash_by_variable_or_by_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("A_KEY", "key-of-the-variable")
    (tmp_path / "key").write_text("key-of-the-file\n")
    limits = "traffic_class: bulk, pool: standard, max_in_flight: 4, requests_per_minute: 60"
    trust = "trust_category_header: true, trust_class_header: false"
    entries = (
        f'{{id: hashed, hash: "{HASH}"}}, {{id: variable, env: A_KEY, {limits}}}, {{id: file, file: key, {trust}}}'
    )
    text = f"gateway: {{keys: [{entries}]}}"
    keys = api_keys(parse(NODES + text, "f", tmp_path))
    assert keys == (
        (digest_of(LONG.encode()), KeyPolicy("hashed")),
        (
            digest_of(b"key-of-the-variable"),
            KeyPolicy("variable", TrafficClass.BULK, Pool.STANDARD, max_in_flight=4, requests_per_minute=60),
        ),
        (digest_of(b"key-of-the-file"), KeyPolicy("file", trusts_category=True, trusts_class=False)),
    )


def test_a_file_of_keys_is_read_behind_the_configurations_own(tmp_path: Path) -> None:
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "one").write_text("key-beside-the-list")
    (tmp_path / "secrets" / "keys.yaml").write_text(f'keys:\n  - {{id: b, hash: "{HASH}"}}\n  - {{id: c, file: one}}\n')
    fleet = tmp_path / "fleet.yaml"
    own = hashlib.sha256(b"own").hexdigest()
    fleet.write_text(NODES + f'gateway: {{keys_file: secrets/keys.yaml, keys: [{{id: a, hash: "sha256:{own}"}}]}}\n')
    config = load(fleet)
    assert [policy.key_id for _, policy in api_keys(config)] == ["a", "b", "c"]
    assert files_of(fleet, config) == (
        fleet,
        tmp_path / "secrets" / "keys.yaml",
        tmp_path / "secrets" / "one",
    )


@pytest.mark.parametrize("text", ["", "keys:\n", "keys: []\n"])
def test_a_file_of_keys_that_has_lost_them_does_not_let_everybody_in(text: str, tmp_path: Path) -> None:
    (tmp_path / "keys.yaml").write_text(text)
    (tmp_path / "fleet.yaml").write_text(f"{NODES}gateway: {{keys_file: keys.yaml}}\n")
    with pytest.raises(ConfigError, match=r"gateway.keys_file: found no key, there or here; allowed: at least one"):
        load(tmp_path / "fleet.yaml")


def test_a_problem_in_the_file_of_keys_has_its_place_there(tmp_path: Path) -> None:
    keys = tmp_path / "keys.yaml"
    keys.write_text(f'keys:\n  - {{id: a, hash: "{HASH}"}}\n  - {{id: a, hash: "{HASH}", celing: 1}}\nmore: 1\n')
    (tmp_path / "fleet.yaml").write_text(f"{NODES}gateway: {{keys_file: keys.yaml}}\n")
    with pytest.raises(ConfigError) as caught:
        load(tmp_path / "fleet.yaml")
    assert [(problem.file, problem.line, problem.key) for problem in caught.value.problems] == [
        (str(keys), 3, "keys[1].celing"),
        (str(keys), 4, ""),
    ]
    keys.unlink()
    with pytest.raises(ConfigError, match=r"gateway\.keys_file: found .*No such file.*a file with `keys` that can"):
        load(tmp_path / "fleet.yaml")


def test_no_two_keys_have_one_id_or_are_the_same_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAME", LONG)
    text = f'gateway: {{keys: [{{id: a, hash: "{HASH}"}}, {{id: b, env: SAME}}, {{id: a, hash: "{HASH[:-1]}e"}}]}}\n'
    assert problems_of(text) == [
        "fleet.yaml:2: gateway.keys[1]: found the same key as in gateway.keys[0]; allowed: a key of its own",
        'fleet.yaml:2: gateway.keys[2].id: found "a", as in gateway.keys[0]; allowed: an id of its own',
    ]


@pytest.mark.parametrize(
    ("key", "allowed"),
    [
        ("{id: a}", "one of hash, env and file"),
        (f'{{id: a, hash: "{HASH}", env: X}}', "one of hash, env and file"),
        ("{id: a, env: NOT_SET_ANYWHERE}", "the environment variable NOT_SET_ANYWHERE set and not empty"),
        ("{id: a, file: /nowhere/at/all}", "a file that can be read"),
        (f"{{id: a, hash: {LONG}}}", "a name that matches ^sha256:"),
        (f"{{id: a, env: {LONG}}}", "the name of an environment variable, in capitals"),
        (f"{{id: a, hash: [{LONG}]}}", "text, in quotes"),
        (f"{{id: a, {LONG}: }}", "found an unknown key that is not shown; allowed: id, hash, env, file, "),
        (LONG, "the key itself does not belong here"),
        (f'{{id: "", hash: "{HASH}"}}', "a name that matches"),
        (f'{{id: a, hash: "{HASH}", traffic_class: fast}}', "one of interactive, bulk"),
        (f'{{id: a, hash: "{HASH}", pool: fast}}', "one of speculative, standard"),
        (f'{{id: a, hash: "{HASH}", max_in_flight: 0}}', "at least 1"),
    ],
)
def test_a_key_that_can_not_be_used_is_refused_and_never_repeated(key: str, allowed: str) -> None:
    (problem,) = problems_of(f"gateway: {{keys: [{key}]}}\n")
    assert problem.startswith("fleet.yaml:2: gateway.keys[0]")
    assert allowed in problem
    assert LONG not in problem


def test_a_list_of_keys_that_is_no_list_is_not_repeated() -> None:
    (problem,) = problems_of(f"gateway: {{keys: {LONG}}}\n")
    assert problem == "fleet.yaml:2: gateway.keys: found a value that is not shown; allowed: a list"


def test_a_key_in_place_of_the_word_keys_is_not_repeated(tmp_path: Path) -> None:
    (tmp_path / "keys.yaml").write_text(f'keys: [{{id: a, hash: "{HASH}"}}]\n{LONG}: a\n')
    (tmp_path / "fleet.yaml").write_text(f"{NODES}gateway: {{keys_file: keys.yaml}}\n")
    with pytest.raises(ConfigError) as caught:
        load(tmp_path / "fleet.yaml")
    (problem,) = caught.value.problems
    assert (problem.line, problem.found, problem.allowed) == (2, "a key that does not belong here", "keys")
    assert LONG not in str(problem)


def test_off_loopback_the_admin_api_needs_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADMIN_TOKEN", LONG)
    config = parse(f'{NODES}admin: {{listen: "0.0.0.0:8081", token: {{env: ADMIN_TOKEN}}}}', "f")
    assert admin_token(config) == LONG


@pytest.mark.parametrize(
    "token", [f"{LONG}", f"{{{LONG}: }}", f"{{env: {LONG}}}", f"{{file: /nowhere/{LONG}, env: B}}"]
)
def test_a_token_that_is_no_reference_is_refused_and_never_repeated(token: str) -> None:
    problems = problems_of(f"admin: {{token: {token}}}")
    assert all("admin.token" in problem for problem in problems)
    assert LONG not in str(problems)


def test_a_token_that_is_not_there_is_said() -> None:
    (problem,) = problems_of("admin: {token: {env: NOT_SET_ANYWHERE}}")
    assert "admin.token.env: found no usable key; allowed: the environment variable NOT_SET_ANYWHERE set" in problem


def test_a_gateway_that_others_reach_without_keys_gets_a_warning() -> None:
    (warning,) = warnings(parse(f'{NODES}gateway: {{listen: "0.0.0.0:8080"}}', "f"))
    assert warning == "whoever reaches 0.0.0.0:8080 may use every node: there are no gateway.keys"
    assert warnings(parse(f'{NODES}gateway: {{listen: "0.0.0.0:8080", keys: [{{id: a, hash: "{HASH}"}}]}}', "f")) == ()


def test_secrets_that_can_be_guessed_get_a_warning_without_being_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHORT", "token-abc123")
    monkeypatch.setenv("LONG_ENOUGH", LONG)
    keys = "keys: [{id: weak, env: SHORT}, {id: strong, env: LONG_ENOUGH}]"
    found = warnings(parse(f"{NODES}gateway: {{{keys}}}\nadmin: {{token: {{env: SHORT}}}}", "f"))
    assert found == (
        "gateway.keys (weak) has 12 characters and may be guessed; `slipstream keys new` makes a long one",
        "admin.token has 12 characters and may be guessed; `slipstream keys new` makes a long one",
    )
