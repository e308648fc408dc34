"""The forms of the audit trail."""

from typing import Annotated, Literal

from pydantic import Field

from confplane.api import patterns
from confplane.api.models import Absent, AnswerModel, ChangeId, EntityId, Kind, Page, Reverts, Revision, Time


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
    facet: Literal["client-quotas", "client-configs", "clients", "configs", "cluster", "node"] = Field(
        description="clients: client quotas and client configs in one change of the znode that has both; node: all "
        "keys of the znode, in an external or recovered change; cluster: a freeze, a thaw, a layout, a "
        "target"
    )
    path: str = Field(description="Of the znode, below the cluster's chroot")
    version_read: int | None = Field(description="The znode's version before; null where it was absent")
    version: int | None = Field(description="The version it got; null where it was removed, or nothing was applied")
    remade: bool = Field(
        description="The znode was deleted and created again externally during the change. Its external content was"
        " overwritten without having been read; `before` is the content that was read"
    )
    keys: list[str]
    ops: list[AuditedOp]
    before: dict[str, str | None]
    after: dict[str, str | None]


class AuditedSighting(AnswerModel):
    """The place of external writes in the metadata log of an observed Kafka cluster."""

    after: Annotated[str, Field(pattern=r"^-?[0-9]+$")] | None = Field(
        description="A metadata offset at which the entity still was as before; null if no earlier poll is known"
    )
    until: Annotated[str, Field(pattern=r"^-?[0-9]+$")] = Field(
        description="A metadata offset at which the entity was as the change left it. The writes are among the records "
        "behind after, up to until; of an exact change, until is the offset of the last one"
    )
    at: Time = Field(description="When it was seen; of an exact change, the time of the last record in Kafka's log")
    exact: bool = Field(
        description="true: read from the metadata log, record by record; false: seen in a look at the cluster, which "
        "merges the writes since the look before it"
    )
    writes: Annotated[int, Field(ge=1)] = Field(description="How many records; where not exact, at least how many")


class AuditedChange(AnswerModel):
    """One change: its last attempt and its outcome."""

    change_id: ChangeId
    kind: Kind = Field(
        description="reload: no key got another value, and a broker loads files again whose paths stay; import: a"
        " config was imported from an observed Kafka cluster; observed: an external change"
        " in that "
        "cluster afterwards; put-back: an external change in that cluster that was replaced by the value here, and so "
        "never committed; external: a change in ZooKeeper outside this service (by a broker, Kafka's tools or a"
        " person); "
        "recovered: this service wrote it and Postgres lost the rows, so the request is not known"
    )
    writes: int | None = Field(
        description="For an external change, the least number of its writes; for a recovered change 1; otherwise null"
    )
    observed: AuditedSighting | None = Field(description="Of import, observed and put-back changes; else null")
    reverts: Reverts
    revert_at: Time | None = Field(description="Of a temporary change, the time of its end; otherwise null")
    ends: ChangeId | None = Field(description="The temporary change that this change ends; otherwise null")
    applies: ChangeId | None = Field(description="The change request that this change applies; otherwise null")
    cluster: str
    attempt: Annotated[int, Field(ge=1)]
    principal: str
    on_behalf_of: str | None = Field(description="The user for whom the principal acted; null if it acted for itself")
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
    error_message: str | None = Field(description="null where it may name an entity that is left out")
    partial: bool = Field(description="The change has further entities, which the caller may not describe")
    entities: list[AuditedEntity]


class AuditedRefusal(AnswerModel):
    """A write that was refused before a change began, or a sum of further ones of the same minute. It has no values."""

    id: Annotated[str, Field(pattern=patterns.CHANGE_ID, description="UUIDv7 of the time")]
    cluster: str
    principal: str
    on_behalf_of: str | None = Field(
        description="The user for whom the principal acted; null if it acted for itself, and for a sum"
    )
    operation: str = Field(description="The operation's id in this specification", examples=["putClientQuotas"])
    entity: EntityId | None = Field(
        description="null if the request names no valid entity, and for a sum. An id of more than 256 characters is"
        " shortened, and ends with an ellipsis"
    )
    keys: list[str] = Field(description="The first 20 keys that the attempt names; empty of a sum")
    error_code: int = Field(description="Kafka's error code", examples=[44])
    problem: str = Field(description="The problem type", examples=["/problems/policy-violation"])
    request_id: str | None = Field(description="null of a sum")
    time: Time = Field(description="The time of the attempt, by the process's clock; of a sum, of its first attempt")
    count: Annotated[int, Field(ge=1)] = Field(
        description="1; of a sum, the number of attempts. A process lists 60 attempts of a principal in a minute, and"
        " sums up further ones by operation and error"
    )


class AuditPage(Page[AuditedChange | AuditedRefusal]):
    """A page of the trail, or of refused attempts, newest first."""
