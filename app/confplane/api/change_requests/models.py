"""The forms of change requests."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, StrictBool, StrictStr, WithJsonSchema

from confplane.api import formats
from confplane.api import models as base
from confplane.api.manifests.models import ClaimedKey, PlanManifest
from confplane.api.models import AnswerModel, ChangeId, EntityId, Page, RequestModel, Scalar, Time
from confplane.domain import id_patterns
from confplane.domain.change_requests import RequestKind, RequestState
from confplane.domain.facets import FacetNameText
from confplane.domain.manifests import MOST_BYTES
from confplane.services.requests.manifests import MOST_CHANGES, MOST_ENTITIES
from confplane.services.requests.reader import LONGEST_COMMENT

MOST_EDITS = 1_000
_EntityId = Annotated[StrictStr, WithJsonSchema({"type": "string", "pattern": id_patterns.ANY_ID})]
_Time = Annotated[StrictStr | None, base.text_like(formats.TIME)]
_Comment = Annotated[
    StrictStr | None, Field(max_length=LONGEST_COMMENT, description="A comment", examples=["agreed with the team"])
]
_Id = Annotated[
    str,
    Field(pattern=formats.UUID, description="UUIDv7 of the request", examples=["019a9c5e-7b2c-7d11-8a52-5d0c6f7e9b10"]),
]
_Digest = Annotated[str, Field(pattern=formats.PLAN_ID, examples=["7d2f9c0d1e3b4a6c7d8e9f00112233445566abcd"])]


class ProposedOp(RequestModel):
    """The change of one key."""

    key: Annotated[StrictStr, Field(max_length=base.MAX_KEY, examples=["producer_byte_rate"])]
    op: Literal["SET", "DELETE", "APPEND", "SUBTRACT"] = Field(
        default="SET", description="APPEND and SUBTRACT are for lists of configs"
    )
    value: Scalar = Field(default=None, description="Not looked at by DELETE", examples=[1048576])


class ProposedEdit(RequestModel):
    """The change of one entity in one facet."""

    facet: FacetNameText
    id: _EntityId = Field(description="The entity id", examples=["user=alice"])
    mode: Literal["alter", "replace", "create"] = Field(
        default="alter",
        description="`alter` keeps other keys of the facet, as an alter does; `replace` removes them, as a PUT does, or"
        " without ops a DELETE; `create` refuses them, as a POST does",
    )
    ops: Annotated[list[ProposedOp], Field(max_length=base.MAX_KEYS)] = Field(default=[])


class RequestManifest(PlanManifest):
    """A manifest, the options of its plan, and the plan that was seen."""

    plan_id: Annotated[StrictStr, Field(pattern=formats.PLAN_ID)] | None = Field(
        default=None, description="The plan of the same document and options; another one is refused"
    )


class ChangeRequestEdits(RequestModel):
    """The content of a request: edits, the revert of a change, or a manifest."""

    most_bytes: ClassVar[int | None] = MOST_BYTES

    edits: Annotated[list[ProposedEdit], Field(max_length=MOST_EDITS)] = Field(
        default=[], description="The edits, each facet of an entity once: one change"
    )
    revert: Annotated[StrictStr | None, base.text_like(formats.CHANGE_ID)] = Field(
        default=None, description="Instead of edits: the id of a change, whose keys get their earlier values"
    )
    manifest: RequestManifest | None = Field(
        default=None,
        description=f"Instead of edits: a manifest. It has {MOST_ENTITIES:,} entities, and its plan {MOST_CHANGES:,}"
        " changes at most",
    )


class NewChangeRequest(ChangeRequestEdits):
    """A proposed change. `reason` and `ticket` are parameters, as of every write."""

    draft: StrictBool = Field(
        default=False, description="Make a draft, which nobody is asked to approve. `:revise` proposes it"
    )

    expires_at: _Time = Field(default=None, description="From a minute to 90 days in the future; a week by default")
    apply_at: _Time = Field(
        default=None,
        description="The time from which an approved request is applied by itself, until it expires. Not with sensitive"
        " values",
    )


class RevisedChangeRequest(ChangeRequestEdits):
    """A new content of a request. Without one, the same content is decided again."""

    draft: StrictBool = Field(default=False, description="Leave a draft a draft; without it, a draft is proposed")

    expires_at: _Time = Field(
        default=None, description="From a minute to 90 days in the future; null: a week. As before if it is absent"
    )
    apply_at: _Time = Field(
        default=None,
        description="The time from which the request is applied by itself; null: none. As before if it is absent",
    )


class RequestApproval(RequestModel):
    """An approval."""

    digest: Annotated[StrictStr, WithJsonSchema({"type": "string", "pattern": formats.PLAN_ID})] = Field(
        description="The digest of the content that was seen", examples=["7d2f9c0d1e3b4a6c7d8e9f00112233445566abcd"]
    )
    comment: _Comment = None


class RequestComment(RequestModel):
    """The reason of a rejection or of a cancellation."""

    comment: _Comment = None


class NewRequestComment(RequestModel):
    """A comment."""

    comment: Annotated[StrictStr, Field(max_length=LONGEST_COMMENT, examples=["agreed with the team"])]


class SuppliedValue(RequestModel):
    """A sensitive value, which the request does not store."""

    id: _EntityId = Field(description="The entity id", examples=["broker=1"])
    key: Annotated[StrictStr, Field(max_length=base.MAX_KEY, examples=["ssl.key.password"])]
    value: Annotated[StrictStr, Field(examples=["the password"])]


class RequestApplicationValues(RequestModel):
    """The sensitive values of a request."""

    values: Annotated[list[SuppliedValue], Field(max_length=base.MAX_KEYS)] = Field(default=[])


class RequestRevert(RequestModel):
    """The revert of an applied request. `reason` and `ticket` are parameters, as of every write."""

    partly: StrictBool = Field(
        default=False,
        description="Leave out entities whose keys were changed since, or whose earlier values are not kept",
    )
    expires_at: _Time = Field(default=None, description="From a minute to 90 days in the future; a week by default")
    apply_at: _Time = Field(default=None, description="The time from which the new request is applied by itself")


class RequestPerson(AnswerModel):
    """An author or approver."""

    principal: str
    behalf_of: str | None = Field(description="The user for whom the principal acted")


class RequestApprovalData(RequestPerson):
    """An approval of the present content."""

    at: Time


class DifferentKey(AnswerModel):
    """A key that was changed since the request was decided, as stored texts."""

    key: str
    decided: str | None
    now: str | None


class DifferentEntity(AnswerModel):
    """An entity that was changed since the request was decided."""

    entity: EntityId
    facet: FacetNameText
    revision: base.Revision | None = Field(description="null: it has no configs any more")
    keys: list[DifferentKey] = Field(description="Keys of the request that have another value; no sensitive ones")


class ChangeRequestSummary(AnswerModel):
    """A change request without its content."""

    id: _Id
    kind: Annotated[str, base.one_of(*RequestKind)] = Field(
        description="break-glass: a change past the rules, which another person has to approve afterwards"
    )
    state: Annotated[str, base.one_of(*RequestState)]
    revision: Annotated[int, Field(ge=1, description="The number of contents that it had")]
    digest: _Digest
    author: RequestPerson = Field(description="The author of the present content")
    reason: str | None
    ticket: str | None
    entities: list[EntityId]
    created_at: Time
    expires_at: Time | None
    apply_at: Time | None
    approvals: list[RequestApprovalData]
    requirements: list[str] = Field(description="The approvals that rules ask for and that are missing")
    change_id: ChangeId | None = Field(description="The change that applied it")
    reverts: Annotated[str, Field(pattern=formats.UUID)] | None = Field(
        description="The request whose change this one reverts"
    )
    reverted_by: Annotated[str, Field(pattern=formats.UUID)] | None = Field(
        description="The request that reverts the change of this one"
    )
    error: str | None = Field(description="Why it was not applied, or is open again")


class RuleApprovalsData(AnswerModel):
    """The approvals that a rule asks for, and those that were given."""

    rule: str = Field(description="The name of the rule")
    count: Annotated[int, Field(ge=1, description="The number of people who must approve")]
    approvers: list[str] = Field(
        description="Patterns of the principals that may approve, and of their groups", examples=[["Group:leads"]]
    )
    entities: list[EntityId] = Field(description="The entities for which the same approvals count")
    given: list[RequestApprovalData]
    missing: Annotated[int, Field(ge=0, description="The number of approvals that are missing")]


class ProposedDiff(AnswerModel):
    """The change of one key; the values of secrets are null."""

    key: str
    before: Scalar
    after: Scalar
    secret: Literal[True] | base.Absent = Field(default=None, description="The key is sensitive")


class ProposedChange(AnswerModel):
    """The change of one entity in one facet."""

    facet: FacetNameText
    id: EntityId
    mode: Literal["alter", "replace", "create"]
    diff: list[ProposedDiff]
    claimed: list[ClaimedKey] | base.Absent = Field(
        default=None, description="The keys that get the owner of the manifest; absent if there are none"
    )


class ForcedKeyData(AnswerModel):
    """A key that the owner of a manifest takes over from another one."""

    id: EntityId
    key: str


class PlannedManifest(AnswerModel):
    """The plan of a manifest, with its options."""

    plan_id: Annotated[str, Field(pattern=formats.PLAN_ID)]
    run_id: str = Field(description="The request id of all changes of the run that applies it")
    atomic: bool
    prune: bool
    merge: bool
    scope: str | None
    max_deletes: int | None
    owner: str | None
    labels: dict[str, str]
    force: list[ForcedKeyData] = Field(description="Keys that the owner takes over from another one")


class ValueToSupply(AnswerModel):
    """A sensitive value that has to be supplied to apply the request."""

    id: EntityId
    key: str


class RequestEventData(AnswerModel):
    """One event of a request, or a comment."""

    action: str = Field(examples=["approve"])
    at: Time
    principal: str | None = Field(description="null: nobody asked for it")
    behalf_of: str | None
    text: str | None
    revision: int
    state: Annotated[str, base.one_of(*RequestState)] = Field(description="The state after it")


class ChangeRequestData(ChangeRequestSummary):
    """A change request."""

    authors: list[RequestPerson] = Field(description="The authors of all contents, none of whom can approve it")
    warnings: list[str]
    approval_rules: list[RuleApprovalsData] = Field(
        description="The rules that ask for approvals. Besides, each entity needs an approver who may alter it"
    )
    changes: list[ProposedChange]
    manifest: PlannedManifest | None = Field(description="null: the request is of edits")
    to_supply: list[ValueToSupply]
    differences: list[DifferentEntity] = Field(description="What was changed since it was decided, as found last")
    events: list[RequestEventData] = Field(description="The last 200 events and comments, the oldest first")


class ChangeRequestPage(Page[ChangeRequestSummary]):
    """Change requests, the newest first."""
