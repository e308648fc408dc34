"""Alter policies, which may refuse an otherwise valid change.

A policy is asked once per entity and attempt, after validation and before any write, also under ``validateOnly``.
docs/policies.md describes how to write one.
"""

from __future__ import annotations

import inspect
import logging
from typing import TYPE_CHECKING, Protocol

from confplane.domain.errors import PolicyViolationError
from confplane.domain.policy_rules import PolicyRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["Policies", "Policy", "PolicyRequest", "PolicyViolationError"]

_log = logging.getLogger(__name__)


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
        self._checks: tuple[tuple[str, Callable[[PolicyRequest], object]], ...] = tuple(
            (policy.name, policy.check) for policy in policies
        )

    def __bool__(self) -> bool:
        """Return True if the cluster has policies; otherwise no request need be built."""
        return bool(self._checks)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the policies, in the order in which they are asked."""
        return tuple(name for name, _ in self._checks)

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
