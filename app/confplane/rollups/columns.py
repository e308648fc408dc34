"""Parts of entity ids, the first of many, and sums, as expressions on columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own pages use
from pyspark.sql.types import DecimalType

from confplane.rollups.schemas import TEXTS

if TYPE_CHECKING:
    from pyspark.sql import Column

    from confplane.domain.entities import EntityType

_EXACT: Final = DecimalType(38, 9)
"""The decimals in which numbers are added: Spark's largest."""
_MOST: Final = 1e19
"""Numbers from here on are added as doubles: ten billion smaller ones fit into :data:`_EXACT`."""


def entity_type(entity_id: Column) -> Column:
    """Return the types of an id's components: ``user``, ``user,client-id``, ``client-id``, ``topic``..."""
    return F.regexp_replace(entity_id, "=[^,]*", "")


def is_named(entity_id: Column, kind: EntityType) -> Column:
    """Return an expression that is true if an id has a component of this type that is not the default one."""
    return entity_id.rlike(f"(^|,){kind.value}=")


def name(entity_id: Column, kind: EntityType) -> Column:
    """Return the plain name of a component; null for the default entity, and if there is no such component."""
    escaped = F.nullif(F.regexp_extract(entity_id, f"(?:^|,){kind.value}=([^,]*)", 1), F.lit(""))
    # Ids have no raw '+', which form decoding would read as a blank.
    return F.url_decode(F.replace(escaped, F.lit("~"), F.lit("%")))


def user_id(entity_id: Column) -> Column:
    """Return the user's part of an id, itself an id: ``user=alice`` or ``user``; null if there is none."""
    return F.nullif(F.regexp_extract(entity_id, "^user(?:=[^,]*)?", 0), F.lit(""))


def client_part(entity_id: Column) -> Column:
    """Return the client-id's part of an id: ``client-id=billing`` or ``client-id``; null if there is none."""
    return F.nullif(F.regexp_extract(entity_id, "(?:^|,)(client-id(?:=[^,]*)?)$", 1), F.lit(""))


def first_ids(ids: Column, count: int) -> Column:
    """Aggregate ids to an array of the first ones in order, without nulls; only these are held in memory."""
    return F.coalesce(F.min_by(ids, ids, count), F.array().cast(TEXTS))


def first_of(arrays: Column, count: int) -> Column:
    """Aggregate arrays of ids from :func:`first_ids` to one array of the first; nulls are omitted."""
    return F.slice(F.array_sort(F.flatten(F.collect_list(arrays))), 1, count)


def exact_sum(value: Column) -> Column:
    """Aggregate numbers, doubles from 0 on, to their sum, which does not depend on their order; 0 if there are none.

    They are added as decimals of nine digits after the point. Doubles would be rounded after each addition, so that two
    runs over the same rows may differ. Numbers from :data:`_MOST` on, which no quota has in practice, are added in
    order.
    """
    is_small = value < _MOST
    small = F.sum(F.when(is_small, value).cast(_EXACT)).cast("double")
    large = F.sort_array(F.collect_list(F.when(~is_small, value)))
    return F.aggregate(large, F.coalesce(small, F.lit(0.0)), lambda found, each: found + each)
