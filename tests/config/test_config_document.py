"""YAML as plain data with lines."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.config.document import dotted, read_document
from slipstream.core.errors import ConfigError


def test_every_key_and_entry_has_its_line() -> None:
    document, problems = read_document("a:\n  b: 1\n  c:\n    - x\n    - {d: 2}\n", "f.yaml")
    assert problems == []
    assert document.data == {"a": {"b": 1, "c": ["x", {"d": 2}]}}
    assert document.lines[("a", "b")] == 2
    assert document.lines[("a", "c")] == 3
    assert document.lines[("a", "c", 1, "d")] == 5


def test_a_place_that_is_missing_has_the_line_of_what_is_around_it() -> None:
    document, _ = read_document("a:\n  b: 1\n", "f.yaml")
    assert document.line_of(("a", "missing", 3)) == 1
    assert document.line_of(("elsewhere",)) == 1


def test_an_empty_text_is_an_empty_mapping() -> None:
    assert read_document("# nothing\n", "f.yaml")[0].data == {}


def test_a_key_given_twice_is_a_problem_that_names_both_lines() -> None:
    _, problems = read_document("a:\n  b: 1\n  b: 2\n", "f.yaml")
    assert [str(problem) for problem in problems] == [
        "f.yaml:3: a.b: found the key twice, first on line 2; allowed: each key once"
    ]


@pytest.mark.parametrize("text", ["a: {1: x}", "a: {[b]: x}", "a: {null: x}"])
def test_a_key_that_is_no_text_is_a_problem(text: str) -> None:
    _, problems = read_document(text, "f.yaml")
    assert [(problem.key, problem.allowed) for problem in problems] == [("a", "text, in quotes")]


def test_anchors_are_repeated_and_merges_give_way_to_own_keys() -> None:
    text = "base: &base {x: 1, y: 2}\nmore: &more {y: 3, z: 4}\nuse:\n  <<: [*base, *more]\n  x: 5\nagain: *base\n"
    document, problems = read_document(text, "f.yaml")
    assert problems == []
    assert document.data == {
        "base": {"x": 1, "y": 2},
        "more": {"y": 3, "z": 4},
        "use": {"x": 5, "y": 2, "z": 4},
        "again": {"x": 1, "y": 2},
    }
    assert document.lines[("use", "x")] == 5
    assert document.lines[("use", "z")] == 2


@pytest.mark.parametrize(
    "text",
    [
        "[",
        "a: *unknown",
        "a: &loop [*loop]",
        "when: 2024-99-99",
        "a: !!python/object/apply:os.getcwd []",
        "a: !!python/name:os.getcwd ''",
        "a: !custom {b: 1}",
        "<<: 3",
        "a: {<<: [1]}",
        "\x00",
        pytest.param("[" * 5000, marks=pytest.mark.no_cover),
        "a: 1\n---\nb: 2",
        pytest.param(
            "\n".join(["a: &a0 [1, 1]", *(f"b{i}: &a{i + 1} [*a{i}, *a{i}]" for i in range(20))]),
            marks=pytest.mark.no_cover,
        ),
    ],
)
def test_what_can_not_be_read_is_one_sentence(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_document(text, "f.yaml")
    (problem,) = caught.value.problems
    assert problem.file == "f.yaml"
    assert "\n" not in str(problem)
    assert problem.allowed == "valid YAML"


@pytest.mark.no_cover
def test_merges_that_multiply_are_refused_and_not_followed() -> None:
    merged = [f"a{i}: &a{i} {{<<: [{', '.join([f'*a{i - 1}'] * 9)}]}}" for i in range(1, 10)]
    nested = [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 10)]
    for lines in (merged, [*nested, "b: {<<: *a9}"]):
        with pytest.raises(ConfigError, match="more than 200000 keys and values, aliases followed"):
            read_document("\n".join(["a0: &a0 {x: 1}", *lines]), "f.yaml")


def test_a_long_file_is_refused_at_the_line_that_is_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slipstream.config.document.MAX_VISITS", 2000)
    with pytest.raises(ConfigError, match=r"f\.yaml:4: found .*more than 2000 keys and values\)"):
        read_document(f"- [{'1,' * 500}]\n" * 10 + "[", "f.yaml")


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("!!bool foo", "no bool"),
        ("!!int ''", "no int"),
        ("!!int foo", "no int"),
        ("!!float ''", "no float"),
        ("!!timestamp foo", "no timestamp"),
        ("2024-99-99", "no timestamp"),
        ("!!binary ä", "failed to convert"),
        ("!own x", "constructor"),
        ("0x" + "f" * 5000, "more than 1000 characters"),
        ("1" + ":59" * 5000, "more than 1000 characters"),
        ("0x" + "f" * 500, "a number too large"),
        ('"\\ud800"', "half a surrogate pair"),
        ('{"\\udfff": 1}', "half a surrogate pair"),
    ],
)
def test_a_scalar_that_is_not_what_it_says_has_its_line_and_key(value: str, reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_document(f"a: 1\nb:\n  c: {value}\n", "f.yaml")
    (problem,) = caught.value.problems
    assert (problem.line, problem.key) == (3, "b.c")
    assert reason in problem.found


@pytest.mark.parametrize("text", ['"\\U00110000"', '"\\UFFFFFFFF"', f"%YAML 1.{'9' * 5000}\n--- 1"])
def test_numbers_out_of_range_in_the_syntax_are_one_sentence(text: str) -> None:
    with pytest.raises(ConfigError, match=r"f\.yaml:1: found text that can not be read"):
        read_document(text, "f.yaml")


@given(st.text(max_size=200))
def test_no_text_raises_anything_but_a_config_error(text: str) -> None:
    try:
        document, _ = read_document(text, "f.yaml")
    except ConfigError:
        return
    assert document.lines[()] >= 1


def test_paths_are_written_as_users_write_them() -> None:
    assert dotted(("nodes", 1, "pool")) == "nodes[1].pool"
    assert dotted(()) == ""
