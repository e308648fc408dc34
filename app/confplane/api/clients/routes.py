"""Client quotas and client configs together."""

from starlette.responses import Response

from confplane.api.clients import models, rpc
from confplane.api.dependencies import CallDep
from confplane.api.routing.operations import change, partly
from confplane.api.routing.routes import Routes
from confplane.api.schedules.temporary import Temporary
from confplane.api.services import AlterDep

routes = Routes(tag="clients")


@routes.post(
    "/v1/clusters/{cluster}/clients:alter",
    change(
        "Alter client quotas and client configs together",
        partly(models.AlteredClients, "Some entries failed"),
        problems=(412,),
        problem=models.AlterClientsProblem,
    ),
    checks=[Temporary],
)
async def alter_clients(call: CallDep, alter: AlterDep, body: models.AlterClients) -> Response:
    """One result per entry, in order; entries are independent unless `atomic`.

    The quotas and the client configs of an entry are one change: both are applied, or neither.
    """
    return await rpc.alter_both(call, alter, body)
