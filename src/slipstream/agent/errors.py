"""What can go wrong beside an engine.

AgentError                      base of this part
├── EngineStartFailed           the engine's command can not be run, or ended, or did not serve in time
├── HookFailed                  what should switch the engine did not
├── NotDrained                  requests were still running at the deadline, or it was called off
├── ProbeFailed                 the engine serves, and does not answer as its role demands
├── CommandRefused              the agent does not do what it was told
└── CanNotListen                the agent's address can not be bound
"""

from __future__ import annotations

from slipstream.core.errors import SlipstreamError

__all__ = [
    "AgentError",
    "CanNotListen",
    "CommandRefused",
    "EngineStartFailed",
    "HookFailed",
    "NotDrained",
    "ProbeFailed",
]


class AgentError(SlipstreamError):
    """Something beside an engine went wrong."""


class EngineStartFailed(AgentError):
    """The engine's command can not be run, or ended before it served, or did not serve in time."""


class HookFailed(AgentError):
    """The command or URL that should switch the engine did not."""


class NotDrained(AgentError):
    """Requests were still running at the deadline, or the switch was called off."""


class ProbeFailed(AgentError):
    """The engine serves, and does not answer a small request, or not as its role demands."""


class CommandRefused(AgentError):
    """The agent does not do what it was told. ``code`` says why in a word: ``switching``, ``held``, ``one_variant``."""

    def __init__(self, sentence: str, code: str) -> None:
        super().__init__(sentence)
        self.code = code


class CanNotListen(AgentError):
    """The agent's address can not be bound."""
