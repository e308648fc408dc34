"""Results of rollups: the catalogue with the last runs, and one result as a table and as bars with the same numbers."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlencode

from fastapi import APIRouter
from starlette.exceptions import HTTPException

from confplane.console.api import ApiRefusal
from confplane.console.page import ConsolePage, PageDep
from confplane.console.texts import count, entity_title, human, plain
from confplane.domain.quotas import QUOTA_KEYS
from confplane.domain.rollups import ROLLUPS, Column, ColumnType, Rollup

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from starlette.responses import Response

router = APIRouter()

_PATH: Final = "/console/clusters/{cluster}/rollups"
_SHOWN: Final = 100
_BARS: Final = 20
_SUMMED: Final = 1_000
"""Rows that are read for sums and counts."""
_AMOUNTS: Final = frozenset({ColumnType.LONG, ColumnType.DOUBLE})
_OF_QUOTA: Final = frozenset({"value", "quota", "mean", "p95", "peak", "capacity", "proposed"})
"""Columns with numbers in the unit of the row's quota."""
_SHARES: Final = frozenset({"share", "throttled_share"})
_QUOTA: Final = "producer_byte_rate"
"""The quota whose rows are shown unless another one is chosen."""
_IDS: Final = frozenset({"entity_id", "default_id", "source", "budget", "examples"})
"""Columns with entity ids."""


class Bar(NamedTuple):
    """One bar of a chart."""

    label: str
    text: str
    """Its number for people."""
    percent: float
    """Its length."""


class Chart(NamedTuple):
    """The bars of a column, and what they leave out."""

    title: str
    bars: list[Bar]
    left_out: str = ""


@router.get(_PATH)
async def rollups(page: PageDep, cluster: str) -> Response:
    """All rollups, each with its current run."""
    path = f"/v1/clusters/{cluster}/rollups"
    found = await page.api.get(path)
    command = page.command("GET", path, "rollups", "list", "--cluster", cluster)
    return page.render("rollups.html", cluster=cluster, items=found["items"], known=ROLLUPS, command=command)


@router.get(f"{_PATH}/{{name}}")
async def rollup(page: PageDep, cluster: str, name: str) -> Response:
    """The rows of a rollup's current run, and a chart of one of its columns."""
    if name not in ROLLUPS:
        raise HTTPException(404, "No such rollup")
    kind, given = ROLLUPS[name], page.request.query_params
    amounts = [each for each in kind.columns if _is_amount(kind, each)]
    chosen = next((each for each in amounts if each.member == given.get("column")), next(iter(amounts), None))
    quota = (given.get("quota") or _QUOTA) if _has_units(kind) else ""
    conditions = given.get("filter", "").strip()
    query = {"filter": conditions or None, "configKey": quota or None}
    if chosen is not None:
        query["orderBy"] = f"{chosen.member} desc"
    path, token = f"/v1/clusters/{cluster}/rollups/{name}", given.get("token")
    found: dict[str, Any] = {"run": None, "items": [], "nextPageToken": None}
    error, status, chart = None, 200, None
    try:
        found = await page.api.get(path, pageSize=_SHOWN, pageToken=token, **query)
        if token is None:
            chart = await _chart(page, path, kind, chosen, query, found)
    except ApiRefusal as refused:
        error, status = refused.detail, refused.status
    shown = [
        each
        for each in kind.columns
        if any(row[each.member] not in (None, "", []) for row in found["items"])
        and not (quota and each.name == "config_key")
    ]
    search = {"column": chosen.member if chosen is not None and len(amounts) > 1 else "", "quota": quota,
              "filter": conditions}  # fmt: skip
    search = {key: text for key, text in search.items() if text}
    following = found["nextPageToken"]
    return page.render(
        "rollup.html",
        status=status,
        cluster=cluster,
        rollup=kind,
        run=found["run"],
        chart=chart,
        columns=shown,
        rows=[[_cell(kind, each, row) for each in shown] for row in found["items"]],
        amounts=amounts,
        chosen=chosen,
        quota=quota,
        quotas=list(QUOTA_KEYS),
        conditions=conditions,
        next=None if following is None else urlencode({**search, "token": following}),
        error=error,
        command=page.command("GET", path, "rollups", "show", name, "--cluster", cluster, query=query),
    )


def _is_amount(kind: Rollup, column: Column) -> bool:
    """Return True if the numbers of a column can be compared by their size."""
    return column.type in _AMOUNTS and not column.is_revision and column.name not in kind.key


def _has_units(kind: Rollup) -> bool:
    """Return True if rows have numbers in the units of their quotas, so that only those of one can be compared."""
    return "config_key" in kind.key and any(each.name in _OF_QUOTA and each.is_number for each in kind.columns)


async def _chart(
    page: ConsolePage, path: str, kind: Rollup, column: Column | None, query: Mapping[str, Any], found: dict[str, Any]
) -> Chart | None:
    """Return the chart of a result: sums per day, the largest rows, or how many rows there are of each kind."""
    day = next((each for each in kind.columns if each.type is ColumnType.DATE), None)
    group = next((each for each in kind.columns if each.name == "kind"), None)
    if day is None and column is not None:
        return _largest(kind, column, found["items"])
    if day is None and group is None:
        return None
    rows = await page.api.get(
        path, pageSize=_SUMMED, **{name: text for name, text in query.items() if name != "orderBy"}
    )
    sums: Counter[str] = Counter()
    for row in rows["items"]:
        if day is not None and column is not None:
            sums[row[day.member]] += row[column.member]
        elif group is not None:
            sums[row[group.member]] += 1
    left_out = f"Of the first {_SUMMED:,} rows." if rows["nextPageToken"] is not None else ""
    if day is not None and column is not None:
        days = sorted(sums.items())[-_BARS:]
        return Chart(
            f"{column.member} per day", _bars((each, number, count(number)) for each, number in days), left_out
        )
    return Chart(
        "Rows of each kind", _bars((each, number, count(number)) for each, number in sums.most_common()), left_out
    )


def _largest(kind: Rollup, column: Column, rows: Iterable[dict[str, Any]]) -> Chart | None:
    """Return the rows with the largest numbers, without the row of the whole cluster."""
    named = [each for each in rows if each[column.member] is not None and (kind.entity is None or _name(kind, each))]
    bars = _bars((_name(kind, each), each[column.member], _words(column, each)) for each in named[:_BARS])
    left_out = f"The {_BARS} largest; the table has all." if len(named) > _BARS else ""
    return Chart(column.member, bars, left_out) if bars else None


def _name(kind: Rollup, row: Mapping[str, Any]) -> str:
    """Return what identifies a row, without the quota that all rows have."""
    key = [
        each for each in kind.columns if each.name in kind.key and not (each.name == "config_key" and _has_units(kind))
    ]
    parts = [(each.name, row[each.member]) for each in key if row[each.member] not in (None, "")]
    return " · ".join(entity_title(value) if name in _IDS else plain(value) for name, value in parts)


def _bars(given: Iterable[tuple[str, float, str]]) -> list[Bar]:
    parts = list(given)
    most = max((number for _, number, _ in parts if math.isfinite(number)), default=0)
    return [Bar(label, text, round(100 * max(0, min(number, most)) / most, 1) if most > 0 else 0)
            for label, number, text in parts]  # fmt: skip


def _words(column: Column, row: Mapping[str, Any]) -> str:
    """Return a number for people: with the unit of the row's quota, or as a share."""
    value = row[column.member]
    if column.name in _SHARES:
        return f"{value:.1%}"
    words = human(value, row["configKey"]) if column.name in _OF_QUOTA else None
    return words or (count(round(value, 2)) if isinstance(value, float) else count(value))


def _cell(kind: Rollup, column: Column, row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a cell of the table: its kind, and its text or its parts."""
    value = row[column.member]
    if value == "" and column.name == kind.entity:
        return {"kind": "text", "value": "all together"}
    if value is None or value == "":
        return {"kind": "none"}
    if column.type is ColumnType.TIMESTAMP:
        return {"kind": "time", "value": value}
    if column.name in _IDS and (parts := value if isinstance(value, list) else [value]):
        return {"kind": "ids", "parts": parts}
    if isinstance(value, list):
        return {"kind": "text", "value": ", ".join(value)}
    is_number = column.is_number and not isinstance(value, str)
    return {"kind": "number" if is_number else "text", "value": _words(column, row) if is_number else plain(value)}
