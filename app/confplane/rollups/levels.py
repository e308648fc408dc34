"""The entry that decides a quota of a registered client: the eight levels of KIP-55 and KIP-546, as columns.

The rule is that of domain/resolution.py, which resolves one client at a time; a test compares the two. A client
that is registered without a client-id represents any client-id without an entry of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own pages use

from confplane.domain.entities import EntityType
from confplane.domain.facets import Tree
from confplane.domain.quotas import QUOTA_KEYS
from confplane.rollups.columns import client_part, entity_type, is_named, user_id

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column, DataFrame

CLIENT_QUOTAS: Final = tuple(
    sorted(name for name, key in QUOTA_KEYS.items() if (EntityType.USER, EntityType.CLIENT_ID) in key.kinds)
)
"""The quota keys of clients; those of ips do not apply to clients."""

PAIR_LEVELS: Final = (1, 2, 4, 5)
"""Levels whose quota applies to each pair of user and client-id separately."""
USER_LEVELS: Final = (3, 6)
"""Levels whose quota all clients of a user share. The quota of levels 7 and 8 is shared by all connections of a
client-id."""

DEFAULT_LEVELS: Final = (2, 4, 5, 6, 8)
"""Levels whose entry is a default, for all users or for all client-ids, so that several budgets may have it."""

INTEGRAL: Final = tuple(key for key in CLIENT_QUOTAS if QUOTA_KEYS[key].integral)
"""The keys whose quotas are integers."""

_WHOLE: Final = r"^\+?[0-9]{1,19}$"
_DECIMAL: Final = r"^\s*\+?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*$"

EVERYWHERE: Final = {5: "user,client-id", 6: "user", 8: "client-id"}
"""The levels with one entry for all clients."""

_DEFAULT_USER: Final = EntityType.USER.value
_DEFAULT_CLIENT: Final = EntityType.CLIENT_ID.value
_KINDS: Final = ("user", "client-id", "user,client-id")


def registered_clients(registrations: DataFrame) -> DataFrame:
    """Return each registered client once: ``entity_id``, and the parts ``user`` and ``client`` of the id (or null)."""
    return (
        registrations.select("entity_id")
        .distinct()
        .select("entity_id", user_id(F.col("entity_id")).alias("user"), client_part(F.col("entity_id")).alias("client"))
    )


def quota_entries(znodes: DataFrame) -> DataFrame:
    """Return the entries of users and client-ids that set quotas: ``source``, and ``quotas``, key -> stored string."""
    quotas = F.map_filter("config", lambda key, value: key.isin(*CLIENT_QUOTAS) & value.isNotNull())
    return (
        znodes.where(F.col("tree") == Tree.CONFIG.value)
        .where("entity_id IS NOT NULL AND NOT undecodable AND NOT forbidden")
        .where(entity_type(F.col("entity_id")).isin(*_KINDS))
        .select(F.col("entity_id").alias("source"), quotas.alias("quotas"))
        .where(F.size("quotas") > 0)
    )


def deciding_entries(clients: DataFrame, entries: DataFrame) -> DataFrame:
    """Return for each client the entries that decide its quotas.

    Args:
        clients: The result of :func:`registered_clients`, or clients of the same columns. A client without a user has
            quotas by its client-id alone.
        entries: The result of :func:`quota_entries`.

    Returns:
        The columns of ``clients`` and, named as each key, ``struct(level, source, stored)``, or null for an unlimited
        key, which no entry sets. ``of_user`` and ``of_client``: the quotas set for the default client-id of the
        client's user, and for its client-id under the default user (key -> stored string, or null).

    Costs three joins of the clients with the entries: by id, by user and by client-id. A client is one row in all of
    them.
    """
    source = F.col("source")
    named_user, named_client = is_named(source, EntityType.USER), is_named(source, EntityType.CLIENT_ID)
    has_client = client_part(source).isNotNull()
    pairs = entries.where(named_user & named_client).select(source.alias("entity_id"), F.col("quotas").alias("level_1"))
    of_user = (
        entries.where(named_user & ~named_client)
        .groupBy(user_id(source).alias("user"))
        .agg(_map_where(has_client, "level_2"), _map_where(~has_client, "level_3"))
    )
    of_client = (
        entries.where(~named_user & named_client)
        .groupBy(client_part(source).alias("client"))
        .agg(_map_where(user_id(source).isNotNull(), "level_4"), _map_where(user_id(source).isNull(), "level_7"))
    )
    of_all = entries.where(source.isin(*EVERYWHERE.values())).agg(
        *(_map_where(source == default_id, f"level_{level}") for level, default_id in EVERYWHERE.items())
    )
    joined = (
        clients.join(pairs, "entity_id", "left")
        .join(of_user, "user", "left")
        .join(of_client, "client", "left")
        .crossJoin(F.broadcast(of_all))
        .withColumns(
            {f"level_{level}": F.when(F.col("user").isNotNull(), F.col(f"level_{level}")) for level in (4, 5, 6)}
        )
    )
    sources = {
        1: F.col("entity_id"),
        2: _pair(F.col("user"), F.lit(_DEFAULT_CLIENT)),
        3: F.col("user"),
        4: _pair(F.lit(_DEFAULT_USER), F.col("client")),
        7: F.col("client"),
        **{level: F.lit(default_id) for level, default_id in EVERYWHERE.items()},
    }
    winners = [
        F.coalesce(*(_entry(level, sources[level], key) for level in sorted(sources))).alias(key)
        for key in CLIENT_QUOTAS
    ]
    defaults = F.col("level_2").alias("of_user"), F.col("level_4").alias("of_client")
    return joined.select("entity_id", "user", "client", *winners, *defaults)


def by_key(decided: DataFrame) -> DataFrame:
    """Return the deciding entries as one row per client and key: ``config_key, level, source, stored``.

    ``has_user`` and ``has_client`` are true if ``of_user`` and ``of_client`` set the key.
    """
    rows = F.array(*(F.struct(F.lit(key).alias("config_key"), F.col(key).alias("winner")) for key in CLIENT_QUOTAS))
    key = F.col("config_key")
    return decided.select("entity_id", "user", "client", "of_user", "of_client", F.inline(rows)).select(
        "entity_id",
        "user",
        "client",
        "config_key",
        "winner.level",
        "winner.source",
        "winner.stored",
        F.col("of_user")[key].isNotNull().alias("has_user"),
        F.col("of_client")[key].isNotNull().alias("has_client"),
    )


def number_of(stored: Column) -> Column:
    """Read a stored quota of the key ``config_key`` like brokers do; null if they can't, or if it is negative."""
    whole = F.when(stored.rlike(_WHOLE), stored.try_cast("long").cast("double"))
    decimal = F.when(stored.rlike(_DECIMAL), F.trim(stored).try_cast("double"))
    number = F.when(F.col("config_key").isin(*INTEGRAL), whole).otherwise(decimal)
    return F.when(number < float("inf"), number)


def sharers() -> Column:
    """Return the id of the sharers of a quota, from a row of :func:`by_key`; null if the client is unlimited.

    Clients whose client-id is not known have one each, because they may differ.
    """
    level, entity_id = F.col("level"), F.col("entity_id")
    client = F.when(is_named(entity_id, EntityType.CLIENT_ID), F.col("client")).otherwise(entity_id)
    return (
        F.when(level.isin(*PAIR_LEVELS), entity_id)
        .when(level.isin(*USER_LEVELS), F.col("user"))
        .when(level.isNotNull(), client)
    )


def capacities(capacity: Mapping[str, float]) -> Column:
    """Return the capacity of one broker for the key ``config_key``; null if none was given."""
    given = F.create_map(
        *(
            F.lit(part).cast("string" if index == 0 else "double")
            for key in CLIENT_QUOTAS
            for index, part in enumerate((key, capacity.get(key)))
        )
    )
    return given[F.col("config_key")]


def _map_where(condition: Column, name: str) -> Column:
    """Return the one map of quotas among those of a group that meets a condition."""
    return F.first(F.when(condition, F.col("quotas")), ignorenulls=True).alias(name)


def _entry(level: int, source: Column, key: str) -> Column:
    """Return ``struct(level, source, stored)`` if a level's entry sets a key, else null."""
    stored = F.col(f"level_{level}")[key]
    return F.when(
        stored.isNotNull(), F.struct(F.lit(level).alias("level"), source.alias("source"), stored.alias("stored"))
    )


def _pair(user: Column, client: Column) -> Column:
    return F.concat(user, F.lit(","), client)
