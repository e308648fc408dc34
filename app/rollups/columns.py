"""Parts of entity ids, as expressions on columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own pages use

if TYPE_CHECKING:
    from pyspark.sql import Column

    from app.domain.entities import EntityType


def entity_type(entity_id: Column) -> Column:
    """Return the types of an id's components: ``user``, ``user,client-id``, ``client-id``, ``topic``..."""
    return F.regexp_replace(entity_id, "=[^,]*", "")


def is_named(entity_id: Column, kind: EntityType) -> Column:
    """Say whether an id has a component of this type that is not the default one."""
    return entity_id.rlike(f"(^|,){kind.value}=")


def is_default(entity_id: Column, kind: EntityType) -> Column:
    """Say whether an id has the default of this type as a component."""
    return entity_id.rlike(f"(^|,){kind.value}(,|$)")


def name(entity_id: Column, kind: EntityType) -> Column:
    """Return the plain name of a component; null for the default entity, and where there is no such component."""
    escaped = F.nullif(F.regexp_extract(entity_id, f"(?:^|,){kind.value}=([^,]*)", 1), F.lit(""))
    # Ids hold no raw '+', which form decoding would take for a blank.
    return F.url_decode(F.replace(escaped, F.lit("~"), F.lit("%")))


def user_id(entity_id: Column) -> Column:
    """Return the user's part of an id, itself an id: ``user=alice`` or ``user``; null where there is none."""
    return F.nullif(F.regexp_extract(entity_id, "^user(?:=[^,]*)?", 0), F.lit(""))


def client_part(entity_id: Column) -> Column:
    """Return the client-id's part of an id: ``client-id=billing`` or ``client-id``; null where there is none."""
    return F.nullif(F.regexp_extract(entity_id, "(?:^|,)(client-id(?:=[^,]*)?)$", 1), F.lit(""))


def kind_of(entity_id: Column, *kinds: EntityType) -> Column:
    """Say whether an id has components of exactly these types."""
    return entity_type(entity_id) == ",".join(kinds)
