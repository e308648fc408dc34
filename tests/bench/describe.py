"""Describe of everything at once."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import httpx

from tests.bench.rounds import Figure, alternate, column

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.bench.rounds import Sample
    from tests.bench.world import World

_DESCRIBE = "/v1/clusters/default/client-quotas:describe"


def measure(world: World, *, rounds: int, entities: int) -> Iterator[Figure]:
    """Yield how fast all entities are described."""
    with (
        world.service(world.filled(entities)) as service,
        httpx.Client(
            base_url=service.url, headers={"Authorization": f"Bearer {service.token}"}, timeout=60, trust_env=False
        ) as client,
    ):
        answer = client.post(_DESCRIBE, json={"components": []}).raise_for_status().json()
        if len(answer["entries"]) != entities:
            raise AssertionError(f"{len(answer['entries'])} entities were described, not {entities}")

        def describe(_: int) -> Sample:
            begun = time.perf_counter()
            client.post(_DESCRIBE, json={"components": []}).raise_for_status()
            return (entities / (time.perf_counter() - begun),)

        [ours] = alternate(f"describe of {entities:,}, entities/s", rounds, describe)
    yield Figure(f"Describe of all {entities:,} entities", "entities/s", column(ours))
