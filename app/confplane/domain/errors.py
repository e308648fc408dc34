"""Kafka's error codes, and the service's exceptions, each with its Kafka code.

The domain raises errors, and the API renders them. An error contains its Kafka code and whether a retry helps, and
nothing about HTTP.

Source: clients/src/main/java/org/apache/kafka/common/protocol/Errors.java.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

from confplane.domain.enums import StrEnum

if TYPE_CHECKING:
    from uuid import UUID


class KafkaCode(IntEnum):
    """The Kafka protocol's error codes that this service returns."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    UNKNOWN_TOPIC_OR_PARTITION = 3
    REQUEST_TIMED_OUT = 7
    STALE_CONTROLLER_EPOCH = 11
    NETWORK_EXCEPTION = 13
    INVALID_TOPIC_EXCEPTION = 17
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    UNSUPPORTED_VERSION = 35
    INVALID_CONFIG = 40
    INVALID_REQUEST = 42
    POLICY_VIOLATION = 44
    OPERATION_NOT_ATTEMPTED = 55
    THROTTLING_QUOTA_EXCEEDED = 89
    RESOURCE_NOT_FOUND = 91
    DUPLICATE_RESOURCE = 92
    INVALID_UPDATE_VERSION = 95


class WriteOutcome(StrEnum):
    """The known outcome of a write that was tried and did not succeed."""

    NOT_APPLIED = "not_applied"
    UNKNOWN = "unknown"


class ConfplaneError(Exception):
    """Base of all errors that clients may see.

    Attributes:
        code: Kafka's error code.
        retriable: True if the same request may succeed later.
        is_refusal: True if a rule, a grant or an operator's decision stands against the request. A write with this
            error is a refused attempt (services/ports/refusals.py). False for faults of stores, conflicts with other
            changes, and what does not exist.
        in_trail: True once the trail has a rejected change with this error.
        detail: A sentence for a person; never holds a secret.
        pointer: JSON pointer (RFC 6901) to the offending part of the request body, or None.
        outcome: For writes, their outcome: certainly not applied, or unknown.
        revision: For refused writes, the revision at which ZooKeeper confirmed the state that they rest on, or None.
        retry_after_s: Seconds after which a retry makes sense, or None.
        further: Further errors of the same entity, each of another part of the request.
    """

    code: ClassVar[KafkaCode] = KafkaCode.UNKNOWN_SERVER_ERROR
    retriable: ClassVar[bool] = False
    is_refusal: ClassVar[bool] = False

    def __init__(
        self,
        detail: str,
        *,
        pointer: str | None = None,
        outcome: WriteOutcome | None = None,
        retry_after_s: int | None = None,
    ) -> None:
        super().__init__(detail)
        self.in_trail = False
        self.detail = detail
        self.pointer = pointer
        self.outcome = outcome
        self.revision: int | None = None
        self.retry_after_s = retry_after_s
        self.further: tuple[ConfplaneError, ...] = ()


class ErrorList:
    """Collects the errors of one entity, so that a client learns of all of them from one answer."""

    MOST: Final = 20
    """The greatest number of errors. The search for a similar name takes a fraction of a millisecond for each."""

    def __init__(self) -> None:
        self._errors: list[ConfplaneError] = []

    def add(self, error: ConfplaneError) -> None:
        """Add an error, and raise all if there are enough.

        Raises:
            ConfplaneError: As :meth:`raise_all`.
        """
        self._errors.append(error)
        if len(self._errors) == self.MOST:
            self.raise_all()

    def raise_all(self) -> None:
        """Raise the first error, which has the others as ``further``. Returns if there are no errors.

        Raises:
            ConfplaneError: There are errors.
        """
        if not self._errors:
            return
        # A list that kept the errors would form cycles with the frames in their tracebacks.
        first, *others = self._errors
        self._errors = []
        first.further = tuple(each.with_traceback(None) for each in others)
        try:
            raise first
        finally:
            del first, others


class InvalidRequestError(ConfplaneError):
    """The request is malformed, or a value is not valid by its definition."""

    code = KafkaCode.INVALID_REQUEST
    is_refusal = True


class InvalidEntityIdError(InvalidRequestError):
    """An id in a URL that is not the one spelling of its entity; ``canonical_id`` is that spelling, if known."""

    def __init__(self, detail: str, *, canonical_id: str | None = None) -> None:
        super().__init__(detail if canonical_id is None else f"{detail}; use {canonical_id!r}")
        self.canonical_id = canonical_id


class BodyTooLargeError(InvalidRequestError):
    """The body, or the transaction it would make, is above its limit."""


class HeadTooLargeError(InvalidRequestError):
    """The headers of a request, or the framing around its body's bytes, are larger than this service accepts."""


class TargetTooLongError(InvalidRequestError):
    """The URL of a request is longer than this service accepts."""


class MediaTypeError(InvalidRequestError):
    """The body is declared to be something other than JSON."""


class LayoutUndecidedError(InvalidRequestError):
    """Client configs can't be written until ``client_configs_layout`` is chosen."""


class IdempotencyUnsupportedError(InvalidRequestError):
    """A request carries an Idempotency-Key, but its operation does not support one."""


class IdempotencyKeyReusedError(InvalidRequestError):
    """The Idempotency-Key was used before, for a request with another body."""


class EncoderSecretMissingError(InvalidRequestError):
    """A sensitive broker config can't be encoded or decoded until the broker's encoder secret is set."""

    code = KafkaCode.INVALID_CONFIG


class InvalidConfigError(ConfplaneError):
    """A topic config, or an op on a topic's or broker's configs, is refused. Broker values are 42, as in Kafka."""

    code = KafkaCode.INVALID_CONFIG
    is_refusal = True


class PolicyViolationError(ConfplaneError):
    """The cluster's policy refuses the change; the text names the rule."""

    code = KafkaCode.POLICY_VIOLATION
    is_refusal = True


class UnknownTopicError(ConfplaneError):
    """The cluster's metadata have no such topic; in a write of several entities ``topics`` has all such names."""

    code = KafkaCode.UNKNOWN_TOPIC_OR_PARTITION
    is_refusal = True

    def __init__(
        self,
        detail: str,
        *,
        topics: frozenset[str] = frozenset(),
        pointer: str | None = None,
        outcome: WriteOutcome | None = None,
    ) -> None:
        super().__init__(detail, pointer=pointer, outcome=outcome)
        self.topics = topics


class InvalidTopicError(ConfplaneError):
    """A name that no topic can have."""

    code = KafkaCode.INVALID_TOPIC_EXCEPTION
    is_refusal = True


class UnsupportedVersionError(ConfplaneError):
    """A describe names an entity type that its API does not have."""

    code = KafkaCode.UNSUPPORTED_VERSION


class UnauthenticatedError(ConfplaneError):
    """No bearer token was given, or it is not valid."""

    code = KafkaCode.CLUSTER_AUTHORIZATION_FAILED


class ForbiddenError(ConfplaneError):
    """The caller lacks a grant: on a cluster, on an entity of a cluster, or on a resource of the service itself.

    The check comes before any lookup, so the error does not reveal which resources exist.
    """

    code = KafkaCode.CLUSTER_AUTHORIZATION_FAILED
    is_refusal = True


class TopicForbiddenError(ForbiddenError):
    """The caller lacks a grant on a topic."""

    code = KafkaCode.TOPIC_AUTHORIZATION_FAILED


class GroupForbiddenError(ForbiddenError):
    """The caller lacks a grant on a group."""

    code = KafkaCode.GROUP_AUTHORIZATION_FAILED


class NotFoundError(ConfplaneError):
    """There is no such cluster, entity or change."""

    code = KafkaCode.RESOURCE_NOT_FOUND


class UnknownRouteError(NotFoundError):
    """No operation has the URL."""


class UnknownClusterError(NotFoundError):
    """The service has no cluster of this name."""


class NothingSetError(NotFoundError):
    """Nothing is set on an entity in a facet."""


class ResultGoneError(NotFoundError):
    """The result that a page token names is no longer available."""


class BeforeHistoryError(NotFoundError):
    """A time in the past at which the trail did not contain every write yet.

    Attributes:
        since: The first revision that can be requested, or None if the trail does not know any yet.
        since_time: Its time as RFC 3339, or None.
        oldest: The oldest position in the feed that can be requested, or None.
    """

    def __init__(
        self,
        detail: str,
        *,
        pointer: str,
        since: int | None = None,
        since_time: str | None = None,
        oldest: str | None = None,
    ) -> None:
        super().__init__(detail, pointer=pointer)
        self.since = since
        self.since_time = since_time
        self.oldest = oldest


class StoreReplacedError(NotFoundError):
    """A position in the feed of a store that was replaced by a restored one since."""


class StaleControllerError(ConfplaneError):
    """The cluster has brokers but no ZooKeeper-mode controller that would accept config writes."""

    code = KafkaCode.STALE_CONTROLLER_EPOCH


class FrozenError(ConfplaneError):
    """A person froze the cluster's configs. The text has the person, the time, the reason, and the way to unfreeze.

    Kafka has no code for this.
    """

    is_refusal = True


class RestoredStoreError(ConfplaneError):
    """ZooKeeper was restored to an earlier state, or another one answers. The text has the reason and the way out.

    Kafka has no code for this.
    """


class ObservedError(ConfplaneError):
    """The cluster's quotas and configs are observed only: this service follows them and does not write them."""

    is_refusal = True


class LayoutMovingError(ConfplaneError):
    """Client configs are being moved to the other layout, and can't be written until the end of the move."""

    retriable = True


class CorruptZnodeError(ConfplaneError):
    """A stored znode can't be read, or can't be written back without loss.

    Attributes:
        path: The full path of the znode.
    """

    def __init__(
        self, path: str, reason: str, *, pointer: str | None = None, outcome: WriteOutcome | None = None
    ) -> None:
        text = f"The znode {path} {reason}; it is left as it is until a person mends it"
        super().__init__(text, pointer=pointer, outcome=outcome)
        self.path = path


class UndecodablePasswordError(ConfplaneError):
    """A stored password can't be decoded: another secret, damage, or no encoded password at all.

    The error and the errors it refers to contain no value, password or secret. Brokers ignore such values.
    """


class AlreadyExistsError(ConfplaneError):
    """A create request found the same entity with other content."""

    code = KafkaCode.DUPLICATE_RESOURCE


class WebhookConflictError(ConfplaneError):
    """The state of the webhooks does not allow it: there are too many, or the owner lost its rights."""

    code = KafkaCode.INVALID_REQUEST


class RequestStateError(ConfplaneError):
    """The state of a change request, or its approvals, do not allow the action."""

    code = KafkaCode.INVALID_REQUEST


class PreconditionFailedError(ConfplaneError):
    """The etag given does not match; ``etag`` is the current one, or None if nothing is declared."""

    code = KafkaCode.INVALID_UPDATE_VERSION

    def __init__(self, detail: str, *, etag: str | None, pointer: str | None = None) -> None:
        super().__init__(detail, pointer=pointer, outcome=WriteOutcome.NOT_APPLIED)
        self.etag = etag


class StalePlanError(ConfplaneError):
    """A plan is applied, and the document, the options or a version that the plan rests on is another one now."""

    code = KafkaCode.INVALID_UPDATE_VERSION


class OwnerConflictError(ConfplaneError):
    """A manifest has a key of another owner, and does not force it."""

    code = KafkaCode.INVALID_UPDATE_VERSION


class ConflictingChange(NamedTuple):
    """A change to keys that a revert would restore."""

    change_id: UUID | None
    """None if the trail does not have the change yet."""
    kind: str | None
    """As in the trail, or None if it is not known yet."""
    principal: str | None
    revision: int | None
    """None if another client removed the znode and the revision of the removal is not known yet."""
    time_ms: int | None
    """ZooKeeper's time, milliseconds since the epoch."""
    keys: tuple[str, ...]


class RevertConflictError(ConfplaneError):
    """Later changes touched the keys that a revert would restore; ``later`` has these changes, the latest first."""

    code = KafkaCode.INVALID_UPDATE_VERSION

    def __init__(self, detail: str, *, later: tuple[ConflictingChange, ...]) -> None:
        super().__init__(detail, outcome=WriteOutcome.NOT_APPLIED)
        self.later = later


class NotRevertibleError(ConfplaneError):
    """A change is of a kind that can't be reverted, or a value before it is not kept; the text has the remedy."""

    code = KafkaCode.INVALID_REQUEST
    is_refusal = True


class ConcurrentChangeError(ConfplaneError):
    """Other writers kept changing the entity until the deadline; nothing was applied."""

    code = KafkaCode.INVALID_UPDATE_VERSION
    retriable = True


class IdempotencyKeyBusyError(ConcurrentChangeError):
    """The first request with this Idempotency-Key is still under way; this one had no effect, the first may."""


class ThrottledError(ConfplaneError):
    """A rate limit was reached; nothing was applied."""

    code = KafkaCode.THROTTLING_QUOTA_EXCEEDED
    retriable = True


class LimitExceededError(ThrottledError):
    """A caller used up its limit for a class of operations; ``throttle_ms`` is the time to wait in milliseconds."""

    def __init__(self, detail: str, *, throttle_ms: int, outcome: WriteOutcome | None = None) -> None:
        super().__init__(detail, outcome=outcome, retry_after_s=max(1, -(-throttle_ms // 1000)))
        self.throttle_ms = throttle_ms


class ListFullError(ConfplaneError):
    """Another entity would make a list of names longer than brokers can read; other entities must be removed first.

    The code is the one that Kafka uses for its own limits on the content of a cluster, such as the number of partitions
    in one request.
    """

    code = KafkaCode.POLICY_VIOLATION
    is_refusal = True


class NotAttemptedError(ConfplaneError):
    """An entry of an atomic batch in which another entry failed."""

    code = KafkaCode.OPERATION_NOT_ATTEMPTED
    retriable = True


class UnavailableError(ConfplaneError):
    """A store is unavailable or not caught up. Recovery needs no restart."""

    code = KafkaCode.NETWORK_EXCEPTION
    retriable = True

    def __init__(
        self,
        detail: str,
        *,
        outcome: WriteOutcome | None = None,
        retry_after_s: int = 2,
    ) -> None:
        super().__init__(detail, outcome=outcome, retry_after_s=retry_after_s)


class TooManyConnectionsError(UnavailableError):
    """All connections of the process are in use."""


class RequestTimeoutError(ConfplaneError):
    """A request that did not arrive in time; nothing was applied."""

    code = KafkaCode.REQUEST_TIMED_OUT
    retriable = True


class OutcomeUnknownError(ConfplaneError):
    """The change was submitted and its reply was lost; it may be applied. ``change_id`` finds it in the trail."""

    code = KafkaCode.REQUEST_TIMED_OUT
    retriable = True

    def __init__(self, detail: str, *, change_id: str) -> None:
        super().__init__(detail, outcome=WriteOutcome.UNKNOWN)
        self.change_id = change_id
