"""Alter policies: who may refuse a change that is otherwise valid.

A policy is asked once per entity and attempt, after validation and before anything is written, also under
``validateOnly``. docs/policies.md says how to write one.
"""

from __future__ import annotations

import inspect
import logging
from typing import TYPE_CHECKING, Protocol

from app.domain.errors import PolicyViolationError
from app.domain.policy_rules import PolicyRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["Policies", "Policy", "PolicyRequest", "PolicyViolationError"]

_log = logging.getLogger(__name__)


class Policy(Protocol):
    """One policy. ``name`` appears in refusals and logs."""

    name: str

    def check(self, request: PolicyRequest) -> None:
        """Return to allow a change.

        It is called on the event loop: it must be quick, and it must not wait for anything.

        Raises:
            PolicyViolationError: To refuse it. The text reaches the caller and the trail.
        """


class Policies:
    """The policies of one cluster, asked in order; the first refusal counts. Without any, everything is allowed."""

    def __init__(self, policies: Iterable[Policy] = ()) -> None:
        self._checks: tuple[tuple[str, Callable[[PolicyRequest], object]], ...] = tuple(
            (policy.name, policy.check) for policy in policies
        )

    def __bool__(self) -> bool:
        """Say whether there is anybody to ask; if not, no request need be built."""
        return bool(self._checks)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the policies, in the order in which they are asked."""
        return tuple(name for name, _ in self._checks)

    def check(self, request: PolicyRequest) -> None:
        """Ask all policies.

        Raises:
            PolicyViolationError: One of them refused, or failed: a policy that can't answer allows nothing.
        """
        for name, check in self._checks:
            try:
                answer = check(request)
            except PolicyViolationError:
                raise
            except Exception:  # noqa: BLE001 - whatever it is, it is no permission
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
                # Somebody may have meant a refusal by it, and the value itself is not ours to log.
                _log.error(
                    "policy %s returned %s where only None allows a change; it is refused", name, type(answer).__name__
                )
            # Outside of the handler, so that what the policy raised, and may hold, goes no further.
            raise PolicyViolationError(
                f"policy {name!r} failed, so the change is refused. The service's log has the reason; "
                "ask those who run it"
            )
