"""The forms of client quotas (KIP-546), of client configs (KIP-649), and of their resources.

The two differ in the entities that can have them, and in the types of their values.
"""

from functools import cached_property
from typing import Annotated, Any, ClassVar, Generic, Literal, TypeVar

from pydantic import ConfigDict, Field, StrictBool, StrictInt, StrictStr, WithJsonSchema
from typing_extensions import override

from confplane.api import models as base
from confplane.api.models import AnswerModel, Name, RequestModel, Scalar, form
from confplane.domain import id_patterns
from confplane.domain.client_configs import ACKS, HEARTBEAT_INTERVAL, SESSION_TIMEOUT, ClientConfigsFacet
from confplane.domain.entities import EntityType
from confplane.domain.filters import EntityFilter, FilterComponent
from confplane.domain.quotas import QUOTA_KEYS, ClientQuotasFacet

T = TypeVar("T")
S = TypeVar("S")

_QUOTA: dict[str, Any] = {"type": "number", "minimum": 0}
_MS: dict[str, Any] = {"type": "string", "pattern": "^[0-9]{1,10}$"}
_QuotaEntity = Annotated[StrictStr, base.one_of("user", "client-id", "ip"), Field(examples=["user"])]
_ConfigEntity = Annotated[StrictStr, base.one_of("user", "client-id"), Field(examples=["user"])]


# ---------------------------------------------------------------- describe


class EntityComponent(RequestModel, Generic[T]):
    """One component of an entity."""

    entity_type: T
    entity_name: Name = Field(description="null is the default entity", examples=["alice"])


class FilterPart(RequestModel, Generic[T]):
    """One component of a filter."""

    entity_type: T
    match_type: Annotated[
        StrictInt | StrictStr, WithJsonSchema({"enum": [0, 1, 2, "exact", "default", "specified", "any"]})
    ] = Field(
        description="0 or exact; 1 or default: the default entity; 2, specified or any: any name. Names in any case.",
        examples=["exact"],
    )
    match: StrictStr | None = Field(default=None, description="The name, for exact", examples=["alice"])


QuotaFilterComponent: Any = form(
    FilterPart[_QuotaEntity], "QuotaFilterComponent", "One component of a filter (KIP-546)."
)
ConfigFilterComponent: Any = form(
    FilterPart[_ConfigEntity], "ConfigFilterComponent", "One component of a filter (KIP-649)."
)


class Describe(RequestModel, Generic[T]):
    """A describe by a filter."""

    polled = True
    allowed: ClassVar[frozenset[EntityType]]
    """The entity types of the facet."""

    strict: StrictBool = Field(default=False, description="Only entities with exactly the given types")
    components: Annotated[list[T], Field(max_length=16)]

    @cached_property
    def filter(self) -> EntityFilter:
        """The components as a filter; a body that arrives again is the same object, and builds none.

        Raises:
            InvalidRequestError: As :meth:`EntityFilter.build`.
        """
        given: list[Any] = self.components
        components = [FilterComponent(each.entity_type, each.match_type, each.match) for each in given]
        return EntityFilter.build(components, strict=self.strict, allowed=self.allowed)

    @property
    @override
    def brief(self) -> bool:
        """True if the filter selects one entity at most."""
        return self.filter.exact_entity is not None


class DescribeClientQuotas(Describe[QuotaFilterComponent]):
    """DescribeClientQuotas (KIP-546). No component and not strict: everything."""

    allowed = ClientQuotasFacet.entity_types


class ClientInformation(RequestModel):
    """The software of a client, as KIP-511 names it."""

    software_name: Annotated[StrictStr, Field(min_length=1, max_length=249, examples=["apache-kafka-java"])]
    software_version: Annotated[StrictStr, Field(min_length=1, max_length=249, examples=["3.9.1"])]


class DescribeClientConfigs(Describe[ConfigFilterComponent]):
    """DescribeClientConfigs (KIP-649)."""

    allowed = ClientConfigsFacet.entity_types

    resolve_entity: StrictBool = Field(
        default=False,
        description="Answer one entry: the configs effective for this client. Needs an exact user, and an exact "
        "client-id or none",
    )
    supported_configs: (
        Annotated[
            list[Annotated[StrictStr, Field(max_length=249, json_schema_extra={"minLength": 1})]], Field(max_length=500)
        ]
        | None
    ) = Field(
        default=None,
        description="Register the dynamic configs that the asking client supports. Needs clientInformation and an "
        "exact user",
    )
    client_information: ClientInformation | None = None


class Value(AnswerModel, Generic[T]):
    """One key with its value."""

    key: str
    value: T


class Entry(AnswerModel, Generic[T]):
    """One entity with its values."""

    entity: list[base.EntityData]
    values: list[T]


class Described(AnswerModel, Generic[T]):
    """The answer to a describe."""

    throttle_time_ms: base.Count
    error_code: Literal[0]
    error_message: None
    skipped: list[str] = Field(description="Paths of znodes that can't be read")
    entries: list[T]


QuotaValue: Any = form(Value[float], "QuotaValue", "One quota.")
ConfigValue: Any = form(Value[str], "ConfigValue", "One config.")
QuotaEntry: Any = form(Entry[QuotaValue], "QuotaEntry", "One entity with its quotas.")


class Software(AnswerModel):
    """The software of a client."""

    software_name: str
    software_version: str


class Compatibility(AnswerModel):
    """The configs that one client software says it supports."""

    client_information: Software
    supported_configs: list[str]


class ConfigEntry(Entry[ConfigValue]):
    """One entity with its client configs."""

    entity_compatibility: list[Compatibility] | base.Absent = Field(default=None, description="Not under resolveEntity")


DescribedQuotas: Any = form(Described[QuotaEntry], "DescribedQuotas", "Answer of client-quotas:describe.")
DescribedConfigs: Any = form(Described[ConfigEntry], "DescribedConfigs", "Answer of client-configs:describe.")


# ---------------------------------------------------------------- alter


def _op(value: dict[str, Any]) -> ConfigDict:
    """Describe an op: it either sets a value or removes the key."""
    given: Any = {"properties": {"value": value}, "required": ["value"]}
    removed: Any = {"properties": {"remove": {"const": True}}, "required": ["remove"]}
    return ConfigDict(json_schema_extra=base.any_of(given, removed))


class QuotaOp(RequestModel):
    """Set a quota, or remove it."""

    model_config = _op(_QUOTA)

    key: Annotated[StrictStr, Field(max_length=249, examples=["producer_byte_rate"])]
    value: Annotated[Scalar, WithJsonSchema({"anyOf": [_QUOTA, base.NULL]})] = Field(
        default=None, description="A JSON number", examples=[1048576]
    )
    remove: StrictBool = False


class ConfigOp(RequestModel):
    """Set a config, or remove it."""

    model_config = _op(base.TEXT)

    key: Annotated[StrictStr, Field(max_length=249, examples=["acks"])]
    value: Annotated[Scalar, WithJsonSchema(base.TEXT_OR_NULL)] = Field(
        default=None, description="A string", examples=["-1"]
    )
    remove: StrictBool = False


class ClientEntry(base.AlterEntry, Generic[S, T]):
    """The ops on one entity."""

    entity: Annotated[list[S], Field(max_length=16, json_schema_extra={"minItems": 1})]
    ops: Annotated[list[T], Field(max_length=500)]


class Alter(base.AlterModel, Generic[T]):
    """An alter of several entities."""

    entries: Annotated[list[T], Field(max_length=base.MAX_ENTRIES)]


QuotaEntityComponent: Any = form(
    EntityComponent[_QuotaEntity],
    "QuotaEntityComponent",
    "One component of an entity that has quotas. ``entityName`` null is the default entity.",
)
ConfigEntityComponent: Any = form(
    EntityComponent[_ConfigEntity],
    "ConfigEntityComponent",
    "One component of an entity that has client configs: a user, with or without a client-id.",
)
AlterQuotasEntry: Any = form(ClientEntry[QuotaEntityComponent, QuotaOp], "AlterQuotasEntry")
AlterConfigsEntry: Any = form(ClientEntry[ConfigEntityComponent, ConfigOp], "AlterConfigsEntry")


class AlterClientQuotas(Alter[AlterQuotasEntry]):
    """AlterClientQuotas (KIP-546)."""


class AlterClientConfigs(Alter[AlterConfigsEntry]):
    """AlterClientConfigs (KIP-649)."""


class AlteredEntry(base.AlteredModel, Generic[T]):
    """The result for one entry."""

    entity: list[base.EntityData]
    diff: list[T]


class Altered(AnswerModel, Generic[T]):
    """The answer to an alter."""

    throttle_time_ms: base.Count
    failed: base.Count
    entries: list[T]


ALL_FAILED = "The problem of the first entry that failed, when none succeeded, with the result of each."
ALTERED = "Answer of {}:alter, one result per entry in order."
QuotaDiff: Any = form(base.Diff[float], "QuotaDiff", "A quota before and after; null is absent.")
ConfigDiff: Any = form(base.Diff[str], "ConfigDiff", "A config before and after; null is absent.")
AlteredQuotasEntry: Any = form(AlteredEntry[QuotaDiff], "AlteredQuotasEntry")
AlteredConfigsEntry: Any = form(AlteredEntry[ConfigDiff], "AlteredConfigsEntry")
AlteredQuotas: Any = form(Altered[AlteredQuotasEntry], "AlteredQuotas", ALTERED.format("client-quotas"))
AlteredConfigs: Any = form(Altered[AlteredConfigsEntry], "AlteredConfigs", ALTERED.format("client-configs"))


AlterQuotasProblem: Any = base.problem_with(AlteredQuotas, "AlterQuotasProblem", ALL_FAILED)
AlterConfigsProblem: Any = base.problem_with(AlteredConfigs, "AlterConfigsProblem", ALL_FAILED)


# ---------------------------------------------------------------- resources


class ClientQuotasBody(base.ResourceBody):
    """All quotas of one entity."""

    id: Annotated[StrictStr | None, base.text_like(id_patterns.QUOTA_ID)] = base.ENTITY_ID
    entity: Annotated[dict[str, StrictStr | None] | None, base.entity_names("user", "client-id", "ip")] = base.ENTITY
    quotas: Annotated[
        dict[str, Scalar],
        WithJsonSchema(
            {
                "type": "object",
                "properties": {
                    key.name: {
                        "type": "integer" if key.integral else "number",
                        "minimum": key.minimum,
                        **({} if key.maximum is None else {"maximum": key.maximum}),
                        "description": f"{key.type} of {key.unit}",
                    }
                    for key in QUOTA_KEYS.values()
                },
                "additionalProperties": False,
                "minProperties": 1,
            }
        ),
        Field(max_length=100, examples=[{"producer_byte_rate": 1048576, "request_percentage": 50.5}]),
    ]


class ClientConfigsBody(base.ResourceBody):
    """All dynamic client configs of one entity."""

    id: Annotated[StrictStr | None, base.text_like(id_patterns.CONFIG_ID)] = base.ENTITY_ID
    entity: Annotated[dict[str, StrictStr | None] | None, base.entity_names("user", "client-id")] = base.ENTITY
    configs: Annotated[
        dict[str, Scalar],
        WithJsonSchema(
            {
                "type": "object",
                "properties": {
                    ACKS: {"type": "string", "enum": ["all", "-1", "0", "1"]},
                    SESSION_TIMEOUT: {**_MS, "description": "Within the bounds that the brokers accept"},
                    HEARTBEAT_INTERVAL: {**_MS, "description": "Below session.timeout.ms"},
                },
                "additionalProperties": {**base.TEXT, "description": "Configs that the cluster's settings add"},
                "minProperties": 1,
                "maxProperties": 500,
            }
        ),
        Field(max_length=500, examples=[{"acks": "-1", "session.timeout.ms": "30000"}]),
    ]


class NewClientQuotas(ClientQuotasBody):
    """All quotas of one entity, which ``id`` or ``entity`` names."""

    model_config = ConfigDict(json_schema_extra=base.NAMED)


class NewClientConfigs(ClientConfigsBody):
    """All dynamic client configs of one entity, which ``id`` or ``entity`` names."""

    model_config = ConfigDict(json_schema_extra=base.NAMED)


class ClientQuotasResource(base.ResourceModel):
    """The quotas that an entity declares."""

    quotas: dict[str, float]


class ClientConfigsResource(base.ResourceModel):
    """The client configs that an entity declares."""

    configs: dict[str, str]


class EffectiveSynonym(AnswerModel, Generic[T]):
    """A value that a level gives to a key."""

    source: base.EntityId
    level: base.Count
    value: T


class EffectiveValue(Value[T], Generic[T, S]):
    """The effective value of one key, and all candidates for it, the effective one first."""

    source: base.EntityId = Field(description="Entity id of the level that wins")
    synonyms: list[S]


class Level(AnswerModel):
    """One level that was read."""

    level: base.Count
    id: base.EntityId
    reason: str
    shared_by: str | None = Field(description="The clients that share a quota of this level")


class Effective(AnswerModel, Generic[T]):
    """The effective values of an entity, each key with its source; the levels most specific first."""

    id: base.EntityId
    entity: base.EntityNames
    levels: list[T]
    warnings: list[str]


ClientQuotasList: Any = form(base.ResourcePage[ClientQuotasResource], "ClientQuotasList")
ClientConfigsList: Any = form(base.ResourcePage[ClientConfigsResource], "ClientConfigsList")
QuotaLevel: Any = form(Level, "QuotaLevel", quotas=dict[str, float])
ConfigLevel: Any = form(Level, "ConfigLevel", configs=dict[str, str])
EffectiveQuotaSynonym: Any = form(EffectiveSynonym[float], "EffectiveQuotaSynonym")
EffectiveConfigSynonym: Any = form(EffectiveSynonym[str], "EffectiveConfigSynonym")
EffectiveQuota: Any = form(EffectiveValue[float, EffectiveQuotaSynonym], "EffectiveQuota")
EffectiveConfig: Any = form(EffectiveValue[str, EffectiveConfigSynonym], "EffectiveConfig")
EffectiveClientQuotas: Any = form(Effective[QuotaLevel], "EffectiveClientQuotas", quotas=list[EffectiveQuota])
EffectiveClientConfigs: Any = form(Effective[ConfigLevel], "EffectiveClientConfigs", configs=list[EffectiveConfig])
