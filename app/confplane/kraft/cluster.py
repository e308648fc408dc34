"""A Kafka cluster without ZooKeeper as the services know it: the ports implemented with the wire client."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from confplane.domain.entities import Entity, EntityType
from confplane.domain.errors import UnavailableError
from confplane.domain.numbers import parse_java_double
from confplane.domain.releases import metadata_version, release_of
from confplane.kraft.bounded_poll import poll_bounded
from confplane.kraft.client import KraftClient
from confplane.kraft.connection_options import options_of
from confplane.kraft.entity_converter import EntityConverter, resource_of
from confplane.kraft.log_pages import LogPages, kafka_id
from confplane.kraft.metadata_log import MetadataLog
from confplane.kraft.permissions import OWN_RIGHTS, PermissionProbe
from confplane.kraft.pool import ConnectionPartition, fan_out
from confplane.kraft.views import ConfigResourceType, Resource
from confplane.kraft.wire import errors
from confplane.kraft.wire.options import Address
from confplane.services.cooperative_yielding import free_in_slices, in_slices
from confplane.services.metrics import Sample
from confplane.services.ports.applying import AlterRefused, AlterRetriable
from confplane.services.ports.kafka import (
    ClusterIdentity,
    KraftEntityType,
    LogPage,
    NotPermittedError,
    ObservedEntity,
    OtherClusterError,
    Snapshot,
    Unmanaged,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence

    from confplane.connection_settings import KafkaSettings
    from confplane.domain.observed import ObservedRules
    from confplane.kraft.alters import QuotaOps
    from confplane.kraft.views import Features, QuotaEntry, ResourceConfigs
    from confplane.services.ports.applying import Alteration, AlterOutcome
    from confplane.services.ports.kafka import GrantedPermission


_FEATURE: Final = "metadata.version"
_ELIGIBLE_REPLICAS: Final = "eligible.leader.replicas.version"
_LISTED: Final = {
    KraftEntityType.GROUPS: ConfigResourceType.GROUP,
    KraftEntityType.CLIENT_METRICS: ConfigResourceType.CLIENT_METRICS,
}
_UNPROVEN_S: Final = 1.0
_UNPROVEN_PAUSE_S: Final = 0.1
_UNPROVEN_STEPS: Final = 2
"""Steps of a broker's offset that replace a barrier. An idle cluster makes one every half second (KIP-835)."""


class KraftCluster:
    """One cluster, by its brokers.

    Args:
        setting: The name of the settings, for messages.
        settings: Addresses, TLS and login.
        rules: The rules of the cluster's configs.
        expected: Returns the id that each broker must report, or None while there is no target.

    Raises:
        UnusableSettingsError: A file of the settings can't be used.
    """

    def __init__(
        self, setting: str, settings: KafkaSettings, rules: ObservedRules, expected: Callable[[], str | None]
    ) -> None:
        self._bootstrap = [Address.parse(text) for text in settings.bootstrap]
        self._controllers = [Address.parse(text) for text in settings.controllers]
        self._options = options_of(setting, settings)
        self._timeout_s = settings.request_timeout_ms / 1000
        self._expected = expected
        self._converter = EntityConverter(rules)
        self._made: tuple[str | None, KraftClient] | None = None
        self.release = ""
        """The release that :meth:`identity` returned last; empty before the first call."""

    # -- the cluster

    async def identity(self, deadline: float) -> ClusterIdentity:
        """Return the cluster's id, release and brokers."""
        with translate_errors():
            client = await self._client()
            cluster_id = await client.cluster_id(self._by(deadline))
            brokers = tuple(sorted(each.node_id for each in await client.brokers(self._by(deadline))))

            async def ask(broker: int) -> Features | None:
                try:
                    return await client.features(self._by(deadline), broker)
                except errors.UnreachableError:
                    return None  # its release is included again once it is back

            known = await client.features(self._by(deadline))
            features = [known, *(each for each in await fan_out(brokers, ask) if each is not None)]
            level = features[0].finalized.get(_FEATURE, 0)
            oldest = min(each.supported.get(_FEATURE, (0, 0))[1] for each in features)
            if level < 1 or oldest < 1:
                raise UnavailableError(
                    f"The brokers at {features[0].source} have no metadata.version: they belong to a cluster"
                    " with ZooKeeper, or are older than Kafka 3.3"
                )
        self.release = release_of(oldest)
        return ClusterIdentity(cluster_id, self.release, metadata_version(level) or f"level {level}", brokers)

    @property
    def keeps_eligible_replicas(self) -> bool:
        """True if the last poll found eligible leader replicas (KIP-966), and before the first poll.

        Every poll reads the finalized features of its brokers anyway, because it needs their offsets.
        """
        levels = None if self._made is None else self._made[1].finalized
        return levels is None or levels.get(_ELIGIBLE_REPLICAS, 0) > 0

    async def barrier(self, deadline: float) -> int:
        """Return a metadata offset after all acknowledged changes."""
        with translate_errors():
            client = await self._client()
            try:
                return await client.barrier(self._by(deadline))
            except errors.RightsError:
                return await self._unproven(client, deadline)

    async def _unproven(self, client: KraftClient, deadline: float) -> int:
        """Wait until the broker has received changes twice, and for at least a second.

        The offset of a broker that is cut off does not advance.

        Two equal offsets would prove the opposite: the active controller moves the offset all the time.
        """
        first = await client.features(self._by(deadline))
        until, observed = time.monotonic() + _UNPROVEN_S, {first.offset}
        while len(observed) <= _UNPROVEN_STEPS or time.monotonic() < until:
            if time.monotonic() + _UNPROVEN_PAUSE_S >= deadline:
                raise errors.UnreachableError(
                    f"{first.source} stays at the metadata offset {first.offset}: the broker does not hear of changes."
                )
            await asyncio.sleep(_UNPROVEN_PAUSE_S)
            now = await client.features(self._by(deadline))
            if now.source != first.source:
                first, observed = now, set()
            observed.add(now.offset)
        return max(observed)

    async def permissions(
        self, deadline: float, *, alters: bool = False
    ) -> Mapping[KraftEntityType, GrantedPermission]:
        """Try each describe once and, with ``alters``, each alter with no key."""
        with translate_errors():
            return await PermissionProbe(await self._client(), self._timeout_s).probe(deadline, alters=alters)

    async def unproven(self, deadline: float) -> str | None:
        """Return the reason why there is no barrier, or None if there is one."""
        with translate_errors():
            try:
                await (await self._client()).quorum(self._by(deadline))
            except errors.RightsError as error:
                return str(error)
        return None

    async def reassigned_topics(self, topics: Collection[str], deadline: float) -> frozenset[str] | None:
        """Return all topics with a reassignment in progress, or None if the right to list them is missing."""
        del topics
        with translate_errors():
            try:
                return await (await self._client()).reassigned_topics(self._by(deadline))
            except errors.RightsError:
                return None

    # -- quotas

    async def quotas(self, digest: bytes, deadline: float) -> Snapshot:
        """Describe all client quotas."""

        async def take_snapshot(client: KraftClient) -> tuple[Snapshot, set[Address | None]]:
            found = await client.describe_quotas(digest or None, self._by(deadline))
            if found.entries is None:
                return Snapshot((), (), 0, 0, 0, digest, unchanged=True), {found.source}
            made = _snapshot(await in_slices(self._quotas_of, found.entries), found.digest)
            entries, source = list(found.entries), found.source
            del found
            await free_in_slices(entries)
            return made, {source}

        with translate_errors():
            return await poll_bounded(await self._client(), take_snapshot, frozenset(), lambda: self._by(deadline))

    def _quotas_of(self, entry: QuotaEntry) -> ObservedEntity | Unmanaged:
        return self._converter.quotas(entry.entity, entry.values.items())

    async def quotas_of(self, entities: Sequence[Entity], deadline: float) -> Snapshot:
        """Describe the quotas of some entities."""

        async def take_snapshot(client: KraftClient) -> tuple[Snapshot, set[Address | None]]:
            observed: list[ObservedEntity | Unmanaged] = []
            sources: set[Address | None] = set()
            for entity in entities:
                components = [(kind.value, name) for kind, name in entity.components]
                values = await client.describe_quotas_of(components, self._by(deadline))
                sources.add(client.source)
                observed.append(self._converter.quotas(components, (values or {}).items()))
            return _snapshot(observed), sources

        with translate_errors():
            return await poll_bounded(await self._client(), take_snapshot, frozenset(), lambda: self._by(deadline))

    async def alter_quotas(
        self, alterations: Sequence[Alteration], deadline: float, *, validate_only: bool = False
    ) -> list[AlterOutcome]:
        """Alter client quotas."""
        outcomes: dict[Entity, AlterOutcome] = {}
        sent: dict[Entity, QuotaOps] = {}
        for each in alterations:
            name = tuple((kind.value, part) for kind, part in each.entity.components)
            try:
                values = {
                    key: None if value is None else parse_java_double(value) for key, value in each.values.items()
                }
            except ValueError as error:
                outcomes[each.entity] = AlterRefused(errors.INVALID_REQUEST, f"A stored value is not a number: {error}")
            else:
                sent[each.entity] = name, values
        with translate_errors():
            alters = (await self._client()).quota_alters
            answered = await alters.alter(list(sent.values()), lambda: self._by(deadline), validate_only=validate_only)
        outcomes |= zip(sent, answered, strict=True)
        return [outcomes[each.entity] for each in alterations]

    # -- configs

    async def topics(self, deadline: float) -> Mapping[str, str]:
        """Return the ids of all topics by name."""
        with translate_errors():
            found = await (await self._client()).topics(self._by(deadline))
        return {name: kafka_id(topic_id) for name, topic_id in found.items()}

    async def topic_ids(self, names: Collection[str], deadline: float) -> Mapping[str, str]:
        """Return the ids of some topics by name."""
        with translate_errors():
            found = await (await self._client()).topics(self._by(deadline), names)
        return {name: kafka_id(topic_id) for name, topic_id in found.items()}

    async def static_values(
        self, keys: Collection[str], broker: int | None, deadline: float
    ) -> Mapping[int, Mapping[str, str] | None]:
        """Return the values below the dynamic levels, by broker; None for a broker that does not answer."""
        with translate_errors():
            client = await self._client()
            brokers = (broker,) if broker is not None else await client.registered_brokers(self._by(deadline))
            resources = [Resource(ConfigResourceType.BROKER, str(each)) for each in brokers]
            found = await client.describe_configs(resources, self._by(deadline), keys=keys, synonyms=True)
            return {
                int(each.resource.name): self._converter.static_values(each.entries) if _is_there(each) else None
                for each in found
            }

    async def alter_configs(
        self, alterations: Sequence[Alteration], deadline: float, *, validate_only: bool = False
    ) -> list[AlterOutcome]:
        """Alter configs."""
        entries = [(resource_of(each.entity), each.values) for each in alterations]
        brokers = {int(resource.name) for resource, _ in entries if _of_a_broker(resource)}
        with translate_errors():
            partition = ConnectionPartition.SHORT if validate_only else ConnectionPartition.ALTERS
            alters = (await self._client()).config_alters(next(iter(brokers), None), partition)
            try:
                return await alters.alter(entries, lambda: self._by(deadline), validate_only=validate_only)
            except errors.UnreachableError as error:
                if not brokers:
                    raise
                [broker] = brokers
                client = await self._client()
                unregistered = await client.is_unregistered(broker, self._by(deadline))
                if unregistered and await client.is_controller(broker, self._by(deadline)):
                    return [AlterRefused(errors.INVALID_REQUEST, f"Node {broker} is a controller, not a broker")]
                return [AlterRetriable(str(error), unregistered)]

    async def names(self, entity_type: KraftEntityType, deadline: float) -> tuple[list[Entity], list[Unmanaged]]:
        """Return the entities of a type that may have declared configs."""
        with translate_errors():
            client = await self._client()
            if entity_type is KraftEntityType.BROKERS:
                alive = sorted(each.node_id for each in await client.brokers(self._by(deadline)))
                resources = [Resource(ConfigResourceType.BROKER, name) for name in ("", *map(str, alive))]
            else:
                try:
                    resources = await client.list_config_resources({_LISTED[entity_type]}, self._by(deadline))
                except errors.UnsupportedError as error:
                    raise NotPermittedError(str(error)) from None
        found = await in_slices(self._converter.entity, resources)
        return [each for each in found if isinstance(each, Entity)], [
            each for each in found if isinstance(each, Unmanaged)
        ]

    async def configs(self, entities: Sequence[Entity], deadline: float) -> Snapshot:
        """Describe the declared configs of some entities."""
        ids = await self.topics(deadline) if any(each.types[0] is EntityType.TOPIC for each in entities) else {}
        resources = [resource_of(each) for each in entities]
        own = {int(each.name) for each in resources if each.type is ConfigResourceType.BROKER and each.name}

        async def take_snapshot(client: KraftClient) -> tuple[Snapshot, set[Address | None]]:
            described = await client.describe_configs(resources, self._by(deadline), synonyms=bool(own))
            answered = list(zip(entities, described, strict=True))
            denied = {entity: denial for entity, found in answered if (denial := _denial(found)) is not None}
            pairs = [each for each in answered if each[0] not in denied and _is_there(each[1])]

            def convert(each: tuple[Entity, ResourceConfigs]) -> ObservedEntity:
                entity, found = each
                return self._converter.configs(entity, found.entries, ids.get(found.resource.name))

            made = replace(_snapshot(await in_slices(convert, pairs)), denied=denied)
            return made, {each.source for entity, each in answered if entity in denied} | {
                each.source for _, each in pairs
            }

        # A list of names needs only an offset as its bound, because brokers create it from what they have settled.
        settled = not entities or any(each.types[0] is not EntityType.TOPIC for each in entities)
        with translate_errors():
            return await poll_bounded(
                await self._client(), take_snapshot, own, lambda: self._by(deadline), settled=settled
            )

    # -- the metadata log

    async def follow(self, after: int | None) -> AsyncIterator[LogPage]:
        """Follow the metadata log."""
        if after is None:
            with translate_errors():
                now = await (await self._client()).features(time.monotonic() + self._timeout_s)
            after = now.offset
            yield LogPage(after, reset=True)
        async with aclosing(self._followed(after, self._expected())) as pages:
            async for page in pages:
                yield page

    async def _followed(self, after: int, cluster_id: str | None) -> AsyncGenerator[LogPage, None]:
        with translate_errors():
            log = MetadataLog(self._controllers, self._options, cluster_id=cluster_id)
            try:
                pages = LogPages(self._converter, await self.topics(time.monotonic() + self._timeout_s))
                async for part in log.follow(after):
                    yield await pages.page(part)
            except errors.RightsError as error:
                raise NotPermittedError(f"{error}; needed: CLUSTER_ACTION on CLUSTER") from None
            finally:
                await log.close()

    async def unfollowed(self, deadline: float) -> str | None:
        """Read the metadata log once. Return the reason why it can't be followed, or None if it can."""
        try:
            with translate_errors():
                client = await self._client()
                now = await client.features(self._by(deadline))
                # Ask the brokers, because a controller requires further rights for this.
                cluster_id = await client.cluster_id(self._by(deadline))
            async with aclosing(self._followed(now.offset, cluster_id)) as pages:
                await anext(pages)
        except UnavailableError as error:
            return error.detail
        return None

    async def close(self) -> None:
        """Close the connections."""
        made, self._made = self._made, None
        if made is not None:
            await made[1].close()

    def metrics(self) -> Iterator[Sample]:
        """Return the requests by API and code, without the cluster's name; see :mod:`confplane.services.metrics`."""
        for (api, code), count in self._options.requests.outcomes.items():
            yield Sample("target_requests", count, (api, code))

    # -- helpers

    def _by(self, deadline: float) -> float:
        """Return the deadline of one request."""
        return min(deadline, time.monotonic() + self._timeout_s)

    async def _client(self) -> KraftClient:
        """Return the client of the target. If the target has changed, create another client."""
        expected = self._expected()
        if self._made is not None and expected not in {None, self._made[0]}:
            await self.close()
        if self._made is None:
            self._made = expected, KraftClient(self._bootstrap, self._options, cluster_id=expected)
        return self._made[1]


def _snapshot(observed: Sequence[ObservedEntity | Unmanaged], digest: bytes = b"") -> Snapshot:
    return Snapshot(
        tuple(each for each in observed if isinstance(each, ObservedEntity)),
        tuple(each for each in observed if isinstance(each, Unmanaged)),
        0, 0, 0, digest,
    )  # fmt: skip


def _denial(described: ResourceConfigs) -> str | None:
    """Return the right that is missing for a resource with rights of its own, or None."""
    if described.resource.type in OWN_RIGHTS and isinstance(described.error, errors.RightsError):
        return f"{described.error}; needed: DESCRIBE_CONFIGS on {described.resource.type.name}"
    return None


def _is_there(described: ResourceConfigs) -> bool:
    """Return True if a resource was described.

    Raises:
        KraftError: The right is missing, or the response is an error that does not show whether the resource exists.
    """
    error = described.error
    if error is None:
        return True
    if _of_a_broker(described.resource) and isinstance(error, errors.UnreachableError):
        return False
    if isinstance(error, errors.AnswerError) and error.code == errors.UNKNOWN_TOPIC_OR_PARTITION:
        return False
    raise error


def _of_a_broker(resource: Resource) -> bool:
    return resource.type is ConfigResourceType.BROKER and bool(resource.name)


@contextmanager
def translate_errors() -> Iterator[None]:
    """Raise the errors of the wire as those of the port."""
    try:
        yield
    except errors.WrongClusterError as error:
        raise OtherClusterError(str(error)) from None
    except (errors.KraftLoginError, errors.RightsError) as error:
        raise NotPermittedError(str(error)) from None
    except errors.KraftError as error:
        raise UnavailableError(str(error)) from None
