"""Change requests: their states, and the rules of who may approve.

A request is decided once, and then approved and applied exactly as it was decided::

    draft
      │
    open ──► approved ──► applying ──► applied ──► reverting ──► reverted, reverted-partly
      ▲  └─► scheduled ──►   │ │  ▲       ▲            │
      │                      │ │  │       └────────────┘  the request that reverts it ends without a change
      │                      │ └► partly-applied  the run of a manifest has ended before its last entity
      └──────────────────────┘  the content or the approvals do not hold any more

Two people are needed. A person is known by several names: the principal of the credential, the user for whom a portal
acts, and the owner, creators and rotators of a token. Whoever shares a name with an author can't approve.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from confplane.domain.access.identities import ADMIN
from confplane.domain.enums import StrEnum
from confplane.domain.errors import RequestStateError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

T = TypeVar("T")


class RequestKind(StrEnum):
    """The kind of a request."""

    CHANGE = "change"
    """A change that waits for approval."""
    BREAK_GLASS = "break-glass"
    """A change that was made past the rules, and that another person has to acknowledge."""


class RequestState(StrEnum):
    """The state of a request."""

    DRAFT = "draft"
    """A content that is not proposed yet."""
    OPEN = "open"
    """Approvals are missing."""
    APPROVED = "approved"
    """All approvals are given, and it may be applied."""
    SCHEDULED = "scheduled"
    """All approvals are given, and it is applied at its time."""
    APPLYING = "applying"
    """Its change is being made, or its outcome is not known yet."""
    APPLIED = "applied"
    PARTLY_APPLIED = "partly-applied"
    """A refusal, or the time, ended the run of its manifest, which can be continued."""
    REVERTING = "reverting"
    """Another request that reverts it has not ended."""
    REVERTED = "reverted"
    """Another request gave all of its keys their earlier values again."""
    REVERTED_PARTLY = "reverted-partly"
    """Another request gave some of its keys their earlier values again."""
    FAILED = "failed"
    """Its change was refused when it was applied."""
    REJECTED = "rejected"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    """Its time passed before it was applied."""
    ACKNOWLEDGED = "acknowledged"
    """A change past the rules was approved afterwards."""


class RequestAction(StrEnum):
    """An event that changes the state of a request."""

    REDRAFT = "redraft"
    """The content of a draft is replaced, or decided again."""
    SUBMIT = "submit"
    """A draft is proposed."""
    DISCARD = "discard"
    """A draft is cancelled. The feed does not know it."""
    REVISE = "revise"
    """Its content is replaced, or decided again on the present state."""
    APPROVE = "approve"
    REJECT = "reject"
    CANCEL = "cancel"
    EXPIRE = "expire"
    BEGIN = "begin"
    """Its change begins to be made."""
    FINISH = "finish"
    """Its change is committed."""
    FINISH_PARTLY = "finish-partly"
    """Some changes of its manifest are committed, and others are not."""
    DELAY = "delay"
    """Nothing was written, and it may be applied again."""
    REOPEN = "reopen"
    """An entity was changed after the request was decided, or approvals do not count any more."""
    FAIL = "fail"
    REVERT = "revert"
    """Another request that reverts it is proposed."""
    FINISH_REVERT = "finish-revert"
    """The request that reverts it is applied, and gave all keys their earlier values."""
    FINISH_REVERT_PARTLY = "finish-revert-partly"
    """The request that reverts it is applied, and gave some keys their earlier values."""
    DROP_REVERT = "drop-revert"
    """The request that reverts it ended without a change."""


class RequestEventType(StrEnum):
    """The type of a request's event in the feed. A begun or delayed application, and a comment, are not in the feed."""

    PROPOSED = "proposed"
    REVISED = "revised"
    APPROVED = "approved"
    REJECTED = "rejected"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    REOPENED = "reopened"
    APPLIED = "applied"
    PARTLY_APPLIED = "partly-applied"
    FAILED = "failed"
    REVERTED = "reverted"
    """Another request gave its keys, or some of them, their earlier values again."""
    BREAK_GLASS = "break-glass"
    """A change past the rules is about to be made. If nothing was written, the request is cancelled."""
    ACKNOWLEDGED = "acknowledged"


DRAFTED: Final = "draft"
OPENED: Final = "open"
"""The actions of the first event of a request. They are not transitions."""
COMMENT: Final = "comment"
"""The action of the event of a comment. It is not a transition, and leads to no other state."""
_EVENT_TYPES: Final[Mapping[str, RequestEventType]] = {
    OPENED: RequestEventType.PROPOSED,
    RequestAction.SUBMIT: RequestEventType.PROPOSED,
    RequestAction.REVISE: RequestEventType.REVISED,
    RequestAction.APPROVE: RequestEventType.APPROVED,
    RequestAction.REJECT: RequestEventType.REJECTED,
    RequestAction.CANCEL: RequestEventType.CANCELLED,
    RequestAction.EXPIRE: RequestEventType.EXPIRED,
    RequestAction.REOPEN: RequestEventType.REOPENED,
    RequestAction.FINISH: RequestEventType.APPLIED,
    RequestAction.FINISH_PARTLY: RequestEventType.PARTLY_APPLIED,
    RequestAction.FAIL: RequestEventType.FAILED,
    RequestAction.FINISH_REVERT: RequestEventType.REVERTED,
    RequestAction.FINISH_REVERT_PARTLY: RequestEventType.REVERTED,
}
PUBLISHED: Final = tuple(str(action) for action in _EVENT_TYPES)
"""The actions whose events are in the feed."""


def event_type(kind: str, action: str, state: str) -> RequestEventType | None:
    """Return the type of the event of an action, one of :data:`PUBLISHED`; None for a kind or state of a newer release.

    Args:
        kind: The kind of the request.
        action: The action.
        state: The state after it.
    """
    if kind not in set(RequestKind) or state not in set(RequestState):
        return None
    if kind == RequestKind.BREAK_GLASS and action == OPENED:
        return RequestEventType.BREAK_GLASS
    return RequestEventType.ACKNOWLEDGED if state == RequestState.ACKNOWLEDGED else _EVENT_TYPES[action]


WRITTEN: Final = frozenset(
    {RequestState.APPLIED, RequestState.REVERTING, RequestState.REVERTED, RequestState.REVERTED_PARTLY}
)
"""The states of requests whose change is committed as a whole."""
WITHOUT_CHANGE: Final = frozenset(
    {RequestState.FAILED, RequestState.REJECTED, RequestState.CANCELLED, RequestState.EXPIRED}
)
"""The states of requests that ended without a change. A failed one may be revised."""
_O, _A, _S = RequestState.OPEN, RequestState.APPROVED, RequestState.SCHEDULED
_COMMITTED: Final[Mapping[RequestAction, frozenset[RequestState]]] = {
    RequestAction.FINISH: frozenset({RequestState.APPLIED}),
    RequestAction.FINISH_PARTLY: frozenset({RequestState.PARTLY_APPLIED}),
}
"""A process that was paused may commit the change after the request was given back, and even after it ended."""
_REVERTED: Final[Mapping[RequestAction, frozenset[RequestState]]] = {
    RequestAction.FINISH_REVERT: frozenset({RequestState.REVERTED}),
    RequestAction.FINISH_REVERT_PARTLY: frozenset({RequestState.REVERTED_PARTLY}),
}
_WAITING: Final[Mapping[RequestAction, frozenset[RequestState]]] = {
    RequestAction.REVISE: frozenset({_O}),
    RequestAction.REJECT: frozenset({RequestState.REJECTED}),
    RequestAction.CANCEL: frozenset({RequestState.CANCELLED}),
    RequestAction.EXPIRE: frozenset({RequestState.EXPIRED}),
    RequestAction.REOPEN: frozenset({_O}),
    **_COMMITTED,
}
_READY: Final = {
    **_WAITING,
    RequestAction.APPROVE: frozenset({_O, _A, _S}),
    RequestAction.BEGIN: frozenset({RequestState.APPLYING}),
}
TRANSITIONS: Final[Mapping[RequestState, Mapping[RequestAction, frozenset[RequestState]]]] = {
    RequestState.DRAFT: {
        RequestAction.REDRAFT: frozenset({RequestState.DRAFT}),
        RequestAction.SUBMIT: frozenset({_O}),
        RequestAction.DISCARD: frozenset({RequestState.CANCELLED}),
    },
    _O: {**_WAITING, RequestAction.APPROVE: frozenset({_O, _A, _S, RequestState.ACKNOWLEDGED})},
    _A: _READY,
    _S: _READY,
    RequestState.APPLYING: {
        **_COMMITTED,
        RequestAction.DELAY: frozenset({_A, _S}),
        RequestAction.REOPEN: frozenset({_O}),
        RequestAction.FAIL: frozenset({RequestState.FAILED}),
    },
    RequestState.FAILED: {
        RequestAction.REVISE: frozenset({_O}),
        RequestAction.CANCEL: frozenset({RequestState.CANCELLED}),
        **_COMMITTED,
    },
    RequestState.PARTLY_APPLIED: {
        RequestAction.BEGIN: frozenset({RequestState.APPLYING}),
        RequestAction.FINISH: frozenset({RequestState.APPLIED}),
        RequestAction.REVERT: frozenset({RequestState.REVERTING}),
        **_REVERTED,
    },
    RequestState.APPLIED: {
        RequestAction.REVERT: frozenset({RequestState.REVERTING}),
        **_REVERTED,
    },
    RequestState.REVERTING: {
        **_REVERTED,
        RequestAction.DROP_REVERT: frozenset({RequestState.APPLIED, RequestState.PARTLY_APPLIED}),
    },
    RequestState.REVERTED: {},
    RequestState.REVERTED_PARTLY: {},
    RequestState.REJECTED: _COMMITTED,
    RequestState.CANCELLED: {**_COMMITTED, RequestAction.REOPEN: frozenset({_O})},
    RequestState.EXPIRED: _COMMITTED,
    RequestState.ACKNOWLEDGED: {},
}
"""The states to which each action leads, by the state before it."""
_OF_BREAK_GLASS: Final = frozenset({RequestAction.APPROVE, RequestAction.CANCEL, RequestAction.REOPEN})
"""The actions on a request of a change that is made already. It is cancelled if nothing was written, and opened
again if something is written after that."""


def check_action(kind: RequestKind, state: RequestState, action: RequestAction) -> None:
    """Refuse an action that the state of a request does not allow.

    Raises:
        RequestStateError: The action is not allowed.
    """
    if kind is RequestKind.BREAK_GLASS and action not in _OF_BREAK_GLASS:
        raise RequestStateError("The change of this request is made already; another person has to approve it")
    if action not in TRANSITIONS[state]:
        called = [_OPERATIONS[each] for each in TRANSITIONS[state] if each in _OPERATIONS]
        allowed = ", ".join(dict.fromkeys(called)) or "comment"
        refused = _OPERATIONS.get(action, action)
        raise RequestStateError(f"The request is {state}: {refused} is not possible. Possible: {allowed}")


_OPERATIONS: Final[Mapping[RequestAction, str]] = {
    RequestAction.REDRAFT: "revise",
    RequestAction.SUBMIT: "revise",
    RequestAction.DISCARD: "cancel",
    RequestAction.REVISE: "revise",
    RequestAction.APPROVE: "approve",
    RequestAction.REJECT: "reject",
    RequestAction.CANCEL: "cancel",
    RequestAction.BEGIN: "apply",
    RequestAction.REVERT: "revert",
}
"""The operations by which callers ask for actions; all other actions follow from them or from the time."""


@dataclass(frozen=True, slots=True)
class Person:
    """The names behind a credential."""

    principals: frozenset[str]
    """The principal, and the user for whom it acts."""
    related: frozenset[str] = frozenset()
    """The owner of the token, and the principals that created or rotated it or a token before it."""


def shared_names(one: Person, other: Person) -> frozenset[str]:
    """Return the names that make two credentials one person; none if they are different people.

    The admin token usually creates the first tokens of everybody. So it makes two credentials one person only if one of
    them is the admin token itself.
    """
    shared = (one.principals | one.related) & (other.principals | other.related)
    return shared if ADMIN in one.principals | other.principals else shared - {ADMIN}


def with_approval(approvals: Sequence[T], given: T, person: Callable[[T], Person]) -> list[T]:
    """Return approvals with one more, which replaces the earlier approvals of the same person."""
    return [*(each for each in approvals if not shared_names(person(each), person(given))), given]


def uncovered(entity_ids: Iterable[str], covered: Iterable[Collection[str]]) -> list[str]:
    """Return the entities that no approver may alter, given the entities that each approver may alter."""
    parts = list(covered)
    return [each for each in entity_ids if not any(each in part for part in parts)]
