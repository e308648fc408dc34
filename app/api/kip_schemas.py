"""The wire forms of KIP-5 (the global config) and KIP-21 (entities of every type)."""

from typing import Annotated, Any, Literal

from pydantic import Field, StrictBool, StrictStr, WithJsonSchema

from app.api.schemas import (
    MAX_ENTRIES,
    Absent,
    AnswerModel,
    ChangeId,
    Count,
    Name,
    Problem,
    ProblemPart,
    RequestModel,
    Revision,
    Scalar,
    WriteOutcome,
    one_of,
)

MAX_KEY = 1_024
"""The greatest number of characters in a key: keys with a listener's prefix have no limit of their own."""
_MAX_KEYS = 500
_TEXT: dict[str, Any] = {"type": "string"}
_TEXT_OR_NULL: dict[str, Any] = {"anyOf": [_TEXT, {"type": "null"}]}

_EntityType = Annotated[
    StrictStr,
    one_of(
        *(f"{kind}{end}" for kind in ("topic", "broker", "user", "client-id", "client", "ip") for end in ("", "s")),
    ),
    Field(description="Singular or plural", examples=["topics"]),
]
_Key = Annotated[StrictStr, Field(max_length=MAX_KEY, examples=["retention.ms"])]


# ---------------------------------------------------------------- requests


class GlobalConfigOp(RequestModel):
    """Set a config for all brokers, or remove it."""

    config_key: Annotated[StrictStr, Field(max_length=MAX_KEY, examples=["message.max.bytes"])]
    config_value: Annotated[Scalar, WithJsonSchema(_TEXT_OR_NULL)] = Field(
        description="A string; null removes", examples=["2000000"]
    )


class ChangeGlobalConfig(RequestModel):
    """A cluster-wide change (KIP-5)."""

    config_data: Annotated[list[GlobalConfigOp], Field(max_length=_MAX_KEYS)]
    validate_only: StrictBool = Field(default=False, description="Go the whole way up to the write, and write nothing")


class EntityName(RequestModel):
    """An entity. ``entityName`` null is the default of its type, which topics do not have."""

    entity_type: _EntityType
    entity_name: Name = Field(description="null is the default entity", examples=["orders"])


class DescribeEntityConfigs(RequestModel):
    """DescribeConfig (KIP-21)."""

    entities: Annotated[list[EntityName], Field(max_length=MAX_ENTRIES)]


class AddedConfig(RequestModel):
    """A config or quota to set."""

    config_key: _Key
    config_value: Annotated[Scalar, WithJsonSchema(_TEXT)] = Field(
        description="A string, also for quotas", examples=["86400000"]
    )


class AlteredEntity(EntityName):
    """The values set and the keys deleted on one entity."""

    added_configs: Annotated[list[AddedConfig], Field(max_length=_MAX_KEYS)] = Field(default=[])
    deleted_configs: Annotated[list[_Key], Field(max_length=_MAX_KEYS)] = Field(default=[])


class AlterEntityConfigs(RequestModel):
    """AlterConfig (KIP-21)."""

    entities: Annotated[list[AlteredEntity], Field(max_length=MAX_ENTRIES)]
    validate_only: StrictBool = Field(default=False, description="Go the whole way up to the write, and write nothing")


# ---------------------------------------------------------------- answers


class ConfigPair(AnswerModel):
    """A config and its value."""

    config_key: str
    config_value: str | None = Field(description="null: a secret")


class GlobalConfig(AnswerModel):
    """The configs set for all brokers, by key."""

    config_data: list[ConfigPair]
    revision: Revision | None = Field(description="Of the last change; null: there never was one")
    warnings: list[str] = Field(description="Stored entries that are not effective")


class GlobalConfigDiff(AnswerModel):
    """A config before and after; null is absent, or a secret's."""

    key: str
    before: str | None
    after: str | None
    secret: Literal[True] | Absent = Field(default=None, description="Its values are not shown")


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


class _EntityAnswer(AnswerModel):
    entity_type: str
    entity_name: str | None
    error_code: int
    error_name: str = Field(description="Kafka's name of the code; INVALID_ENTITY is KIP-21's and has code 42")
    error_message: str | None
    errors: list[ProblemPart] | Absent = Field(default=None, description="Of an error: JSON pointer and detail")


class DescribedEntity(_EntityAnswer):
    """The configs set on one entity, by key, or the reason why they are not known."""

    config_entries: list[ConfigPair]


class DescribedEntityConfigs(AnswerModel):
    """Answer of entity-configs:describe, one result per entity in order."""

    failed: Count
    entities: list[DescribedEntity]


class DescribeEntityConfigsProblem(Problem):
    """The problem of the first entity, when none could be described, with the result of each."""

    failed: Count | Absent = None
    entities: list[DescribedEntity] | Absent = None


class FallbackConfig(AnswerModel):
    """The effective value of a deleted key."""

    config_key: str
    config_value: str | None = Field(description="null: a secret, or no level has a value")
    source: str = Field(
        description="A config source of Kafka's, or for quotas and client configs the id of the entity that has the "
        "value. DEFAULT_CONFIG with null: no limit, or the client's own value",
        examples=["DYNAMIC_DEFAULT_BROKER_CONFIG"],
    )


class EntityAltered(_EntityAnswer):
    """The result for one entity."""

    change_id: ChangeId | None
    revision: Revision | None
    fallbacks: list[FallbackConfig] = Field(description="Of each deleted key, once the whole request is done")
    warnings: list[str]
    retriable: bool | Absent = Field(default=None, description="Of an error")
    outcome: WriteOutcome | None = Field(default=None, description="Of an error; null: nothing was tried")


class AlteredEntityConfigs(AnswerModel):
    """Answer of entity-configs:alter, one result per entity in order."""

    failed: Count
    entities: list[EntityAltered]


class AlterEntityConfigsProblem(Problem):
    """The problem of the first entity that failed, when none succeeded, with the result of each."""

    failed: Count | Absent = None
    entities: list[EntityAltered] | Absent = None
