"""A configuration is checked whole, and every problem has a place and a sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from slipstream.config import category_rules, load, node_specs, parse, prior_alphas
from slipstream.core.errors import ConfigError, ConfigProblem
from slipstream.core.node import NodeSpec, SpeculatorKind
from slipstream.core.request import Pool

SMALLEST = """
gateway: {listen: "127.0.0.1:8080"}
admin: {listen: "127.0.0.1:8081"}
pools:
  speculative: {ceiling: 8, alpha_floor: 0.6, short_output_tokens: 64}
  standard: {}
nodes:
  - {name: spec-0, url: "http://10.0.0.1:8000", pool: speculative, engine: vllm}
  - {name: std-0, url: "http://10.0.0.2:8000", pool: standard, engine: vllm}
"""
NODES = 'nodes: [{name: a, url: "http://h:1", pool: standard}]\n'


def problems_of(text: str) -> tuple[ConfigProblem, ...]:
    with pytest.raises(ConfigError) as caught:
        parse(text, "fleet.yaml")
    assert all(problem.line for problem in caught.value.problems)
    return caught.value.problems


def problem_of(text: str) -> str:
    (problem,) = problems_of(text)
    return str(problem)


def test_the_smallest_file_has_every_default() -> None:
    config = parse(SMALLEST, "fleet.yaml")
    assert config.gateway.address == ("127.0.0.1", 8080)
    assert config.admin.address == ("127.0.0.1", 8081)
    assert config.gateway.timeouts.first_byte_unstreamed_s == 600
    assert config.routing.holdback == 0
    assert config.pools.speculative.hysteresis == 0
    assert prior_alphas(config)["code"] == 0.75
    assert node_specs(config)[1] == NodeSpec("std-0", "http://10.0.0.2:8000", Pool.STANDARD, "vllm")


def test_nodes_alone_are_a_configuration_and_empty_sections_are_their_defaults() -> None:
    assert parse(NODES + "gateway:\npools: {speculative: }\n", "f") == parse(NODES, "f")


def test_a_node_takes_the_ceiling_of_its_pool_unless_it_has_its_own() -> None:
    config = parse(
        """
        pools: {speculative: {ceiling: 12}}
        nodes:
          - {name: a, url: "http://h:1", pool: speculative, speculator: ngram, models: [m, n]}
          - {name: b, url: "http://[::1]", pool: speculative, ceiling: 4, max_in_flight: 99}
        """,
        "f",
    )
    first, second = node_specs(config)
    assert (first.ceiling, first.speculator_kind, first.models) == (12, SpeculatorKind.NGRAM, ("m", "n"))
    assert (second.ceiling, second.max_in_flight, second.url) == (4, 99, "http://[::1]:80")


def test_categories_are_added_to_the_default_ones() -> None:
    config = parse(NODES + "categories: {sql: {prior_alpha: 0.8}, chat: {prior_alpha: 0.4}, other: }\n", "f")
    priors = prior_alphas(config)
    assert (priors["sql"], priors["chat"], priors["code"], priors["other"]) == (0.8, 0.4, 0.75, 0.6)


def test_category_rules_become_those_of_the_core() -> None:
    config = parse(
        NODES + "category_rules:\n  - {category: code, model: coder*, min_characters: 9, where: user}\n"
        "  - {category: math, pattern: '\\bsolve\\b'}\n",
        "f",
    )
    first, second = category_rules(config)
    assert (first.category, first.model, first.min_characters, first.where) == ("code", "coder*", 9, "user")
    assert (second.pattern, second.where) == (r"\bsolve\b", "edges")


def node(**keys: str) -> str:
    given = {"name": "a", "url": '"http://h:1"', "pool": "standard"} | keys
    return f"nodes: [{{{', '.join(f'{key}: {value}' for key, value in given.items())}}}]"


PROBLEMS = [
    ("", "1: nodes: found nothing, and the key is required; allowed: the engine endpoints, at least one"),
    ("nodes: []", "1: nodes: found an empty list; allowed: at least one entry"),
    ("nodes:\n", "1: nodes: found nothing; allowed: a list"),
    ("- 1", "1: found a list; allowed: keys with values"),
]
PROBLEMS_BESIDE_NODES = [
    ("gateway: 3", "gateway: found 3; allowed: keys with values"),
    ("gateway: {retries: '2'}", 'gateway.retries: found "2"; allowed: a whole number'),
    ("gateway: {retries: 2.5}", "gateway.retries: found 2.5; allowed: a whole number"),
    ("gateway: {retries: -1}", "gateway.retries: found -1; allowed: at least 0"),
    ("gateway: {retries: 99}", "gateway.retries: found 99; allowed: at most 10"),
    ("gateway: {timeouts: {idle_s: 0}}", "gateway.timeouts.idle_s: found 0; allowed: more than 0"),
    ("routing: {holdback: 1.5}", "routing.holdback: found 1.5; allowed: at most 1"),
    ("routing: {holdback: .nan}", "routing.holdback: found NaN; allowed: a finite number"),
    ("routing: {fallback: 'no'}", 'routing.fallback: found "no"; allowed: true or false'),
    ("routing: {pins: {chat: x}}", 'routing.pins.chat: found "x"; allowed: one of speculative, standard'),
    ("control: {poll_interval_s: 2}", "control.stale_after_s: found 1.0, not more than the 2 of poll_interval_s; "),
    ("pools: {speculative: {ceiling: 0}}", "pools.speculative.ceiling: found 0; allowed: at least 1"),
    (
        "pools: {speculative: {hysteresis: 8}}",
        "pools.speculative.ceiling: found 8; allowed: more than the hysteresis, 8",
    ),
    ("log: {level: loud}", 'log.level: found "loud"; allowed: one of debug, info, warning, error'),
    ("categories: {Foo: }", 'categories.Foo: found "Foo"; allowed: a name that matches ^[a-z]'),
    (
        "category_rules: [{category: chat}]",
        "category_rules[0]: found keys with values; allowed: at least one condition",
    ),
]
PROBLEMS_OF_A_NODE = [
    ({"name": "1"}, "name: found 1; allowed: text, in quotes"),
    ({"name": "2024-01-01"}, 'name: found "2024-01-01"; allowed: text, in quotes'),
    ({"name": "a b"}, 'name: found "a b"; allowed: a name that matches ^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$'),
    ({"pool": "fast"}, 'pool: found "fast"; allowed: one of speculative, standard'),
    ({"engine": "lmdeploy"}, 'engine: found "lmdeploy"; allowed: one of vllm, sglang, llamacpp, trtllm'),
    (
        {"ceiling": "3"},
        "ceiling: found a key without effect in the standard pool; allowed: to leave it out",
    ),
]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        *PROBLEMS,
        *((NODES + text, f"2: {sentence}") for text, sentence in PROBLEMS_BESIDE_NODES),
        *((node(**keys), f"1: nodes[0].{sentence}") for keys, sentence in PROBLEMS_OF_A_NODE),
    ],
)
def test_a_problem_names_file_line_key_what_was_found_and_what_is_allowed(text: str, sentence: str) -> None:
    assert problem_of(text).startswith(f"fleet.yaml:{sentence}")


@pytest.mark.parametrize(
    ("url", "hint"),
    [
        ("10.0.0.1:8000", "https:// in front"),
        ("ftp://h:1", "https:// in front"),
        ("http://", "such as"),
        ("http://h:0", "such as"),
        ("http://h:70000", "port 1 to 65535"),
        ("http://h:1/v1", "without a path"),
        ("http://h:1?x=1", "without a path"),
        ("http://h h:1", "such as"),
    ],
)
def test_a_url_is_scheme_host_and_port(url: str, hint: str) -> None:
    assert hint in problem_of(f'nodes: [{{name: a, url: "{url}", pool: standard}}]')


@pytest.mark.parametrize("key", ["gateway", "admin"])
@pytest.mark.parametrize("address", ["8080", "localhost", "localhost:99999", "http://h:1", "::1:80", ":80"])
def test_a_listen_address_is_host_and_port(key: str, address: str) -> None:
    assert f"{key}.listen" in problem_of(f'{NODES}{key}: {{listen: "{address}"}}')


def test_an_unknown_key_is_told_with_the_nearest_known_one() -> None:
    text = NODES + "pools:\n  speculative:\n    celing: 8\n"
    assert problem_of(text).startswith(
        'fleet.yaml:4: pools.speculative.celing: found an unknown key (did you mean "ceiling"?); allowed: ceiling, '
    )
    assert "found an unknown key; allowed: ceiling" in problem_of(text.replace("celing", "zzz"))
    assert problem_of(NODES + "pools: {standard: {x: 1}}").endswith("found an unknown key; allowed: no keys here")
    node = 'nodes: [{name: a, url: "http://h:1", pool: standard, api_key: {enf: K}}]'
    assert 'nodes[0].api_key.enf: found an unknown key (did you mean "env"?)' in "\n".join(map(str, problems_of(node)))
    assert 'did you mean "prior_alpha"?' in problem_of(NODES + "categories: {chat: {prior_alfa: 1}}")


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("routing: {floor: 0.7}", '"pools.speculative.alpha_floor"'),
        ("ceiling: 8", '"pools.speculative.ceiling" or "nodes[].ceiling"'),
        ("pools: {standard: {hysterisis: 1}}", '"pools.speculative.hysteresis"'),
        ("admin: {retries: 1}", '"gateway.retries"'),
    ],
)
def test_a_key_of_another_section_is_told_with_its_place(text: str, hint: str) -> None:
    assert f"found an unknown key (did you mean {hint}?); allowed: " in problem_of(NODES + text)


def test_a_missing_pool_is_told_with_the_pools_that_there_are() -> None:
    problem = problem_of('nodes: [{name: a, url: "http://h:1"}]')
    assert problem.endswith("the key is required; allowed: the pool it belongs to, speculative or standard")


def test_all_problems_are_told_at_once_in_the_order_of_the_file() -> None:
    problems = problems_of(
        """gateway: {listen: "8080"}
admin: {listen: "0.0.0.0:8081"}
pools:
  speculative: {celing: 8}
  speculative: {}
routing: {pins: {poetry: standard}}
default_category: verse
category_rules: [{category: rhyme, pattern: "("}]
nodes:
  - {name: a, url: "http://h", pool: fast}
  - {name: a, url: "http://h:80/", pool: standard}
  - 7
"""
    )
    assert [(problem.line, problem.key) for problem in problems] == [
        (1, "gateway.listen"),
        (2, "admin.listen"),
        (4, "pools.speculative.celing"),
        (5, "pools.speculative"),
        (6, "routing.pins.poetry"),
        (7, "default_category"),
        (8, "category_rules[0].pattern"),
        (8, "category_rules[0].category"),
        (10, "nodes[0].pool"),
        (11, "nodes[1].name"),
        (11, "nodes[1].url"),
        (12, "nodes[2]"),
    ]


@pytest.mark.parametrize("address", ["0.0.0.0:8081", "10.0.0.1:8081", "example.org:8081"])
def test_the_admin_must_be_on_loopback(address: str) -> None:
    assert "allowed: an address on loopback such as 127.0.0.1:8081, or an admin.token besides" in problem_of(
        f'{NODES}admin: {{listen: "{address}"}}'
    )


@pytest.mark.parametrize("address", ["127.0.0.2:1", "[::1]:1", "localhost:1", "127.0.0.1:0"])
def test_loopback_has_several_names(address: str) -> None:
    assert parse(f'{NODES}admin: {{listen: "{address}"}}', "f").admin.listen == address


@pytest.mark.parametrize(
    ("gateway", "admin"),
    [("127.0.0.1:8080", "127.0.0.1:8080"), ("0.0.0.0:8081", "127.0.0.1:8081"), ("[::]:1", "[::1]:1")],
)
def test_listeners_may_not_clash(gateway: str, admin: str) -> None:
    text = f'{NODES}gateway: {{listen: "{gateway}"}}\nadmin: {{listen: "{admin}"}}'
    assert "where the gateway listens too" in problem_of(text)


def test_ports_that_the_system_chooses_do_not_clash() -> None:
    parse(f'{NODES}gateway: {{listen: "127.0.0.1:0"}}\nadmin: {{listen: "127.0.0.1:0"}}', "f")


def keyed(reference: str) -> str:
    return f'nodes: [{{name: a, url: "http://h:1", pool: standard, api_key: {reference}}}]'


def test_a_key_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NODE_KEY", "sk-123")
    config = parse(keyed("{env: NODE_KEY}"), "f")
    (spec,) = node_specs(config)
    assert spec.api_key == "sk-123"
    assert "sk-123" not in repr(config) + repr(spec)


def test_a_key_comes_from_a_file_beside_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("sk-456\n")
    (tmp_path / "fleet.yaml").write_text(keyed("{file: key}"))
    (spec,) = node_specs(load(tmp_path / "fleet.yaml"))
    assert spec.api_key == "sk-456"


@pytest.mark.parametrize(
    ("reference", "sentence"),
    [
        ("sk-123", "api_key: found a value that is not shown; allowed: {env: NAME} or {file: PATH}"),
        ("{}", "api_key: found a value that is not shown; allowed: either {env: NAME} or {file: PATH}"),
        ("{env: A, file: sk-123}", "api_key: found a value that is not shown; allowed: either"),
        ("{env: sk-123}", "api_key.env: found no usable key; allowed: the name of an environment variable"),
        ("{env: SLIPSTREAM_TEST_UNSET}", "allowed: the environment variable SLIPSTREAM_TEST_UNSET set and not empty"),
        ("{env: SLIPSTREAM_TEST_ODD}", "SLIPSTREAM_TEST_ODD with one key of printable ASCII characters"),
        ("{env: 3}", "api_key.env: found a value that is not shown; allowed: text, in quotes"),
        ("{file: nowhere}", "api_key.file: found no usable key; allowed: a file that can be read ("),
        ("{file: binary}", "nowhere/binary: not a text)"),
        ("{file: empty}", "nowhere/empty set and not empty"),
    ],
)
def test_a_key_that_can_not_be_had_is_told_without_showing_it(
    reference: str, sentence: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SLIPSTREAM_TEST_ODD", "sk-123\nx")
    monkeypatch.delenv("SLIPSTREAM_TEST_UNSET", raising=False)
    directory = tmp_path / "nowhere"
    directory.mkdir()
    (directory / "binary").write_bytes(b"\xff\xfe")
    (directory / "empty").write_text("\n")
    with pytest.raises(ConfigError) as caught:
        parse(keyed(reference), "f", directory)
    (problem,) = caught.value.problems
    assert sentence in str(problem)
    assert "sk-123" not in str(problem)


def test_a_password_in_a_url_is_not_shown() -> None:
    text = 'nodes: [{name: a, url: "http://me:secret@h:1", pool: standard}]'
    assert "secret" not in problem_of(text)
    assert "api_key" in problem_of(text)


def test_long_values_are_cut() -> None:
    assert len(problem_of(f'nodes: [{{name: "{" " * 500}", url: "http://h:1", pool: standard}}]')) < 250


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, "no such file; allowed: a file that is there: name yours with -c, or begin with .*examples/fleet.yaml"),
        (b"a: \xff", "fleet.yaml:1: found bytes that are not UTF-8; allowed: UTF-8 text"),
    ],
)
def test_a_file_that_can_not_be_read_is_a_problem(content: bytes | None, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "fleet.yaml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=sentence):
        load(path)


@pytest.mark.parametrize("value", ["3", "[1]", "{a: 1}", "text", "null", "true"])
def test_values_of_the_wrong_kind_never_break_the_checks(value: str) -> None:
    sections = ("gateway", "admin", "control", "pools", "routing", "categories", "category_rules", "log")
    node_keys = ("name", "url", "pool", "ceiling", "api_key", "models")
    text = "\n".join([*(f"{key}: {value}" for key in sections), node(**dict.fromkeys(node_keys, value))])
    assert len(problems_of(text)) >= 3


@pytest.mark.parametrize(
    "host",
    [
        "a..b",
        ".",
        "a" * 300,
        "a" * 64 + ".b",
        "ab." * 90 + "c",
        "-a",
        "a-",
        "1.2.3.999",
        "bücher",
        "[::g]",
        r"a\0b",
        r"\ud800",
    ],
)
def test_a_host_that_can_not_be_looked_up_is_refused(host: str) -> None:
    for text in (
        f'nodes: [{{name: a, url: "http://{host}:80", pool: standard}}]',
        f'{NODES}gateway: {{listen: "{host}:1"}}',
    ):
        assert problems_of(text)


@pytest.mark.parametrize(
    "host", ["a", "node_1.zone-b.example.", "10.0.0.1", "[::1]", "xn--bcher-kva.example", "A1.b2c"]
)
def test_a_host_that_can_be_looked_up_is_taken(host: str) -> None:
    config = parse(
        f'nodes: [{{name: a, url: "http://{host}:80", pool: standard}}]\ngateway: {{listen: "{host}:1"}}', "f"
    )
    assert config.gateway.address == (host.strip("[]"), 1)
    assert config.nodes[0].url == f"http://{host.lower()}:80"


def test_a_port_is_written_in_ascii_digits() -> None:
    assert "port 0 to 65535" in problem_of(NODES + 'gateway: {listen: "0.0.0.0:٣٣"}')
    assert "allowed: an address" in problem_of('nodes: [{name: a, url: "http://h:٣٣", pool: standard}]')


@pytest.mark.parametrize(
    ("section", "allowed"),
    [
        ("pools: {speculative: {ceiling: 0xfffff}}", "at most 1000000"),
        ("pools: {speculative: {short_output_tokens: 1000001}}", "at most 1000000"),
        ("gateway: {max_body_bytes: 1099511627777}", "at most 1099511627776"),
        ("gateway: {max_header_bytes: 1073741825}", "at most 1073741824"),
        ("gateway: {timeouts: {idle_s: 1.0e+300}}", "at most 1000000000"),
    ],
)
def test_numbers_have_an_upper_end_that_is_written_out(section: str, allowed: str) -> None:
    assert problem_of(NODES + section).endswith(f"allowed: {allowed}")
