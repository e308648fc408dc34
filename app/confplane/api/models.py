"""The forms of requests and answers that operations have in common, camelCase as Kafka's own JSON of its RPCs.

Request models are strict and refuse unknown members. The domain checks the rules of Kafka's entities and keys, with
Kafka's codes and texts. The models accept such values, and only their JSON schemas state the rule. Responses are built
as plain dicts. Their models describe them for the specification, and the tests check every response against it.
"""

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
    create_model,
)
from pydantic.alias_generators import to_camel
from pydantic.json_schema import SkipJsonSchema

from confplane.api import formats
from confplane.services.ports.trail import MOST_REVERTS

MAX_ENTRIES = 10_000
"""Entries in one request."""

MAX_KEYS = 500
"""Keys of one entity in a request of KIP-5 or KIP-21."""
MAX_KEY = 1_024
"""The greatest number of characters in a key: keys with a listener's prefix have no limit of their own."""

T = TypeVar("T")

Number = StrictInt | StrictFloat
Scalar = StrictStr | Number | StrictBool | None
"""A value in a request; a value of the wrong kind is refused by the domain, which shows the right form."""
Absent = SkipJsonSchema[None]
"""In a union: the member may be absent, and is never null in a response."""

Revision = Annotated[
    str, Field(pattern=formats.REVISION, description="A zxid as a decimal string", examples=["8589934635"])
]
ChangeId = Annotated[
    str,
    Field(
        pattern=formats.CHANGE_ID,
        description="UUIDv7 of the change",
        examples=["019a9c5e-7b2c-7d11-8a52-5d0c6f7e9b10"],
    ),
]
Reverts = Annotated[
    Annotated[list[ChangeId], Field(max_length=MOST_REVERTS)] | None,
    Field(description="For a revert, the latest thousand of the reverted changes; otherwise null"),
]
Etag = Annotated[str, Field(pattern=formats.ETAG, examples=['"5f2a9c0d1e3b4a6c7d8e9f00"'])]
Time = Annotated[
    str,
    Field(
        description="RFC 3339 in UTC", examples=["2026-01-31T12:00:00.123Z"], json_schema_extra={"format": "date-time"}
    ),
]
EntityId = Annotated[str, Field(description="Entity id", examples=["user=alice"])]
EntityNames = Annotated[
    dict[str, str | None],
    Field(description="Type to name; null is the default entity", examples=[{"user": "alice", "client-id": "billing"}]),
]
Name = Annotated[
    StrictStr | None, WithJsonSchema({"anyOf": [{"type": "string", "pattern": formats.NAME}, {"type": "null"}]})
]
Count = Annotated[int, Field(ge=0)]
WriteOutcome = Literal["not_applied", "unknown"]
TEXT: dict[str, Any] = {"type": "string"}
NULL: dict[str, Any] = {"type": "null"}
TEXT_OR_NULL: dict[str, Any] = {"anyOf": [TEXT, NULL]}


def any_of(*forms: dict[str, Any]) -> dict[str, Any]:
    """Describe a body that has one of these forms, in addition to the description of its members.

    Client generators treat an ``anyOf`` next to ``properties`` as further complete bodies, unless an ``allOf`` encloses
    it.
    """
    return {"allOf": [{"anyOf": list(forms)}]}


NAMED: dict[str, Any] = any_of(
    {"properties": {"id": TEXT}, "required": ["id"]},
    {"properties": {"entity": {"type": "object", "additionalProperties": True}}, "required": ["entity"]},
)
"""Schema of a body that names its entity."""


class RequestModel(BaseModel):
    """Base of requests: strict, with no unknown members."""

    model_config = ConfigDict(extra="forbid", strict=True, alias_generator=to_camel, validate_by_name=False)

    most_bytes: ClassVar[int | None] = None
    """The greatest size of a body of this model; None: that of the settings."""
    most_entries: ClassVar[int] = MAX_ENTRIES
    """The greatest number of entries of a large body; the model refuses more."""
    polled: ClassVar[bool] = False
    """True for a body that clients send repeatedly: short bodies of this model are cached after parsing."""

    @property
    def brief(self) -> bool:
        """True if the request takes little work whatever is stored, so that it needs no bounds of long reads."""
        return False


class AnswerModel(BaseModel):
    """Base of answers."""

    model_config = ConfigDict(extra="forbid", alias_generator=to_camel, defer_build=True)


def form(model: type[BaseModel], name: str, doc: str | None = None, **members: Any) -> Any:
    """Return a model of this name, which the specification shows, with more members than ``model`` has.

    If no text is given, it has that of the generic class of ``model``.
    """
    made = model.__pydantic_generic_metadata__["origin"] or model
    fields: dict[str, Any] = {member: (kind, ...) for member, kind in members.items()}
    return create_model(name, __base__=model, __doc__=doc or made.__doc__, **fields)


def problem_with(answer: type[BaseModel], name: str, doc: str) -> Any:
    """Return the form of a problem that has the members of an answer in addition to its own."""
    members: dict[str, Any] = {
        member: (field.rebuild_annotation() | Absent, None) for member, field in answer.model_fields.items()
    }
    return create_model(name, __base__=Problem, __doc__=doc, **members)


def text_like(pattern: str) -> WithJsonSchema:
    """Describe a text of this pattern, or null."""
    return WithJsonSchema({"anyOf": [{"type": "string", "pattern": pattern}, NULL]})


def one_of(*values: str) -> WithJsonSchema:
    """Describe the known texts; the domain refuses all others."""
    return WithJsonSchema({"type": "string", "enum": list(values)})


def entity_names(*types: str) -> WithJsonSchema:
    """Describe an entity's names by type, or null."""
    name = {"anyOf": [{"type": "string", "pattern": formats.NAME}, NULL]}
    entity = {
        "type": "object",
        "properties": dict.fromkeys(types, name),
        "additionalProperties": False,
        "minProperties": 1,
    }
    return WithJsonSchema({"anyOf": [entity, NULL]})


# ---------------------------------------------------------------- requests


class AlterEntry(RequestModel):
    """Base of what an alter does to one entity."""

    etag: Annotated[StrictStr | None, text_like(formats.ETAGS)] = Field(
        default=None, description="As If-Match, for this entry alone"
    )


class Validatable(RequestModel):
    """Base of alters."""

    validate_only: StrictBool = Field(default=False, description="Check everything, and write nothing")


class AlterModel(Validatable):
    """Base of alters of several entities."""

    atomic: StrictBool = Field(default=False, description="All entries in one transaction, or none")


ENTITY_ID: Any = Field(default=None, description="The entity id", examples=["user=alice"])
ENTITY: Any = Field(default=None, description="Type to name; null is the default entity", examples=[{"user": "alice"}])


class ResourceBody(RequestModel):
    """Base of the bodies of PUT and POST."""

    status: dict[str, Any] | None = Field(default=None, description="Ignored, so that a full view can be sent back")
    applied: dict[str, Any] | None = Field(default=None, description="Ignored, so that an answer can be sent back")
    etag: Annotated[StrictStr | None, text_like(formats.ETAGS)] = Field(default=None, description="As If-Match")


# ---------------------------------------------------------------- answers


class RefusedKey(AnswerModel):
    """A key whose value the Kafka cluster refused."""

    key: str
    code: int = Field(description="Kafka's error code", examples=[40])
    message: str = Field(description="Kafka's error message")


class AppliedData(AnswerModel):
    """The apply status of an entity's change in the Kafka cluster."""

    state: Literal["applied", "pending", "refused", "partly-refused"] = Field(
        description="applied: the cluster has taken the change, or a later one of the entity; of a result without a"
        " change, the last one of the entity. pending: not yet, or its end is not known. refused: the cluster refused"
        " the entity's values, which stay committed here; or they were undone here before the cluster took them, since"
        " the topic is gone. partly-refused: the cluster refused the keys in refusedKeys, which may be of an earlier"
        " change, and has taken all others"
    )
    revision: Revision | None = Field(
        description="The newest revision of the entity that the cluster has applied; null if it has applied no change"
        " of a client yet"
    )
    code: int | None = Field(description="Of what the cluster refused: Kafka's number of the error", examples=[42])
    message: str | None = Field(description="Of refused: Kafka's text, or the reason why the change was undone")
    refused_keys: list[RefusedKey] = Field(description="The refused keys of partly-refused; empty otherwise")


WAITED: Any = Field(
    default=None,
    description="Present with Confplane-Wait-Applied, for changes that are applied to a Kafka cluster; absent under"
    " validateOnly",
)


class ProblemPart(AnswerModel):
    """One fault of a request."""

    pointer: str = Field(description="JSON pointer into the body, or the name of a parameter", examples=["/entries/0"])
    detail: str


Kind = Literal["change", "reload", "import", "observed", "put-back", "external", "recovered"]
"""The kind of a change in the trail."""


class LaterChange(AnswerModel):
    """A change after the reverted changes that altered the same keys."""

    change_id: ChangeId | None = Field(description="null: an external change that the trail does not have yet")
    kind: Kind | None
    principal: str | None
    revision: Revision | None = Field(
        description="null: the znode was removed externally, at a time that is not known yet"
    )
    time: Time | None
    keys: list[str]


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
    canonical_id: str | None = Field(default=None, description="For an entity id in another spelling: the canonical id")
    etag: Etag | None = Field(
        default=None, description="For a failed precondition: the current ETag; null if nothing is set"
    )
    path: str | Absent = Field(default=None, description="For a znode that can't be read: its path")
    change_id: ChangeId | Absent = Field(default=None, description="For an unknown outcome: the id of the change")
    since: Revision | None = Field(
        default=None, description="For a time before the history begins: the first known revision"
    )
    since_time: Time | None = Field(default=None, description="Of such a moment: the time of that revision")
    oldest: str | None = Field(
        default=None, description="Of a position in the feed before the history begins: the oldest one that is known"
    )
    later_changes: list[LaterChange] | Absent = Field(
        default=None, description="For a revert: the changes that block it, the latest first, at most a hundred"
    )
    throttle_time_ms: Count | Absent = Field(
        default=None, description="For a limit that is used up: the time to wait, in ms"
    )


class EntityData(AnswerModel):
    """One component of an entity."""

    entity_type: str
    entity_name: str | None


class ConfigPair(AnswerModel):
    """A config and its value."""

    config_key: str
    config_value: str | None = Field(description="null: a secret")


class Diff(AnswerModel, Generic[T]):
    """Base of the values of a key before and after a change; null is absent."""

    key: str
    before: T | None
    after: T | None


class SecretDiff(Diff[str]):
    """Base of the values of a key that may be a secret's."""

    secret: Literal[True] | Absent = Field(default=None, description="Its values are not shown")


class Result(AnswerModel):
    """Base of the results of several, of which some may be errors."""

    error_code: int
    error_name: str
    error_message: str | None
    errors: list[ProblemPart] | Absent = Field(
        default=None, description="For an error: JSON pointer and detail of each fault"
    )


class WriteResult(Result):
    """Base of the results of several writes."""

    change_id: ChangeId | None
    revision: Revision | None
    warnings: list[str]
    retriable: bool | Absent = Field(default=None, description="Of an error")
    outcome: WriteOutcome | None = Field(default=None, description="For an error; null if nothing was attempted")


class AlteredModel(WriteResult):
    """Base of the results of an alter's entities."""

    etag: Etag | None = Field(
        default=None, description="For a failed precondition: the current ETag; null if nothing is set"
    )
    applied: AppliedData | Absent = WAITED


class Page(AnswerModel, Generic[T]):
    """Base of pages."""

    items: list[T]
    next_page_token: str | None = Field(
        description="`pageToken` of the next page; null at the end of the list, and only there. A page may have fewer"
        " items than `pageSize`, or none, although further pages follow"
    )


class ResourcePage(Page[T], Generic[T]):
    """A page, ordered by id."""

    revision: Revision | Absent = Field(default=None, description="Of a list of the past: its moment")
    skipped: list[str] = Field(description="Paths of znodes that can't be read")


class ResourceStatus(AnswerModel):
    """The status of a resource besides its content."""

    revision: Revision | None
    etag: Etag | None
    updated_at: Time | None = Field(description="RFC 3339, ZooKeeper's clock")
    observed_at: Time | Absent = Field(
        default=None,
        description="For an observed Kafka cluster: the time of the last poll that covered the entity. Absent for"
        " client configs",
    )
    managed_keys: list[str] | Absent = Field(
        default=None,
        description="Keys that the Kafka cluster sets by itself and that no client can remove: a replacement or"
        " deletion keeps them. Absent without any",
        examples=[["min.insync.replicas"]],
    )
    applied: AppliedData | Absent = Field(
        default=None,
        description="Of what callers write to a Kafka cluster: the standing of the entity there. Absent while Postgres"
        " is away",
    )
    owners: dict[str, str] | Absent = Field(
        default=None,
        description="The owners of keys, by key, as manifests claimed them. Absent without any, or while Postgres is"
        " away",
        examples=[{"producer_byte_rate": "payments"}],
    )
    labels: dict[str, dict[str, str]] | Absent = Field(
        default=None, description="The labels of these owners' manifests, by owner", examples=[{"payments": {}}]
    )
    warnings: list[str]


class PastMoment(AnswerModel):
    """The moment of a content of the past."""

    revision: Revision
    exact: bool = Field(
        description="False for a time within several external writes that were observed as one: the content is"
        " that before them"
    )
    run: tuple[Revision, Revision | None] | Absent = Field(
        default=None,
        description="Where exact is false: the last revision at which the content is known to have stood, and the"
        " revision at which the writes were over; null: they are not recorded yet",
    )
    not_kept: list[str] = Field(
        description="Keys whose values are not in the trail. In the content a secret is null, and a value that was"
        " not observed is absent"
    )


class ResourceModel(AnswerModel):
    """Base of resources."""

    id: EntityId
    at: PastMoment | Absent = Field(default=None, description="Of a content of the past")
    entity: EntityNames | Absent = Field(default=None, description="Full view")
    status: ResourceStatus | Absent = Field(default=None, description="Full view")
    applied: AppliedData | Absent = WAITED


class DeletedResource(AnswerModel):
    """Answer of DELETE."""

    id: EntityId
    warnings: list[str] | Absent = Field(default=None, description="Absent if there are none")
    applied: AppliedData | Absent = WAITED
