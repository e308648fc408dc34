"""External writes of tests to a Kafka 4 cluster: messages of kio over a connection of Confplane."""

from __future__ import annotations

import io
import time
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Self

from kio.schema.alter_client_quotas.v1 import request as quotas_request
from kio.schema.alter_client_quotas.v1.response import AlterClientQuotasResponse
from kio.schema.alter_partition_reassignments.v0 import request as reassignments_request
from kio.schema.alter_partition_reassignments.v0.response import AlterPartitionReassignmentsResponse
from kio.schema.create_acls.v3 import request as acls_request
from kio.schema.create_acls.v3.response import CreateAclsResponse
from kio.schema.create_topics.v7 import request as topics_request
from kio.schema.create_topics.v7.response import CreateTopicsResponse
from kio.schema.delete_acls.v3 import request as acl_removal_request
from kio.schema.delete_acls.v3.response import DeleteAclsResponse
from kio.schema.delete_topics.v6 import request as removal_request
from kio.schema.delete_topics.v6.response import DeleteTopicsResponse
from kio.schema.incremental_alter_configs.v1 import request as configs_request
from kio.schema.incremental_alter_configs.v1.response import IncrementalAlterConfigsResponse
from kio.schema.types import BrokerId, TopicName
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import f64, i8, i16, i32, i32Timedelta

from confplane.kraft.wire.connection import KraftConnection
from confplane.kraft.wire.message import Message
from confplane.kraft.wire.options import Address, Options

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Mapping, Sequence

    from confplane.kraft.views import Resource

_LIMIT_S = 60.0
_DENY, _ALLOW = 2, 3


@dataclass(frozen=True, slots=True)
class _Theirs(Message):
    """A message of kio instead of one of ours."""

    kind: ClassVar[type[Any]]
    value: Any

    def encode(self, version: int) -> bytes:
        assert version in self.VERSIONS
        out = io.BytesIO()
        entity_writer(self.kind)(out, self.value)
        return out.getvalue()

    @classmethod
    def steps(cls, data: bytes, version: int, at: int) -> Generator[None, None, Self]:
        assert version in cls.VERSIONS
        yield
        return cls(entity_reader(cls.kind)(data, at)[0])


def _bridge(kind: type[Any]) -> type[_Theirs]:
    version = int(kind.__version__)
    return type(
        kind.__name__,
        (_Theirs,),
        {
            "__slots__": (),
            "kind": kind,
            "NAME": kind.__name__,
            "API_KEY": int(kind.__api_key__),
            "VERSIONS": range(version, version + 1),
            "FLEXIBLE_FROM": version if kind.__flexible__ else None,
        },
    )


class RefusedError(Exception):
    """The cluster refused a write; the text has its code and its message."""


class KraftWriter:
    """Writes to one broker; a context manager."""

    def __init__(self, bootstrap: str) -> None:
        self._address = Address.parse(bootstrap)
        self._connection: KraftConnection | None = None

    async def __aenter__(self) -> Self:
        self._connection = await KraftConnection.open(
            self._address, Options(client_id="writer"), time.monotonic() + _LIMIT_S
        )
        return self

    async def __aexit__(self, *exc: object) -> None:
        assert self._connection is not None
        await self._connection.close()

    async def send(self, request: Any, answer: type[Any]) -> Any:
        """Send a request of kio and return the answer of kio."""
        assert self._connection is not None
        deadline = time.monotonic() + _LIMIT_S
        received = await self._connection.call(_bridge(type(request))(request), _bridge(answer), deadline)
        return received.value

    async def quotas(
        self, *entries: tuple[Mapping[str, str | None], Mapping[str, float | None]], validate_only: bool = False
    ) -> None:
        """Alter quotas: entity and values; None removes. All or nothing is expected to be refused."""
        request = quotas_request.AlterClientQuotasRequest(
            entries=tuple(
                quotas_request.EntryData(
                    entity=tuple(
                        quotas_request.EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()
                    ),
                    ops=tuple(
                        quotas_request.OpData(key=key, value=f64(float(value or 0)), remove=value is None)
                        for key, value in values.items()
                    ),
                )
                for entity, values in entries
            ),
            validate_only=validate_only,
        )
        answer = await self.send(request, AlterClientQuotasResponse)
        _all_done((each.error_code, each.error_message) for each in answer.entries)

    async def configs(self, *resources: tuple[Resource, Mapping[str, str | None]]) -> None:
        """Alter configs: resource and values; None removes."""
        request = configs_request.IncrementalAlterConfigsRequest(
            resources=tuple(
                configs_request.AlterConfigsResource(
                    resource_type=i8(int(resource.type)),
                    resource_name=resource.name,
                    configs=tuple(
                        configs_request.AlterableConfig(
                            name=key, config_operation=i8(1 if value is None else 0), value=value
                        )
                        for key, value in values.items()
                    ),
                )
                for resource, values in resources
            ),
            validate_only=False,
        )
        answer = await self.send(request, IncrementalAlterConfigsResponse)
        _all_done((each.error_code, each.error_message) for each in answer.responses)

    async def create_topics(
        self, *names: str, configs: Mapping[str, str] | None = None, brokers: Sequence[int] = ()
    ) -> None:
        """Create topics of one partition, on the given brokers or on one that the cluster chooses."""
        assigned = tuple(map(BrokerId, brokers))
        assignments = (
            (topics_request.CreatableReplicaAssignment(partition_index=i32(0), broker_ids=assigned),)
            if assigned
            else ()
        )
        request = topics_request.CreateTopicsRequest(
            topics=tuple(
                topics_request.CreatableTopic(
                    name=TopicName(name),
                    num_partitions=i32(-1 if assigned else 1),
                    replication_factor=i16(-1 if assigned else 1),
                    assignments=assignments,
                    configs=tuple(
                        topics_request.CreatableTopicConfig(name=key, value=value)
                        for key, value in (configs or {}).items()
                    ),
                )
                for name in names
            ),
            timeout=_timeout(),
            validate_only=False,
        )
        answer = await self.send(request, CreateTopicsResponse)
        _all_done((each.error_code, each.error_message) for each in answer.topics)

    async def delete_topics(self, *names: str) -> None:
        """Delete topics."""
        request = removal_request.DeleteTopicsRequest(
            topics=tuple(removal_request.DeleteTopicState(name=TopicName(name), topic_id=None) for name in names),
            timeout=_timeout(),
        )
        answer = await self.send(request, DeleteTopicsResponse)
        _all_done((each.error_code, each.error_message) for each in answer.responses)

    async def reassign(self, topic: str, brokers: Sequence[int]) -> None:
        """Begin to move the partition of a topic to these brokers."""
        partition = reassignments_request.ReassignablePartition(
            partition_index=i32(0), replicas=tuple(map(BrokerId, brokers))
        )
        topics = (reassignments_request.ReassignableTopic(name=TopicName(topic), partitions=(partition,)),)
        request = reassignments_request.AlterPartitionReassignmentsRequest(timeout=_timeout(), topics=topics)
        answer = await self.send(request, AlterPartitionReassignmentsResponse)
        results = (answer, *(each for of in answer.responses for each in of.partitions))
        _all_done((each.error_code, each.error_message) for each in results)

    async def allow(self, principal: str, grants: Sequence[tuple[int, str, int]], *, deny: bool = False) -> None:
        """Grant or deny rights: (resource type, name, operation) in Kafka's numbers; the cluster is ``kafka-cluster``."""
        request = acls_request.CreateAclsRequest(
            creations=tuple(
                acls_request.AclCreation(
                    resource_type=i8(kind), resource_name=name, resource_pattern_type=i8(3), principal=principal,
                    host="*", operation=i8(operation), permission_type=i8(_DENY if deny else _ALLOW),
                )
                for kind, name, operation in grants
            )
        )  # fmt: skip
        answer = await self.send(request, CreateAclsResponse)
        _all_done((each.error_code, each.error_message) for each in answer.results)

    async def end_denial(self, principal: str, kind: int, name: str, operation: int) -> None:
        """Remove a denial that :meth:`allow` made."""
        request = acl_removal_request.DeleteAclsRequest(
            filters=(
                acl_removal_request.DeleteAclsFilter(
                    resource_type_filter=i8(kind), resource_name_filter=name, pattern_type_filter=i8(3),
                    principal_filter=principal, host_filter="*", operation=i8(operation), permission_type=i8(_DENY),
                ),
            )
        )  # fmt: skip
        answer = await self.send(request, DeleteAclsResponse)
        _all_done((each.error_code, each.error_message) for each in answer.filter_results)


def _timeout() -> i32Timedelta:
    return i32Timedelta.parse(timedelta(seconds=30))


def _all_done(results: Iterable[tuple[Any, str | None]]) -> None:
    refused = [f"{code.name}: {said}" for code, said in results if int(code.value) != 0]
    if refused:
        raise RefusedError("; ".join(refused))
