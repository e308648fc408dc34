"""Describes of one KRaft cluster, and alters of its client quotas and configs."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from confplane.kraft import configs
from confplane.kraft.alters import AlterSender, send_config_alters, send_quota_alters
from confplane.kraft.pool import ConnectionPartition, ConnectionPool, fan_out
from confplane.kraft.views import (
    ConfigResourceType,
    Features,
    Quotas,
    Resource,
    ResourceConfigs,
)
from confplane.kraft.wire import errors, quotas
from confplane.kraft.wire.errors import KraftError, UnreachableError, UnsupportedError
from confplane.kraft.wire.messages import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    MetadataRequest,
    MetadataResponse,
)
from confplane.kraft.wire.messages.cluster import MetadataRequestTopic
from confplane.kraft.wire.messages.quorum import DescribeQuorumRequestPartitionData, DescribeQuorumRequestTopicData
from confplane.kraft.wire.messages.quotas import ComponentData

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
    from uuid import UUID

    from confplane.kraft.alters import Name
    from confplane.kraft.pool import Broker
    from confplane.kraft.wire.connection import KraftConnection
    from confplane.kraft.wire.messages.quorum import DescribeQuorumResponsePartitionData
    from confplane.kraft.wire.options import Address, Options

_T = TypeVar("_T")

METADATA_TOPIC: Final = "__cluster_metadata"
_ATTEMPTS: Final = 3
_RESOURCES_AT_ONCE: Final = 100
"""Resources in one request: 35 ms of a broker's time for 100 topics."""
_NO_TOPIC: Final = errors.RIGHTS | {errors.UNKNOWN_TOPIC_OR_PARTITION, errors.INVALID_TOPIC_EXCEPTION}
_BARRIER_PAUSE_S: Final = 0.003
_THROTTLE_BYTES: Final = 4
"""The throttle time precedes the rest of a response, and is excluded from the comparison."""
_FENCED_VERSION: Final = 2
"""The version of DescribeCluster from which brokers that are away are listed (KIP-1073)."""
_EXACT, _DEFAULT = 0, 1  # DescribeClientQuotas' kinds of a match


class KraftClient:
    """The describes of one cluster, through any of its brokers; and its alters.

    Each describe has a deadline on ``time.monotonic()``'s clock, is retried if a connection is lost, and raises the
    errors of :mod:`confplane.kraft.wire.errors`. Calls may run concurrently. All use one broker, :attr:`source`, as
    long as that broker responds: a call after :meth:`barrier` sees everything before the barrier, if :attr:`source` is
    the same before and after.

    Args:
        bootstrap: Addresses of brokers.
        options: TLS, login, limits.
        cluster_id: The id that each node must report. None means the first node's.
    """

    def __init__(self, bootstrap: Sequence[Address], options: Options, *, cluster_id: str | None = None) -> None:
        self._pool = ConnectionPool(bootstrap, options, cluster_id=cluster_id)
        self.finalized: Mapping[str, int] | None = None
        """The finalized feature levels that a broker reported last, or None before the first report."""
        self.quota_alters: AlterSender[Name, float] = AlterSender(
            send_quota_alters, partial(self._pool.any, partition=ConnectionPartition.ALTERS)
        )
        self._config_alters: dict[tuple[int | None, ConnectionPartition], AlterSender[Resource, str]] = {}

    @property
    def source(self) -> Address | None:
        """The broker that calls use. None before the first call and after a failure."""
        return self._pool.favourite

    def config_alters(
        self, broker: int | None = None, partition: ConnectionPartition = ConnectionPartition.ALTERS
    ) -> AlterSender[Resource, str]:
        """Return the alters of one broker's own configs, by its number, or of all other configs for None.

        Each sender has one request at a time. Senders of different partitions do not wait for each other.
        """
        connect = self._pool.any if broker is None else partial(self._pool.broker, broker)
        return self._config_alters.setdefault(
            (broker, partition), AlterSender(send_config_alters, partial(connect, partition=partition))
        )

    async def close(self) -> None:
        """Close the connections. Running calls fail."""
        await self._pool.close()

    # -- the cluster

    async def cluster_id(self, deadline: float) -> str:
        """Return the cluster's id, as a broker currently reports it."""
        await self.brokers(deadline)
        return self._pool.cluster_id or ""

    async def brokers(self, deadline: float) -> tuple[Broker, ...]:
        """Return the brokers that are alive."""

        async def ask(connection: KraftConnection) -> tuple[Broker, ...]:
            await self._pool.refresh(connection, deadline)
            return self._pool.brokers

        return await self._anywhere(ask, deadline)

    async def registered_brokers(self, deadline: float) -> tuple[int, ...]:
        """Return the ids of the registered brokers. Brokers before Kafka 4.0 list only those that are alive."""

        async def ask(connection: KraftConnection) -> tuple[int, ...]:
            fenced = _FENCED_VERSION in connection.has(DescribeClusterRequest)
            return await _brokers(connection, deadline, fenced=fenced)

        return await self._anywhere(ask, deadline)

    async def is_unregistered(self, node: int, deadline: float) -> bool:
        """Return whether a node is not registered as a broker; False also if the cluster does not show this."""

        async def ask(connection: KraftConnection) -> bool:
            if _FENCED_VERSION not in connection.has(DescribeClusterRequest):
                return False
            return node not in await _brokers(connection, deadline, fenced=True)

        try:
            return await self._anywhere(ask, deadline)
        except errors.KraftError:
            return False

    async def is_controller(self, node: int, deadline: float) -> bool:
        """Return whether a node is a controller; False also if the cluster does not show this."""
        try:
            return node in {each.replica_id for each in (await self.quorum(deadline)).current_voters}
        except errors.KraftError:
            return False

    async def features(self, deadline: float, broker: int | None = None) -> Features:
        """Return the features and the metadata offset of :attr:`source`, or of one broker by its number."""

        async def ask(connection: KraftConnection) -> Features:
            answer = await connection.api_versions(deadline)
            finalized = {each.name: each.max_version_level for each in answer.finalized_features}
            if answer.finalized_features_epoch >= 0:
                self.finalized = finalized
            return Features(
                connection.address,
                answer.finalized_features_epoch,
                finalized,
                {each.name: (each.min_version, each.max_version) for each in answer.supported_features},
            )

        if broker is not None:
            return await ask(await self._pool.broker(broker, deadline))
        return await self._anywhere(ask, deadline)

    async def quorum(self, deadline: float) -> DescribeQuorumResponsePartitionData:
        """Return the controllers according to the active one, and the high watermark.

        Raises:
            RightsError: The right to DESCRIBE the CLUSTER is missing.
        """
        request = DescribeQuorumRequest(
            (DescribeQuorumRequestTopicData(METADATA_TOPIC, (DescribeQuorumRequestPartitionData(0),)),)
        )

        async def ask(connection: KraftConnection) -> DescribeQuorumResponsePartitionData:
            answer = await connection.call(request, DescribeQuorumResponse, deadline)
            errors.check("DescribeQuorum", answer.error_code, answer.error_message)
            if len(answer.topics) != 1 or len(answer.topics[0].partitions) != 1:
                raise errors.ProtocolError(f"{connection.address} describes a quorum that was not asked for.")
            (partition,) = answer.topics[0].partitions
            errors.check("DescribeQuorum", partition.error_code, partition.error_message)
            return partition

        return await self._anywhere(ask, deadline)

    async def reassigned_topics(self, deadline: float) -> frozenset[str]:
        """Return the topics with a reassignment in progress. The broker asks the active controller.

        Raises:
            RightsError: The right to DESCRIBE the CLUSTER is missing.
        """
        request = ListPartitionReassignmentsRequest(timeout_ms=max(0, int((deadline - time.monotonic()) * 1000)))

        async def ask(connection: KraftConnection) -> frozenset[str]:
            answer = await connection.call(request, ListPartitionReassignmentsResponse, deadline)
            errors.check("ListPartitionReassignments", answer.error_code, answer.error_message)
            return frozenset(each.name for each in answer.topics)

        return await self._anywhere(ask, deadline, ConnectionPartition.LONG)

    async def barrier(self, deadline: float) -> int:
        """Wait until :attr:`source` has reached the current high watermark; return the metadata offset reached.

        A later describe of quotas and topics includes everything that the cluster acknowledged before the call.

        Raises:
            RightsError: The right to DESCRIBE the CLUSTER is missing.
            UnreachableError: The broker does not reach the offset in time; it may be cut off from the controllers.
        """
        last = (await self.quorum(deadline)).high_watermark - 1  # of the last committed record
        while (reached := await self.features(deadline)).offset < last:
            if time.monotonic() + _BARRIER_PAUSE_S >= deadline:
                raise UnreachableError(
                    f"{reached.source} stays at the metadata offset {reached.offset}, the cluster is at {last}:"
                    " the broker does not hear of changes."
                )
            await asyncio.sleep(_BARRIER_PAUSE_S)
        return reached.offset

    # -- quotas

    async def describe_quotas(self, last_digest: bytes | None, deadline: float) -> Quotas:
        """Return all quotas; without decoding them if the response has the digest.

        Raises:
            RightsError: The right to DESCRIBE_CONFIGS of the CLUSTER is missing.
        """

        async def ask(connection: KraftConnection) -> Quotas:
            request = DescribeClientQuotasRequest(components=(), strict=False)
            received = await connection.ask(request, DescribeClientQuotasResponse, deadline)
            digest = await received.digest(_THROTTLE_BYTES)
            if digest == last_digest:
                connection.leave(received)
                return Quotas(connection.address, digest, None)
            answer = await connection.read(received, quotas.steps)
            errors.check("DescribeClientQuotas", answer.error_code, answer.error_message)
            return Quotas(connection.address, digest, answer.entries)

        return await self._anywhere(ask, deadline, ConnectionPartition.LONG)

    async def describe_quotas_of(
        self, entity: Sequence[tuple[str, str | None]], deadline: float
    ) -> Mapping[str, float] | None:
        """Return the quotas of exactly one entity, or None if it has none. For a pair a broker searches all quotas."""
        components = tuple(ComponentData(kind, _DEFAULT if name is None else _EXACT, name) for kind, name in entity)

        async def ask(connection: KraftConnection) -> Mapping[str, float] | None:
            request = DescribeClientQuotasRequest(components=components, strict=True)
            received = await connection.ask(request, DescribeClientQuotasResponse, deadline)
            answer = await connection.read(received, quotas.steps)
            errors.check("DescribeClientQuotas", answer.error_code, answer.error_message)
            wanted = sorted(entity, key=lambda part: part[0])
            found = [each for each in answer.entries if sorted(each.entity, key=lambda part: part[0]) == wanted]
            return found[0].values if found else None

        return await self._anywhere(ask, deadline)

    # -- configs

    async def describe_configs(
        self,
        resources: Sequence[Resource],
        deadline: float,
        *,
        keys: Collection[str] | None = None,
        synonyms: bool = False,
    ) -> list[ResourceConfigs]:
        """Return the configs of resources in their order, 100 in a request.

        Only a broker itself is asked for its own configs: if it is unavailable, the resource has that error. A missing
        right or an unknown topic is the error of its resource.
        """
        wanted = None if keys is None else tuple(keys)
        found: dict[Resource, ResourceConfigs] = {}
        own = [
            each
            for each in resources
            if each.type in {ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER} and each.name
        ]
        rest = [each for each in resources if each not in own]
        for first in range(0, len(rest), _RESOURCES_AT_ONCE):
            part = rest[first : first + _RESOURCES_AT_ONCE]

            async def ask(connection: KraftConnection, part: Sequence[Resource] = part) -> list[ResourceConfigs]:
                return await configs.describe(connection, part, wanted, deadline, synonyms=synonyms)

            found |= {each.resource: each for each in await self._anywhere(ask, deadline)}
        described = await fan_out(own, lambda each: self._of_broker(each, wanted, deadline, synonyms=synonyms))
        found |= zip(own, described, strict=True)
        return [found[each] for each in resources]

    async def _of_broker(
        self, resource: Resource, keys: tuple[str, ...] | None, deadline: float, *, synonyms: bool
    ) -> ResourceConfigs:
        if not resource.name.isascii() or not resource.name.isdecimal():
            return ResourceConfigs(resource, error=UnreachableError(f"There is no broker {resource.name!r}."))
        for attempt in range(_ATTEMPTS):
            try:
                connection = await self._pool.broker(int(resource.name), deadline)
                return (await configs.describe(connection, [resource], keys, deadline, synonyms=synonyms))[0]
            except UnreachableError as error:
                if attempt == _ATTEMPTS - 1 or time.monotonic() >= deadline:
                    return ResourceConfigs(resource, error=error)
        raise AssertionError("the last attempt returns")

    async def list_config_resources(self, types: Collection[ConfigResourceType], deadline: float) -> list[Resource]:
        """Return the resources of some types that may have configs of their own.

        Raises:
            UnsupportedError: The broker lists only CLIENT_METRICS (Kafka before 4.1).
            RightsError: The right to DESCRIBE_CONFIGS of the CLUSTER is missing.
        """

        async def ask(connection: KraftConnection) -> list[Resource]:
            every = connection.has(ListConfigResourcesRequest)
            if 1 not in every and set(types) != {ConfigResourceType.CLIENT_METRICS}:
                raise UnsupportedError(
                    f"{connection.address} can't list resources with configs other than CLIENT_METRICS; Kafka 4.1 and"
                    " later can."
                )
            request = ListConfigResourcesRequest(tuple(sorted(types)) if 1 in every else ())
            answer = await connection.call(request, ListConfigResourcesResponse, deadline)
            errors.check("ListConfigResources", answer.error_code)
            return [configs.resource_of(connection, each) for each in answer.config_resources]

        return await self._anywhere(ask, deadline)

    async def topics(self, deadline: float, names: Collection[str] | None = None) -> dict[str, UUID]:
        """Return the ids of the topics that may be described, by name: of all, or of those with the given names."""
        wanted = None if names is None else tuple(MetadataRequestTopic(name=name) for name in names)

        async def ask(connection: KraftConnection) -> dict[str, UUID]:
            request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
            answer = await connection.call(request, MetadataResponse, deadline)
            errors.check("Metadata", answer.error_code)
            return {
                each.name: each.topic_id
                for each in answer.topics
                if each.name is not None and each.error_code not in _NO_TOPIC
            }

        # A request for a few names does not wait for a large response.
        return await self._anywhere(
            ask, deadline, ConnectionPartition.LONG if names is None else ConnectionPartition.SHORT
        )

    # -- the connection to a broker

    async def _anywhere(
        self,
        ask: Callable[[KraftConnection], Awaitable[_T]],
        deadline: float,
        partition: ConnectionPartition = ConnectionPartition.SHORT,
    ) -> _T:
        """Ask the favourite broker. If its connection is lost, ask again, elsewhere if needed.

        All requests are describes.
        """
        last: KraftError | None = None
        for _ in range(_ATTEMPTS):
            connection = await self._pool.any(deadline, partition)
            try:
                return await ask(connection)
            except UnreachableError as error:
                last = error
            except errors.AnswerError as error:
                if not error.passing:
                    raise
                last = error
            if time.monotonic() >= deadline:
                break
        raise last or UnreachableError("No attempt was made.")


async def _brokers(connection: KraftConnection, deadline: float, *, fenced: bool) -> tuple[int, ...]:
    request = DescribeClusterRequest(include_fenced_brokers=fenced)
    answer = await connection.call(request, DescribeClusterResponse, deadline)
    errors.check("DescribeCluster", answer.error_code, answer.error_message)
    return tuple(sorted(each.broker_id for each in answer.brokers))
