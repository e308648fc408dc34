"""Drift: what waits to be applied to a Kafka cluster, what was refused, and what others left there."""

from typing import Annotated, Any

from fastapi import Query
from starlette.responses import Response

from app.api.context import CallDep, PageSize
from app.api.drift.models import DriftPage
from app.api.incoming import INCOMING
from app.api.responses import number, page_response, timestamp
from app.api.routing.operations import read
from app.api.routing.routes import Routes
from app.domain.entities import split_id
from app.domain.errors import UnavailableError
from app.services.limits import LimitClass
from app.services.target.drift import Drifted, DriftedKey

routes = Routes("/v1/clusters/{cluster}/drift", tag="drift")


@routes.get(
    "",
    read(
        "List the entities whose values in the Kafka cluster differ",
        DriftPage,
        id="listDrift",
        limit=LimitClass.BULK,
        tagged=False,
        problems=(503,),
    ),
)
async def list_drift(
    call: CallDep,
    *,
    page_size: PageSize = 100,
    page_token: Annotated[
        str | None, Query(alias="pageToken", description="nextPageToken of the page before", max_length=8192)
    ] = None,
) -> Response:
    """Entities that callers write here, and that are another in the Kafka cluster (Kafka 4), with both values.

    The cluster is asked about the entities of the page, for five seconds at most. Empty where brokers read ZooKeeper,
    and in the mode `observe`.
    """
    cluster = call.cluster
    if cluster.store.target() is None:
        return page_response(call.request, [], None)
    drift = call.services.drifts.get(cluster.name)
    if drift is None:
        raise UnavailableError(
            f"This process can't look at the Kafka cluster of {cluster.name}: its settings name no brokers"
        )
    deadline = call.request.scope[INCOMING].deadline
    found, cursor = await drift.page(call.access, page_size=page_size, after=page_token, deadline=deadline)
    call.charge(LimitClass.BULK, len(found))
    return page_response(call.request, [_entity(each) for each in found], cursor)


def _entity(found: Drifted) -> dict[str, Any]:
    return {
        "id": found.entity.id,
        "entity": dict(split_id(found.entity.id)),
        "facet": found.facet.name.value,
        "observedAt": None if found.observed_at is None else timestamp(found.observed_at),
        "refusedCode": None if found.refused is None else found.refused.code,
        "refusedMessage": None if found.refused is None else found.refused.text,
        "keys": [_key(found, each) for each in found.keys],
    }


def _key(found: Drifted, key: DriftedKey) -> dict[str, Any]:
    return {
        "key": key.key,
        "state": key.state.value,
        "ours": _value(found, key, key.ours),
        "theirs": _value(found, key, key.theirs),
        "secret": key.secret,
        "since": None if key.since_ms is None else timestamp(key.since_ms),
        "principal": key.principal,
    }


def _value(found: Drifted, key: DriftedKey, stored: str | None) -> Any:
    """Return a value as JSON; the stored text where it is not valid for its key."""
    if stored is None:
        return None
    try:
        return number(found.facet.decode(found.entity, key.key, stored))
    except ValueError:
        return stored
