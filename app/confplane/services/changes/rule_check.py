"""The check of a draft by the policies of its cluster: rules, approvals, and writes past both."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from confplane.domain.access.operations import Operation
from confplane.domain.approvals import missing
from confplane.domain.errors import PolicyViolationError
from confplane.services.policies import PolicyRequest, approval_error, approval_text

if TYPE_CHECKING:
    from confplane.domain.entities import Entity
    from confplane.domain.risks import Risk
    from confplane.services.changes.callers import Caller
    from confplane.services.changes.edits import EntityDraft
    from confplane.services.policies import Policies


class RuleCheck:
    """Checks the drafts of a caller.

    Args:
        caller: The caller.
        validate_only: Nothing will be written: missing approvals are a warning.
        altered: As of :class:`~confplane.domain.policy_rules.PolicyRequest`.
    """

    def __init__(self, caller: Caller, *, validate_only: bool, altered: frozenset[tuple[str, Entity]]) -> None:
        self._caller = caller
        self._validate_only = validate_only
        self._altered = altered

    async def check(self, policies: Policies, draft: EntityDraft, risks: tuple[Risk, ...]) -> EntityDraft:
        """Return a draft with the approvals that it needs, if the policies allow it or the caller breaks the glass.

        Raises:
            PolicyViolationError: A policy refused the draft, or approvals are missing.
            ForbiddenError: The caller may not bypass the rules.
            UnavailableError: The change request of a bypass can't be opened.
        """
        caller, request = self._caller, self._policy_request(draft, risks)
        try:
            policies.check(request)
        except PolicyViolationError as error:
            draft = await self._bypassed(draft, error, error.detail)
        requirements = () if caller.is_exempt else policies.requirements(request)
        if not requirements:
            return draft
        draft = replace(draft, requirements=requirements)
        lacking = missing(draft.edit.entity.id, requirements, caller.approvals or ())
        if not lacking:
            return draft
        entity, text = draft.edit.entity, approval_text(draft.edit.entity, lacking)
        if self._validate_only and caller.break_glass is None:
            return replace(draft, warnings=(*draft.warnings, text))
        return await self._bypassed(
            draft, approval_error(request.cluster, entity, lacking, pointer=draft.edit.pointer), text
        )

    async def _bypassed(self, draft: EntityDraft, error: PolicyViolationError, text: str) -> EntityDraft:
        """Return a draft that the rules refuse, if the caller breaks the glass.

        Raises:
            PolicyViolationError: It does not.
        """
        caller, edit = self._caller, draft.edit
        if caller.break_glass is None:
            raise error
        if caller.run is not None or not caller.access.unlimited:
            cluster = draft.cluster_facet.store.name
            caller.require(cluster, Operation.BYPASS_RULES, edit.entity.id, pointer=edit.pointer)
        if caller.bypass is not None:
            with caller.preparing():
                await caller.bypass.open()
        return replace(draft, warnings=(*draft.warnings, f"Past the rules: {text}"))

    def _policy_request(self, draft: EntityDraft, risks: tuple[Risk, ...]) -> PolicyRequest:
        cluster_facet, entity, after = draft.cluster_facet, draft.edit.entity, draft.after
        before = {} if draft.node is None else draft.node.config
        redact, tree = cluster_facet.redact, cluster_facet.tree
        shown = redact(tree, entity.id, after)
        changed = {difference.key for difference in draft.diff}
        owns = cluster_facet.facet.owns
        return PolicyRequest(
            cluster=cluster_facet.store.name,
            principal=self._caller.principal,
            facet=cluster_facet.name.value,
            entity=entity,
            set={key: shown[key] for key in changed & after.keys()},
            removed=frozenset(changed - after.keys()),
            before={key: value for key, value in redact(tree, entity.id, before).items() if owns(entity, key)},
            after={key: value for key, value in shown.items() if owns(entity, key)},
            validate_only=self._validate_only,
            pointers={op.key: op.pointer for op in draft.edit.ops if op.pointer is not None},
            behalf_of=self._caller.behalf_of,
            risks=risks,
            altered=self._altered,
        )
