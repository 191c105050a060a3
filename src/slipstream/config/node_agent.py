"""What `slipstream node` is told, by a file, by options, or by both."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path as FilePath
from typing import Annotated, Any

from pydantic import AfterValidator, ConfigDict, Field

from slipstream.config.document import Path, read_document
from slipstream.config.files import readable_text
from slipstream.config.section import Count, EngineName, Listen, NodeName, PoolName, Seconds, Secret, Section
from slipstream.config.validation import validated
from slipstream.config.values import Address, collector_url, is_loopback, node_url, parse_address
from slipstream.core.errors import ConfigError, ConfigProblem
from slipstream.core.request import Pool

__all__ = ["NodeAgentConfig", "node_agent_config"]

OPTIONS = "options"
"""In place of a file's name, where a problem is one of the command line."""

Words = Annotated[tuple[str, ...], Field(strict=False)]


def _hook_url(text: str) -> str:
    try:
        return collector_url(text)
    except ValueError:
        raise ValueError('an address such as "http://127.0.0.1:7000/speculation"') from None


def _run_file(text: str) -> str:
    if "\0" in text or FilePath(text).name in ("", ".."):
        raise ValueError("the name of a file")
    return text


class NodeAgentConfig(Section):
    """The agent beside one engine, and the engine."""

    model_config = ConfigDict(title="Slipstream node agent")

    name: NodeName = Field(default="node", description="The node's name, as the fleet calls it.")
    listen: Listen = Field(
        default="127.0.0.1:9100", description="Address of the agent; without a token it must be on loopback."
    )
    token: Secret | None = Field(
        default=None, description="What whoever asks the agent must bear; left out = nothing. By reference only."
    )
    engine_url: Annotated[str, AfterValidator(node_url)] = Field(
        default="http://127.0.0.1:8000", description="Scheme, host and port where the engine serves."
    )
    engine: EngineName | None = Field(default=None, description="The engine's kind; left out = found out by asking.")
    api_key: Secret | None = Field(
        default=None, description="The engine's own key, sent as a bearer token; by reference only."
    )
    command: Words = Field(
        default=(), description="Words of the command that starts the engine; left out = it runs without the agent."
    )
    speculative_args: Words = Field(
        default=(), description="Words behind the command for the role speculative; left out = the engine has one role."
    )
    standard_args: Words = Field(default=(), description="Words behind the command for the role standard.")
    switch_command: Words = Field(
        default=(), description="In place of a command: words of one that switches an engine, run with `on` or `off`."
    )
    switch_url: Annotated[str, AfterValidator(_hook_url)] | None = Field(
        default=None, description='In place of a command: address that gets {"active": true} or {"active": false}.'
    )
    role: PoolName = Field(default=Pool.SPECULATIVE, description="The role that the engine is started in.")
    ceiling: Count | None = Field(
        default=None, description="Ceiling in sequences, for the speculative capacity; left out = none is told."
    )
    drain_timeout_s: Seconds = Field(
        default=120.0, description="Seconds that running requests have to end before a switch is given up."
    )
    start_timeout_s: Seconds = Field(default=600.0, description="Seconds that the engine has to serve and be warm.")
    stop_grace_s: Annotated[float, Field(ge=0, le=86_400)] = Field(
        default=10.0, description="Seconds between the signals TERM and KILL when the engine is to end."
    )
    engine_outlives_agent: bool = Field(
        default=True,
        description="Whether the engine of `command` goes on when the agent is killed, for the next one to take over; "
        "`false` = it ends too. Told to end, the agent ends it in any case.",
    )
    run_file: Annotated[str, AfterValidator(_run_file)] | None = Field(
        default=None,
        description="File that tells the next agent of the engine; left out = one by user and port of `engine_url` in "
        "$XDG_RUNTIME_DIR or the temporary directory.",
    )

    @property
    def address(self) -> Address:
        """``listen`` in its parts."""
        return parse_address(self.listen)


def node_agent_config(path: FilePath | None, options: Mapping[str, object]) -> NodeAgentConfig:
    """The configuration of a file, if one is given, and of options, which go before it. Files that it names are
    relative to where it lies.

    Raises ConfigError with every problem found.
    """
    data: dict[str, Any] = {}
    problems: list[ConfigProblem] = []
    report = _option_problem
    if path is not None:
        text = readable_text(path, "name yours with -c")
        document, problems = read_document(text, str(path))
        if not isinstance(document.data, dict):
            raise ConfigError((*problems, document.problem((), "no keys with values", "keys with values")))
        data = _resolved(document.data, path.parent)
        report = document.problem
    given = {name: value for name, value in options.items() if value not in (None, ())}
    config, found = validated(NodeAgentConfig, data | given, report, _is_secret)
    problems += found
    if config is not None:
        problems += [
            (_option_problem if key in given else report)((key,), what, allowed)
            for key, what, allowed in _contradictions(config)
        ]
    if config is None or problems:
        raise ConfigError(tuple(problems))
    return config


def _contradictions(config: NodeAgentConfig) -> list[tuple[str, str, str]]:
    """Keys that can not stand beside others: key, what was found, what is allowed."""
    found: list[tuple[str, str, str]] = []
    if not is_loopback(config.address.host) and config.token is None:
        allowed = "an address on loopback such as 127.0.0.1:9100, or a token besides: others can reach this one"
        found.append(("listen", f'"{config.listen}"', allowed))
    if config.command and not config.command[0]:
        found.append(("command", '""', "the words of a command, the first of them a program"))
    if config.command and (config.switch_command or config.switch_url is not None):
        key = "switch_command" if config.switch_command else "switch_url"
        found.append((key, "a hook beside a command", "one of them: an engine that the agent starts needs no hook"))
    if config.switch_command and config.switch_url is not None:
        found.append(("switch_url", "two hooks", "switch_command or switch_url"))
    if not config.command:
        found += [
            (key, "a key without effect", "to give the engine's command besides")
            for key in ("speculative_args", "standard_args", "engine_outlives_agent", "run_file")
            if key in config.model_fields_set and getattr(config, key) != ()
        ]
    elif config.run_file is not None and not config.engine_outlives_agent:
        found.append(("run_file", "a key without effect", "engine_outlives_agent: true besides"))
    for key in ("token", "api_key"):
        secret: Secret | None = getattr(config, key)
        try:
            if secret is not None:
                secret.reveal()
        except ValueError as error:
            found.append((key, "no usable key", str(error)))
    return found


def _resolved(data: dict[str, Any], directory: FilePath) -> dict[str, Any]:
    """The data with the names of files made absolute."""
    match data.get("run_file"):
        case str(file) if file and "\0" not in file:
            data = data | {"run_file": str((directory / file).absolute())}
    for key in ("token", "api_key"):
        match data.get(key):
            case {"file": str(file), **others}:
                data = data | {key: {"file": str((directory / file).absolute()), **others}}
    return data


def _option_problem(path: Path, found: str, allowed: str) -> ConfigProblem:
    return ConfigProblem(OPTIONS, None, ".".join(map(str, path)), found, allowed)


def _is_secret(path: Path) -> bool:
    return path[:1] in (("token",), ("api_key",))
