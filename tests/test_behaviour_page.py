"""Every row of the behaviour page names a test that shows it, and the long runs that it speaks of can be started."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from live_service import UNMEASURED_ENVIRONMENT
from test_security_page import known_tests

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/reference/behaviour.md").read_text()
ROWS = [
    row
    for row in PAGE.splitlines()
    if row.startswith("|") and not row.startswith(("|---", "| What happens | What the"))
]


def test_the_tests_that_the_page_names_are_there() -> None:
    assert set(re.findall(r"`(test_\w+)`", PAGE)) - known_tests() == set()


def test_every_row_names_a_test() -> None:
    assert len(ROWS) > 30
    assert [row for row in ROWS if "`test_" not in row.split("|")[3]] == []


def test_a_short_endurance_run_finds_nothing() -> None:
    command = (sys.executable, "-m", "benchmarks.endurance", "aborts", "--count", "60")
    run = subprocess.run(command, cwd=ROOT, env=UNMEASURED_ENVIRONMENT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "nothing found" in run.stdout
