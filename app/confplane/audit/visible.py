"""A caller's visible entities as an SQL condition: one binary search per row, regardless of the number of grants."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import Text, bindparam, text
from sqlalchemy.dialects.postgresql import ARRAY

if TYPE_CHECKING:
    from sqlalchemy import TextClause

    from confplane.domain.access.ranges import NameRanges

_SQL: Final = "{column} < (CAST(:visible_ends AS text[]))[width_bucket({column}, CAST(:visible_starts AS text[]))]"


def condition(column: str) -> str:
    """Return SQL that is true if a column with collation C is in the ranges of :func:`parameters`.

    ``width_bucket`` returns the number of range starts up to the value. This is the position of the only range that may
    contain the value. Before the first range the position is 0, the end there is null, and so the condition is null.
    """
    return _SQL.format(column=column)


def parameters(within: NameRanges) -> dict[str, Any]:
    """Return the parameters of :func:`condition`."""
    return {"visible_starts": list(within.starts), "visible_ends": list(within.ends)}


def clause(column: str, *, hidden: bool = False) -> TextClause:
    """Return :func:`condition`, or its opposite."""
    sql = f"({condition(column)}) IS {'NOT' if hidden else ''} TRUE"
    return text(sql).bindparams(*(bindparam(name, type_=ARRAY(Text)) for name in ("visible_starts", "visible_ends")))
