"""Applied status: the reports of running clients about their client configs, and the counts of these reports."""

import re
from typing import Annotated, Any, Final

import orjson
from fastapi import Path, Query
from pydantic import Field, StrictStr
from starlette.responses import Response

from confplane.api import formats
from confplane.api.dependencies import EMBEDDED, CallDep, Consistency
from confplane.api.models import AnswerModel, Count, EntityId, RequestModel, Revision
from confplane.api.resources.handlers import Test
from confplane.api.responses import consistency_headers, json_bytes, json_response
from confplane.api.routing.operations import Effect, RouteOperation, read
from confplane.api.routing.paths import entity_in_path
from confplane.api.routing.routes import Routes
from confplane.api.services import AppliedDep
from confplane.domain import id_patterns
from confplane.domain.client_configs import INSTANCE_ID
from confplane.domain.entities import Entity
from confplane.domain.errors import InvalidRequestError
from confplane.domain.facets import FacetName
from confplane.services.cluster_facet import ClusterFacet
from confplane.services.limits import LimitClass
from confplane.services.ports.applied import KEPT_S, AppliedReport, AppliedReports, Refusal
from confplane.services.reads import applied

routes = Routes(tag="client-configs")

_INSTANCE: Final = re.compile(INSTANCE_ID)
_TAKEN: Final = orjson.dumps({"forgottenAfterMs": KEPT_S * 1000})
"""The answer to every report, rendered once."""
_STORED_REPORT: Final = 4
"""Units that a report costs in addition if it differs from the client's last one: it becomes a row in Postgres."""
_Entity = Annotated[Entity, entity_in_path(id_patterns.CONFIG_ID, "user=alice")]
_Key = Annotated[StrictStr, Field(min_length=1, max_length=249, examples=["acks"])]
_Reason = Annotated[StrictStr, Field(max_length=249, examples=["enable.idempotence is set"])]
_Name = Annotated[StrictStr, Field(min_length=1, max_length=249, examples=["confluent-kafka"])]
_Version = Annotated[StrictStr, Field(min_length=1, max_length=249, examples=["2.6.0"])]
_InstanceId = Annotated[
    str,
    Path(
        alias="instanceId",
        description="A name that the running client has chosen for itself, such as a random UUID",
        json_schema_extra={"pattern": INSTANCE_ID},
        openapi_examples={EMBEDDED: {"value": "billing-7f9c"}},
    ),
]


Applied = Annotated[
    bool | None,
    Query(
        description="As clients report. false: only entities with a client that reports earlier or refused"
        " configs. true: only entities whose clients all run with the latest configs; there is at"
        " least one"
    ),
]
"""The filter of a list; :func:`applied_filter` reads it."""


class RefusedConfig(RequestModel):
    """A dynamic config that a client did not take over."""

    key: _Key
    reason: _Reason


class AppliedConfigs(RequestModel):
    """The report of a running client."""

    polled = True

    software_name: _Name
    software_version: _Version
    applied_revision: Annotated[StrictStr, Field(pattern=formats.REVISION, examples=["8589934635"])] = Field(
        description="Confplane-Revision of the last answer, 200 or 304, whose configs the client runs with"
    )
    refused: Annotated[list[RefusedConfig], Field(max_length=32)] = Field(
        default_factory=list, description="Dynamic configs of that answer that the client did not take over"
    )


class TakenReport(AnswerModel):
    """The answer to a report."""

    forgotten_after_ms: Count = Field(description="The report is forgotten then, unless the client sends another one")


class AppliedCount(AnswerModel):
    """Clients of one software that run with the configs of one revision."""

    software_name: str
    software_version: str
    applied_revision: Revision
    instances: Count


class RefusedCount(AnswerModel):
    """Clients of one software that do not take a config over, for one reason."""

    key: str
    reason: str
    software_name: str
    software_version: str
    instances: Count


class AppliedStatus(AnswerModel):
    """Counts of the clients of an entity by their reports."""

    id: EntityId
    revision: Revision = Field(description="The last change of what decides the entity's configs; 0 where nothing does")
    instances: Count = Field(description="Clients that reported lately")
    applied: Count = Field(description="Clients that run with the latest configs, except for refused ones")
    not_yet_applied: Count = Field(
        description="All other clients: they run with earlier configs, or with configs from before ZooKeeper was"
        " restored"
    )
    applied_by: list[AppliedCount] = Field(description="Most instances first; the latest configs have their revision")
    refused: list[RefusedCount] = Field(description="Most instances first")
    omitted: Count = Field(description="Groups that are not in the two lists, which have at most a thousand each")


def applied_filter(reports: AppliedReports, cluster_facet: ClusterFacet, *, wanted: bool | None) -> Test | None:
    """Return the test of a list's entities by the reports of clients; None if it takes all."""

    async def test(entity: Entity) -> bool:
        return await applied.applied(reports, cluster_facet, entity) is wanted

    return None if wanted is None else test


@routes.put(
    "/v1/clusters/{cluster}/client-configs/{id:path}/instances/{instanceId}",
    RouteOperation(
        "Report what a running client has taken over",
        TakenReport,
        effect=Effect.REPORT,
        limit=LimitClass.READ,
        problems=(503,),
    ),
)
async def report_client_configs(
    call: CallDep, reports: AppliedDep, entity: _Entity, instance_id: _InstanceId, body: AppliedConfigs
) -> Response:
    """An application sends it for its own user after each poll, without a grant. Reports are not in the trail.

    Send it to any replica; all replicas know it within seconds.
    """
    if not _INSTANCE.fullmatch(instance_id):
        raise InvalidRequestError(
            "An instance's name has 1 to 128 letters, digits and ._- and is neither . nor ..", pointer="instanceId"
        )
    stored = applied.report(
        reports,
        call.cluster_facet(FacetName.CLIENT_CONFIGS),
        entity,
        instance_id,
        AppliedReport(
            body.software_name,
            body.software_version,
            int(body.applied_revision),
            tuple(Refusal(each.key, each.reason) for each in body.refused),
        ),
        validate_only=call.validate_only,
    )
    if stored:
        call.charge(LimitClass.READ, _STORED_REPORT)
    return json_bytes(call.cluster, _TAKEN)


@routes.get(
    "/v1/clusters/{cluster}/client-configs/{id:path}/status",
    read(
        "Count the clients of an entity by the configs that they report",
        AppliedStatus,
        limit=LimitClass.BULK,
    ),
    checks=[Consistency],
)
async def status_client_configs(call: CallDep, reports: AppliedDep, entity: _Entity) -> Response:
    """Reports of clients are not verified. Counts of a user include its clients with any client-id.

    A client is forgotten after fifteen minutes without a report: three polls.
    """
    consistency = consistency_headers(call.cluster.store)
    found = await applied.status(reports, call.access, call.cluster_facet(FacetName.CLIENT_CONFIGS), entity)
    call.charge(LimitClass.BULK, len(found.groups) + len(found.refusals))
    return json_response(call.request, _rendered(entity, found), consistency=consistency)


def _rendered(entity: Entity, found: applied.AppliedStatusCounts) -> dict[str, Any]:
    return {
        "id": entity.id,
        "revision": str(found.revision),
        "instances": found.instances,
        "applied": found.applied,
        "notYetApplied": found.instances - found.applied,
        "appliedBy": [
            {
                "softwareName": group.software_name,
                "softwareVersion": group.software_version,
                "appliedRevision": str(group.revision),
                "instances": instances,
            }
            for group, instances in found.groups
        ],
        "refused": [
            {
                "key": group.key,
                "reason": group.reason,
                "softwareName": group.software_name,
                "softwareVersion": group.software_version,
                "instances": instances,
            }
            for group, instances in found.refusals
        ],
        "omitted": found.omitted,
    }
