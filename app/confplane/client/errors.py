"""Errors of the client library: Kafka's codes as an exception tree.

::

    ClientError
    ├── ConnectionFailedError                   no answer came; a write may or may not have been applied
    └── ProblemError                            the service answered with a problem
        ├── UnknownServerError              -1
        │   ├── FrozenError                     a person froze the cluster's configs
        │   ├── RestoredStoreError              ZooKeeper was restored, and nobody has accepted its state yet
        │   ├── ObservedError                   quotas and configs of this cluster are read-only here
        │   └── LayoutMovingError               the cluster's client configs are being moved
        ├── UnknownTopicOrPartitionError     3
        ├── RequestTimedOutError             7
        │   └── OutcomeUnknownError             a write that may be applied; look up ``change_id`` in the trail
        ├── StaleControllerEpochError       11
        ├── NetworkError                    13  a store is unavailable
        ├── InvalidTopicError               17
        ├── TopicAuthorizationFailedError   29
        ├── GroupAuthorizationFailedError   30
        ├── ClusterAuthorizationFailedError 31
        │   └── UnauthenticatedError            no token, or one that is not valid
        ├── UnsupportedVersionError         35
        ├── InvalidConfigError              40
        ├── InvalidRequestError             42
        ├── PolicyViolationError            44
        ├── OperationNotAttemptedError      55
        ├── ThrottlingQuotaExceededError    89
        ├── ResourceNotFoundError           91
        │   ├── UnknownRouteError               no operation has the URL; the base URL may be wrong
        │   ├── UnknownClusterError             the service has no such cluster
        │   ├── NothingSetError                 nothing is set on the entity
        │   └── GoneError                       a page or a moment that is no longer available
        ├── DuplicateResourceError          92
        └── InvalidUpdateVersionError       95
            ├── PreconditionFailedError         the ETag given is not the current one
            └── RevertConflictError             later changes touched the keys that a revert would restore
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Mapping

    from confplane.client.types import ProblemPart

V = TypeVar("V")


class ClientError(Exception):
    """Base of the errors that this library raises.

    Attributes:
        retriable: True if the same request may succeed later, according to the service or else to the HTTP status.
        retry_after_s: Seconds after which a retry makes sense, or None.
        may_be_applied: True for a write that may have been applied.
    """

    retriable: bool = False
    retry_after_s: float | None = None
    may_be_applied: bool = False


class ConnectionFailedError(ClientError):
    """No answer was received. A repeatable write was retried; its outcome is unknown until it is looked up."""

    retriable = True

    def __init__(self, message: str, *, may_be_applied: bool = False) -> None:
        super().__init__(message)
        self.may_be_applied = may_be_applied


class ProblemError(ClientError):
    """The service answered with ``application/problem+json``.

    Attributes:
        status: HTTP status.
        problem_type: The type of problem, e.g. ``invalid-config``; None if the answer is not a problem.
        kafka_error_code: Kafka's error code, e.g. 42.
        kafka_error_name: Kafka's name of the code, e.g. ``INVALID_REQUEST``.
        outcome: ``not_applied`` or ``unknown`` for writes, else None.
        errors: The single errors of a body: JSON pointer, and the rule that the value breaks.
        field: The JSON pointer of the first of them, or None.
        change_id: The change of an unknown outcome, to be looked up in the trail.
        etag: The current ETag if a precondition failed.
        body: All members of the problem.
    """

    code: ClassVar[int | None] = None
    """The Kafka error code of the class; None for all codes without their own class."""

    def __init_subclass__(cls, *, code: int | None = None) -> None:
        cls.code = cls.code if code is None else code

    def __init__(self, status: int, body: dict[str, Any], *, retry_after_s: float | None = None) -> None:
        super().__init__(f"{status} {body.get('title', '')}: {body.get('detail', '')}")
        self.status = status
        self.problem_type = _type_of(body)
        self.kafka_error_code = _member(body, "kafkaErrorCode", int)
        self.kafka_error_name = _member(body, "kafkaErrorName", str)
        retriable = _member(body, "retriable", bool)
        self.retriable = status in _PASSING if retriable is None else retriable
        self.outcome = _member(body, "outcome", str)
        self.may_be_applied = self.outcome == "unknown" or (self.outcome is None and status >= _SERVER_ERROR)
        parts = _member(body, "errors", list) or []
        self.errors = [cast("ProblemPart", part) for part in parts if isinstance(part, dict)]
        self.field = _member(self.errors[0], "pointer", str) if self.errors else None
        self.change_id = _member(body, "changeId", str)
        self.etag = _member(body, "etag", str)
        self.retry_after_s = retry_after_s
        self.body = body


class UnknownServerError(ProblemError, code=-1):
    """An error for which Kafka has no code."""


class FrozenError(UnknownServerError):
    """A person froze the cluster's configs; the text has the author, the time and the reason."""


class RestoredStoreError(UnknownServerError):
    """ZooKeeper was restored to an earlier state, and nobody has accepted that state yet; nothing can be written."""


class ObservedError(UnknownServerError):
    """The cluster is only observed: its quotas and configs are written outside Confplane."""


class LayoutMovingError(UnknownServerError):
    """The cluster's client configs are being moved to the other layout."""


class UnknownTopicOrPartitionError(ProblemError, code=3):
    """The cluster has no such topic."""


class RequestTimedOutError(ProblemError, code=7):
    """The request did not arrive in time, or its outcome is unknown."""


class OutcomeUnknownError(RequestTimedOutError):
    """A write may or may not be applied; look up ``change_id`` in the trail."""


class StaleControllerEpochError(ProblemError, code=11):
    """No controller of the cluster accepts config writes."""


class NetworkError(ProblemError, code=13):
    """A store is unavailable or not caught up, or the process has no more connections."""


class InvalidTopicError(ProblemError, code=17):
    """No topic can have this name."""


class TopicAuthorizationFailedError(ProblemError, code=29):
    """The caller lacks a grant on a topic."""


class GroupAuthorizationFailedError(ProblemError, code=30):
    """The caller lacks a grant on a group."""


class ClusterAuthorizationFailedError(ProblemError, code=31):
    """The caller lacks a grant."""


class UnauthenticatedError(ClusterAuthorizationFailedError):
    """The request has no token, or its token is not valid."""


class UnsupportedVersionError(ProblemError, code=35):
    """The service does not know an entity type."""


class InvalidConfigError(ProblemError, code=40):
    """A config is refused by its definition, or because of another config of the entity."""


class InvalidRequestError(ProblemError, code=42):
    """The request is malformed or can't be fulfilled; ``errors`` has each place and its rule."""


class PolicyViolationError(ProblemError, code=44):
    """The cluster's policy, or a limit on its content, refuses the change."""


class OperationNotAttemptedError(ProblemError, code=55):
    """An entry of an atomic batch in which another entry failed."""


class ThrottlingQuotaExceededError(ProblemError, code=89):
    """Too many requests or changes; ``retry_after_s`` are the seconds to wait."""


class ResourceNotFoundError(ProblemError, code=91):
    """The cluster, entity or change does not exist."""


class UnknownRouteError(ResourceNotFoundError):
    """No operation has the URL; the base URL of the client may be wrong."""


class UnknownClusterError(ResourceNotFoundError):
    """The service has no cluster of this name."""


class NothingSetError(ResourceNotFoundError):
    """Nothing is set on the entity in this facet."""


class GoneError(ResourceNotFoundError):
    """A page of a result that was replaced by a later result, or a moment before the start of the history."""


class DuplicateResourceError(ProblemError, code=92):
    """The resource already exists with other content."""


class InvalidUpdateVersionError(ProblemError, code=95):
    """Another client changed the entity in the meantime, or is changing it now."""


class PreconditionFailedError(InvalidUpdateVersionError):
    """The given ETag is not the current one; ``etag`` is the current one."""


class RevertConflictError(InvalidUpdateVersionError):
    """Later changes touched the keys that a revert would restore."""


_SERVER_ERROR: Final = 500
_PASSING: Final = frozenset({408, 429, 502, 503, 504})
"""Statuses with which a proxy indicates that the same request may succeed later."""
_BY_TYPE: Final[Mapping[str, type[ProblemError]]] = {
    "before-history": GoneError,
    "store-replaced": GoneError,
    "frozen": FrozenError,
    "layout-moving": LayoutMovingError,
    "nothing-set": NothingSetError,
    "observed": ObservedError,
    "outcome-unknown": OutcomeUnknownError,
    "precondition-failed": PreconditionFailedError,
    "result-gone": GoneError,
    "revert-conflict": RevertConflictError,
    "store-restored": RestoredStoreError,
    "unauthenticated": UnauthenticatedError,
    "unknown-cluster": UnknownClusterError,
    "unknown-route": UnknownRouteError,
}
"""Types of problems with their own class; all other types have the class of their Kafka code."""
_BY_CODE: Final = {kind.code: kind for kind in ProblemError.__subclasses__()}


def problem_of(status: int, body: dict[str, Any], *, retry_after_s: float | None = None) -> ProblemError:
    """Return the exception of a problem: that of its type, or else of its Kafka code."""
    kind = _BY_TYPE.get(_type_of(body) or "") or _BY_CODE.get(_member(body, "kafkaErrorCode", int), ProblemError)
    return kind(status, body, retry_after_s=retry_after_s)


def _type_of(body: Mapping[str, Any]) -> str | None:
    """Return the last part of a problem's type."""
    return str(body["type"]).removeprefix("/problems/") if "type" in body else None


def _member(body: Mapping[str, Any], name: str, kind: type[V]) -> V | None:
    """Return a member of a problem, or None if it has another type, because a proxy may answer anything."""
    value = body.get(name)
    return value if isinstance(value, kind) else None
