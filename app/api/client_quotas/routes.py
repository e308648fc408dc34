"""Client quotas: the RPC-style methods of KIP-546, and the resources."""

from typing import Annotated

from fastapi import Body
from starlette.responses import Response

from app.api import patterns
from app.api.client_quotas import examples
from app.api.clients import models, rpc
from app.api.context import Fresh, ReadDep, WriteDep
from app.api.resources.routes import Forms, Resources
from app.api.routing.operations import change, partly, read
from app.domain.facets import FacetName

routes = Resources(FacetName.CLIENT_QUOTAS, rpc.resolving(FacetName.CLIENT_QUOTAS)).routes(
    Forms(
        "ClientQuotas",
        models.ClientQuotasBody,
        models.NewClientQuotas,
        models.ClientQuotasResource,
        models.ClientQuotasList,
        models.EffectiveClientQuotas,
        patterns.QUOTA_ID,
        "user=alice",
        examples.RESOURCE,
    )
)


@routes.post(
    ":describe",
    read(
        "describeClientQuotas",
        "Describe client quotas by a filter (KIP-546)",
        models.DescribedQuotas,
        tagged=False,
        problems=(),
    ),
    checks=[Fresh],
)
async def describe(
    call: ReadDep, body: Annotated[models.DescribeClientQuotas, Body(openapi_examples=examples.DESCRIBE)]
) -> Response:
    """Entities that match every component; not strict, they may have further components."""
    return await rpc.describe(call, FacetName.CLIENT_QUOTAS, body.filter)


@routes.post(
    ":alter",
    change(
        "alterClientQuotas",
        "Alter client quotas (KIP-546)",
        partly(models.AlteredQuotas, "Some entries failed"),
        tagged=False,
        problems=(412,),
        problem=models.AlterQuotasProblem,
    ),
)
async def alter(
    call: WriteDep, body: Annotated[models.AlterClientQuotas, Body(openapi_examples=examples.ALTER)]
) -> Response:
    """One result per entry, in order; entries are independent unless `atomic`."""
    return await rpc.alter(call, FacetName.CLIENT_QUOTAS, body)
