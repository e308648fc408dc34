"""Registrations that stand after seen and cleared events, computed at once and in pieces."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from confplane.rollups import schemas
from confplane.rollups.registrations import current_registrations

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


START = datetime(2026, 1, 1, tzinfo=UTC)
Key = tuple[str, str, str, tuple[str, ...]]


def made(count: int) -> list[tuple[Any, ...]]:
    choose = random.Random(7)  # noqa: S311 - of no use to an attacker
    events: list[tuple[Any, ...]] = []
    for number in range(1, count + 1):
        at = START + timedelta(hours=number)
        entity = choose.choice(["user=a", "user=b,client-id=~2B", "user"])
        kind = choose.random()
        if kind < 0.85:
            version, configs = choose.choice(["1", "2"]), choose.choice([[], ["acks"], ["acks", "linger.ms"]])
            events.append((number, "seen", entity, "lib", version, configs, at, at))
        else:
            events.append((number, "cleared", None if kind > 0.97 else entity, None, None, None, None, at))
    return events


def folded(events: list[tuple[Any, ...]]) -> dict[Key, tuple[datetime, datetime]]:
    found: dict[Key, tuple[datetime, datetime]] = {}
    for _, event, entity, name, version, configs, seen_at, _ in events:
        if event == "cleared":
            found = {key: value for key, value in found.items() if entity is not None and key[0] != entity}
        else:
            key = (entity, name, version, tuple(configs))
            first, last = found.get(key, (seen_at, seen_at))
            found[key] = (min(first, seen_at), max(last, seen_at))
    return found


def rows(frame: DataFrame) -> dict[Key, tuple[datetime, datetime]]:
    columns = ("entity_id", "software_name", "software_version", "supported_configs", "first_seen", "last_seen")
    found = {(r[0], r[1], r[2], tuple(r[3])): (aware(r[4]), aware(r[5])) for r in frame.select(*columns).collect()}
    assert len(found) == frame.count()
    return found


def aware(local: datetime) -> datetime:
    # Spark hands out times of the machine's zone, without it.
    return local.astimezone(UTC)


def test_registrations_are_the_events_folded_up_at_once_and_in_pieces(spark: SparkSession) -> None:
    events = made(120)
    first = current_registrations(spark.createDataFrame(events[:70], schemas.REGISTRATION_EVENTS))
    both = current_registrations(spark.createDataFrame(events[70:], schemas.REGISTRATION_EVENTS), first)
    assert rows(both) == folded(events)
    none = spark.createDataFrame([], schemas.REGISTRATION_EVENTS)
    assert rows(current_registrations(none, first)) == folded(events[:70])
    assert rows(current_registrations(none)) == {}
