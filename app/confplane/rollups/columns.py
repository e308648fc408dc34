"""Parts of entity ids, the first of many, and sums, as expressions on columns."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own pages use
from pyspark.sql.types import DecimalType, StringType, StructField, StructType

from confplane.domain.broker_keys import is_sensitive
from confplane.domain.broker_levels import ConfigLevels, DynamicLevel, effective_broker, left_out
from confplane.domain.entities import EntityType
from confplane.domain.topics import effective_topic
from confplane.rollups.schemas import CONFIG, TEXTS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column

    from confplane.domain.extra_keys import Catalogs


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


# Effective values of brokers and topics, as columns: their own, over the default of all brokers, over Kafka's own.
#
# The rules are those of domain/broker_levels.py and domain/topics.py. Entries that brokers ignore count as not set.
# Brokers' own files are not known here: a value that they set, below the dynamic levels, is treated as Kafka's default.

_EFFECTIVE: Final = StructType([StructField("state", StringType()), StructField("value", StringType())])


def drop_ignored(config: str, level: DynamicLevel, catalogs: Catalogs, release: str) -> Column:
    """Return the column ``config``, a stored level, without the entries that brokers of a release ignore."""
    counted = F.udf(partial(_counted, catalogs, release, level), returnType=CONFIG, useArrow=False)
    found: Column = counted(config)
    return found


def effective(
    kind: str, key: str, is_own: str, stored: str, default: str, *, catalogs: Catalogs, release: str
) -> Column:
    """Return the state and the value for a text that an entity sets, or for an entity that sets none.

    Args:
        kind: The column of the entity's type, ``broker`` or ``topic``; null if no value is requested.
        key: The column of the config key.
        is_own: The column that says whether the entity sets the key.
        stored: The column of the text that it sets; null for a secret.
        default: The column of the default of all brokers (:func:`drop_ignored`), a map.
        catalogs: The definitions of the cluster.
        release: The release of the cluster's Kafka, whose catalog has the types and Kafka's own defaults.

    Returns:
        ``struct(state, value)``: ``value`` and the value in the form of its type; ``secret``; or ``none``. Null if
        ``kind`` is null.
    """
    decided = F.udf(partial(_effective, catalogs, release), returnType=_EFFECTIVE, useArrow=False)
    found: Column = decided(kind, key, is_own, stored, default)
    return found


def _counted(
    catalogs: Catalogs, release: str, level: DynamicLevel, config: Mapping[str, str | None] | None
) -> dict[str, str | None] | None:
    if config is None:
        return None
    catalog = catalogs.of(release)
    # For secrets, only their form, a text, is known.
    return {name: value for name, value in config.items() if left_out(catalog, name, value or "", level) is None}


def _effective(  # noqa: PLR0917 - Spark passes columns by position
    catalogs: Catalogs,
    release: str,
    kind: str | None,
    key: str,
    is_own: bool,  # noqa: FBT001 - a column
    stored: str | None,
    default: Mapping[str, str | None],
) -> tuple[str, str | None] | None:
    if kind is None:
        return None
    catalog = catalogs.of(release)
    known = {name: value for name, value in default.items() if value is not None}
    own = {key: stored} if is_own and stored is not None else {}
    if kind == EntityType.BROKER:
        hidden = is_sensitive(catalog, key) or (is_own and stored is None)
        is_set = is_own or key in default
        value = effective_broker(key, ConfigLevels(catalog, default=known, broker=own)).value
    else:
        definition = catalog.topic.get(key)
        hidden = definition is None or definition.sensitive or (is_own and stored is None)
        is_set = is_own
        value = effective_topic(key, own, ConfigLevels(catalog, default=known)).value
    if hidden:
        return ("secret" if is_set else "none"), None
    return ("none" if value is None else "value"), value
