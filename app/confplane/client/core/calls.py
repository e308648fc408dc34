"""One request as data, and one answer."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic, TypedDict, TypeVar
from urllib.parse import quote

from confplane.domain.entities import Entity

if TYPE_CHECKING:
    from collections.abc import Mapping

    from typing_extensions import Unpack

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Answer(Generic[T]):
    """A successful answer."""

    status: int
    body: T
    """Parsed JSON; None for 304."""
    revision: int | None
    """The revision, from ``Confplane-Revision``."""
    change_id: str | None
    etag: str | None
    stale_ms: int | None
    """Milliseconds since a mirror that lost its session was current; None while the mirror is current."""
    replayed: bool = False
    """True for the answer to an earlier request with the same idempotency key."""
    applied_revision: int | None = None
    """The revision up to which no change is pending, for a Kafka 4 cluster to which changes are applied; otherwise
    None."""
    request_id: str | None = None
    """The id of the request, from ``X-Request-Id``."""


@dataclass(frozen=True, slots=True)
class ApiCall(Generic[T]):
    """One request; the body of its answer has the type ``T``."""

    method: str
    path: str
    """The whole path."""
    json: Any = None
    params: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    repeatable: bool = False
    """True if the request is idempotent, so that it may be retried after a lost answer."""
    keyed: bool = False
    """True for writes that accept an Idempotency-Key and are repeatable with one."""
    text: bool = False
    """True if the answer is text instead of JSON."""
    reads: bool = False
    """True if nothing is written."""
    once: bool = False
    """True if a failure is a valid result, so that the call is sent only once."""
    lasts_s: float = 0.0
    """Seconds that the service may take for the answer. A shorter timeout of the client does not apply."""

    @property
    def conditional(self) -> bool:
        """True if the answer may be 304."""
        return self.method == "GET" and "If-None-Match" in self.headers

    def with_key(self) -> ApiCall[T]:
        """Return the call in retriable form: a write that accepts a key gets a new one unless it has one."""
        if not self.keyed or "Idempotency-Key" in self.headers:
            return self
        return replace(self, headers={**self.headers, "Idempotency-Key": str(uuid.uuid4())}, repeatable=True)


class ReadOptions(TypedDict, total=False):
    """Options of a read: bounds on the age of the state that it returns."""

    min_revision: int
    """The revision that the answer has to include, from an earlier :class:`Answer`."""
    strong: bool
    """Read through to ZooKeeper, so that the answer includes every write that was acknowledged before."""
    wait_applied_ms: int
    """Maximum wait in milliseconds until nothing in the answer is pending for a Kafka 4 cluster."""


class PlanReadOptions(ReadOptions, total=False):
    """Options of the plan of a manifest."""

    break_glass: str | None
    """As of :class:`WriteOptions`, for an apply with it."""


class PageOptions(TypedDict, total=False):
    """Options of a list."""

    page_size: int | None
    """Items of a page, 1000 at most."""
    page_token: str | None
    """The page at which a list continues."""


class ReadPageOptions(ReadOptions, PageOptions, total=False):
    """Options of a list that a state bounds."""


class CommonWriteOptions(TypedDict, total=False):
    """Options of every write."""

    validate_only: bool
    """Run all checks, and write nothing."""
    ticket: str
    """The id of a ticket, for the trail."""


class FreezeOptions(CommonWriteOptions, total=False):
    """Options of a freeze or a thaw, whose reason is an argument."""

    idempotency_key: str
    """As of :class:`WriteOptions`."""


class UnkeyedWriteOptions(CommonWriteOptions, total=False):
    """Options of a write without an Idempotency-Key."""

    reason: str
    """The reason, for the trail."""


class ProposalOptions(UnkeyedWriteOptions, total=False):
    """Options of a new change request."""

    idempotency_key: str
    """As of :class:`WriteOptions`."""


class UnkeyedConditionalWriteOptions(UnkeyedWriteOptions, total=False):
    """Options of a write of one resource without an Idempotency-Key."""

    if_match: str | None
    """The ETag that the resource must have, from :attr:`Answer.etag`. A write with None fails with ValueError before
    anything is sent: omit the argument to write unconditionally."""


class WriteOptions(UnkeyedWriteOptions, total=False):
    """Options of a write with an Idempotency-Key."""

    idempotency_key: str
    """The key under which the write is executed once; a new one for each call unless given."""
    wait_applied_ms: int
    """Maximum wait in milliseconds until the changes are applied to a Kafka 4 cluster, or refused. The answer then has
    ``applied`` for each entity. The write is committed in any case."""
    expires_in: int
    """Seconds after which changed keys get their earlier values again. Only alters and writes of resources accept it,
    and manifests."""
    revert_at: str
    """The time at which changed keys get their earlier values again, RFC 3339; instead of ``expires_in``."""
    break_glass: str
    """The reason of an emergency: write past the rules of the policies. Another person has to acknowledge it."""


class ConditionalWriteOptions(WriteOptions, total=False):
    """Options of a conditional write of one resource."""

    if_match: str | None
    """As of :class:`UnkeyedConditionalWriteOptions`."""
    if_none_match: str
    """``*``: the resource must not exist."""


class CallTraits(TypedDict, total=False):
    """Properties of a request that determine its retries and how its answer is read; see :class:`ApiCall`."""

    repeatable: bool
    keyed: bool
    text: bool
    reads: bool
    once: bool
    lasts_s: float


_QUERY = {
    "validate_only": "validateOnly",
    "reason": "reason",
    "ticket": "ticket",
    "strong": "consistency",
    "expires_in": "expiresIn",
    "revert_at": "revertAt",
    "page_size": "pageSize",
    "page_token": "pageToken",
    "filter": "filter",
    "order_by": "orderBy",
    "entity": "entity",
    "key": "key",
    "principal": "principal",
    "request_id": "requestId",
    "since": "since",
    "until": "until",
}
_HEADERS = {
    "min_revision": "Confplane-Min-Revision",
    "if_match": "If-Match",
    "if_none_match": "If-None-Match",
    "idempotency_key": "Idempotency-Key",
    "wait_applied_ms": "Confplane-Wait-Applied",
    "break_glass": "Confplane-Break-Glass",
}


def call(
    method: str,
    path: str,
    terms: Mapping[str, Any] | None = None,
    *,
    json: Any = None,
    params: Mapping[str, str | None] | None = None,
    **facts: Unpack[CallTraits],
) -> ApiCall[Any]:
    """Describe a request.

    Args:
        method: The HTTP method.
        path: The whole path.
        terms: Members of the options of a read, a list or a write; None counts as absent.
        json: The body.
        params: The query; None counts as absent.
        **facts: As of :class:`ApiCall`. Unless stated, a GET reads, and a call that reads or has a key is repeatable.

    Raises:
        TypeError: No option has the name of a term.
        ValueError: ``if_match`` is None. Without the ETag, the write could overwrite changes by other clients.
    """
    if unknown := (terms or {}).keys() - _QUERY.keys() - _HEADERS.keys():
        raise TypeError(f"unexpected keyword arguments: {', '.join(sorted(unknown))}")
    if terms is not None and terms.get("if_match", "") is None:
        raise ValueError(
            "if_match is None: the response that it was taken from had no ETag. Leave if_match out to write"
            " unconditionally."
        )
    present = {
        name: _text(name, value) for name, value in (terms or {}).items() if value is not None and value is not False
    }
    query = {_QUERY[name]: value for name, value in present.items() if name in _QUERY}
    query |= {name: value for name, value in (params or {}).items() if value is not None}
    headers = {_HEADERS[name]: value for name, value in present.items() if name in _HEADERS}
    reads = facts.setdefault("reads", method == "GET")
    facts.setdefault("repeatable", reads or "Idempotency-Key" in headers)
    return ApiCall(method, path, json, query, headers, **facts)


def _text(name: str, value: object) -> str:
    if name == "strong":
        return "strong"
    if isinstance(value, Entity):
        return value.id
    return str(value).lower() if isinstance(value, bool) else str(value)


def with_etag(call: ApiCall[T], etag: str | None) -> ApiCall[T | None]:
    """Return a read that is answered 304 without a body while the resource has this ETag; None to always read."""
    headers = call.headers if etag is None else {**call.headers, "If-None-Match": etag}
    return replace(call, headers=headers)  # type: ignore[return-value]  # only type checkers know the type of a body


def drop_none(**members: Any) -> dict[str, Any]:
    """Return the members of a body except those that are None."""
    return {name: value for name, value in members.items() if value is not None}


def id_of(entity: Entity | str) -> str:
    """Return the id of an entity as used in URLs."""
    return entity.id if isinstance(entity, Entity) else entity


def path_of(entity: Entity | str) -> str:
    """Return the id of an entity as one segment of a path. Only mistakes in it need encoding."""
    return segment(id_of(entity), safe="%,=")


def segment(text: str, *, safe: str = "") -> str:
    """Return any text as one segment of a path."""
    quoted = quote(text, safe=safe)
    return quoted.replace(".", "%2E") if quoted in {".", ".."} else quoted  # httpx would drop a segment of dots
