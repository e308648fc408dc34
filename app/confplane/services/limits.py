"""Rate limits for each principal and class of operation: token buckets with a burst, in the memory of one process.

A request is admitted if its bucket holds at least one unit. It pays one unit on admission, and the rest once the number
is known: for the entries of an alter before they run, for the items of a response after the response. So a bucket may
be overdrawn; then the next request must wait until the bucket holds a unit again.

A caller that keeps sending into an empty bucket costs more than its limit allows: each refusal takes CPU time too. So
once its refusals exceed its admitted requests by far, further ones are answered late. Kafka mutes the connection of
such a client (KIP-219); here a proxy may share a connection among callers, so the response is held back instead.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import OrderedDict
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from confplane.domain.access.identities import ADMIN
from confplane.domain.errors import LimitExceededError, WriteOutcome
from confplane.services.metrics import Sample

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from confplane.domain.access.identities import Identity

MOST: Final = 65_536
"""Maximum number of principals whose buckets are kept; beyond it, the least recently created are dropped."""
BULK_REQUEST: Final = 50
"""The cost of a bulk read in addition to its items: a Postgres query, or a walk over entities."""
BYTES_OF_UNIT: Final = 1_024
"""Bytes of a bulk read's response that cost one unit, in addition to its items."""
HELD_AFTER: Final = 20
"""Refusals of a principal in a class, less the requests admitted since, above which refusals are held back."""
HELD_S: Final = 0.25
"""Seconds for which such a refusal is held back: less than the least ``Retry-After``."""
_MOST_EXCESS: Final = 2 * HELD_AFTER
"""The greatest number of refusals that count, so that a caller that slows down is soon answered at once."""


class LimitClass(StrEnum):
    """The class of an operation, each with a bucket of its own."""

    READ = "read"
    """Reads of a single resource from memory: the polls of applications, and their reports. A unit is a request."""
    BULK = "bulk"
    """Lists, describes of many entities, and all Postgres queries. A unit is a response item; see BULK_REQUEST."""
    WRITE = "write"
    """Config changes. A unit is an entity; a replay of an Idempotency-Key also costs one unit."""
    ADMIN = "admin"
    """Freezes, tokens and grants. A unit is a request."""


WAITING: Final = "waiting"
"""The name of the limit on waiting requests, in addition to the classes."""
Headers = tuple[tuple[bytes, bytes], ...]
_FULL: Final = (0, 0)
"""The missing units of a full bucket, and the seconds until it is full."""
_ROUNDING: Final = 1e-6
"""The tolerance for the rounding of floats, in seconds or units."""
_COSTS: Final[Mapping[LimitClass, int]] = {LimitClass.BULK: BULK_REQUEST}
_UNITS: Final[Mapping[LimitClass, str]] = {
    LimitClass.READ: "reads",
    LimitClass.BULK: "items of bulk reads",
    LimitClass.WRITE: "writes",
    LimitClass.ADMIN: "requests of administration",
}


@dataclass(frozen=True, slots=True)
class RateLimit:
    """The rate limit of one class: units per second, and the burst that may be used at once after a pause."""

    per_second: float
    burst: int

    @property
    def window_s(self) -> int:
        """Seconds to fill an empty bucket, rounded up."""
        return max(1, math.ceil(self.burst / self.per_second))


@dataclass(frozen=True, slots=True)
class RateLimits:
    """The limits of one principal; an absent class has no limit."""

    classes: Mapping[LimitClass, RateLimit]
    waiting: int
    """Maximum number of the principal's requests that wait for a revision at the same time."""


@dataclass(frozen=True, slots=True)
class LimitOverride:
    """Limits of a principal or group that replace the defaults; the defaults remain for absent parts."""

    classes: Mapping[LimitClass, RateLimit]
    waiting: int | None = None


class Bucket:
    """One token bucket, stored as the time at which it will be full.

    Args:
        kind: The class.
        limit: Its rate limit.
    """

    __slots__ = ("_full_at", "_headers", "_interval", "_patience", "_price_s", "_shown", "kind", "limit")

    def __init__(self, kind: LimitClass, limit: RateLimit) -> None:
        self.kind = kind
        self.limit = limit
        self._full_at = 0.0
        self._interval = 1 / limit.per_second
        self._price_s = _COSTS.get(kind, 1) * self._interval
        self._patience = (limit.burst - 1) / limit.per_second
        self._shown = _FULL
        self._headers = _headers(kind, limit, *self._shown)

    def take(self, now: float) -> float:
        """Take the units of a request if the bucket holds at least one; return 0, or the seconds until it holds one."""
        full_at = self._full_at
        if full_at < now:
            full_at = now
        elif (wait := full_at - now - self._patience) > _ROUNDING:
            return wait
        self._full_at = full_at + self._price_s
        return 0.0

    def charge(self, now: float, cost: float) -> None:
        """Take units, even more than the bucket holds."""
        self._full_at = max(self._full_at, now) + cost * self._interval

    def wait_s(self, now: float) -> float:
        """Return the seconds until the bucket holds a unit."""
        return max(0.0, self._full_at - now - self._patience)

    def missing(self, now: float) -> float:
        """Return the number of taken units that are not refilled yet."""
        return max(0.0, self._full_at - now) * self.limit.per_second

    def headers(self, now: float) -> Headers:
        """Return the policy, the units left, and the seconds until the bucket is full, as headers.

        Source: draft-ietf-httpapi-ratelimit-headers, since version 08.
        """
        missing_s = self._full_at - now
        shown = _FULL
        if missing_s > 0:
            shown = math.ceil(missing_s * self.limit.per_second - _ROUNDING), math.ceil(missing_s)
        if shown != self._shown:  # the numbers are mostly the same for the polls of one application
            self._shown = shown
            self._headers = _headers(self.kind, self.limit, *shown)
        return self._headers


class Allowance:
    """The buckets of one principal.

    Args:
        identity: The principal, with the groups that determine its limits.
        limits: The limits.
        refused: Counts of refusals by class, of all principals together.
        clock: The time in seconds.
    """

    __slots__ = ("_buckets", "_clock", "_excess", "_limits", "_refused", "groups", "principal", "waiting")

    def __init__(
        self, identity: Identity, limits: RateLimits, refused: dict[str, int], clock: Callable[[], float]
    ) -> None:
        self.principal = identity.principal
        self.groups = identity.groups
        self.waiting = 0
        self._limits = limits
        self._refused = refused
        self._clock = clock
        self._excess: dict[LimitClass, int] = {}
        self._buckets: dict[LimitClass, Bucket] = {}

    def bucket(self, kind: LimitClass) -> Bucket | None:
        """Return the bucket of a class; None if it has no limit."""
        found = self._buckets.get(kind)
        if found is None and kind in self._limits.classes:
            found = self._buckets[kind] = Bucket(kind, self._limits.classes[kind])
        return found

    def take(self, kind: LimitClass) -> None:
        """Admit a request of a class.

        Raises:
            LimitExceededError: The bucket of the class is empty. Nothing was done.
        """
        bucket = self._buckets.get(kind) or self.bucket(kind)
        if bucket is not None and (wait := bucket.take(self._clock())):
            raise self._exceeded(bucket, wait)
        # One admitted request does not clear the count: a bucket that is refilled quickly admits one every few
        # milliseconds. Those of another class do not count.
        if self._excess and kind in self._excess:
            self._excess[kind] -= 1
            if not self._excess[kind]:
                del self._excess[kind]

    async def hold(self) -> None:
        """Hold a refusal back if the principal keeps sending into an empty bucket, which costs CPU time."""
        if max(self._excess.values(), default=0) > HELD_AFTER:
            await asyncio.sleep(HELD_S)

    def charge(self, kind: LimitClass, units: int) -> None:
        """Take units for work that is done, or is about to be done in any case."""
        bucket = self._buckets.get(kind) or self.bucket(kind)
        if bucket is not None and units > 0:
            bucket.charge(self._clock(), units)

    def throttle_ms(self, kind: LimitClass) -> int:
        """Return the milliseconds to wait before the next request of a class; 0 if there is no need."""
        bucket = self._buckets.get(kind)
        return 0 if bucket is None else math.ceil(bucket.wait_s(self._clock()) * 1000)

    def headers(self, kind: LimitClass) -> Headers:
        """Return the headers of a response of a class; see :meth:`Bucket.headers`. A class without a limit has none."""
        bucket = self._buckets.get(kind) or self.bucket(kind)
        return () if bucket is None else bucket.headers(self._clock())

    @contextmanager
    def wait(self) -> Iterator[None]:
        """Count a waiting request for the duration of a block.

        Raises:
            LimitExceededError: The maximum number of the principal's requests is waiting already.
        """
        if self.waiting >= self._limits.waiting:
            self._refused[WAITING] += 1
            raise LimitExceededError(
                f"{self._limits.waiting} requests of {self.principal} are waiting for a revision on this process, and"
                " no more may; send this one again once others are answered",
                throttle_ms=1000,
            )
        self.waiting += 1
        try:
            yield
        finally:
            self.waiting -= 1

    def regroup(self, groups: frozenset[str], limits: RateLimits) -> None:
        """Replace the limits after a change of the principal's groups; the missing units carry over."""
        self.groups = groups
        self._limits = limits
        now = self._clock()
        for kind, bucket in list(self._buckets.items()):
            del self._buckets[kind]
            made = self.bucket(kind)
            if made is not None:
                made.charge(now, bucket.missing(now))

    def is_idle(self) -> bool:
        """Return True if a new allowance would be equivalent."""
        now = self._clock()
        return not self.waiting and not any(bucket.missing(now) for bucket in self._buckets.values())

    def _exceeded(self, bucket: Bucket, wait_s: float) -> LimitExceededError:
        kind, limit = bucket.kind, bucket.limit
        self._refused[kind] += 1
        self._excess[kind] = min(self._excess.get(kind, 0) + 1, _MOST_EXCESS)
        return LimitExceededError(
            f"{self.principal} has used up its limit on this process: {limit.per_second:g} {_UNITS[kind]} a second, and"
            f" {limit.burst} at once after a pause. Send the request again in {math.ceil(wait_s)} s; an administrator"
            f" may raise the limit by the setting limits.overrides",
            throttle_ms=math.ceil(wait_s * 1000),
            outcome=WriteOutcome.NOT_APPLIED if kind is LimitClass.WRITE else None,
        )


class Limiter:
    """The allowances of all principals of a process. Only the event loop touches it.

    Args:
        defaults: The limits of a principal without an override.
        overrides: Other limits by principal or group, ``User:portal`` or ``Group:payments``.
        most: Maximum number of principals that are kept.
        clock: The time in seconds.
    """

    def __init__(
        self,
        defaults: RateLimits,
        overrides: Mapping[str, LimitOverride] | None = None,
        *,
        most: int = MOST,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._defaults = defaults
        self._overrides = dict(overrides or {})
        self._most = most
        self._clock = clock
        self._refused: dict[str, int] = dict.fromkeys((*LimitClass, WAITING), 0)
        # Ordered by a linked list: in a plain dict, finding the first entry gets slower with each removed entry.
        self._known: OrderedDict[str, Allowance] = OrderedDict()

    def of(self, identity: Identity) -> Allowance | None:
        """Return the allowance of a caller; None if the caller has no limits.

        The principal of the credential pays, even if it acts for a user. The admin token and commands have limits only
        if there is an override for ``User:admin``.
        """
        found = self._known.get(identity.principal)
        if found is None:
            return None if identity.is_admin and ADMIN not in self._overrides else self._make(identity)
        if found.groups is not identity.groups and found.groups != identity.groups:
            found.regroup(identity.groups, self._limits(identity))
        return found

    def metrics(self) -> Iterator[Sample]:
        """Return the metrics."""
        yield Sample("limited_principals", len(self._known))
        for kind, count in self._refused.items():
            yield Sample("requests_limited", count, (kind,))

    def _make(self, identity: Identity) -> Allowance:
        self._forget()
        made = Allowance(identity, self._limits(identity), self._refused, self._clock)
        self._known[identity.principal] = made
        return made

    def _forget(self) -> None:
        """Drop the two oldest entries if they are idle; otherwise make them the newest, to check them again later."""
        for _ in range(min(2, len(self._known))):
            principal, oldest = self._known.popitem(last=False)
            if not oldest.is_idle() and len(self._known) < self._most - 1:
                self._known[principal] = oldest

    def _limits(self, identity: Identity) -> RateLimits:
        """Return the limits of a caller: its own override, or else the most generous of its groups, or the defaults."""
        own = self._overrides.get(identity.principal)
        groups = [self._overrides[group] for group in identity.groups if group in self._overrides]
        given = groups if own is None else [own]
        classes = dict(self._defaults.classes)
        for kind in LimitClass:
            found = [each.classes[kind] for each in given if kind in each.classes]
            if found:
                classes[kind] = max(found, key=lambda limit: (limit.per_second, limit.burst))
        waiting = [each.waiting for each in given if each.waiting is not None]
        return RateLimits(classes, max(waiting, default=self._defaults.waiting))


def _headers(kind: LimitClass, limit: RateLimit, missing: int, missing_s: int) -> Headers:
    """Return the headers of a bucket, given its missing units and the seconds until it is full."""
    left = max(0, limit.burst - missing)
    return _policy(kind, limit), (b"ratelimit", b'"%s";r=%d;t=%d' % (kind.encode(), left, missing_s))


@lru_cache(maxsize=1024)
def _policy(kind: LimitClass, limit: RateLimit) -> tuple[bytes, bytes]:
    return b"ratelimit-policy", b'"%s";q=%d;w=%d' % (kind.encode(), limit.burst, limit.window_s)
