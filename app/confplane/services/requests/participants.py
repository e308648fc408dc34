"""The people of change requests: the names behind a credential, and what a credential of the past allows now."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from confplane.domain.access.operations import Operation
from confplane.domain.approvals import Approval, missing
from confplane.domain.errors import UnauthenticatedError
from confplane.services.ports.change_requests import GivenApproval, Participant
from confplane.services.requests.manifests import resources_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from confplane.domain.access.identities import Identity
    from confplane.domain.approvals import Requirement
    from confplane.services.access import AccessControl, Rights
    from confplane.services.ports.access import AccessStore
    from confplane.services.ports.change_requests import ChangeRequest


class Participants:
    """Finds the people behind credentials. One instance serves all clusters of a process.

    Args:
        control: The rights of credentials.
        tokens: The tokens.
        refresh: Reads tokens and grants into memory, for ``control``; refuses those of a restored Postgres until they
            are confirmed.
        now: The clock.
    """

    def __init__(
        self,
        control: AccessControl,
        tokens: AccessStore,
        refresh: Callable[[], Awaitable[None]],
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._control = control
        self._tokens = tokens
        self._refresh = refresh
        self._now = now

    async def of(self, identity: Identity) -> Participant:
        """Return a caller with all names behind its credential.

        Raises:
            UnavailableError: Postgres is unavailable.
        """
        behind = frozenset() if identity.token_id is None else await self._tokens.names_behind(identity.token_id)
        return Participant(identity, behind if identity.owner is None else behind | {identity.owner})

    async def refresh(self) -> None:
        """Read tokens and grants, once for each judgement: another process may have a newer copy than this one.

        Raises:
            UnavailableError: Postgres is unavailable.
            RequestStateError: Postgres was restored, and no operator has confirmed its tokens.
        """
        await self._refresh()

    async def rights(self, participant: Participant) -> Rights | None:
        """Return what a credential allowed at the last refresh; None if it was revoked.

        A token that has expired, as after a rotation, still names its principal and groups.

        Raises:
            UnavailableError: Postgres is unavailable.
        """
        identity = participant.identity
        if identity.token_id is not None:
            token = await self._tokens.find_token(identity.token_id)
            if token is None or token.revoked_at is not None:
                return None
            if token.expires_at <= self._now():
                identity = replace(identity, token_id=None)
        rights = self._control.rights(identity)
        try:
            rights.check()
        except UnauthenticatedError:
            return None
        return rights

    async def covered(self, participant: Participant, request: ChangeRequest) -> frozenset[str]:
        """Return what a participant may alter now of :func:`to_cover`; nothing if the credential was revoked."""
        rights = await self.rights(participant)
        if rights is None:
            return frozenset()
        entities = ((Operation.ALTER_CONFIGS, each) for each in request.entity_ids)
        return frozenset(
            spelling
            for operation, spelling in (*entities, *resources_of(request.draft))
            if spelling in rights.allowed(request.cluster, operation)
        )

    async def may_propose(self, participant: Participant, request: ChangeRequest) -> bool:
        """Return True if an author may still propose a change of all entities of a request."""
        rights = await self.rights(participant)
        if rights is None:
            return False
        allowed = rights.allowed(request.cluster, Operation.PROPOSE)
        return all(each in allowed for each in request.entity_ids)

    async def counting(self, request: ChangeRequest) -> list[GivenApproval]:
        """Return the approvals of a request that count now, each for the entities that its approver may alter now."""
        found = [replace(each, entities=await self.covered(each.approver, request)) for each in request.approvals]
        return [each for each in found if each.entities]


def to_cover(request: ChangeRequest) -> list[str]:
    """Return what needs an approver who may alter it: the entities, and the owners of a manifest."""
    return [*request.entity_ids, *(spelling for _, spelling in resources_of(request.draft))]


def lacking(request: ChangeRequest, approvals: Iterable[GivenApproval]) -> tuple[Requirement, ...]:
    """Return the requirements of rules that approvals do not meet, each once."""
    given = [approval_of(each) for each in approvals]
    return tuple(
        dict.fromkeys(
            each
            for entity_id, requirements in request.requirements.items()
            for each in missing(entity_id, requirements, given)
        )
    )


class RuleApprovals(NamedTuple):
    """The approvals that a rule asks for, and those that were given."""

    requirement: Requirement
    entity_ids: list[str]
    """The entities for which the rule asks for them, and for which the same approvals count."""
    given: tuple[GivenApproval, ...]


def approvals_of_rules(request: ChangeRequest) -> list[RuleApprovals]:
    """Return the approvals that rules ask for, with those that were given. Each person counts once."""
    given = [(each, approval_of(each)) for each in request.approvals]
    found: dict[tuple[Requirement, tuple[str, ...]], RuleApprovals] = {}
    for entity_id in request.entity_ids:
        for requirement in request.requirements.get(entity_id, ()):
            counting = {
                approval.principal: each
                for each, approval in given
                if entity_id in approval.entities and requirement.takes(approval)
            }
            none = RuleApprovals(requirement, [], tuple(counting.values()))
            found.setdefault((requirement, tuple(counting)), none).entity_ids.append(entity_id)
    return list(found.values())


def approval_of(given: GivenApproval) -> Approval:
    """Return an approval as rules see it. The groups of a portal's credential are not those of the user it acts for."""
    identity = given.approver.identity
    if identity.acts_for is not None:
        return Approval(identity.acts_for, entities=given.entities)
    return Approval(identity.principal, identity.groups, given.entities)
