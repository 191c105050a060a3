"""What every section of a configuration is, and the kinds of value that several of them hold."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, model_validator

from slipstream.config.values import parse_address, secret_from_environment, secret_from_file
from slipstream.core.request import Pool, TrafficClass

__all__ = [
    "ClassName",
    "Count",
    "EngineName",
    "Listen",
    "NodeName",
    "OutputFile",
    "PoolName",
    "Seconds",
    "Secret",
    "Section",
    "Share",
]


def _listen(text: str) -> str:
    parse_address(text)
    return text


def _output_file(text: str) -> str:
    if not text or "\0" in text:
        raise ValueError("the name of a file, or - for standard output")
    return text


Share = Annotated[float, Field(ge=0, le=1)]
Seconds = Annotated[float, Field(gt=0, le=1e9)]
Count = Annotated[int, Field(ge=1, le=1_000_000)]
EngineName = Literal["vllm", "sglang", "llamacpp", "trtllm"]
PoolName = Annotated[Pool, Field(strict=False)]
ClassName = Annotated[TrafficClass, Field(strict=False)]
Listen = Annotated[str, AfterValidator(_listen)]
NodeName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")]
OutputFile = Annotated[str, AfterValidator(_output_file)]


class Section(BaseModel):
    """Every section is frozen and refuses unknown keys; a section whose keys are all left out may be left empty."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False, hide_input_in_errors=True)

    @model_validator(mode="before")
    @classmethod
    def _empty(cls, data: object) -> object:
        return {} if data is None else data


class Secret(Section):
    """A secret by reference. It is never written in the configuration itself."""

    env: str | None = Field(default=None, description="Environment variable that holds the key.")
    file: str | None = Field(default=None, description="File that holds the key, relative to the configuration file.")

    @model_validator(mode="before")
    @classmethod
    def _by_reference(cls, data: object) -> object:
        if not isinstance(data, dict | Secret | None):
            raise ValueError("{env: NAME} or {file: PATH}: the key itself does not belong here")
        return data

    @model_validator(mode="after")
    def _one_source(self) -> Secret:
        if (self.env is None) == (self.file is None):
            raise ValueError("either {env: NAME} or {file: PATH}")
        return self

    def reveal(self) -> str:
        """The secret. Raises ``ValueError`` saying what is allowed when it is not there."""
        return secret_from_environment(self.env) if self.env is not None else secret_from_file(self.file or "")
