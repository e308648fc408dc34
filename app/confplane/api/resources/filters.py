"""The filters of lists and exports, as query parameters."""

from typing import Annotated

from fastapi import Depends, Query

from confplane.domain.entities import EntityKindName
from confplane.services.reads.describe import ListQuery


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
