"""What can go wrong with engines on this machine.

EmbeddedError                   base of this part
├── EngineNotInstalled          the package with llama.cpp's server is missing
├── ModelNotFound               no model was given and none is installed, or the given file is not there
├── ModelUnusable               the file is there and is not a model
├── UnusableSpec                a node is described in a way that can not be started
└── PortTaken                   the port a node was given belongs to somebody else
"""

from __future__ import annotations

from slipstream.core.errors import SlipstreamError

__all__ = [
    "EmbeddedError",
    "EngineNotInstalled",
    "ModelNotFound",
    "ModelUnusable",
    "PortTaken",
    "UnusableSpec",
]


class EmbeddedError(SlipstreamError):
    """An engine on this machine can not be had."""


class EngineNotInstalled(EmbeddedError):
    """The package that holds llama.cpp's server is missing. The sentence says which command installs it."""


class ModelNotFound(EmbeddedError):
    """There is no model file. The sentence says which command installs one."""


class ModelUnusable(EmbeddedError):
    """The file is not a GGUF model."""


class UnusableSpec(EmbeddedError):
    """A node is described in a way that can not be started."""


class PortTaken(EmbeddedError):
    """Somebody else has the port that a node was given."""
