"""The forms of configs: describe and incrementalAlter (KIP-226, KIP-339), and the resources."""

from typing import Annotated, Any

from pydantic import ConfigDict, Field, StrictBool, StrictInt, StrictStr, WithJsonSchema

from confplane.api import formats
from confplane.api import models as base
from confplane.api.models import Absent, AnswerModel, Count, RequestModel, Scalar
from confplane.domain import id_patterns
from confplane.domain.broker_levels import ConfigSource
from confplane.domain.config_resources import ConfigResourceType
from confplane.domain.definitions import ConfigType
from confplane.domain.ops import OpType

MAX_RESOURCES = 1_000
"""Resources in one describe: each broker has about 300 configs in the response."""
_MAX_KEYS = 1_000
_MAX_NAME = 1_024

_SourceName = Annotated[str, base.one_of(*(source.value for source in ConfigSource))]
_TypeName = Annotated[str, base.one_of("UNKNOWN", *(kind.value for kind in ConfigType))]


# ---------------------------------------------------------------- requests


_ResourceType = Annotated[
    StrictInt | StrictStr,
    WithJsonSchema({"enum": [kind for known in ConfigResourceType for kind in (known.value, known.name)]}),
    Field(description="Kafka's number or name. TOPIC, BROKER, GROUP and CLIENT_METRICS are served", examples=["TOPIC"]),
]
_ResourceName = Annotated[
    StrictStr,
    WithJsonSchema({"type": "string", "pattern": formats.RESOURCE_NAME}),
    Field(
        description="A topic's name, a broker's or group's id; empty for the default of all brokers",
        examples=["orders"],
    ),
]


class ConfigResource(RequestModel):
    """A resource to be described."""

    resource_type: _ResourceType
    resource_name: _ResourceName
    configuration_keys: Annotated[list[StrictStr] | None, Field(max_length=_MAX_KEYS)] = Field(
        default=None, description="Only these; null or empty: all", examples=[["retention.ms"]]
    )


class DescribeConfigs(RequestModel):
    """DescribeConfigs (KIP-226)."""

    resources: Annotated[list[ConfigResource], Field(max_length=MAX_RESOURCES)]
    include_synonyms: StrictBool = Field(
        default=False, description="List what else is set for each config, in order of precedence"
    )
    include_documentation: StrictBool = Field(default=False, description="A sentence on each config")


class IncrementalConfigOp(RequestModel):
    """The change of one config."""

    name: Annotated[StrictStr, Field(max_length=_MAX_NAME, examples=["retention.ms"])]
    config_operation: Annotated[
        StrictInt | StrictStr,
        WithJsonSchema({"enum": [kind for known in OpType for kind in (known.value, known.name)]}),
    ] = Field(
        description="Kafka's number or name. APPEND and SUBTRACT are for lists. They start from the stored value, or"
        " otherwise from Kafka's default",
        examples=["SET"],
    )
    value: StrictStr | None = Field(default=None, description="Not looked at by DELETE", examples=["86400000"])


class AlteredConfigResource(base.AlterEntry):
    """The ops on one resource."""

    resource_type: _ResourceType
    resource_name: _ResourceName
    configs: Annotated[list[IncrementalConfigOp], Field(max_length=500)]


class IncrementalAlterConfigs(base.AlterModel):
    """IncrementalAlterConfigs (KIP-339)."""

    resources: Annotated[list[AlteredConfigResource], Field(max_length=base.MAX_ENTRIES)]


class ConfigsBody(base.ResourceBody):
    """All configs of one entity."""

    id: Annotated[StrictStr | None, base.text_like(id_patterns.RESOURCE_ID)] = Field(
        default=None, description="The entity id", examples=["topic=orders"]
    )
    entity: Annotated[
        dict[str, StrictStr | None] | None, base.entity_names("topic", "broker", "group", "client-metrics")
    ] = Field(
        default=None, description="Type to name; null is the default of all brokers", examples=[{"topic": "orders"}]
    )
    configs: Annotated[
        dict[str, Scalar],
        WithJsonSchema(
            {
                "type": "object",
                "additionalProperties": {
                    **base.TEXT_OR_NULL,
                    "description": "null keeps a stored secret, which a GET shows as null",
                },
                "minProperties": 1,
                "maxProperties": 500,
            }
        ),
        Field(max_length=500, examples=[{"retention.ms": "86400000", "cleanup.policy": "delete"}]),
    ]


class NewConfigs(ConfigsBody):
    """All configs of one entity, which ``id`` or ``entity`` names."""

    model_config = ConfigDict(json_schema_extra=base.NAMED)


# ---------------------------------------------------------------- answers


class ConfigSynonym(AnswerModel):
    """A value of a config, or of a config that it falls back on, effective or hidden."""

    name: str
    value: str | None = Field(description="null: a secret")
    source: _SourceName


class DescribedConfig(AnswerModel):
    """One effective config."""

    name: str
    value: str | None = Field(description="null for a secret, or without a value")
    read_only: bool = Field(
        description="As Kafka has it: true also for forms with a listener's prefix and for custom keys"
    )
    is_sensitive: bool
    config_source: _SourceName
    config_type: _TypeName
    assumed: bool = Field(description="The broker's own file is not known here and could say otherwise")
    synonyms: list[ConfigSynonym] = Field(description="In order of precedence; empty unless asked for")
    documentation: str | None


class DescribedResource(base.Result):
    """The configs of one resource, or the reason why they are not known."""

    resource_type: str
    resource_name: str
    configs: list[DescribedConfig]
    warnings: list[str] = Field(description="Stored entries that have no effect")


class DescribedResources(AnswerModel):
    """Answer of configs:describe, one result per resource in order."""

    throttle_time_ms: Count
    results: list[DescribedResource]


DescribeConfigsProblem: Any = base.problem_with(
    DescribedResources,
    "DescribeConfigsProblem",
    "The problem of the first resource, when none could be described, with the result of each.",
)


class ResourceDiff(base.SecretDiff):
    """A config before and after; null is absent, or a secret's."""


class AlteredResource(base.AlteredModel):
    """The result for one resource."""

    resource_type: int | str = Field(description="The name; as it was given where it is unknown")
    resource_name: str
    diff: list[ResourceDiff]


class AlteredResources(AnswerModel):
    """Answer of configs:incrementalAlter, one result per resource in order."""

    throttle_time_ms: Count
    failed: Count
    responses: list[AlteredResource]


IncrementalAlterProblem: Any = base.problem_with(
    AlteredResources,
    "IncrementalAlterProblem",
    "The problem of the first resource that failed, when none succeeded, with the result of each.",
)


class ConfigsStatus(base.ResourceStatus):
    """The status of a resource besides its content."""

    fingerprints: dict[str, str | None] = Field(
        description="Of each secret, a keyed fingerprint of its value; null: it can't be known here"
    )


class ConfigsResource(base.ResourceModel):
    """The configs that an entity declares."""

    status: ConfigsStatus | Absent = Field(default=None, description="Full view")
    configs: dict[str, str | None] = Field(description="null: a secret")


ConfigsList: Any = base.form(base.ResourcePage[ConfigsResource], "ConfigsList")


class ConfigInForce(AnswerModel):
    """One effective config, and all values set for it or for the configs that it falls back on."""

    key: str
    value: str | None = Field(description="null for a secret, or without a value")
    source: _SourceName
    read_only: bool
    is_sensitive: bool
    config_type: _TypeName
    assumed: bool = Field(description="The broker's own file is not known here and could say otherwise")
    synonyms: list[ConfigSynonym] = Field(description="In order of precedence")


class EffectiveConfigs(AnswerModel):
    """The effective configs of an entity, by name."""

    id: base.EntityId
    entity: base.EntityNames
    configs: list[ConfigInForce]
    warnings: list[str] = Field(description="Stored entries that have no effect")
