"""Every claim of SECURITY.md names the test that holds it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from slipstream.gateway.limits import Limits

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "SECURITY.md").read_text()
CLAIMS = [row for row in PAGE.splitlines() if row.startswith("|") and "|---" not in row and "| Test |" not in row]


def known_tests() -> set[str]:
    """The names of all test functions."""
    texts = (path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    return {name for text in texts for name in re.findall(r"^ *(?:async )?def (test_\w+)\(", text, re.MULTILINE)}


def test_the_tests_that_are_named_are_there() -> None:
    assert set(re.findall(r"`(test_\w+)`", PAGE)) - known_tests() == set()


@pytest.mark.parametrize(
    "heading", ["A client", "A node", "Whoever reads metrics and the admin API", "Whoever reaches an agent", "Limits"]
)
def test_every_row_of_a_table_of_claims_names_a_test(heading: str) -> None:
    section = re.split(r"^#+ ", PAGE.split(f"# {heading}\n")[1], flags=re.MULTILINE)[0]
    rows = [row for row in section.splitlines() if row in CLAIMS]
    assert rows
    assert [row for row in rows if "`test_" not in row] == []


def test_the_limits_are_those_of_the_program() -> None:
    rows = dict(re.findall(r"^\| ([^|]+) \| ([^|]+) \|", PAGE.split("## Limits")[1], re.MULTILINE))
    limits = Limits()
    assert rows["Headers"] == f"{limits.max_header_bytes // 1024} KiB"
    assert rows["Body"] == f"{limits.max_body_bytes // 1024**2} MiB"
    assert rows["Time for a request's headers"] == f"{limits.client_head_s:g} s"
    assert rows["Pause in a body"].startswith(f"{limits.idle_s:g} s")
    assert rows["A client that reads nothing"] == f"{limits.write_s:g} s"
