"""The RPC-style methods of KIP-546 and KIP-649, and effective values: one code for client quotas and client configs.

Also the alter of both facets of a client together.
"""

from collections.abc import AsyncIterable, AsyncIterator, Sequence
from typing import Annotated, Any

from pydantic import BaseModel, Field, StrictStr
from starlette.responses import Response

from confplane.api import batches, formats, kraft
from confplane.api import models as base
from confplane.api.clients import models
from confplane.api.dependencies import Call, CallDep
from confplane.api.models import AnswerModel, RequestModel, form
from confplane.api.rendering import LINES, WHOLE, EntryRenderer
from confplane.api.responses import prefers
from confplane.api.routing.bounded import entries_response
from confplane.api.routing.operations import ResponseSpec, change, partly
from confplane.api.routing.preconditions import entry_precondition
from confplane.api.routing.routes import Routes
from confplane.api.schedules import Temporary
from confplane.api.services import AlterDep
from confplane.domain.entities import Entity
from confplane.domain.errors import InvalidRequestError
from confplane.domain.facets import FacetName
from confplane.domain.filters import EntityFilter
from confplane.domain.ops import Op, OpType
from confplane.services.changes.alter import AlterService, Entry
from confplane.services.changes.edits import Edit, EditResult, EntryResult
from confplane.services.limits import LimitClass
from confplane.services.reads.describe import DescribeService

routes = Routes(tag="clients")


class AlterClientsEntry(RequestModel):
    """The ops on one entity, in both of its facets: they are always one change, or part of one."""

    entity: Annotated[list[models.QuotaEntityComponent], Field(max_length=16, json_schema_extra={"minItems": 1})]
    quotas: Annotated[list[models.QuotaOp], Field(max_length=500)] = Field(default=[])
    configs: Annotated[list[models.ConfigOp], Field(max_length=500)] = Field(
        default=[], description="Of a user, with or without a client-id"
    )
    quotas_etag: Annotated[StrictStr | None, base.text_like(formats.ETAGS)] = Field(
        default=None, description="As If-Match, for the entity's quotas"
    )
    configs_etag: Annotated[StrictStr | None, base.text_like(formats.ETAGS)] = Field(
        default=None, description="As If-Match, for the entity's client configs"
    )


class AlterClients(models.Alter[AlterClientsEntry]):
    """An alter of quotas and client configs."""


class ClientsDiff(AnswerModel):
    """The differences of both facets."""

    quotas: list[models.QuotaDiff]
    configs: list[models.ConfigDiff]


class AlteredClientsEntry(base.AlteredModel):
    """The result for one entry: for both facets, or for neither."""

    entity: list[base.EntityData]
    diff: ClientsDiff


AlteredClients: Any = form(models.Altered[AlteredClientsEntry], "AlteredClients", models.ALTERED.format("clients"))
AlterClientsProblem: Any = base.problem_with(AlteredClients, "AlterClientsProblem", models.ALL_FAILED)


def described(model: type[BaseModel]) -> dict[int, ResponseSpec]:
    """Return the responses of a describe of many entities."""
    return {
        200: ResponseSpec.text(
            f"JSON, or with `Accept: {LINES.media_type}` a line for each of `entries`, and a last line with the other"
            " members. A response without the last line is incomplete",
            LINES.media_type,
            model=model,
        )
    }


async def describe(
    call: Call, reader: DescribeService, renderer: EntryRenderer, name: FacetName, wanted: EntityFilter
) -> Response:
    """Answer a describe with the entities that a filter selects."""
    await kraft.refresh_facet(call, name)
    cluster_facet = call.cluster_facet(name)
    skipped: list[str] = []
    selected = reader.select(cluster_facet, wanted)
    parts = renderer.render(cluster_facet, selected, skipped, everything=wanted.everything)
    lines = LINES if prefers(call.request.headers.get("accept"), LINES.media_type) else WHOLE
    return await entries_response(call, lines, _charged(call, parts), skipped)


async def _charged(call: Call, parts: AsyncIterable[list[bytes]]) -> AsyncIterator[list[bytes]]:
    async for part in parts:
        call.charge(LimitClass.BULK, len(part))
        yield part


async def alter(call: Call, service: AlterService, name: FacetName, body: models.Alter[Any]) -> Response:
    """Answer an alter of one facet with one result per entry."""
    cluster_facet = call.cluster.facets[name]

    def made(index: int, entry: Any) -> Entry:
        return {cluster_facet: _edit(index, entry.entity, entry.ops, "ops", entry.etag, "etag")}

    def diff(_: Entry, result: EntryResult) -> list[dict[str, Any]]:
        return batches.diff(cluster_facet, result.results[0])

    return await batches.alter(call, service, body, body.entries, entry=made, echo=_echo, diff=diff, member="entries")


@routes.post(
    "/v1/clusters/{cluster}/clients:alter",
    change(
        "Alter client quotas and client configs together",
        partly(AlteredClients, "Some entries failed"),
        problems=(412,),
        problem=AlterClientsProblem,
    ),
    checks=[Temporary],
)
async def alter_clients(call: CallDep, alter: AlterDep, body: AlterClients) -> Response:
    """One result per entry, in order; entries are independent unless `atomic`.

    The quotas and the client configs of an entry are one change: both are applied, or neither.
    """
    quotas, configs = (call.cluster.facets[name] for name in (FacetName.CLIENT_QUOTAS, FacetName.CLIENT_CONFIGS))

    def made(index: int, entry: AlterClientsEntry) -> Entry:
        given = (
            (quotas, entry.quotas, "quotas", entry.quotas_etag, "quotasEtag"),
            (configs, entry.configs, "configs", entry.configs_etag, "configsEtag"),
        )
        # An entry without anything is one without an effect, as an entry without ops is in the alters of one facet.
        altered = [each for each in given if each[1] or each[3] is not None] or given[:1]
        return {cluster_facet: _edit(index, entry.entity, *edit) for cluster_facet, *edit in altered}

    def diff(entry: Entry, result: EntryResult) -> dict[str, list[dict[str, Any]]]:
        found = dict(zip(entry, result.results, strict=True))
        return {
            each.facet.member: batches.diff(each, found[each]) if each in found else [] for each in (quotas, configs)
        }

    return await batches.alter(call, alter, body, body.entries, entry=made, echo=_echo, diff=diff, member="entries")


def _edit(
    index: int, components: Sequence[Any], ops: Sequence[Any], ops_member: str, etag: str | None, etag_member: str
) -> Edit | EditResult:
    """Return the edit of one facet of the entry at an index."""
    pointer = f"/entries/{index}"
    made = tuple(
        Op(op.key, OpType.DELETE, pointer=f"{pointer}/{ops_member}/{position}")
        if op.remove
        else Op(op.key, OpType.SET, op.value, f"{pointer}/{ops_member}/{position}")
        for position, op in enumerate(ops)
    )
    entity = Entity(())
    try:
        entity = Entity.from_components(
            ((component.entity_type, component.entity_name) for component in components), pointer=f"{pointer}/entity"
        )
        precondition = entry_precondition(etag, pointer=f"{pointer}/{etag_member}")
    except InvalidRequestError as error:
        return EditResult(Edit(entity, made, pointer=pointer), error)
    return Edit(entity, made, precondition=precondition, pointer=f"{pointer}/entity")


def _echo(entry: Any) -> dict[str, Any]:
    return {"entity": [{"entityType": item.entity_type, "entityName": item.entity_name} for item in entry.entity]}
