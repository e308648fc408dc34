"""The forms of KIP-21: entities of every type in one request."""

from typing import Annotated, Any

from pydantic import Field, StrictStr, WithJsonSchema

from confplane.api.models import (
    MAX_ENTRIES,
    MAX_KEY,
    MAX_KEYS,
    TEXT,
    AnswerModel,
    ConfigPair,
    Count,
    Name,
    RequestModel,
    Result,
    Scalar,
    Validatable,
    WriteResult,
    one_of,
    problem_with,
)

_EntityType = Annotated[
    StrictStr,
    one_of(
        *(
            f"{kind}{end}"
            for kind in ("topic", "broker", "user", "client-id", "client", "ip", "group")
            for end in ("", "s")
        ),
        "client-metric",
        "client-metrics",
    ),
    Field(description="Singular or plural", examples=["topics"]),
]
_Key = Annotated[StrictStr, Field(max_length=MAX_KEY, examples=["retention.ms"])]


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
    config_value: Annotated[Scalar, WithJsonSchema(TEXT)] = Field(
        description="A string, also for quotas", examples=["86400000"]
    )


class AlteredEntity(EntityName):
    """The values set and the keys deleted on one entity."""

    added_configs: Annotated[list[AddedConfig], Field(max_length=MAX_KEYS)] = Field(default=[])
    deleted_configs: Annotated[list[_Key], Field(max_length=MAX_KEYS)] = Field(default=[])


class AlterEntityConfigs(Validatable):
    """AlterConfig (KIP-21)."""

    entities: Annotated[list[AlteredEntity], Field(max_length=MAX_ENTRIES)]


class _EntityResult(Result):
    entity_type: str
    entity_name: str | None
    error_name: str = Field(description="Kafka's name of the code; INVALID_ENTITY is KIP-21's and has code 42")


class DescribedEntity(_EntityResult):
    """The configs set on one entity, by key, or the reason why they are not known."""

    config_entries: list[ConfigPair]


class DescribedEntityConfigs(AnswerModel):
    """Answer of entity-configs:describe, one result per entity in order."""

    failed: Count
    entities: list[DescribedEntity]


DescribeEntityConfigsProblem: Any = problem_with(
    DescribedEntityConfigs,
    "DescribeEntityConfigsProblem",
    "The problem of the first entity, when none could be described, with the result of each.",
)


class FallbackConfig(AnswerModel):
    """The effective value of a deleted key."""

    config_key: str
    config_value: str | None = Field(description="null: a secret, or no level has a value")
    source: str = Field(
        description="A config source of Kafka's, or for quotas and client configs the id of the entity that has the "
        "value. DEFAULT_CONFIG with null: no limit, or the client's own value",
        examples=["DYNAMIC_DEFAULT_BROKER_CONFIG"],
    )


class EntityAltered(_EntityResult, WriteResult):
    """The result for one entity."""

    fallbacks: list[FallbackConfig] = Field(description="Of each deleted key, once the whole request is done")


class AlteredEntityConfigs(AnswerModel):
    """Answer of entity-configs:alter, one result per entity in order."""

    failed: Count
    entities: list[EntityAltered]


AlterEntityConfigsProblem: Any = problem_with(
    AlteredEntityConfigs,
    "AlterEntityConfigsProblem",
    "The problem of the first entity that failed, when none succeeded, with the result of each.",
)
