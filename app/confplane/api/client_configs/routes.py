"""Client configs: the RPC-style methods of KIP-649, and the resources."""

from starlette.responses import Response

from confplane.api import patterns
from confplane.api.client_configs import applied
from confplane.api.clients import models, rpc
from confplane.api.context import CallDep, Fresh
from confplane.api.rendered.entries import delayed
from confplane.api.resources.routes import Forms, Resources
from confplane.api.responses import json_bytes
from confplane.api.routing.operations import change, partly, read
from confplane.domain.facets import FacetName
from confplane.services.limits import LimitClass
from confplane.services.reads.describe import RegistrationRequest

routes = Resources(FacetName.CLIENT_CONFIGS, rpc.resolving(FacetName.CLIENT_CONFIGS)).routes(
    Forms(
        "ClientConfigs",
        models.ClientConfigsBody,
        models.NewClientConfigs,
        models.ClientConfigsResource,
        models.ClientConfigsList,
        models.EffectiveClientConfigs,
        patterns.CONFIG_ID,
        "user=alice",
    ),
    ahead=applied.add_routes,
    narrowing=applied.narrowing(),
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
    checks=[Fresh],
)
async def describe_client_configs(call: CallDep, body: models.DescribeClientConfigs) -> Response:
    """Polled by applications: with `resolveEntity` the answer is the one set of configs effective for them."""
    collection = call.collection(FacetName.CLIENT_CONFIGS)
    wanted = body.filter
    if body.supported_configs is not None:
        information = body.client_information
        call.services.describe.register(
            collection,
            wanted,
            RegistrationRequest(
                tuple(body.supported_configs),
                None if information is None else information.software_name,
                None if information is None else information.software_version,
            ),
        )
    if body.resolve_entity:
        answer = call.services.resolutions.resolved(collection, wanted)
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
