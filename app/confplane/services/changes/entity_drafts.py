"""The draft of one edit: a facet's decision, given the node that was read, and its check by the rules of the cluster.

Each facet has its own :class:`Drafter`, the same for the real thing, ``validateOnly``, and the next attempt after a
conflict. The check finds the risks of a draft, and asks the policies with their approvals. A caller who breaks the
glass writes past both.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Protocol

from confplane.domain.access.operations import Operation
from confplane.domain.approvals import PAST_RULES, missing
from confplane.domain.changes import Difference, Node, difference, stored
from confplane.domain.entities import Entity, EntityType
from confplane.domain.errors import (
    AlreadyExistsError,
    CorruptZnodeError,
    InvalidRequestError,
    PolicyViolationError,
    UnavailableError,
    WriteOutcome,
)
from confplane.domain.facets import FacetName, full_path
from confplane.domain.fast_dataclass import fast_dataclass
from confplane.domain.policies import Policies, approval_error, approval_text
from confplane.domain.policy_rules import PolicyRequest
from confplane.domain.risks import RiskFacts, RiskKind, find_risks, kinds_of
from confplane.domain.texts import clipped
from confplane.services.changes.edits import WHOLE, Edit, Mode
from confplane.services.ports.applying import DryRunResult
from confplane.services.ports.history import Znode
from confplane.services.ports.trail import IntentEntity
from confplane.services.ports.transactions import EntityWrite
from confplane.services.znode_metadata import with_pending_keys

if TYPE_CHECKING:
    from collections.abc import Iterable

    from confplane.domain.approvals import Requirement
    from confplane.domain.broker_levels import ConfigLevels
    from confplane.domain.risks import Risk, RiskOptions
    from confplane.services.changes.callers import Caller
    from confplane.services.cluster_facet import ClusterFacet
    from confplane.services.ports.store import ClusterStore
    from confplane.services.reads.config_levels import BrokerLevels

_MOST_LISTED: Final = 20
"""Keys that a warning names."""


@fast_dataclass(frozen=True, slots=True)
class EntityDraft:
    """The decision on one edit, given the node that was read."""

    cluster_facet: ClusterFacet
    """The cluster facet as it was placed for the attempt."""
    path: str
    """The full path of the znode."""
    edit: Edit
    node: Node | None
    before: dict[str, str] = field(repr=False)
    """The whole map as read."""
    after: dict[str, str] = field(repr=False)
    diff: tuple[Difference, ...]
    """The changed keys without the values of secrets, and the keys whose files are loaded again."""
    warnings: tuple[str, ...]
    created: bool
    recorded_ops: tuple[dict[str, Any], ...] | None = None
    """The ops for the trail, without secrets, if they differ from the edit's own."""
    detail: Any = None
    """Further results of the decision, for the caller of ``AlterService.rewrite``."""
    topic_id: str | None = None
    """The id of the topic in a Kafka cluster without ZooKeeper that was asked about the draft; None: not known."""
    requirements: tuple[Requirement, ...] = ()
    """The approvals that rules ask for, whether they were given or not."""

    @classmethod
    def of(
        cls,
        cluster_facet: ClusterFacet,
        edit: Edit,
        node: Node | None,
        after: dict[str, str],
        warnings: list[str],
        *,
        reloaded: Iterable[str] = (),
    ) -> EntityDraft:
        """Build the draft that changes a node's map to ``after``; the files of ``reloaded`` keys are loaded again."""
        entity, before = edit.entity, stored(node)
        diff = difference(before, after)
        diff += [Difference(key, before[key], after[key]) for key in sorted(reloaded)]
        diff += [Difference(key, None, None, secret=True) for key in sorted(edit.reported - before.keys())]
        if cluster_facet.facet.has_secrets:
            is_secret = cluster_facet.facet.is_secret
            diff = [
                replace(item, before=None, after=None, secret=True) if is_secret(entity, item.key) else item
                for item in diff
            ]
        owns = cluster_facet.facet.owns
        removed = [key for key in before if key not in after]
        if removed and edit.mode is Mode.REPLACE and edit.ops and not edit.is_conditional:
            warnings = [*warnings, _removal(removed)]
        managed = cluster_facet.managed_keys(entity)
        created = any(owns(entity, key) for key in after.keys() - managed) and not any(
            owns(entity, key) for key in before.keys() - managed
        )
        path = full_path(cluster_facet.tree, entity)
        return cls(cluster_facet, path, edit, node, before, after, tuple(diff), tuple(warnings), created)

    @property
    def has_effect(self) -> bool:
        """True if the draft is to be written: it changes a key, or the owner of one."""
        return bool(self.diff) or self.edit.claims

    @property
    def expected(self) -> int | None:
        """The version that was read; None for an absent node."""
        return None if self.node is None else self.node.version

    def write(self) -> EntityWrite:
        """Return the config node to write."""
        cluster_facet = self.cluster_facet
        extra = None if self.node is None else self.node.extra
        czxid = None if self.node is None else self.node.czxid
        applied = cluster_facet.name is not FacetName.CLIENT_CONFIGS and cluster_facet.store.target() is not None
        if applied:
            extra = with_pending_keys(extra, (item.key for item in self.diff), self.topic_id)
        tree, entity = cluster_facet.tree, self.edit.entity
        return EntityWrite(self.path, tree, entity, self.expected, self.after, extra, czxid, applied)

    def intent(self) -> IntentEntity:
        """Return the row of the trail, without secrets."""
        cluster_facet, entity = self.cluster_facet, self.edit.entity
        return IntentEntity(
            entity_id=entity.id,
            facet=cluster_facet.name.value,
            path=self.path,
            version_read=self.expected,
            czxid_read=None if self.node is None else self.node.czxid,
            keys=tuple(item.key for item in self.diff),
            ops=_recorded_ops(cluster_facet, self.edit) if self.recorded_ops is None else self.recorded_ops,
            before=cluster_facet.redact(cluster_facet.tree, entity.id, self.before),
            after=cluster_facet.redact(cluster_facet.tree, entity.id, self.after),
            claim=None if self.edit.claim is None else self.edit.claim.as_json(),
        )

    def answer(self) -> dict[str, Any]:
        """Return the edit's answer as plain data without secrets."""
        cluster_facet = self.cluster_facet
        return {
            "facet": cluster_facet.name.value,
            "entity": self.edit.entity.id,
            "changed": self.has_effect,
            "created": self.created,
            "warnings": self.warnings,
            "diff": self.diff,
            "after": cluster_facet.redact(cluster_facet.tree, self.edit.entity.id, self.after),
            "czxid": None if self.node is None else self.node.czxid,
            "revision": None if self.node is None else self.node.mzxid,
        }


Planned = Mapping[str, Mapping[str, str]]
"""Entity id -> resulting map, of the entities that the same request changes before."""
DecideEntity = Callable[["ClusterFacet", Node | None, Planned], Awaitable[EntityDraft]]
"""Drafts an edit of a node. Waits for nothing but worker threads.

Its arguments are the facet as placed for the attempt, the entity's node as read (None: absent), and the resulting maps
of the edits before this one in the request, by entity id; at least of the entities that its check reads. It raises

- CorruptZnodeError: the node can't be read, can't be written back without loss, or would keep a broken value;
- PreconditionFailedError: the precondition does not hold;
- AlreadyExistsError: a create met other content;
- any ConfplaneError: the resulting map is not valid.
"""


class Drafter(Protocol):
    """A facet's way from edits to drafts."""

    def decide(self, cluster_facet: ClusterFacet, edit: Edit) -> DecideEntity:
        """Check the entity and the values of an edit, and return the decision of its attempts.

        Raises:
            ConfplaneError: The edit is refused; the error has a JSON pointer.
        """


def check_node(cluster_facet: ClusterFacet, edit: Edit, node: Node | None) -> None:
    """Refuse a node that can't be changed, or that does not meet the edit's precondition.

    Raises:
        CorruptZnodeError: The node can't be read, or can't be written back without loss.
        PreconditionFailedError: The precondition does not hold.
        ConfplaneError: The node has another content than the edit rests on.
    """
    if node is not None and node.defect is not None:
        path = full_path(cluster_facet.tree, edit.entity)
        raise CorruptZnodeError(path, node.defect, pointer=edit.pointer, outcome=WriteOutcome.NOT_APPLIED)
    if edit.precondition.demands:
        edit.precondition.check(_etag(cluster_facet, edit.entity, node))
    if edit.expected is not None:
        edit.expected.check(cluster_facet, edit.entity, node)


def _removal(keys: list[str]) -> str:
    """Return the warning about keys that a replacement removes although its client may not have read them."""
    more = len(keys) - _MOST_LISTED
    listed = f"{', '.join(map(clipped, keys[:_MOST_LISTED]))}{f' and {more} more' if more > 0 else ''}"
    return f"Removed, because the request does not name them: {listed}. If-Match protects keys added in the meantime"


def already_exists(cluster_facet: ClusterFacet, entity: Entity) -> AlreadyExistsError:
    """Return the error of a create that met other content."""
    return AlreadyExistsError(
        f"{entity.id} already has {cluster_facet.name} of other content; use PUT to replace them",
        outcome=WriteOutcome.NOT_APPLIED,
    )


def _etag(cluster_facet: ClusterFacet, entity: Entity, node: Node | None) -> str | None:
    try:
        return cluster_facet.tagged(entity, stored(node), node)[1]
    except ValueError:
        # Content that can't be shown has no ETag that anybody could hold; an unconditional write may still mend it.
        return '"undecodable"'


def _recorded_ops(cluster_facet: ClusterFacet, edit: Edit) -> tuple[dict[str, Any], ...]:
    if not edit.ops and edit.mode in WHOLE:
        return ({"removeAll": True},)
    if not cluster_facet.facet.has_secrets:
        return tuple(op.as_json() for op in edit.ops)
    return tuple(
        {**op.as_json(), "value": None, "secret": True}
        if cluster_facet.facet.is_secret(edit.entity, op.key)
        else op.as_json()
        for op in edit.ops
    )


# ---------------------------------------------------------------- the check of a draft


DryRunEdit = Callable[[Entity, Mapping[str, str], Sequence[str], str | None], Awaitable[DryRunResult]]
"""Validates new values of some keys of an entity with a dry run on a Kafka cluster without ZooKeeper, given the stored
map as it would be, the keys, and the JSON pointer to the entity. Raises the cluster's refusal."""


@dataclass(frozen=True, slots=True)
class AlterRules:
    """The rules of edits of one cluster facet."""

    drafter: Drafter
    risks: RiskAssessor | None = None
    """Finds the risks of a draft, which are its warnings and part of the question to the policies; None: there are
    none, because no value changes."""
    policies: Policies = field(default_factory=Policies)
    """The policies that are asked about a draft."""
    dry_run: DryRunEdit | None = None
    """The dry run of a draft on the Kafka cluster, after the policies; None: there is no dry run."""


def taken_over(cluster_facet: ClusterFacet, edit: Edit, owners: Mapping[Znode, Mapping[str, str]]) -> frozenset[str]:
    """Return the keys that an edit takes over from another owner."""
    claim = edit.claim
    if claim is None:
        return frozenset()
    of_keys = owners.get(Znode(cluster_facet.tree, edit.entity.id), {})
    return frozenset(key for key in claim.keys if of_keys.get(key, claim.owner) != claim.owner)


class RuleCheck:
    """Checks the drafts of a request.

    Args:
        caller: The caller. If nothing will be written, missing approvals are a warning.
        altered: As of :class:`~confplane.domain.policy_rules.PolicyRequest`.
        owners: The owners of keys, by znode.
    """

    def __init__(
        self, caller: Caller, altered: frozenset[tuple[str, Entity]], owners: Mapping[Znode, Mapping[str, str]]
    ) -> None:
        self.caller = caller
        self._altered = altered
        self._owners = owners

    async def admit(
        self, rules: AlterRules, draft: EntityDraft, planned: Mapping[str, Mapping[str, str]]
    ) -> EntityDraft:
        """Return a draft with its risks and the approvals that it needs, unless it is refused.

        Args:
            rules: The rules of the draft's facet.
            draft: The draft. One that neither changes values nor takes keys over from their owners is not checked.
            planned: The results of the edits before it, by entity id.

        Raises:
            InvalidRequestError: The change is temporary, and alters a secret.
            PolicyViolationError: A policy refused the draft, or approvals are missing; the caller did not break the
                glass.
            ForbiddenError: The caller may not bypass the rules.
            UnavailableError: The change request of a bypass can't be opened.
        """
        if not draft.diff and not self._taken_over(draft):
            return draft
        self._check_temporary(draft)
        risks = await self._risks(rules, draft, planned)
        if risks:
            draft = replace(draft, warnings=(*draft.warnings, *(risk.text for risk in risks)))
        if not rules.policies:
            return draft
        caller, request = self.caller, self._policy_request(draft, risks)
        try:
            rules.policies.check(request)
        except PolicyViolationError as error:
            draft = await self._bypassed(draft, error, error.detail)
        requirements = () if caller.is_exempt else rules.policies.requirements(request)
        if not requirements:
            return draft
        draft = replace(draft, requirements=requirements)
        entity, pointer = draft.edit.entity, draft.edit.pointer
        lacking = missing(entity.id, requirements, caller.approvals or ())
        if not lacking:
            return draft
        text = approval_text(entity, lacking)
        if caller.validate_only and caller.break_glass is None:
            return replace(draft, warnings=(*draft.warnings, text))
        return await self._bypassed(draft, approval_error(request.cluster, entity, lacking, pointer=pointer), text)

    def _check_temporary(self, draft: EntityDraft) -> None:
        """Refuse a temporary change of a secret: its value before is not kept, so it could not come back.

        Raises:
            InvalidRequestError: The change is temporary and alters a secret.
        """
        if self.caller.revert_at is None:
            return
        pointers = {op.key: op.pointer for op in draft.edit.ops}
        for item in draft.diff:
            if item.secret:
                raise InvalidRequestError(
                    f"{clipped(item.key)} of {draft.edit.entity.id} is sensitive, and its value is not kept, so it"
                    " can't be changed temporarily. Send the change without expiresIn and revertAt",
                    pointer=pointers.get(item.key),
                )

    async def _risks(
        self, rules: AlterRules, draft: EntityDraft, planned: Mapping[str, Mapping[str, str]]
    ) -> tuple[Risk, ...]:
        entity, keys = draft.edit.entity, frozenset([difference.key for difference in draft.diff])
        if rules.risks is None or draft.cluster_facet.name is FacetName.CLIENT_CONFIGS or not kinds_of(entity, keys):
            return ()
        whole = draft.cluster_facet.whole

        def stored_map(entity_id: str) -> Mapping[str, str]:
            return planned[entity_id] if entity_id in planned else stored(whole.get(entity_id))

        facts = RiskFacts(entity, keys, draft.before, draft.after, stored_map)
        return await rules.risks.assess(facts, planned, rules.policies.risk_options, self.caller.deadline)

    async def _bypassed(self, draft: EntityDraft, error: PolicyViolationError, text: str) -> EntityDraft:
        """Return a draft that the rules refuse, if the caller breaks the glass.

        Raises:
            PolicyViolationError: It does not.
        """
        caller, edit = self.caller, draft.edit
        if caller.break_glass is None:
            raise error
        if caller.run is not None or not caller.access.unlimited:
            cluster = draft.cluster_facet.store.name
            caller.require(cluster, Operation.BYPASS_RULES, edit.entity.id, pointer=edit.pointer)
        if caller.bypass is not None:
            with caller.preparing():
                await caller.bypass.open()
        return replace(draft, warnings=(*draft.warnings, PAST_RULES + text))

    def _taken_over(self, draft: EntityDraft) -> frozenset[str]:
        return taken_over(draft.cluster_facet, draft.edit, self._owners)

    def _policy_request(self, draft: EntityDraft, risks: tuple[Risk, ...]) -> PolicyRequest:
        cluster_facet, entity, after = draft.cluster_facet, draft.edit.entity, draft.after
        redact, tree = cluster_facet.redact, cluster_facet.tree
        shown = redact(tree, entity.id, after)
        changed = {difference.key for difference in draft.diff}
        owns = cluster_facet.facet.owns
        owners = self._owners.get(Znode(tree, entity.id), {})
        return PolicyRequest(
            cluster=cluster_facet.store.name,
            principal=self.caller.principal,
            facet=cluster_facet.name.value,
            entity=entity,
            set={key: shown[key] for key in changed & after.keys()},
            removed=frozenset(changed - after.keys()),
            before={key: value for key, value in redact(tree, entity.id, draft.before).items() if owns(entity, key)},
            after={key: value for key, value in shown.items() if owns(entity, key)},
            validate_only=self.caller.validate_only,
            pointers={op.key: op.pointer for op in draft.edit.ops if op.pointer is not None},
            behalf_of=self.caller.behalf_of,
            risks=risks,
            altered=self._altered,
            owners={key: owner for key, owner in owners.items() if owns(entity, key)},
            taken_over=self._taken_over(draft),
        )


class RiskAssessor:
    """Finds the risks of changes of one cluster, once per entity and attempt, before the policies are asked.

    Args:
        store: The cluster.
        levels: The levels of its brokers.
    """

    def __init__(self, store: ClusterStore, levels: BrokerLevels) -> None:
        self._store = store
        self._levels = levels

    async def assess(
        self, facts: RiskFacts, planned: Mapping[str, Mapping[str, str]], options: RiskOptions, deadline: float
    ) -> tuple[Risk, ...]:
        """Return the risks of a change.

        Args:
            facts: The change, without the levels of brokers and the replication factor.
            planned: The configs that earlier edits of the same request leave, by entity id.
            options: The options of the cluster.
            deadline: Until when the replication factor is read. It is not known if ZooKeeper does not answer.
        """
        entity, kinds = facts.entity, kinds_of(facts.entity, facts.keys)
        if RiskKind.SMALLER_RETENTION in kinds or RiskKind.MIN_INSYNC_REPLICAS in kinds:
            before = self._levels_of(entity, {**planned, entity.id: facts.before})
            facts = replace(facts, levels=(before, self._levels_of(entity, {**planned, entity.id: facts.after})))
        if RiskKind.MIN_INSYNC_REPLICAS in kinds:
            with suppress(UnavailableError):
                factor = await self._store.replication_factor(entity.get(EntityType.TOPIC) or "", deadline)
                facts = replace(facts, replication_factor=factor)
        if RiskKind.DEFAULT_QUOTA in kinds:
            principals = options.internal_principals | self._levels.super_users
            options = replace(options, internal_principals=principals)
        return find_risks(facts, options)

    def _levels_of(self, entity: Entity, planned: Mapping[str, Mapping[str, str]]) -> ConfigLevels:
        broker = entity.get(EntityType.BROKER)
        if broker is not None:
            return self._levels.of(int(broker), planned)
        if entity.types == (EntityType.BROKER,):
            return self._levels.of_unknown(planned)
        return self._levels.of_any(planned)
