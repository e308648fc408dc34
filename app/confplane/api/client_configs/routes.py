"""Client configs: the RPC-style methods of KIP-649, and the resources."""

from typing import Final

from starlette.responses import Response

from confplane.api.client_configs import applied
from confplane.api.clients import models, rpc
from confplane.api.dependencies import Call, CallDep, Consistency
from confplane.api.rendering.entries import delayed
from confplane.api.resources.routes import ResourceHandlers, ResourceModels
from confplane.api.responses import json_bytes
from confplane.api.routing.bounded import while_wanted
from confplane.api.routing.operations import change, partly, read
from confplane.api.schedules.temporary import Temporary
from confplane.domain import id_patterns
from confplane.domain.facets import FacetName
from confplane.services.cluster_facet import ClusterFacet
from confplane.services.limits import BYTES_OF_UNIT, LimitClass
from confplane.services.reads.describe import RegistrationRequest

_IGNORED: Final = (b"confplane-registration", b"ignored")

routes = ResourceHandlers(FacetName.CLIENT_CONFIGS, rpc.resolving(FacetName.CLIENT_CONFIGS)).routes(
    ResourceModels(
        "ClientConfigs",
        models.ClientConfigsBody,
        models.NewClientConfigs,
        models.ClientConfigsResource,
        models.ClientConfigsList,
        models.EffectiveClientConfigs,
        id_patterns.CONFIG_ID,
        "user=alice",
    ),
    extra_routes=applied.add_routes,
    list_filter=applied.applied_filter(),
)


@routes.post(
    ":describe",
    read(
        "Describe client configs by a filter, or resolve them for one client (KIP-649)",
        rpc.described(models.DescribedConfigs),
        limit=LimitClass.READ,
        tagged=False,
        problems=(),
    ),
    checks=[Consistency],
)
async def describe_client_configs(call: CallDep, body: models.DescribeClientConfigs) -> Response:
    """Polled by applications: with `resolveEntity` the answer is the one set of configs effective for them.

    A registration (`supportedConfigs`) needs REPORT on the user. A caller without it gets its answer all the same, with
    the header `Confplane-Registration: ignored`. With `resolveEntity` the answer is always JSON.
    """
    cluster_facet = call.cluster_facet(FacetName.CLIENT_CONFIGS)
    if body.resolve_entity:
        answer = call.services.effective_values.resolved(cluster_facet, body.filter)
        registered = _register(call, cluster_facet, body)
        response = json_bytes(call.cluster, delayed(answer, call.throttle_ms(LimitClass.READ)))
    else:
        call.take(LimitClass.BULK)
        registered = _register(call, cluster_facet, body)
        response = await while_wanted(call.request, rpc.describe(call, FacetName.CLIENT_CONFIGS, body.filter))
    if not registered:
        response.raw_headers.append(_IGNORED)
    return response


def _register(call: Call, cluster_facet: ClusterFacet, body: models.DescribeClientConfigs) -> bool:
    """Take the registration of a describe that has one; return False if it is ignored."""
    if body.supported_configs is None:
        return True
    information = body.client_information
    # Beyond the request itself, so that a poll with a usual registration costs what any poll costs.
    call.charge(LimitClass.READ, sum(map(len, body.supported_configs)) // BYTES_OF_UNIT)
    return call.services.describe.register(
        cluster_facet,
        body.filter,
        RegistrationRequest(
            tuple(body.supported_configs),
            None if information is None else information.software_name,
            None if information is None else information.software_version,
        ),
    )


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
    checks=[Temporary],
)
async def alter_client_configs(call: CallDep, body: models.AlterClientConfigs) -> Response:
    """One result per entry, in order; entries are independent unless `atomic`.

    A user and its pairs are levels of the same configs: each is checked against the result of the entries before it.
    """
    return await rpc.alter(call, FacetName.CLIENT_CONFIGS, body)
