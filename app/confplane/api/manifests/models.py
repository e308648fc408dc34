"""The forms of manifests and their plans. The schema of manifests for editors is made from them as well."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, StrictBool, StrictInt, StrictStr, WithJsonSchema

from confplane.api import formats
from confplane.api import models as base
from confplane.domain import id_patterns
from confplane.domain.manifests import MOST_BYTES, MOST_ENTITIES
from confplane.domain.ownership import LABEL_PATTERN, LONGEST_LABEL, MOST_LABELS, OWNER_PATTERN

SCOPE_PATTERN = "^(user|client-id|ip|topic|broker|group|client-metrics):"
_QUOTAS: Any = WithJsonSchema({"type": "object", "additionalProperties": {"type": "number", "minimum": 0}})
_TEXTS: Any = WithJsonSchema({"type": "object", "additionalProperties": base.TEXT})
_TEXTS_OR_NULL: Any = WithJsonSchema({"type": "object", "additionalProperties": base.TEXT_OR_NULL})
Action = Literal["create", "update", "delete", "claim", "none"]
_Keys = Annotated[dict[StrictStr, base.Scalar], Field(max_length=base.MAX_KEYS)]


class ManifestEntity(base.RequestModel):
    """An entity, with all keys that it has in the facets that are named; other facets stay as they are."""

    id: Annotated[StrictStr, WithJsonSchema({"type": "string", "pattern": id_patterns.ANY_ID})] = Field(
        description="The entity id", examples=["topic=orders"]
    )
    quotas: Annotated[_Keys, _QUOTAS] = Field(default={}, description="All quotas of a user, a client-id or an ip")
    client_configs: Annotated[_Keys, _TEXTS] = Field(
        default={}, description="All client configs of a user, alone or with a client-id"
    )
    configs: Annotated[_Keys, _TEXTS_OR_NULL] = Field(
        default={},
        description="All configs of a topic, a broker, a group or a subscription to client metrics. null keeps a stored"
        " secret",
        examples=[{"retention.ms": "86400000"}],
    )


LabelName = Annotated[StrictStr, Field(pattern=LABEL_PATTERN)]
LabelText = Annotated[StrictStr, Field(max_length=LONGEST_LABEL)]


class ManifestDocument(base.RequestModel):
    """Configs of entities, as a document."""

    most_bytes: ClassVar[int | None] = MOST_BYTES
    most_entries: ClassVar[int] = MOST_ENTITIES

    api_version: Literal["confplane/v1"] = Field(description="The version of this form")
    kind: Literal["Configs"] = Field(description="The kind of the document")
    cluster: StrictStr = Field(
        default="",
        min_length=1,
        description="The cluster; a plan for another one is refused. Any cluster if it is absent",
    )
    owner: Annotated[StrictStr, Field(pattern=OWNER_PATTERN)] | None = Field(
        default=None,
        description="The owner of the keys of the document. Without it, owners are neither compared nor changed",
        examples=["payments"],
    )
    labels: Annotated[dict[LabelName, LabelText], Field(max_length=MOST_LABELS)] = Field(
        default={},
        description="Labels of the entities, of this owner. They need an owner",
        examples=[{"stage": "production"}],
    )
    entities: Annotated[list[ManifestEntity], Field(max_length=MOST_ENTITIES)] = Field(
        description="The entities, each once"
    )


class ForcedKey(base.RequestModel):
    """A key of the document that its owner takes over from another one."""

    id: Annotated[StrictStr, WithJsonSchema({"type": "string", "pattern": id_patterns.ANY_ID})] = Field(
        description="The entity id", examples=["topic=orders"]
    )
    key: StrictStr = Field(examples=["retention.ms"])


class PlanManifest(ManifestDocument):
    """A manifest, and the options of its plan."""

    atomic: StrictBool = Field(default=False, description="All entities in one transaction, or none")
    prune: StrictBool = Field(
        default=False,
        description="Delete what the document does not name: with an owner its keys, otherwise those of the scope",
    )
    merge: StrictBool = Field(
        default=False,
        description="Keep the keys that the document does not name, also in the facets that it names. Without an owner",
    )
    scope: Annotated[
        StrictStr | None, WithJsonSchema({"anyOf": [{"type": "string", "pattern": SCOPE_PATTERN}, base.NULL]})
    ] = Field(
        default=None,
        description="Of prune: a type and the beginning of names. Needed without an owner. Of the entities in it,"
        " those count that the caller may describe; those of users have their client-ids as well",
        examples=["topic:orders."],
    )
    max_deletes: Annotated[StrictInt, Field(ge=0)] | None = Field(
        default=None,
        description="The most entities that prune may delete configs of. By default a fifth of the entities of the"
        " owner, or of the scope, at least one; 0 for a document without entities",
    )
    force: Annotated[list[ForcedKey], Field(max_length=base.MAX_ENTRIES)] = Field(
        default=[], description="Keys of the document that the owner takes over from another one, which needs TAKE_OVER"
    )


class ApplyManifest(PlanManifest):
    """A manifest, the options of its plan, and the plan."""

    plan_id: Annotated[StrictStr, Field(pattern=formats.PLAN_ID)] = Field(
        description="As the plan of the same document and options has it"
    )
    revision: Annotated[StrictStr, Field(pattern=formats.REVISION)] | None = Field(
        default=None, description="As the plan has it: a stale plan is answered with the changes since"
    )


class PlanFallback(base.AnswerModel):
    """The value that takes effect once a key is removed."""

    value: str | float | None = Field(description="null: a secret, or no value")
    source: str = Field(description="The id of an entity, or Kafka's name of the source", examples=["user"])


class PlanDiff(base.Diff[str | float]):
    """A key before and after; null is absent, or a secret."""

    secret: bool | base.Absent = Field(default=None, description="true: its values are not shown")
    fingerprint: str | None = Field(default=None, description="Of a new secret, keyed; null: not known")
    fallback: PlanFallback | base.Absent = Field(default=None, description="Of a removed key")


class ClaimedKey(base.AnswerModel):
    """A key that gets the owner of the document."""

    key: str
    owner: str | None = Field(description="The owner before; null: it had none")


class PlannedChange(base.AlteredModel):
    """The plan for one facet of one entity."""

    id: base.EntityId
    facet: str = Field(examples=["configs"])
    action: Action
    pruned: bool = Field(description="The document does not name this facet of the entity")
    may_alter: bool = Field(description="The caller may carry it out")
    diff: list[PlanDiff]
    claimed: list[ClaimedKey] | base.Absent = Field(
        default=None, description="The keys that get the owner of the document; absent if there are none"
    )


class PlanSummary(base.AnswerModel):
    """Numbers of entities and facets by what the plan does to them."""

    create: base.Count
    update: base.Count
    delete: base.Count
    claim: base.Count = Field(description="Only an owner or a label is another one")
    none: base.Count
    refused: base.Count


PlanId = Annotated[str, Field(pattern=formats.PLAN_ID, examples=["7d2f9c0d1e3b4a6c7d8e9f00112233445566abcd"])]


class ManifestPlan(base.AnswerModel):
    """The plan of a manifest."""

    throttle_time_ms: base.Count
    failed: base.Count = Field(description="The number of entities that are refused")
    plan_id: PlanId = Field(description="A digest of the document, the options, and the versions the plan rests on")
    revision: base.Revision = Field(description="The plan rests on the state at this revision, or a later one")
    summary: PlanSummary
    affected_clients: base.Count = Field(
        description="The number of registered clients that would see other effective values, of those that the caller"
        " may describe"
    )
    refusal: base.ProblemPart | None = Field(description="The reason why the plan as a whole can't be applied")
    changes: list[PlannedChange] = Field(description="Without what stays as it is and has no warnings")


PlanProblem: Any = base.problem_with(
    ManifestPlan, "PlanProblem", "The problem of the first entity, when all are refused, with the plan."
)


class AppliedChange(base.WriteResult):
    """The result for one facet of an entity."""

    id: base.EntityId
    facet: str = Field(examples=["configs"])
    action: Action
    applied: base.AppliedData | base.Absent = base.WAITED


class NextEntity(base.AnswerModel):
    """The rest of a run that has ended before its last entity."""

    id: base.EntityId = Field(description="The first entity that was not sent")
    left: base.Count = Field(description="The number of entities that were not sent")


class AppliedManifest(base.AnswerModel):
    """The result of an apply."""

    throttle_time_ms: base.Count
    failed: base.Count = Field(description="The number of entities that failed; the first ends the run")
    plan_id: PlanId
    run_id: str = Field(
        description="The request id of all changes of the run; audit:revert takes it as requestId",
        pattern=formats.REQUEST_ID,
    )
    next: NextEntity | None = Field(description="null: all entities were sent. The same request continues the run")
    results: list[AppliedChange] = Field(description="Of the entities that this request sent")


class ChangedEntity(base.AnswerModel):
    """An entity that was written after a plan was made."""

    id: base.EntityId
    facet: str
    revision: base.Revision


class _ApplyProblemMembers(AppliedManifest, ManifestPlan):
    changed_since: list[ChangedEntity] = Field(
        description="Of a stale plan whose revision was sent: the entities that were written since"
    )


ApplyProblem: Any = base.problem_with(
    _ApplyProblemMembers,
    "ApplyProblem",
    "A plan that can't be applied, with the current plan; or the problem of the first entity, when all failed.",
)


class ExportedEntity(base.AnswerModel):
    """An entity with its keys in each facet that has some."""

    id: base.EntityId
    quotas: dict[str, float] | base.Absent = Field(default=None, description="Of a user, a client-id or an ip")
    client_configs: dict[str, str] | base.Absent = Field(
        default=None, description="Of a user, alone or with a client-id"
    )
    configs: dict[str, str | None] | base.Absent = Field(
        default=None, description="Of a topic, a broker, a group or a subscription to client metrics. null: a secret"
    )


class ExportedManifest(base.AnswerModel):
    """The configs of a cluster as a manifest; it names no cluster, so that it fits any."""

    api_version: Literal["confplane/v1"]
    kind: Literal["Configs"]
    owner: str | base.Absent = Field(default=None, description="Of an export of an owner")
    labels: dict[str, str] | base.Absent = Field(
        default=None, description="Of an export of an owner, if all entities have the same"
    )
    entities: list[ExportedEntity]
    skipped: list[str] | base.Absent = Field(
        default=None, description="Paths of znodes that can't be read. A manifest has no such member: plans refuse it"
    )
