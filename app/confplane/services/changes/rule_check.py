"""The check of a draft: its risks, the policies of its cluster with their approvals, and writes past both.

The facts that rules depend on besides the draft are read once for all drafts of a request.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from confplane.domain.access.operations import Operation
from confplane.domain.approvals import missing
from confplane.domain.changes import stored
from confplane.domain.entities import Entity, EntityType
from confplane.domain.errors import ConfplaneError, InvalidRequestError, PolicyViolationError, UnavailableError
from confplane.domain.facets import FacetName
from confplane.domain.policies import Policies, approval_error, approval_text
from confplane.domain.policy_rules import PolicyRequest
from confplane.domain.risks import RiskFacts, RiskKind, find_risks, kinds_of
from confplane.domain.texts import clipped
from confplane.services.cooperative_yielding import TimeSlice
from confplane.services.ports.applying import DryRunResult
from confplane.services.ports.history import Znode
from confplane.services.reads.config_levels import NOTHING_PLANNED

if TYPE_CHECKING:
    from confplane.domain.broker_levels import ConfigLevels
    from confplane.domain.facets import Rank
    from confplane.domain.risks import Risk, RiskOptions
    from confplane.services.changes.callers import Caller
    from confplane.services.changes.edits import DecideEntity, Drafter, Edit, EntityDraft
    from confplane.services.cluster_facet import ClusterFacet
    from confplane.services.ports.ownerships import Ownerships
    from confplane.services.ports.store import ClusterStore
    from confplane.services.ports.trail import AuditLog
    from confplane.services.reads.config_levels import BrokerLevels


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


class PreparedEdit(NamedTuple):
    """One edit of a change, ready to be decided."""

    cluster_facet: ClusterFacet
    edit: Edit
    decide: DecideEntity
    rules: AlterRules

    @property
    def rank(self) -> Rank | None:
        """The entity's rank in its facet; None if no check reads the result of this edit."""
        return self.cluster_facet.facet.rank(self.edit.entity)

    def is_measured(self, caller: Caller) -> bool:
        """Return True if a rule about the edit depends on the size of the request."""
        name, entity = self.cluster_facet.name.value, self.edit.entity
        return not caller.is_exempt and self.rules.policies.measures(name, entity, caller.principal, caller.behalf_of)

    def needs_owners(self, caller: Caller) -> bool:
        """Return True if a rule about the edit depends on the owners of keys."""
        name, entity = self.cluster_facet.name.value, self.edit.entity
        return self.rules.policies.asks_for_owners(name, entity, caller.principal, caller.behalf_of)


class RuleFactsReader:
    """Reads the facts of requests. One instance serves all clusters of a process.

    Args:
        audit: Has the changes of the last hour.
        ownerships: The owners as the trail explains them.
    """

    def __init__(self, audit: AuditLog, ownerships: Ownerships) -> None:
        self._audit = audit
        self._ownerships = ownerships

    async def read(self, items: Sequence[PreparedEdit], caller: Caller) -> RuleCheck:
        """Return the check of some edits of a cluster, with the facts that the rules about them depend on.

        Raises:
            UnavailableError: Postgres is unavailable.
        """
        owners = await self._owners([item for item in items if item.needs_owners(caller)], caller)
        measured = any(item.is_measured(caller) for item in items)
        return RuleCheck(caller, await self._altered(items, owners, caller) if measured else frozenset(), owners)

    async def _altered(
        self, items: Sequence[PreparedEdit], owners: Mapping[Znode, Mapping[str, str]], caller: Caller
    ) -> frozenset[tuple[str, Entity]]:
        """Return the facets and entities that edits alter, and those that their author altered in the last hour."""
        time_slice = TimeSlice()
        found = set(caller.altered)
        for item in items:
            if time_slice.due:
                await time_slice.pause()
            if _taken_over(item.cluster_facet, item.edit, owners) or await _alters(item):
                found.add((item.cluster_facet.name.value, item.edit.entity))
        with caller.preparing():
            recent = await self._audit.altered(items[0].cluster_facet.store.name, caller.author)
        return frozenset(found | {(facet, Entity.from_id(entity_id)) for facet, entity_id in recent})

    async def _owners(self, items: Sequence[PreparedEdit], caller: Caller) -> Mapping[Znode, Mapping[str, str]]:
        if not items:
            return {}
        # Facets may share a znode.
        znodes = {Znode(item.cluster_facet.tree, item.edit.entity.id) for item in items}
        with caller.preparing():
            states = await self._ownerships.known(items[0].cluster_facet.store.name, list(znodes))
        return {znode: state.ownership.owners for znode, state in states.items()}


def _taken_over(cluster_facet: ClusterFacet, edit: Edit, owners: Mapping[Znode, Mapping[str, str]]) -> frozenset[str]:
    """Return the keys that an edit takes over from another owner."""
    claim = edit.claim
    if claim is None:
        return frozenset()
    of_keys = owners.get(Znode(cluster_facet.tree, edit.entity.id), {})
    return frozenset(key for key in claim.keys if of_keys.get(key, claim.owner) != claim.owner)


async def _alters(item: PreparedEdit) -> bool:
    """Return False if an edit leaves the entity as the mirror has it. An edit that can't be decided counts."""
    try:
        placed = item.cluster_facet.placed()
        draft = await item.decide(placed, placed.get(item.edit.entity.id), NOTHING_PLANNED)
    except ConfplaneError:
        return True
    return bool(draft.diff)


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

        facts = RiskFacts(entity, keys, stored(draft.node), draft.after, stored_map)
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
        return replace(draft, warnings=(*draft.warnings, f"Past the rules: {text}"))

    def _taken_over(self, draft: EntityDraft) -> frozenset[str]:
        return _taken_over(draft.cluster_facet, draft.edit, self._owners)

    def _policy_request(self, draft: EntityDraft, risks: tuple[Risk, ...]) -> PolicyRequest:
        cluster_facet, entity, after = draft.cluster_facet, draft.edit.entity, draft.after
        before = {} if draft.node is None else draft.node.config
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
            before={key: value for key, value in redact(tree, entity.id, before).items() if owns(entity, key)},
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
