"""The source of dynamic values, and its one implementation: the poll.

A poll begins with KIP-649's describe, which registers the client's software and the configs that it supports. The polls
after it are reads of the effective values with the ETag of the last answer, so an unchanged answer has no body. Once a
day a poll registers again, because the service counts clients by the day of their last registration.
"""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from confplane.client.errors import ClientError, ProblemError
from confplane.domain.entities import EntityType

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from confplane.client import Answer, AsyncConfplane
    from confplane.client.types import ConfigFilterComponent
    from confplane.domain.entities import Entity

_LACKING_STATUSES: Final = frozenset({404, 405, 501})
_LACKING_CODES: Final = frozenset({35, 42})
"""UNSUPPORTED_VERSION and INVALID_REQUEST: the answers of a service that does not know the request."""
_FIRST_RETRY_S: Final = 1.0
_LONGEST_RETRY_AFTER_S: Final = 3_600.0
_JITTER: Final = 0.2
_SECONDS_PER_DAY: Final = 86_400.0


@dataclass(frozen=True, slots=True)
class DynamicValues:
    """The current dynamic values of the service, by Java's names."""

    configs: Mapping[str, str]
    revision: int | None = None
    """The revision of the answer that has them; None if the source has none."""


@dataclass(frozen=True, slots=True)
class UnchangedValues:
    """The values are those of the last answer."""

    revision: int | None = None
    """The revision of this answer; None if the source has none."""


@dataclass(frozen=True, slots=True)
class SourceUnavailable:
    """The service could not be read this time. A later poll may succeed."""

    reason: str


@dataclass(frozen=True, slots=True)
class SourceUnsupported:
    """The service does not support the feature. No update will follow."""

    reason: str


Update = DynamicValues | UnchangedValues | SourceUnavailable | SourceUnsupported


class UpdateSource(Protocol):
    """A source of updates."""

    async def next(self) -> Update:
        """Wait for the next update. The first one arrives as soon as it is available."""
        ...


@dataclass(frozen=True, slots=True)
class SoftwareRegistration:
    """The software of a client and the configs that it supports, as the client registers them."""

    software_name: str
    software_version: str
    supported_configs: Sequence[str]


def is_unsupported(status: int, code: int | None) -> bool:
    """Return True if an error means that the service does not support the feature, by HTTP status and Kafka code."""
    return status in _LACKING_STATUSES or code in _LACKING_CODES


def pause_s(max_age_s: float, failures: int, retry_after_s: float | None, share: float) -> float:
    """Return the seconds before the next poll.

    After an answer, this is ``max_age_s`` varied by up to a fifth. After failures it doubles from one second up to
    ``max_age_s``, shortened by up to half. ``Retry-After`` is the minimum, up to an hour.

    Args:
        max_age_s: ``metadata.max.age.ms``, in seconds.
        failures: Polls without an answer since the last one that had an answer.
        retry_after_s: ``Retry-After`` of the last answer.
        share: A random number from 0 to 1.
    """
    if not failures:
        return max_age_s * (1 - _JITTER + 2 * _JITTER * share)
    backoff = min(max_age_s, _FIRST_RETRY_S * 2.0 ** min(failures - 1, 32)) * (0.5 + 0.5 * share)
    return max(backoff, min(retry_after_s or 0.0, _LONGEST_RETRY_AFTER_S) * (1 + _JITTER * share))


class PollingSource:
    """Polls the service.

    Args:
        client: A client of the cluster, in the event loop of :meth:`next`.
        entity: ``<user>`` or ``<user, client-id>``.
        registration: The facts to register.
        max_age_s: ``metadata.max.age.ms``, in seconds.
        sleep: Waits for seconds.
        share: Draws a random number from 0 to 1.
        clock: A monotonic clock, in seconds.
    """

    def __init__(
        self,
        client: AsyncConfplane,
        entity: Entity,
        registration: SoftwareRegistration,
        *,
        max_age_s: float,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        share: Callable[[], float] = random.random,  # noqa: S311 - no secret
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._entity = entity
        self._registration = registration
        self._max_age_s = max_age_s
        self._sleep = sleep
        self._share = share
        self._clock = clock
        self._pause_s = 0.0
        self._failures = 0
        self._etag: str | None = None
        self._registered_at: float | None = None

    async def next(self) -> Update:
        """Wait for the time of the next poll, and poll."""
        await self._sleep(self._pause_s)
        try:
            update = await self._polled()
        except ProblemError as error:
            if is_unsupported(error.status, error.kafka_error_code):
                return SourceUnsupported(str(error))
            return self._failed(error)
        except ClientError as error:
            return self._failed(error)
        except Exception as error:  # noqa: BLE001 - any answer of a proxy
            return self._failed(ClientError(f"{type(error).__name__}: {error}"))
        self._failures = 0
        self._pause_s = pause_s(self._max_age_s, 0, None, self._share())
        return update

    def _failed(self, error: ClientError) -> SourceUnavailable:
        self._failures += 1
        self._pause_s = pause_s(self._max_age_s, self._failures, error.retry_after_s, self._share())
        return SourceUnavailable(str(error))

    async def _polled(self) -> Update:
        now = self._clock()
        if self._registered_at is None or now - self._registered_at >= _SECONDS_PER_DAY:
            answer = await self._register()
            configs = _described(answer)
            self._registered_at = now
            self._etag = None
            return DynamicValues(configs, answer.revision)
        answer = await self._client.client_configs.effective.if_none_match(self._etag, self._entity)
        if answer.body is None:
            return UnchangedValues(answer.revision)
        configs = _pairs(answer.body, "configs")
        self._etag = answer.etag
        return DynamicValues(configs, answer.revision)

    async def _register(self) -> Answer[Any]:
        components: list[ConfigFilterComponent] = [
            {"entityType": "user" if kind is EntityType.USER else "client-id", "matchType": "exact", "match": name}
            for kind, name in self._entity.components
        ]
        return await self._client.client_configs.describe(
            components,
            resolve_entity=True,
            supported_configs=self._registration.supported_configs,
            client_information={
                "softwareName": self._registration.software_name,
                "softwareVersion": self._registration.software_version,
            },
        )


def _described(answer: Answer[Any]) -> dict[str, str]:
    entries = answer.body.get("entries") if isinstance(answer.body, dict) else None
    if not isinstance(entries, list) or len(entries) > 1:
        raise _strange()
    return _pairs(entries[0], "values") if entries else {}


def _pairs(holder: Any, member: str) -> dict[str, str]:
    """Return the keys and values of a list of ``{"key": ..., "value": ...}``.

    Raises:
        ClientError: The answer has another form, so it comes from a proxy between the client and the service.
    """
    items = holder.get(member) if isinstance(holder, dict) else None
    if not isinstance(items, list):
        raise _strange()
    found: dict[str, str] = {}
    for item in items:
        match item:
            case {"key": str(key), "value": str(value)}:
                found[key] = value
            case _:
                raise _strange()
    return found


def _strange() -> ClientError:
    return ClientError("the answer is not that of a Confplane")
