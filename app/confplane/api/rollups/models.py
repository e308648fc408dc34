"""The wire forms of rollups; those of the rows follow from the domain's columns."""

from typing import Any, Literal

from pydantic import Field, create_model

from confplane.api import patterns
from confplane.api.models import AnswerModel, Revision, Time
from confplane.domain.rollups import ROLLUPS, Column, ColumnType, Rollup
from confplane.services.ports.rollups import RunState

_RUN_ID: Any = Field(pattern=patterns.CHANGE_ID, description="UUIDv7 of the run")
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
        pattern=patterns.CHANGE_ID, description="The run that it was built on; null where it began at the beginning"
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
