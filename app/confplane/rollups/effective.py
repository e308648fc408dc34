"""Effective values of brokers and topics, as columns: their own, over the default of all brokers, over Kafka's own.

The rules are those of domain/broker_levels.py and domain/topics.py. Entries that brokers ignore count as not set.
Brokers' own files are not known here: a value that they set, below the dynamic levels, is treated as Kafka's default.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own pages use
from pyspark.sql.types import StringType, StructField, StructType

from confplane.domain.broker_keys import is_sensitive
from confplane.domain.broker_levels import ConfigLevels, DynamicLevel, effective_broker, left_out
from confplane.domain.entities import EntityType
from confplane.domain.topics import effective_topic
from confplane.rollups.schemas import CONFIG

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column

    from confplane.domain.extra_keys import Catalogs

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
