"""The query parameters that make a write temporary, of each operation that accepts them."""

from typing import Annotated, Any

from fastapi import Depends, Query
from starlette.requests import Request

from confplane.api import formats
from confplane.api.dependencies import REVERT_AT
from confplane.api.services import SCHEDULES
from confplane.services.schedules.service import LONGEST_DAYS, SHORTEST_S


async def _temporary(
    request: Request,
    expires_in: Annotated[
        int | None,
        Query(
            alias="expiresIn",
            ge=SHORTEST_S,
            le=LONGEST_DAYS * 86_400,
            description="Seconds after which the changed keys get their earlier values again",
        ),
    ] = None,
    revert_at: Annotated[
        str | None,
        Query(
            alias="revertAt",
            description="The time at which the changed keys get their earlier values again: from a minute to 90 days in"
            " the future. Not with `expiresIn`",
            json_schema_extra={"pattern": formats.TIME},
        ),
    ] = None,
) -> None:
    moment = formats.parse_moment(revert_at, "revertAt")
    request.scope[REVERT_AT] = SCHEDULES(request).revert_at(expires_in, moment)


Temporary: Any = Depends(_temporary)
"""Makes the changes of an operation temporary on request."""
