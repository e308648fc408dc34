"""One describe of configs on one connection, with its response converted to Confplane's types."""

from __future__ import annotations

from typing import TYPE_CHECKING

from confplane.kraft.views import ConfigResourceType, Resource, ResourceConfigs
from confplane.kraft.wire import errors
from confplane.kraft.wire.errors import KraftError
from confplane.kraft.wire.messages import DescribeConfigsRequest, DescribeConfigsResponse
from confplane.kraft.wire.messages.configs import DescribeConfigsResource

if TYPE_CHECKING:
    from collections.abc import Sequence

    from confplane.kraft.wire.connection import KraftConnection
    from confplane.kraft.wire.messages.configs import ConfigResource, DescribeConfigsResult
    from confplane.kraft.wire.options import Address


async def describe(
    connection: KraftConnection,
    resources: Sequence[Resource],
    keys: tuple[str, ...] | None,
    deadline: float,
    *,
    synonyms: bool,
) -> list[ResourceConfigs]:
    """Return the configs of resources, or some keys of them, in the order of the resources.

    Raises:
        ProtocolError: The response is for other resources. Other errors are those of :meth:`KraftConnection.call`.
    """
    request = DescribeConfigsRequest(
        tuple(DescribeConfigsResource(int(each.type), each.name, keys) for each in resources),
        include_synonyms=synonyms,
    )
    answer = await connection.call(request, DescribeConfigsResponse, deadline)
    found = {resource_of(connection, each): each for each in answer.results}
    if missing := [each for each in resources if each not in found]:
        raise errors.ProtocolError(f"{connection.address} leaves out {missing[0].type.name} {missing[0].name!r}.")
    return [_described(each, found[each], connection.address) for each in resources]


def resource_of(connection: KraftConnection, named: DescribeConfigsResult | ConfigResource) -> Resource:
    """Return the resource that a response names.

    Raises:
        ProtocolError: Its type is unknown.
    """
    try:
        return Resource(ConfigResourceType(named.resource_type), named.resource_name)
    except ValueError:
        raise errors.ProtocolError(
            f"{connection.address} names a resource of type {named.resource_type}, which was not asked for."
        ) from None


def _described(resource: Resource, result: DescribeConfigsResult, source: Address) -> ResourceConfigs:
    try:
        errors.check(
            f"DescribeConfigs of {resource.type.name} {resource.name!r}", result.error_code, result.error_message
        )
    except KraftError as error:
        return ResourceConfigs(resource, error=error, source=source)
    return ResourceConfigs(resource, result.configs, source=source)
