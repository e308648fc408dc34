"""Alter policies, which may refuse an otherwise valid change.

A policy is asked once per entity and attempt, after validation and before any write, also under ``validateOnly``.
docs/policies.md describes how to write one.
"""

from __future__ import annotations

import inspect
import logging
from typing import TYPE_CHECKING, Protocol

from confplane.domain.errors import PolicyViolationError, WriteOutcome
from confplane.domain.policy_rules import PolicyRequest, RulePolicy
from confplane.domain.risks import RiskOptions
from confplane.domain.texts import clipped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from confplane.domain.approvals import Requirement
    from confplane.domain.entities import Entity
    from confplane.domain.policy_rules import PolicyDocument

_log = logging.getLogger(__name__)


def approval_error(
    cluster: str, entity: Entity, lacking: Sequence[Requirement], *, pointer: str | None
) -> PolicyViolationError:
    """Return the refusal of a change that lacks approvals."""
    return PolicyViolationError(
        f"{approval_text(entity, lacking)}. Propose the change instead, for others to approve: by --propose of"
        f" `confplane set`, `delete` or `apply`, or POST /v1/clusters/{cluster}/change-requests",
        pointer=pointer,
        outcome=WriteOutcome.NOT_APPLIED,
    )


def approval_text(entity: Entity, lacking: Sequence[Requirement]) -> str:
    """Return the warning about a change that lacks approvals."""
    return f"{clipped(entity.id)} needs approval: {'; '.join(map(str, lacking))}"


class Policy(Protocol):
    """One policy. Refusals and logs show its ``name``."""

    name: str

    def check(self, request: PolicyRequest) -> None:
        """Return to allow a change.

        The call runs on the event loop: it must be quick, and must not wait.

        Raises:
            PolicyViolationError: The change is refused. The text reaches the caller and the trail.
        """


class Policies:
    """The policies of one cluster, asked in order; the first refusal counts. Without policies any change is allowed."""

    def __init__(self, policies: Iterable[Policy] = ()) -> None:
        policies = tuple(policies)
        self._checks: tuple[tuple[str, Callable[[PolicyRequest], object]], ...] = tuple(
            (policy.name, policy.check) for policy in policies
        )
        self._rules = next((policy for policy in policies if isinstance(policy, RulePolicy)), None)

    def __bool__(self) -> bool:
        """Return True if the cluster has policies; otherwise no request need be built."""
        return bool(self._checks)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the policies, in the order in which they are asked."""
        return tuple(name for name, _ in self._checks)

    @property
    def version(self) -> str:
        """The names of the policies, with the version of the policy file."""
        return "" if not self else " ".join([*self.names, "" if self._rules is None else self._rules.document.version])

    def replace_rules(self, document: PolicyDocument) -> None:
        """Put the new content of the policy file into force. It is one assignment, so any thread may call it."""
        if self._rules is not None:
            self._rules.document = document

    @property
    def risk_options(self) -> RiskOptions:
        """The options of the cluster's policy file for risks."""
        return RiskOptions() if self._rules is None else self._rules.document.risks

    def requirements(self, request: PolicyRequest) -> tuple[Requirement, ...]:
        """Return the approvals that the rules of the policy file ask for."""
        return () if self._rules is None else self._rules.requirements(request)

    def measures(self, facet: str, entity: Entity, principal: str, behalf_of: str | None) -> bool:
        """Return True if a rule depends on the number of entities that the author of a change alters."""
        return self._rules is not None and self._rules.measures(facet, entity, principal, behalf_of)

    def asks_for_owners(self, facet: str, entity: Entity, principal: str, behalf_of: str | None) -> bool:
        """Return True if a rule depends on the owners of the keys that a change alters."""
        return self._rules is not None and self._rules.asks_for_owners(facet, entity, principal, behalf_of)

    def check(self, request: PolicyRequest) -> None:
        """Ask all policies.

        Raises:
            PolicyViolationError: A policy refused the change, or failed: a failed policy allows nothing.
        """
        for name, check in self._checks:
            try:
                answer = check(request)
            except PolicyViolationError:
                raise
            except Exception:  # noqa: BLE001 - an exception in a policy never allows a change
                _log.exception(
                    "policy %s failed on %s of %s, cluster %s; the change is refused",
                    name,
                    request.facet,
                    request.entity,
                    request.cluster,
                )
            else:
                if answer is None:
                    continue
                if inspect.iscoroutine(answer):
                    answer.close()
                # A policy may have meant its return value as a refusal. The value itself must not be logged.
                _log.error(
                    "policy %s returned %s where only None allows a change; it is refused", name, type(answer).__name__
                )
            # Raised outside the handler: the policy's own error may hold secrets and must not be its context.
            raise PolicyViolationError(
                f"policy {name!r} failed, so the change is refused. The service's log has the reason; "
                "ask those who run it"
            )
