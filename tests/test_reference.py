"""The reference has an entry for everything a user can meet, and none for what is gone. Keys: tests/config."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from fleets import dispatcher_of, fleet_of, speculative, standard
from slipstream.core.outcome import Ending
from slipstream.core.policy import Reason
from slipstream.gateway.headers import REQUEST_ALLOWED, REQUEST_ALLOWED_PREFIX
from slipstream.gateway.problems import ROWS
from slipstream.telemetry import FleetCollector, Instruments
from slipstream.telemetry.metric import METRICS, Reading

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "src").rglob("*.py"))


def page(name: str) -> str:
    return (ROOT / "docs" / "reference" / f"{name}.md").read_text()


def entries(text: str) -> set[str]:
    """The names in the first column of the tables."""
    return {
        name for row in re.findall(r"^\| (`[^|]*`) \|", text, re.MULTILINE) for name in re.findall(r"`([^`]+)`", row)
    }


def errors_in_the_source() -> set[str]:
    """The leaves of the exception tree, read from the source so that nothing has to be imported to be found."""
    classes = (
        node for path in SOURCES for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ClassDef)
    )
    bases = {node.name: {base.id for base in node.bases if isinstance(base, ast.Name)} for node in classes}
    family = {"SlipstreamError"}
    while grown := {name for name, above in bases.items() if above & family} - family:
        family |= grown
    return family - {base for name in family for base in bases[name]}


def test_every_reason_has_an_entry() -> None:
    assert entries(page("reasons")) == set(Reason)


def test_every_metric_has_an_entry_with_its_type_labels_and_meaning() -> None:
    fleet = fleet_of(speculative("s"), standard("t"))
    readings = [Reading(metric, dict) for metric in METRICS]
    collector = FleetCollector(dispatcher_of(fleet), Instruments(), ["code"], lambda: 0.5, lambda: 0.0, readings)
    rows = set()
    names = set()
    for family in collector.snapshot().collect():
        name = family.name + ("_total" if family.type == "counter" else "")
        names.add(name)
        rows.add(f"| `{name}` | {family.type} |")
        assert f"| {family.documentation} |" in page("metrics"), name
    assert entries(page("metrics")) == names
    assert {row for row in rows if row not in page("metrics")} == set()


def test_every_ending_is_named() -> None:
    assert {ending for ending in Ending if f"`{ending}`" not in page("metrics")} == set()


def test_every_error_has_an_entry() -> None:
    assert entries(page("errors")) == errors_in_the_source()


def test_errors_that_reach_clients_have_their_status_and_code() -> None:
    answered = page("errors").split("## Of engines")[0]
    told = {
        name: (int(status), code)
        for name, status, code in re.findall(r"^\| `(\w+)` \| (\d+) \| `(\w+)` \|", answered, re.MULTILINE)
    }
    rows = {error.__name__: (row.status, row.code) for error, row in ROWS.items()}
    assert {name: row for name, row in rows.items() if name in told} == told
    assert {name for name in rows if name not in told} == {
        "ConfigError",
        "EngineDown",
        "EngineGarbage",
        "EngineUnreachable",
    }


def test_every_header_has_an_entry() -> None:
    told = entries(page("headers"))
    written = {name for path in SOURCES for name in re.findall(r"x-slipstream-[a-z]+", path.read_text())}
    forwarded = {name.decode() for name in REQUEST_ALLOWED} | {f"{REQUEST_ALLOWED_PREFIX.decode()}*"}
    own = written | {"x-request-id", "retry-after", "allow", "authorization", "x-api-key", "www-authenticate"}
    assert told == own | forwarded


def test_pages_link_to_pages_that_exist() -> None:
    for path in sorted((ROOT / "docs").rglob("*.md")):
        for target in re.findall(r"\]\(([^)#:]+\.md)\)", path.read_text()):
            assert (path.parent / target).exists(), f"{path.relative_to(ROOT)} links to {target}"
