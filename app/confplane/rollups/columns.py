"""Parts of entity ids, and the first of many, as expressions on columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own pages use

from confplane.rollups.schemas import TEXTS

if TYPE_CHECKING:
    from pyspark.sql import Column

    from confplane.domain.entities import EntityType


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
