"""Results of describes, where the generated messages do not suffice."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

from confplane.domain.config_resources import ConfigResourceType as ConfigResourceType  # noqa: PLC0414, TC001 - as below
from confplane.kraft.wire.quotas import QuotaEntry as QuotaEntry  # noqa: PLC0414, TC001 - one of the views

if TYPE_CHECKING:
    from collections.abc import Mapping

    from confplane.kraft.wire.errors import KraftError
    from confplane.kraft.wire.messages.configs import DescribeConfigsResourceResult
    from confplane.kraft.wire.options import Address


class KafkaConfigSource(IntEnum):
    """Sources of the value of a config, by Kafka's numbers (``DescribeConfigsResponse.ConfigSource``)."""

    UNKNOWN = 0
    TOPIC = 1
    BROKER = 2
    DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


@dataclass(frozen=True, slots=True)
class Resource:
    """A topic, broker, group or subscription. The broker "" is the default of all brokers."""

    type: ConfigResourceType
    name: str


@dataclass(frozen=True, slots=True)
class Features:
    """One broker's features at one time."""

    source: Address
    offset: int
    """The metadata offset that the broker has reached, or -1 if it does not report one."""
    finalized: Mapping[str, int]
    """Feature to its level, such as ``metadata.version`` to 30."""
    supported: Mapping[str, tuple[int, int]]
    """Feature to the least and greatest level that the broker supports."""


@dataclass(frozen=True, slots=True)
class Quotas:
    """All quotas, as returned by one broker."""

    source: Address
    digest: bytes
    """Equal digests mean equal quotas. The order of a response depends on the broker, and may change on a restart."""
    entries: tuple[QuotaEntry, ...] | None
    """None if they are those of the digest that was given."""


@dataclass(frozen=True, slots=True)
class ResourceConfigs:
    """The configs of one resource, or the reason why there are none."""

    resource: Resource
    entries: tuple[DescribeConfigsResourceResult, ...] = ()
    """The effective values. That of a sensitive key is None, and that of a key without a value. ``config_source`` is a
    number of :class:`KafkaConfigSource`, or one that this service does not know."""
    error: KraftError | None = None
    source: Address | None = None
