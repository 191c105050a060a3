"""Documents can not rot: what they tell people to type is typed here, and what they name is there."""

from __future__ import annotations

import re
import shlex
import shutil
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

from documents import PAGES, ROOT, Command, SavedFile, Script, anchors, fences, links, mentions, steps
from followed_page import reader
from slipstream.cli import reference
from slipstream.cli.tables import candidate_table, category_table, learned_table, node_table, occupancy_table
from slipstream.core.policy import Reason

DOCS = ROOT / "docs"
FOLLOWED = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((DOCS / "tutorial").glob("*.md")),
    *sorted((DOCS / "how-to").glob("*.md")),
]

RUN_ELSEWHERE = {
    "git clone https://github.com/slipstream-llm/slipstream": "this is the clone",
    "cd slipstream": "this is the clone",
    ". .venv/bin/activate": "these tests run in it",
    "make demo": "tests/cli/test_demo_run.py runs what it runs",
    "make test": "runs this",
    "make format": "`make test` checks that it would change nothing",
    "ruff check .": "part of `make test`",
    "mypy": "part of `make test`",
    "lint-imports": "part of `make test`",
    "pytest tests/core": "part of `make test`",
    'pytest -m "not engine"': "part of `make test`",
    "python -m benchmarks decision": "takes a quiet machine",
    "slipstream bench http://127.0.0.1:9001 --rate 20 --requests 400 --output-tokens 50-150 "
    "--goodput ttft:100 tpot:8 e2el:2s": "takes a quiet machine; tests/cli/test_bench_command.py does the same",
    "slipstream bench http://127.0.0.1:9001 --find-max --requests 200 --output-tokens 50 "
    "--goodput ttft:100 tpot:8": "takes a quiet machine; tests/cli/test_bench_command.py does the same",
}
NOT_INSTALLED = ("vllm serve ", "llama-server ", "python -m sglang.launch_server ", "trtllm-serve ")
"""Engines that these tests do without; llama-server's flags are compared with llama.cpp's own list."""

STARTED_BEFORE = {"change-a-running-fleet.md", "choose-a-ceiling.md"}
"""Pages for people who have a fleet running."""

EXPLAINED = {
    "README.md": {"my-first": "speculative"},
    "start-carefully.md": {"my-first": "observe"},
    "first-fleet.md": {"my-code": "speculative", "my-chat": "below_floor", "my-short": "short_output"},
}
"""The reasons that pages give before they ask for them."""

FORETOLD = dict.fromkeys(("ttft_ms", "tpot_ms", "worth", "cost"))
CANDIDATE = dict.fromkeys(("chosen", "node", "pool", "occupancy", "load", "reason"), "") | {"occupancy": 0, "load": 0.0}
TABLES = (
    node_table([]),
    category_table([]),
    candidate_table([]),
    candidate_table([CANDIDATE | {"foretold": FORETOLD}]),
    occupancy_table([]),
    learned_table([]),
)

curl = shutil.which("curl")


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def is_run_elsewhere(line: str) -> bool:
    return line in RUN_ELSEWHERE or line.startswith(NOT_INSTALLED)


@cache
def command_line() -> dict[tuple[str, ...], set[str]]:
    """The words after ``slipstream`` → the spellings of the options that may follow."""
    return {
        tuple(command.name.split()[1:]): {spelling for one in command.parameters for spelling in one.names} | {"--help"}
        for command in reference.commands()
    }


def commands_of(page: Path) -> list[str]:
    return [step.line for step in steps(page) if isinstance(step, Command)]


@pytest.mark.engine
@pytest.mark.timeout(300)
@pytest.mark.skipif(curl is None, reason="the pages use curl")
@pytest.mark.parametrize(
    "page", [page for page in FOLLOWED if not all(map(is_run_elsewhere, commands_of(page)))], ids=name
)
async def test_a_page_can_be_followed(page: Path, tmp_path: Path) -> None:
    assert curl is not None
    printed: dict[str, str] = {}
    async with reader(tmp_path, curl) as person:
        if page.name in STARTED_BEFORE:
            await person.serve((ROOT / "examples" / "fleet.yaml").read_text())
        for step in steps(page):
            match step:
                case SavedFile():
                    person.save(step)
                case Script(text):
                    await person.run(Command(shlex.join(["python", "-c", text])))
                case Command(line) if not is_run_elsewhere(line):
                    printed[line] = await person.run(step)
    for request_id, reason in EXPLAINED.get(page.name, {}).items():
        assert f"because {reason}" in printed[f"slipstream explain {request_id}"]


def test_only_commands_that_pages_have_are_run_elsewhere() -> None:
    found = {line for page in FOLLOWED for line in commands_of(page)}
    assert RUN_ELSEWHERE.keys() - found == set()


def test_commands_stand_only_in_pages_that_are_followed() -> None:
    assert [name(page) for page in PAGES if page not in FOLLOWED and commands_of(page)] == []


def test_make_targets_that_pages_name_exist() -> None:
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {target for page in PAGES for target in re.findall(r"(?:^|`)make (\w+)", page.read_text(), re.MULTILINE)}
    assert {"demo", "test"} <= named <= targets


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_commands_and_options_that_a_page_names_exist(page: Path) -> None:
    known = command_line()
    groups = {path[:-1] for path in known if len(path) > 1}
    for words in mentions(page):
        path = tuple(word for word in words if re.fullmatch(r"[a-z]+", word))
        path = next((path[:length] for length in (2, 1, 0) if path[:length] in known), ())
        assert path or not words or words[0].startswith("-") or tuple(words) in groups, f"no command {words}"
        own = words[: words.index("--")] if "--" in words else words  # behind it stands another command
        options = {word.partition("=")[0] for word in own if word.startswith("-") and " " not in word}
        assert options <= known[path], f"slipstream {' '.join(words)}"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in links(page):
        if re.match(r"https?:", target):
            continue
        file, _, anchor = target.partition("#")
        aim = (page.parent / file).resolve() if file else page
        assert aim.exists(), f"{target} is not there"
        assert not anchor or anchor in anchors(aim), f"{target}: no such heading"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_files_that_a_page_names_exist(page: Path) -> None:
    folders = "tests|src|docs|examples|requirements|benchmarks|core|engines|gateway|config|control|telemetry|load"
    for path in re.findall(rf"`((?:{folders})/[\w./-]+)`", page.read_text()):
        if "NAME" not in path:
            assert (ROOT / path).exists() or (ROOT / "src" / "slipstream" / path).exists(), path


@pytest.mark.parametrize("file", ["Makefile", "setup.py"])
def test_documents_that_the_build_names_exist(file: str) -> None:
    named = set(re.findall(r"docs/[\w./-]+\.md", (ROOT / file).read_text()))
    assert named
    assert {path for path in named if not (ROOT / path).is_file()} == set()


def test_every_document_is_in_the_index() -> None:
    index = DOCS / "index.md"
    linked = {(DOCS / target).resolve() for target in links(index)}
    assert {name(page) for page in PAGES if page not in linked | {index}} == set()


def test_the_smallest_file_of_the_readme_is_the_smallest_example() -> None:
    (saved,) = (step for step in steps(ROOT / "README.md") if isinstance(step, SavedFile))
    assert yaml.safe_load(saved.text) == yaml.safe_load((ROOT / "examples" / "fleet.yaml").read_text())


def test_tables_that_pages_show_have_the_columns_that_are_printed() -> None:
    printed = {" ".join(column.header for column in table.columns).strip() for table in TABLES}
    firsts = tuple(f"{header.split()[0]} {header.split()[1]}" for header in printed)
    shown = {
        " ".join(line.split())
        for page in PAGES
        for language, _, text in fences(page)
        for line in text.splitlines()
        if language == "text" and " ".join(line.split()).startswith(firsts)
    }
    assert shown == printed


def test_reasons_are_counted_in_pages_as_they_are_in_tables() -> None:
    requests = {"by_pool": {"standard": 3}, "by_reason": {"saturated": 3}}
    unknown = dict.fromkeys(("alpha", "tau", "tokens_per_step", "drafted", "accepted"))
    row = category_table([{"name": "code", "evidence_requests": 0, "requests": requests, **unknown}])
    ((cells, _),) = row.rows
    texts = [text for page in PAGES for language, _, text in fences(page) if language == "text"]
    written = {found for text in texts for found in re.findall(rf"\b(?:{'|'.join(Reason)})(\W)\d", text)}
    assert written == {str(cells[-1]).removeprefix("saturated").removesuffix("3")}


def test_flags_of_llama_server_are_known_to_llama_cpp() -> None:
    package = find_spec("xllamacpp")
    assert package is not None
    assert package.origin is not None
    (library,) = Path(package.origin).parent.glob("*.so")
    known = library.read_bytes()
    page = (DOCS / "how-to" / "put-it-before-llamacpp.md").read_text()
    flags = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", page))
    assert {"--metrics", "--spec-type", "--no-slots"} <= flags
    assert [flag for flag in sorted(flags) if flag.encode() + b"\0" not in known] == []
