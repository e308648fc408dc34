"""Client configs: the RPC-style methods of KIP-649, and the resources."""

from starlette.responses import Response

from confplane.api import patterns
from confplane.api.client_configs import applied
from confplane.api.clients import models, rpc
from confplane.api.dependencies import CallDep, Consistency
from confplane.api.rendering.entries import delayed
from confplane.api.resources.routes import ResourceHandlers, ResourceModels
from confplane.api.responses import json_bytes
from confplane.api.routing.operations import change, partly, read
from confplane.domain.facets import FacetName
from confplane.services.limits import LimitClass
from confplane.services.reads.describe import RegistrationRequest

routes = ResourceHandlers(FacetName.CLIENT_CONFIGS, rpc.resolving(FacetName.CLIENT_CONFIGS)).routes(
    ResourceModels(
        "ClientConfigs",
        models.ClientConfigsBody,
        models.NewClientConfigs,
        models.ClientConfigsResource,
        models.ClientConfigsList,
        models.EffectiveClientConfigs,
        patterns.CONFIG_ID,
        "user=alice",
    ),
    extra_routes=applied.add_routes,
    list_filter=applied.applied_filter(),
)


@routes.post(
    ":describe",
    read(
        "Describe client configs by a filter, or resolve them for one client (KIP-649)",
        models.DescribedConfigs,
        limit=LimitClass.READ,
        tagged=False,
        problems=(),
    ),
    checks=[Consistency],
)
async def describe_client_configs(call: CallDep, body: models.DescribeClientConfigs) -> Response:
    """Polled by applications: with `resolveEntity` the answer is the one set of configs effective for them."""
    cluster_facet = call.cluster_facet(FacetName.CLIENT_CONFIGS)
    wanted = body.filter
    if body.supported_configs is not None:
        information = body.client_information
        call.services.describe.register(
            cluster_facet,
            wanted,
            RegistrationRequest(
                tuple(body.supported_configs),
                None if information is None else information.software_name,
                None if information is None else information.software_version,
            ),
        )
    if body.resolve_entity:
        answer = call.services.effective_values.resolved(cluster_facet, wanted)
        return json_bytes(call.cluster, delayed(answer, call.throttle_ms(LimitClass.READ)))
    call.take(LimitClass.BULK)
    return await rpc.describe(call, FacetName.CLIENT_CONFIGS, wanted)


@routes.post(
    ":alter",
    change(
        "Alter client configs (KIP-649)",
        partly(models.AlteredConfigs, "Some entries failed"),
        limit=LimitClass.WRITE,
        tagged=False,
        problems=(412,),
        problem=models.AlterConfigsProblem,
    ),
)
async def alter_client_configs(call: CallDep, body: models.AlterClientConfigs) -> Response:
    """One result per entry, in order; entries are independent unless `atomic`.

    A user and its pairs are levels of the same configs: each is checked against the result of the entries before it.
    """
    return await rpc.alter(call, FacetName.CLIENT_CONFIGS, body)
