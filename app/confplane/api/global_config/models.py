"""The forms of the global config (KIP-5)."""

from typing import Annotated, Literal

from pydantic import Field, StrictStr, WithJsonSchema

from confplane.api.models import (
    MAX_KEY,
    MAX_KEYS,
    TEXT_OR_NULL,
    Absent,
    AnswerModel,
    ChangeId,
    ConfigPair,
    Problem,
    RequestModel,
    Revision,
    Scalar,
    SecretDiff,
    Validatable,
)


class GlobalConfigOp(RequestModel):
    """Set a config for all brokers, or remove it."""

    config_key: Annotated[StrictStr, Field(max_length=MAX_KEY, examples=["message.max.bytes"])]
    config_value: Annotated[Scalar, WithJsonSchema(TEXT_OR_NULL)] = Field(
        description="A string; null removes", examples=["2000000"]
    )


class ChangeGlobalConfig(Validatable):
    """A cluster-wide change (KIP-5)."""

    config_data: Annotated[list[GlobalConfigOp], Field(max_length=MAX_KEYS)]


class GlobalConfig(AnswerModel):
    """The configs set for all brokers, by key."""

    config_data: list[ConfigPair]
    revision: Revision | None = Field(description="Of the last change; null: there never was one")
    warnings: list[str] = Field(description="Stored entries that have no effect")


class GlobalConfigDiff(SecretDiff):
    """A config before and after; null is absent, or a secret's."""


class ChangedGlobalConfig(AnswerModel):
    """Answer of global-config:change."""

    error_code: Literal[0]
    error_name: Literal["NONE"]
    error_message: None
    change_id: ChangeId | None
    revision: Revision | None
    diff: list[GlobalConfigDiff]
    warnings: list[str]


class GlobalConfigProblem(Problem):
    """The reason for the refusal of a change."""

    error_code: int | Absent = None
    error_name: str | Absent = None
    error_message: str | Absent = None
    revision: None = None
    diff: list[GlobalConfigDiff] | Absent = None
    warnings: list[str] | Absent = None
