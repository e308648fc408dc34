"""Parts of entity ids, as Spark tells them and as the domain does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from confplane.domain.entities import Entity, EntityType
from confplane.rollups import columns

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ENTITIES = [
    Entity.of(user="alice"),
    Entity.of(user=None),
    Entity.of(user="CN=a b,client-id=x", client_id=None),
    Entity.of(user=None, client_id="a+b"),
    Entity.of(user="x.client-id"),
    Entity.of(user="~7E%", client_id="100% Zoë 🐘"),
    Entity.of(client_id="user"),
    Entity.of(client_id="<default>"),
    Entity.of(ip="10.0.0.1"),
    Entity.of(topic="user"),
    Entity.of(topic="user.client-id"),
    Entity.of(broker=None),
    Entity.of(broker="0"),
]


def test_parts_are_those_of_the_domain(spark: SparkSession) -> None:
    entity_id = F.col("id")
    kinds = (EntityType.USER, EntityType.CLIENT_ID, EntityType.TOPIC)
    rows = (
        spark.createDataFrame([(entity.id,) for entity in ENTITIES], "id string")
        .select(
            "id",
            columns.entity_type(entity_id),
            F.array(*[columns.name(entity_id, kind) for kind in kinds]),
            F.array(*[columns.is_named(entity_id, kind) for kind in kinds]),
            columns.user_id(entity_id),
            columns.client_part(entity_id),
        )
        .collect()
    )
    found = {row[0]: tuple(row)[1:] for row in rows}
    assert found == {entity.id: told(entity, kinds) for entity in ENTITIES}


def told(entity: Entity, kinds: tuple[EntityType, ...]) -> tuple[object, ...]:
    names = entity.as_dict()
    parts = dict(zip((kind.value for kind in entity.types), entity.id.split(","), strict=True))
    return (
        ",".join(entity.types),
        [names.get(kind) for kind in kinds],
        [names.get(kind) is not None for kind in kinds],
        parts.get("user"),
        parts.get("client-id"),
    )
