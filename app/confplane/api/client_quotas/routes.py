"""Client quotas: the RPC-style methods of KIP-546, and the resources."""

from starlette.responses import Response

from confplane.api.clients import models, rpc
from confplane.api.dependencies import CallDep, Consistency
from confplane.api.resources.routes import ResourceHandlers, ResourceModels
from confplane.api.routing.operations import change, partly, read
from confplane.api.schedules.temporary import Temporary
from confplane.domain import id_patterns
from confplane.domain.facets import FacetName
from confplane.services.limits import LimitClass

routes = ResourceHandlers(FacetName.CLIENT_QUOTAS, rpc.resolving(FacetName.CLIENT_QUOTAS)).routes(
    ResourceModels(
        "ClientQuotas",
        models.ClientQuotasBody,
        models.NewClientQuotas,
        models.ClientQuotasResource,
        models.ClientQuotasList,
        models.EffectiveClientQuotas,
        id_patterns.QUOTA_ID,
        "user=alice",
    )
)


@routes.post(
    ":describe",
    read(
        "Describe client quotas by a filter (KIP-546)",
        rpc.described(models.DescribedQuotas),
        limit=LimitClass.BULK,
        tagged=False,
        problems=(),
    ),
    checks=[Consistency],
)
async def describe_client_quotas(call: CallDep, body: models.DescribeClientQuotas) -> Response:
    """Entities that match every component; not strict, they may have further components."""
    return await rpc.describe(call, FacetName.CLIENT_QUOTAS, body.filter)


@routes.post(
    ":alter",
    change(
        "Alter client quotas (KIP-546)",
        partly(models.AlteredQuotas, "Some entries failed"),
        limit=LimitClass.WRITE,
        tagged=False,
        problems=(412,),
        problem=models.AlterQuotasProblem,
    ),
    checks=[Temporary],
)
async def alter_client_quotas(call: CallDep, body: models.AlterClientQuotas) -> Response:
    """One result per entry, in order; entries are independent unless `atomic`."""
    return await rpc.alter(call, FacetName.CLIENT_QUOTAS, body)
