"""Rollups: Spark's results about the whole cluster, and the runs that produced them."""

import inspect
import re
from collections.abc import Mapping
from functools import partial, update_wrapper
from typing import Annotated, Any, Final, Literal
from uuid import UUID

from fastapi import Query
from pydantic import Field, create_model
from starlette.responses import Response

from confplane.api import formats
from confplane.api.dependencies import Call, CallDep, IfNoneMatch, PageSize
from confplane.api.models import AnswerModel, Revision, Time
from confplane.api.responses import PreparedResponse, consistency_headers, encoded, json_response, number, unchanged
from confplane.api.routing.operations import Handler, ResponseSpec, read
from confplane.api.routing.preconditions import not_modified
from confplane.api.routing.routes import Routes
from confplane.api.services import RollupsDep
from confplane.domain.access.ranges import NameRanges
from confplane.domain.errors import InvalidRequestError, NotFoundError, ResultGoneError
from confplane.domain.etags import digest
from confplane.domain.rollups import ROLLUPS, Column, ColumnType, Rollup
from confplane.services.limits import LimitClass
from confplane.services.ports.rollups import Place, RollupRun, RunState
from confplane.services.reads.rollups import (
    MOST_SORTED,
    check_sortable,
    csv_of,
    item_of,
    never_run,
    rollup_attempt,
    rollup_run,
    selection,
    visible,
)

_RUN_ID: Any = Field(pattern=formats.CHANGE_ID, description="UUIDv7 of the run")
_PYTHON: dict[ColumnType, Any] = {
    ColumnType.STRING: str,
    ColumnType.INT: int,
    ColumnType.LONG: int,
    ColumnType.DOUBLE: float,
    ColumnType.BOOLEAN: bool,
    ColumnType.DATE: str,
    ColumnType.TIMESTAMP: Time,
    ColumnType.TEXTS: list[str],
}


class RollupRevisions(AnswerModel):
    """The states of the cluster that a run read."""

    floor: Revision | None = Field(
        description="Every commit up to this revision is in every znode that was read; null if no znodes were read"
    )
    horizon: Revision | None = Field(
        description="Every commit up to this revision has its change in the trail; null where no znodes were read"
    )
    watermark: Revision | None = Field(
        description="The revision up to which external writes were recorded; null if they are not recorded"
    )
    folded: Revision | None = Field(
        description="Of `integrity`: changes up to this revision were not read again, but are in the fold of"
        " `previous`; null if all were read"
    )


class RollupRunData(AnswerModel):
    """A complete run."""

    id: str = _RUN_ID
    as_of: Time = Field(description="The time that its rows describe")
    started_at: Time
    finished_at: Time
    principal: str = Field(description="The principal of the run")
    rows: int = Field(ge=0, description="Number of all rows")
    revisions: RollupRevisions
    previous: str | None = Field(
        pattern=formats.CHANGE_ID, description="The run that it was built on; null where it began at the beginning"
    )


class RollupAttempt(AnswerModel):
    """The last attempt at a run, of any end."""

    id: str = _RUN_ID
    state: Literal[tuple(RunState)] = Field(  # type: ignore[valid-type]  # the values of the enumeration
        description="lost: its process has ended; the next run cleans up after it"
    )
    as_of: Time
    started_at: Time
    finished_at: Time | None
    principal: str
    error: str | None = Field(description="For a failed run: the reason")


class RollupSummary(AnswerModel):
    """A rollup, its current run, and the last attempt at one."""

    name: Literal[tuple(ROLLUPS)]  # type: ignore[valid-type]  # the known names
    question: str = Field(description="The question that the rollup answers")
    run: RollupRunData | None = Field(description="The current run; null where the rollup never ran")
    last_attempt: RollupAttempt | None


class RollupList(AnswerModel):
    """All rollups."""

    items: list[RollupSummary]


def title(rollup: Rollup) -> str:
    """Return the name of a rollup as part of a name in camel case."""
    return rollup.name.capitalize()


def _row_type(column: Column) -> Any:
    kind = Revision if column.is_revision else _PYTHON[column.type]
    extra: dict[str, Any] | None = {"format": "date"} if column.type is ColumnType.DATE else None
    return (kind | None if column.nullable else kind), Field(description=column.description, json_schema_extra=extra)


def _page(rollup: Rollup) -> type[AnswerModel]:
    fields: dict[str, Any] = {column.name: _row_type(column) for column in rollup.columns}
    fields |= {
        column.former: (_PYTHON[column.type], Field(description=f"Use `{column.member}`", deprecated=True))
        for column in rollup.columns
        if column.former
    }
    row = create_model(f"{title(rollup)}Row", __base__=AnswerModel, __doc__="One row.", **fields)
    page: type[AnswerModel] = create_model(
        f"{title(rollup)}Rollup",
        __base__=AnswerModel,
        __doc__=rollup.question,
        run=(RollupRunData, ...),
        items=(list[row], ...),
        next_page_token=(str | None, ...),
    )
    return page


PAGES: dict[str, type[AnswerModel]] = {name: _page(rollup) for name, rollup in ROLLUPS.items()}
"""The form of a page of each rollup's rows."""


routes = Routes(tag="rollups")

_TOKEN = re.compile(formats.ROW_TOKEN)
_INT64 = 2**63
_FORMS: dict[ColumnType, dict[str, Any]] = {
    ColumnType.INT: {"type": "integer", "minimum": -_INT64, "maximum": _INT64 - 1},
    ColumnType.LONG: {"type": "integer", "minimum": -_INT64, "maximum": _INT64 - 1},
    ColumnType.DOUBLE: {"type": "number"},
    ColumnType.BOOLEAN: {"type": "boolean"},
    ColumnType.DATE: {"format": "date"},
    ColumnType.TIMESTAMP: {"format": "date-time"},
}
NEXT_PAGE: Final = "Confplane-Next-Page-Token"
_CSV = {"text/csv": {"schema": {"type": "string"}}}
_CONTAINS = "; rows that have this one among theirs"


@routes.get(
    "/v1/clusters/{cluster}/rollups",
    read("All rollups, each with its current run", RollupList, limit=LimitClass.BULK, problems=(503,)),
)
async def list_rollups(call: CallDep, results: RollupsDep) -> Response:
    """Every rollup with its current run: of its complete runs, the one with the latest moment."""
    found = await results.runs(call.cluster.name)
    items = []
    for rollup in ROLLUPS.values():
        runs = found.get(rollup.name)
        items.append(
            {
                "name": rollup.name,
                "question": rollup.question,
                "run": None if runs is None or runs.current is None else rollup_run(runs.current),
                "lastAttempt": None if runs is None or runs.latest is None else rollup_attempt(runs.latest),
            }
        )
    return json_response(call.request, {"items": items})


async def _rows(  # noqa: PLR0913 - one argument a parameter is FastAPI's way
    rollup: Rollup,
    call: CallDep,
    results: RollupsDep,
    *,
    page_size: PageSize = 100,
    page_token: Annotated[
        str | None,
        Query(
            alias="pageToken",
            description="nextPageToken of the page before; all pages are of one run",
            json_schema_extra={"pattern": formats.ROW_TOKEN},
        ),
    ] = None,
    conditions: Annotated[
        str | None,
        Query(
            alias="filter",
            description="Conditions on columns, separated by commas; only rows that meet all of them. `COLUMN >= VALUE`"
            ", also with `<`, `<=` and `>`, for numbers, dates and times; `COLUMN is null`, `COLUMN is not null`",
            examples=["value is null", "affected >= 10, overridden < 5"],
        ),
    ] = None,
    order: Annotated[
        str | None,
        Query(
            alias="orderBy",
            description="Columns, separated by commas, each followed by `desc` for a descending order; rows without a"
            f" value are last. At most {MOST_SORTED:,} rows can be put in an order",
            examples=["affected desc, defaultId"],
        ),
    ] = None,
    form: Annotated[
        Literal["json", "csv"] | None,
        Query(
            alias="format",
            description="`csv`: a table with the columns in the order of JSON, named as in the lake (`config_key`);"
            " `Confplane-Next-Page-Token` has the token of the next page. Only the first page has the names",
        ),
    ] = None,
    if_none_match: IfNoneMatch = None,
    **filters: str | None,
) -> Response:
    """Answer with a page of a rollup's rows; ``filters`` are keyed by column name."""
    equal = {
        name: value
        for column in rollup.columns
        for name, value in ((column.member, filters.get(column.name)), (column.former, filters.get(column.former)))
        if value is not None
    }
    wanted = selection(rollup, equal, [] if conditions is None else conditions.split(","), order)
    run_id, after = _parse(page_token)
    name = call.cluster.name
    within = visible(call.access, name, rollup, wanted.entity_id)
    run: RollupRun | None = await results.run(name, rollup.name, run_id)
    if run is None:
        raise NotFoundError(never_run(name, rollup.name)) if run_id is None else _gone(run_id)
    etag = _etag(run.id, within)
    if not_modified(if_none_match, etag):
        return unchanged(call.request, etag)
    check_sortable(run, wanted)
    page = await results.rows(wanted.query(run.id, page_size, after, within))
    if page is None:
        raise _gone(run.id)
    rows, place = page
    next_token = None if place is None else f"{run.id}.{place[0]}.{place[1]}"
    if form == "csv":
        call.charge(LimitClass.BULK, len(rows))
        table = csv_of(rollup, rows, header=page_token is None)
        return _table(call, table, {"ETag": etag, **({} if next_token is None else {NEXT_PAGE: next_token})})
    doubles = [column.member for column in rollup.columns if column.type is ColumnType.DOUBLE]
    items = [item_of(rollup, row) for row in rows]
    call.charge(LimitClass.BULK, len(items))
    for item in items:
        item |= {member: number(item[member]) for member in doubles}
    body = {
        "run": rollup_run(run),
        "items": items,
        "nextPageToken": next_token,
    }
    return json_response(call.request, body, headers={"ETag": etag})


def _table(call: Call, table: str, headers: dict[str, str]) -> Response:
    """Answer with CSV and the consistency headers."""
    sent = [*consistency_headers(call.cluster.store), *encoded({**headers, "content-type": "text/csv; charset=utf-8"})]
    return PreparedResponse(table.encode(), sent)


def _etag(run_id: UUID, within: NameRanges | None) -> str:
    """Return the ETag of a run, for all callers who see the same rows."""
    if within is None:
        return f'"{run_id}"'
    return digest({"run": str(run_id), "starts": "\n".join(within.starts), "ends": "\n".join(within.ends)})


def _gone(run_id: UUID) -> ResultGoneError:
    return ResultGoneError(
        f"The rows of run {run_id} are not kept any more: later runs took its place; begin again without pageToken",
        pointer="pageToken",
    )


def _parse(token: str | None) -> tuple[UUID | None, Place | None]:
    if token is None:
        return None, None
    if not _TOKEN.fullmatch(token):
        raise InvalidRequestError(f"pageToken is not one that this API gave: {token[:100]!a}", pointer="pageToken")
    run_id, part, ordinal = token.split(".")
    return UUID(run_id), (int(part), int(ordinal))


def _filter(rollup: Rollup, column: Column, alias: str, *, deprecated: bool = False) -> Any:
    """Return the parameter that filters by a column. The value is text, read by its column's type."""
    form = dict(_FORMS.get(column.type, {}))
    if column.is_revision:
        form = {"pattern": formats.REVISION}
    elif column.name == rollup.entity:
        form = {"pattern": formats.ROLLUP_ID}
    description = column.description + (_CONTAINS if column.type is ColumnType.TEXTS else "")
    return Annotated[
        str | None,
        Query(alias=alias, description=description, json_schema_extra=form, deprecated=deprecated or None),
    ]


def _add(rollup: Rollup) -> None:
    filters = {column.name: (_filter(rollup, column, column.member), None) for column in rollup.columns}
    filters |= {
        column.former: (_filter(rollup, column, column.former, deprecated=True), None)
        for column in rollup.columns
        if column.former
    }
    order = [f"`{column.member}`" for name in rollup.key for column in rollup.columns if column.name == name]
    operation = read(
        rollup.question,
        {200: ResponseSpec(PAGES[rollup.name], content=_CSV, headers=(NEXT_PAGE,))},
        limit=LimitClass.BULK,
        tagged=True,
        problems=(410, 503),
        id=f"getRollup{title(rollup)}",
        description=f"The rows of the current run, in the order of {', '.join(order)} unless `orderBy` says otherwise."
        " Filters are exact and can be combined. A page of a filtered list may have few rows or none, and still have a"
        " `nextPageToken`. 404 if the rollup was never run. "
        + (
            "A caller without DESCRIBE on `rollups` sees the rows of the entities that it may describe."
            if rollup.is_per_entity
            else "Needs DESCRIBE on `rollups`: its rows are about many entities."
        ),
    )
    path = f"/v1/clusters/{{cluster}}/rollups/{rollup.name}"
    routes.get(path, operation)(_declared(partial(_rows, rollup), filters))


def _declared(handler: Handler, filters: Mapping[str, tuple[Any, Any]]) -> Handler:
    """Return a handler that declares its keyword arguments (``**``), whose types and defaults are given by name."""
    declares = inspect.Parameter
    parameters = [
        each for each in inspect.signature(handler).parameters.values() if each.kind is not declares.VAR_KEYWORD
    ]
    parameters += [
        declares(name, declares.KEYWORD_ONLY, annotation=annotation, default=default)
        for name, (annotation, default) in filters.items()
    ]
    made = update_wrapper(partial(handler), handler)
    made.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # what inspect looks for
    return made


for _each in ROLLUPS.values():
    _add(_each)


@routes.get(
    "/v1/clusters/{cluster}/rollups/{name}",
    read("No rollup", {}, limit=LimitClass.READ, listed=False),
)
async def unknown(_: CallDep, name: str) -> Response:
    """Answer 404 with the names of all rollups."""
    raise NotFoundError(f"There is no rollup {name[:100]!a}; there are: {', '.join(ROLLUPS)}")
