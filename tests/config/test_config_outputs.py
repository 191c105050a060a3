"""Where the access log, recordings and spans go."""

from __future__ import annotations

from pathlib import Path

import pytest

from slipstream.config import FleetConfig, load, parse
from slipstream.core.errors import ConfigError

NODES = 'nodes: [{name: a, url: "http://x:1", pool: standard}]\n'


def parsed(text: str) -> FleetConfig:
    return parse(NODES + text, "fleet.yaml", Path("/etc/slipstream"))


def problem(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parsed(text)
    return str(caught.value)


def test_nothing_is_written_down_unless_configured() -> None:
    config = parsed("")
    assert (config.log.access, config.record, config.tracing) == (None, None, None)


def test_files_are_relative_to_the_configuration_and_a_dash_is_standard_output() -> None:
    config = parsed('log: {access: "-"}\nrecord: {file: logs/decisions.jsonl}\n')
    assert config.log.access == "-"
    assert config.record is not None
    assert config.record.file == "/etc/slipstream/logs/decisions.jsonl"
    assert (config.record.max_bytes, config.record.keep) == (1024**3, 3)
    assert parsed("log: {access: /var/log/access.jsonl}").log.access == "/var/log/access.jsonl"


def test_access_log_and_recording_can_not_share_a_file() -> None:
    assert "record.file: found" in problem("log: {access: a}\nrecord: {file: ./a}")


@pytest.mark.parametrize("name", ["fleet.yaml", "./keys.yaml"])
@pytest.mark.parametrize("section", ["log: {{access: {}}}", "record: {{file: {}}}"])
def test_nothing_is_written_into_the_configuration(
    section: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "keys.yaml").write_text("keys: []\n")
    file = tmp_path / "fleet.yaml"
    file.write_text(f"{NODES}gateway: {{keys_file: keys.yaml}}\n{section.format(name)}\n")
    monkeypatch.chdir(tmp_path)
    for path in file, "fleet.yaml":
        with pytest.raises(ConfigError, match="which the configuration is read from; allowed: a file of its own"):
            load(path)


@pytest.mark.parametrize("name", ['""', '"a\\0b"'])
def test_what_is_no_file_name_is_refused(name: str) -> None:
    assert "the name of a file, or - for standard output" in problem(f"log: {{access: {name}}}")


@pytest.mark.parametrize("url", ["http://c:4318", "https://c", "http://[::1]:4318/prefix"])
def test_a_collector_is_a_url(url: str) -> None:
    config = parsed(f'tracing: {{endpoint: "{url}/"}}')
    assert config.tracing is not None
    assert (config.tracing.endpoint, config.tracing.sample) == (url, 0.01)


@pytest.mark.parametrize(
    "url", ["c:4318", "ftp://c", "http://", "http://c:0", "http://c:99999", "http://c?x=1", "http://a b", "http://c#x"]
)
def test_a_collector_that_is_no_url_is_refused(url: str) -> None:
    assert "an address such as" in problem(f'tracing: {{endpoint: "{url}"}}')


def test_a_collectors_password_is_not_repeated() -> None:
    said = problem('tracing: {endpoint: "http://user:hunter2@c:4318"}')
    assert "OTEL_EXPORTER_OTLP_HEADERS" in said
    assert "hunter2" not in said
