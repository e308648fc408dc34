"""The filters of lists and exports, as query parameters. Owners and labels are also members of the full view."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any

from fastapi import Depends, Query

from confplane.api import kraft
from confplane.api.dependencies import Call
from confplane.domain.changes import Node
from confplane.domain.entities import Entity, EntityKindName
from confplane.domain.errors import UnavailableError
from confplane.domain.ownership import OWNER_PATTERN, OwnershipFilter
from confplane.services.cluster_facet import ClusterFacet
from confplane.services.reads.describe import ListQuery
from confplane.services.reads.owners import OwnerViews


def _filters(  # noqa: PLR0913 - one argument a parameter is FastAPI's way
    *,
    user: Annotated[str | None, Query(description="User name, plain; empty is the default user")] = None,
    client_id: Annotated[
        str | None, Query(alias="client-id", description="Client id, plain; empty is the default client-id")
    ] = None,
    ip: Annotated[str | None, Query(description="IP address; empty is the default ip")] = None,
    topic: Annotated[str | None, Query(description="Topic name")] = None,
    broker: Annotated[str | None, Query(description="Broker id; empty is the default of all brokers")] = None,
    group: Annotated[str | None, Query(description="Group id")] = None,
    client_metrics: Annotated[
        str | None, Query(alias="client-metrics", description="Name of a subscription to the metrics of clients")
    ] = None,
    key: Annotated[str | None, Query(description="Only entities that set this key")] = None,
    kind: Annotated[
        EntityKindName | None,
        Query(description="Only entities of exactly these types"),
    ] = None,
    prefix: Annotated[
        str | None,
        Query(
            description="Only entities whose name has this prefix; for a pair, the name of the user", max_length=1024
        ),
    ] = None,
) -> ListQuery:
    wanted = {
        "user": user,
        "client-id": client_id,
        "ip": ip,
        "topic": topic,
        "broker": broker,
        "group": group,
        "client-metrics": client_metrics,
    }
    return ListQuery(
        names={each: name or None for each, name in wanted.items() if name is not None},
        key=key,
        kind=tuple(kind.split(",")) if kind else None,
        prefix=prefix or "",
    )


ListFilters = Annotated[ListQuery, Depends(_filters)]
"""The filters of a request; the query has no id and no page."""
Owner = Annotated[
    str | None,
    Query(
        description="Only entities of which this owner has keys. Changes of owners are seen within seconds",
        json_schema_extra={"pattern": OWNER_PATTERN},
    ),
]
Label = Annotated[
    str | None,
    Query(description="Only entities with this label: its name, =, and its value, as in `stage=production`"),
]


def selection(
    owners: OwnerViews, cluster_facet: ClusterFacet, owner: str | None, label: str | None
) -> Callable[[Entity], Awaitable[bool]] | None:
    """Return the predicate of a list's filters; None: every entity."""
    wanted = OwnershipFilter.parse(owner, label)
    return None if wanted is None else owners.selection(cluster_facet, wanted)


async def status_members(
    call: Call, owners: OwnerViews, cluster_facet: ClusterFacet, nodes: Sequence[Node]
) -> dict[str, dict[str, Any]]:
    """Return the members of the status that Postgres has, by entity id. None of them while it is unavailable."""
    found = await kraft.read_status(call, cluster_facet, nodes)
    try:
        ownerships = await owners.of_nodes(cluster_facet, nodes)
    except UnavailableError:
        return found
    for entity_id, ownership in ownerships.items():
        members = {"owners": dict(ownership.owners), "labels": {key: dict(of) for key, of in ownership.labels.items()}}
        found[entity_id] = {**found.get(entity_id, {}), **members}
    return found
