"""The wire forms of requests and answers, camelCase as Kafka's own JSON rendering of its RPCs.

Request models are strict and refuse unknown members. Some rules belong to Kafka's entities and keys, which the domain
checks with Kafka's codes and texts; the models take such values in and only their JSON schemas state the rule. Answers
are built as plain dicts (``app.api.views``); their models here describe them for the specification, and the tests hold
every answer against it.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar, Generic, Literal, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StrictBool,
    StrictFloat,
    StrictInt,
    StrictStr,
    WithJsonSchema,
)
from pydantic.alias_generators import to_camel
from pydantic.json_schema import SkipJsonSchema

from app.api import patterns
from app.domain.client_configs import ACKS, HEARTBEAT_INTERVAL, SESSION_TIMEOUT, ClientConfigs
from app.domain.entities import EntityType
from app.domain.filters import EntityFilter, FilterComponent
from app.domain.quotas import QUOTA_KEYS, ClientQuotas

MAX_ENTRIES = 10_000
"""Entries in one request."""

Number = StrictInt | StrictFloat
Scalar = StrictStr | Number | StrictBool | None
"""A value in a request; a value of the wrong kind is refused by the domain, which shows the right form."""
Absent = SkipJsonSchema[None]
"""In a union: the member may be left out, and null is never answered."""

Revision = Annotated[
    str, Field(pattern=patterns.REVISION, description="A zxid as a decimal string", examples=["8589934635"])
]
ChangeId = Annotated[
    str,
    Field(
        pattern=patterns.CHANGE_ID,
        description="UUIDv7 of the change",
        examples=["019a9c5e-7b2c-7d11-8a52-5d0c6f7e9b10"],
    ),
]
Etag = Annotated[str, Field(pattern=patterns.ETAG, examples=['"5f2a9c0d1e3b4a6c7d8e9f00"'])]
Time = Annotated[
    str,
    Field(
        description="RFC 3339 in UTC", examples=["2026-01-31T12:00:00.123Z"], json_schema_extra={"format": "date-time"}
    ),
]
EntityId = Annotated[str, Field(description="Entity id", examples=["user=alice"])]
Name = Annotated[
    StrictStr | None,
    WithJsonSchema({"anyOf": [{"type": "string", "pattern": patterns.NAME}, {"type": "null"}]}),
]
_TEXT: dict[str, Any] = {"type": "string"}
_NULL: dict[str, Any] = {"type": "null"}
_MS: dict[str, Any] = {"type": "string", "pattern": "^[0-9]{1,10}$"}
_QUOTA: dict[str, Any] = {"type": "number", "minimum": 0}


class RequestModel(BaseModel):
    """Base of requests: strict, with no unknown members."""

    model_config = ConfigDict(extra="forbid", strict=True, alias_generator=to_camel, validate_by_name=False)


class AnswerModel(BaseModel):
    """Base of answers."""

    model_config = ConfigDict(extra="forbid", alias_generator=to_camel)


def text_like(pattern: str) -> WithJsonSchema:
    """Describe a text of this pattern, or null."""
    return WithJsonSchema({"anyOf": [{"type": "string", "pattern": pattern}, _NULL]})


def one_of(*values: str) -> WithJsonSchema:
    """Describe the known texts; the domain refuses all others."""
    return WithJsonSchema({"type": "string", "enum": list(values)})


def _op(value: dict[str, Any]) -> dict[str, Any]:
    """Describe an op: it either sets a value or removes the key."""
    return {
        "anyOf": [
            {"properties": {"value": value}, "required": ["value"]},
            {"properties": {"remove": {"const": True}}, "required": ["remove"]},
        ]
    }


# ---------------------------------------------------------------- requests


class QuotaEntityComponent(RequestModel):
    """One component of an entity that has quotas. ``entityName`` null is the default entity."""

    entity_type: Annotated[StrictStr, one_of("user", "client-id", "ip")] = Field(examples=["user"])
    entity_name: Name = Field(description="null is the default entity", examples=["alice"])


class ConfigEntityComponent(RequestModel):
    """One component of an entity that has client configs: a user, with or without a client-id."""

    entity_type: Annotated[StrictStr, one_of("user", "client-id")] = Field(examples=["user"])
    entity_name: Name = Field(description="null is the default entity", examples=["alice"])


class _FilterComponent(RequestModel):
    entity_type: StrictStr
    match_type: Annotated[
        StrictInt | StrictStr, WithJsonSchema({"enum": [0, 1, 2, "exact", "default", "specified", "any"]})
    ] = Field(
        description="0 or exact; 1 or default: the default entity; 2, specified or any: any name. Names in any case.",
        examples=["exact"],
    )
    match: StrictStr | None = Field(default=None, description="The name, for exact", examples=["alice"])


class QuotaFilterComponent(_FilterComponent):
    """One component of a filter (KIP-546)."""

    entity_type: Annotated[StrictStr, one_of("user", "client-id", "ip")] = Field(examples=["user"])


class ConfigFilterComponent(_FilterComponent):
    """One component of a filter (KIP-649)."""

    entity_type: Annotated[StrictStr, one_of("user", "client-id")] = Field(examples=["user"])


class ClientInformation(RequestModel):
    """The software of a client, as KIP-511 names it."""

    software_name: Annotated[StrictStr, Field(min_length=1, max_length=249, examples=["apache-kafka-java"])]
    software_version: Annotated[StrictStr, Field(min_length=1, max_length=249, examples=["3.9.1"])]


C = TypeVar("C", QuotaFilterComponent, ConfigFilterComponent)


class DescribeRequest(RequestModel, Generic[C]):
    """Base of the requests that look for entities by a filter."""

    allowed: ClassVar[frozenset[EntityType]]
    """The entity types of the facet."""

    strict: StrictBool = Field(default=False, description="Only entities with exactly the given types")
    components: Annotated[list[C], Field(max_length=16)]

    @cached_property
    def filter(self) -> EntityFilter:
        """The components as a filter; a body that arrives again is the same object, and builds none.

        Raises:
            InvalidRequestError: As :meth:`EntityFilter.build`.
        """
        components = [FilterComponent(each.entity_type, each.match_type, each.match) for each in self.components]
        return EntityFilter.build(components, strict=self.strict, allowed=self.allowed)


class DescribeClientQuotas(DescribeRequest[QuotaFilterComponent]):
    """DescribeClientQuotas (KIP-546). No component and not strict: everything."""

    allowed = ClientQuotas.entity_types


class DescribeClientConfigs(DescribeRequest[ConfigFilterComponent]):
    """DescribeClientConfigs (KIP-649)."""

    allowed = ClientConfigs.entity_types

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


class QuotaOp(RequestModel):
    """Set a quota, or remove it."""

    model_config = ConfigDict(json_schema_extra=_op(_QUOTA))

    key: Annotated[StrictStr, Field(max_length=249, examples=["producer_byte_rate"])]
    value: Annotated[Scalar, WithJsonSchema({"anyOf": [_QUOTA, _NULL]})] = Field(
        default=None, description="A JSON number", examples=[1048576]
    )
    remove: StrictBool = False


class ConfigOp(RequestModel):
    """Set a config, or remove it."""

    model_config = ConfigDict(json_schema_extra=_op(_TEXT))

    key: Annotated[StrictStr, Field(max_length=249, examples=["acks"])]
    value: Annotated[Scalar, WithJsonSchema({"anyOf": [_TEXT, _NULL]})] = Field(
        default=None, description="A string", examples=["-1"]
    )
    remove: StrictBool = False


class AlterEntry(RequestModel):
    """Base of what an alter does to one entity."""

    etag: Annotated[StrictStr | None, text_like(patterns.ETAGS)] = Field(
        default=None, description="As If-Match, for this entry alone"
    )


class AlterQuotasEntry(AlterEntry):
    """The ops on one entity."""

    entity: Annotated[list[QuotaEntityComponent], Field(max_length=16, json_schema_extra={"minItems": 1})]
    ops: Annotated[list[QuotaOp], Field(max_length=500)]


class AlterConfigsEntry(AlterEntry):
    """The ops on one entity."""

    entity: Annotated[list[ConfigEntityComponent], Field(max_length=16, json_schema_extra={"minItems": 1})]
    ops: Annotated[list[ConfigOp], Field(max_length=500)]


class AlterModel(RequestModel):
    """Base of alters."""

    validate_only: StrictBool = Field(default=False, description="Go the whole way up to the write, and write nothing")
    atomic: StrictBool = Field(default=False, description="All entries in one transaction, or none")


class AlterClientQuotas(AlterModel):
    """AlterClientQuotas (KIP-546)."""

    entries: Annotated[list[AlterQuotasEntry], Field(max_length=MAX_ENTRIES)]


class AlterClientConfigs(AlterModel):
    """AlterClientConfigs (KIP-649)."""

    entries: Annotated[list[AlterConfigsEntry], Field(max_length=MAX_ENTRIES)]


def entity_names(*types: str) -> WithJsonSchema:
    """Describe an entity's names by type, or null."""
    name = {"anyOf": [{"type": "string", "pattern": patterns.NAME}, _NULL]}
    entity = {
        "type": "object",
        "properties": dict.fromkeys(types, name),
        "additionalProperties": False,
        "minProperties": 1,
    }
    return WithJsonSchema({"anyOf": [entity, _NULL]})


NAMED: dict[str, Any] = {
    "anyOf": [
        {"properties": {"id": _TEXT}, "required": ["id"]},
        {"properties": {"entity": {"type": "object"}}, "required": ["entity"]},
    ]
}


class ResourceBody(RequestModel):
    """Base of the bodies of PUT and POST."""

    status: dict[str, Any] | None = Field(default=None, description="Ignored, so that a full view can be sent back")
    etag: Annotated[StrictStr | None, text_like(patterns.ETAGS)] = Field(default=None, description="As If-Match")


class ClientQuotasBody(ResourceBody):
    """All quotas of one entity."""

    id: Annotated[StrictStr | None, text_like(patterns.QUOTA_ID)] = Field(
        default=None, description="The entity id", examples=["user=alice"]
    )
    entity: Annotated[dict[str, StrictStr | None] | None, entity_names("user", "client-id", "ip")] = Field(
        default=None, description="Type to name; null is the default entity", examples=[{"user": "alice"}]
    )
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


class ClientConfigsBody(ResourceBody):
    """All dynamic client configs of one entity."""

    id: Annotated[StrictStr | None, text_like(patterns.CONFIG_ID)] = Field(
        default=None, description="The entity id", examples=["user=alice"]
    )
    entity: Annotated[dict[str, StrictStr | None] | None, entity_names("user", "client-id")] = Field(
        default=None, description="Type to name; null is the default entity", examples=[{"user": "alice"}]
    )
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
                "additionalProperties": {**_TEXT, "description": "Configs that the cluster's settings add"},
                "minProperties": 1,
                "maxProperties": 500,
            }
        ),
        Field(max_length=500, examples=[{"acks": "-1", "session.timeout.ms": "30000"}]),
    ]


class NewClientQuotas(ClientQuotasBody):
    """All quotas of one entity, which ``id`` or ``entity`` names."""

    model_config = ConfigDict(json_schema_extra=NAMED)


class NewClientConfigs(ClientConfigsBody):
    """All dynamic client configs of one entity, which ``id`` or ``entity`` names."""

    model_config = ConfigDict(json_schema_extra=NAMED)


# ---------------------------------------------------------------- answers


WriteOutcome = Literal["not_applied", "unknown"]


EntityNames = Annotated[
    dict[str, str | None],
    Field(description="Type to name; null is the default entity", examples=[{"user": "alice", "client-id": "billing"}]),
]


class ProblemPart(AnswerModel):
    """One fault of a request."""

    pointer: str = Field(description="JSON pointer into the body, or the name of a parameter", examples=["/entries/0"])
    detail: str


class Problem(AnswerModel):
    """RFC 9457, with Kafka's error code."""

    type: str = Field(pattern=r"^/problems/[a-z-]+$", examples=["/problems/invalid-request"])
    title: str
    status: Annotated[int, Field(ge=400, le=599)]
    detail: str
    instance: str | None = Field(description="The path that was asked for")
    kafka_error_code: int = Field(examples=[42])
    kafka_error_name: str = Field(examples=["INVALID_REQUEST"])
    retriable: bool = Field(description="The same request may succeed later")
    request_id: str | None
    errors: list[ProblemPart]
    outcome: WriteOutcome | Absent = Field(default=None, description="The outcome of a tried write")
    canonical_id: str | None = Field(default=None, description="Of an entity id that is spelled in another way")
    etag: Etag | None = Field(default=None, description="Of a failed precondition: the current one; null: nothing set")
    path: str | Absent = Field(default=None, description="Of a znode that can't be read")
    change_id: ChangeId | Absent = Field(default=None, description="Of an unknown outcome: where to look")


Count = Annotated[int, Field(ge=0)]


class EntityData(AnswerModel):
    """One component of an entity."""

    entity_type: str
    entity_name: str | None


class QuotaValue(AnswerModel):
    """One quota."""

    key: str
    value: float


class ConfigValue(AnswerModel):
    """One config."""

    key: str
    value: str


class Software(AnswerModel):
    """The software of a client."""

    software_name: str
    software_version: str


class Compatibility(AnswerModel):
    """The configs that one client software says it supports."""

    client_information: Software
    supported_configs: list[str]


class QuotaEntry(AnswerModel):
    """One entity with its quotas."""

    entity: list[EntityData]
    values: list[QuotaValue]


class ConfigEntry(AnswerModel):
    """One entity with its client configs."""

    entity: list[EntityData]
    values: list[ConfigValue]
    entity_compatibility: list[Compatibility] | Absent = Field(default=None, description="Not under resolveEntity")


class _Described(AnswerModel):
    throttle_time_ms: Count
    error_code: Literal[0]
    error_message: None
    skipped: list[str] = Field(description="Paths of znodes that can't be read")


class DescribedQuotas(_Described):
    """Answer of client-quotas:describe."""

    entries: list[QuotaEntry]


class DescribedConfigs(_Described):
    """Answer of client-configs:describe."""

    entries: list[ConfigEntry]


class QuotaDiff(AnswerModel):
    """A quota before and after; null is absent."""

    key: str
    before: float | None
    after: float | None


class ConfigDiff(AnswerModel):
    """A config before and after; null is absent."""

    key: str
    before: str | None
    after: str | None


class AlteredModel(AnswerModel):
    """Base of the results of an alter's entities."""

    error_code: int
    error_name: str
    error_message: str | None
    change_id: ChangeId | None
    revision: Revision | None
    warnings: list[str]
    retriable: bool | Absent = Field(default=None, description="Of an error")
    outcome: WriteOutcome | None = Field(default=None, description="Of an error; null: nothing was tried")
    errors: list[ProblemPart] | Absent = Field(default=None, description="Of an error: JSON pointer and detail")
    etag: Etag | None = Field(default=None, description="Of a failed precondition: the current one; null: nothing set")


class AlteredQuotasEntry(AlteredModel):
    """The result for one entry."""

    entity: list[EntityData]
    diff: list[QuotaDiff]


class AlteredConfigsEntry(AlteredModel):
    """The result for one entry."""

    entity: list[EntityData]
    diff: list[ConfigDiff]


class AlteredQuotas(AnswerModel):
    """Answer of client-quotas:alter, one result per entry in order."""

    throttle_time_ms: Count
    failed: Count
    entries: list[AlteredQuotasEntry]


class AlteredConfigs(AnswerModel):
    """Answer of client-configs:alter, one result per entry in order."""

    throttle_time_ms: Count
    failed: Count
    entries: list[AlteredConfigsEntry]


class AlterQuotasProblem(Problem):
    """The problem of the first entry that failed, when none succeeded, with the result of each."""

    throttle_time_ms: Count | Absent = None
    failed: Count | Absent = None
    entries: list[AlteredQuotasEntry] | Absent = None


class AlterConfigsProblem(Problem):
    """The problem of the first entry that failed, when none succeeded, with the result of each."""

    throttle_time_ms: Count | Absent = None
    failed: Count | Absent = None
    entries: list[AlteredConfigsEntry] | Absent = None


class ResourceStatus(AnswerModel):
    """The status of a resource besides its content."""

    revision: Revision | None
    etag: Etag | None
    updated_at: Time | None = Field(description="RFC 3339, ZooKeeper's clock")
    warnings: list[str]


class ResourceModel(AnswerModel):
    """Base of resources."""

    id: EntityId
    entity: EntityNames | Absent = Field(default=None, description="Full view")
    status: ResourceStatus | Absent = Field(default=None, description="Full view")


class ClientQuotasResource(ResourceModel):
    """The quotas that an entity declares."""

    quotas: dict[str, float]


class ClientConfigsResource(ResourceModel):
    """The client configs that an entity declares."""

    configs: dict[str, str]


class DeletedResource(AnswerModel):
    """Answer of DELETE."""

    id: EntityId


class ClientQuotasList(AnswerModel):
    """A page, ordered by id."""

    items: list[ClientQuotasResource]
    next_page_token: str | None
    skipped: list[str] = Field(description="Paths of znodes that can't be read")


class ClientConfigsList(AnswerModel):
    """A page, ordered by id."""

    items: list[ClientConfigsResource]
    next_page_token: str | None
    skipped: list[str] = Field(description="Paths of znodes that can't be read")


class EffectiveQuotaSynonym(AnswerModel):
    """A value that a level gives to a key."""

    source: EntityId
    level: Count
    value: float


class EffectiveQuota(AnswerModel):
    """The effective value of one key, and all candidates for it, the effective one first."""

    key: str
    value: float
    source: EntityId = Field(description="Entity id of the level that wins")
    synonyms: list[EffectiveQuotaSynonym]


class QuotaLevel(AnswerModel):
    """One level that was read."""

    level: Count
    id: EntityId
    reason: str
    shared_by: str | None = Field(description="The clients that share a quota of this level")
    quotas: dict[str, float]


class EffectiveClientQuotas(AnswerModel):
    """The effective values of an entity, each key with its source; the levels most specific first."""

    id: EntityId
    entity: EntityNames
    quotas: list[EffectiveQuota]
    levels: list[QuotaLevel]
    warnings: list[str]


class EffectiveConfigSynonym(AnswerModel):
    """A value that a level gives to a key."""

    source: EntityId
    level: Count
    value: str


class EffectiveConfig(AnswerModel):
    """The effective value of one key, and all candidates for it, the effective one first."""

    key: str
    value: str
    source: EntityId = Field(description="Entity id of the level that wins")
    synonyms: list[EffectiveConfigSynonym]


class ConfigLevel(AnswerModel):
    """One level that was read."""

    level: Count
    id: EntityId
    reason: str
    shared_by: str | None = Field(description="The clients that share a quota of this level")
    configs: dict[str, str]


class EffectiveClientConfigs(AnswerModel):
    """The effective values of an entity, each key with its source; the levels most specific first."""

    id: EntityId
    entity: EntityNames
    configs: list[EffectiveConfig]
    levels: list[ConfigLevel]
    warnings: list[str]


class AuditedOp(AnswerModel):
    """An op as it was asked for: a key set, a key removed, or all keys of the facet removed or moved."""

    key: str | Absent = Field(default=None, description="Absent where the op is about all keys of the facet")
    op: Literal["SET", "DELETE", "APPEND", "SUBTRACT", "REENCODE", "MOVE", "DISCARD"] | Absent = Field(
        default=None,
        description="Of configs of topics and brokers, and of all keys of a facet. Absent: set, or removed where "
        "remove is true; configs set by PUT or POST lack it, too, in changes of earlier releases. REENCODE: the same "
        "value came under a new encoder secret. MOVE: the client configs went to another layout. DISCARD: client "
        "configs that nobody read were removed from the other layout",
    )
    to: Literal["shared", "separate"] | Absent = Field(default=None, description="Of MOVE: the layout")
    value: str | float | bool | None = Field(default=None, description="null: a secret, or none")
    secret: Literal[True] | Absent = None
    remove: Literal[True] | Absent = None
    remove_all: Literal[True] | Absent = None


class AuditedEntity(AnswerModel):
    """One entity of a change. Null values in before and after are secrets, or keys of no facet."""

    id: EntityId
    facet: Literal["client-quotas", "client-configs", "configs", "cluster", "node"] = Field(
        description="node: all keys of the znode, in a change that others made or that was recovered; cluster: a "
        "freeze, a thaw, a layout"
    )
    path: str = Field(description="Of the znode, below the cluster's chroot")
    version_read: int | None = Field(description="The znode's version before; null where it was absent")
    version: int | None = Field(description="The version it got; null where it was removed, or nothing was applied")
    remade: bool = Field(
        description="Others deleted the znode and made it again while the change was under way. What they wrote into "
        "it was overwritten, and nobody saw it; before is what was read"
    )
    keys: list[str]
    ops: list[AuditedOp]
    before: dict[str, str | None]
    after: dict[str, str | None]


class AuditedChange(AnswerModel):
    """One change: its last attempt and its outcome."""

    change_id: ChangeId
    kind: Literal["change", "external", "recovered"] = Field(
        description="external: others wrote it, past this service (a broker, Kafka's tools, a person by hand); "
        "recovered: this service wrote it and Postgres lost the rows, so what was asked for is not known"
    )
    writes: int | None = Field(
        description="Of an external change: how many writes it was, at least; of a recovered one 1; else null"
    )
    cluster: str
    attempt: Annotated[int, Field(ge=1)]
    principal: str
    source: str
    request_id: str
    reason: str | None
    ticket: str | None
    created_at: Time
    outcome: Literal["committed", "rejected", "open"] = Field(description="open: not known yet")
    revision: Revision | None
    committed_at: Time | None
    recorded_at: Time | None
    error_code: int | None
    error_message: str | None
    entities: list[AuditedEntity]


class AuditPage(AnswerModel):
    """A page of the trail, newest first."""

    items: list[AuditedChange]
    next_page_token: str | None


class RegistrationData(AnswerModel):
    """The configs that one client software says it supports, for one entity."""

    id: EntityId
    entity: EntityNames
    client_information: Software
    supported_configs: list[str]
    first_seen_at: Time
    last_seen_at: Time


class RegistrationPage(AnswerModel):
    """A page, ordered by entity id."""

    items: list[RegistrationData]
    next_page_token: str | None


class ClearedRegistrations(AnswerModel):
    """The number of registrations that were hidden."""

    cleared: Count


class Liveness(AnswerModel):
    """The process answers."""

    status: Literal["alive"]
    version: str


class ClusterState(AnswerModel):
    """A cluster as this process sees it."""

    connected: bool
    session: Literal["connecting", "connected", "suspended", "lost"] = Field(
        description="This process's ZooKeeper session. Lost: it expired, or was cut off for longer than its timeout. "
        "Unless it is connected writes are refused at once, and reads that ask for a consistency"
    )
    session_ms: Count = Field(description="For how long the session has been so, in ms")
    loaded: bool
    mirror: Literal["loading", "fresh", "stale", "reloading"] = Field(
        description="This process's copy of the cluster's configs. While it is reloading the old one is answered from"
    )
    revision: Revision
    stale_ms: Count | None = Field(description="For how long the copy may have been stale, in ms; null while fresh")
    brokers_registered: bool
    notifications: Count
    frozen: str | None = Field(description="The reason why no config may be written now; null while they may")
    warnings: list[str]


class ClusterData(ClusterState):
    """A cluster with its name."""

    name: str


class Recorded(AnswerModel):
    """The span of the audit trail that has writes by others past this service."""

    since: Revision | None = Field(description="null: first contact is under way, or an early version made it")
    since_at: Time | None
    until: Revision = Field(description="Everything with a notification up to it is in the trail")


class ClusterDetails(ClusterData):
    """A cluster and its trail."""

    recorded: Recorded | None = Field(
        description="null where the setting `record_external_changes` is off, or nothing was heard of it yet"
    )


class ClusterList(AnswerModel):
    """All clusters."""

    items: list[ClusterData]
    next_page_token: None


class ReadinessReport(AnswerModel):
    """The state of a process and its stores."""

    status: Literal["starting", "ready", "degraded", "stopping"]
    clusters: dict[str, ClusterState]
    postgres: str
    warnings: list[str]


class WhoAmI(AnswerModel):
    """The caller."""

    principal: str = Field(examples=["User:admin"])
    authenticated_by: str


# ---------------------------------------------------------------- facets


@dataclass(frozen=True, slots=True)
class FacetSchemas:
    """The models of one facet's resources."""

    noun: str
    """The end of operation ids."""
    body: type[BaseModel]
    new: type[BaseModel]
    resource: type[BaseModel]
    page: type[BaseModel]
    effective: type[BaseModel]
    id_pattern: str
    example_id: str


CLIENT_QUOTAS = FacetSchemas(
    "ClientQuotas",
    ClientQuotasBody,
    NewClientQuotas,
    ClientQuotasResource,
    ClientQuotasList,
    EffectiveClientQuotas,
    patterns.QUOTA_ID,
    "user=alice",
)
CLIENT_CONFIGS = FacetSchemas(
    "ClientConfigs",
    ClientConfigsBody,
    NewClientConfigs,
    ClientConfigsResource,
    ClientConfigsList,
    EffectiveClientConfigs,
    patterns.CONFIG_ID,
    "user=alice",
)
