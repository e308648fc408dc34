"""Reads of one entity: what applications and Terraform poll."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import httpx

from tests.bench.load import Load
from tests.bench.rounds import alternate, rates
from tests.bench.world import bare, loaded

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.bench.rounds import Figure
    from tests.bench.world import World

QUOTAS = "/v1/clusters/default/client-quotas/user=alice"
CONFIGS = "/v1/clusters/default/client-configs/user=alice"
EFFECTIVE = "/v1/clusters/default/client-configs/user=alice,client-id=billing/effective"
DESCRIBE = "/v1/clusters/default/client-configs:describe"
RESOLVE = (
    '{"components":[{"entityType":"user","matchType":"exact","match":"alice"},'
    '{"entityType":"client-id","matchType":"exact","match":"billing"}],"resolveEntity":true}'
)
QUOTAS_DESCRIBE = "/v1/clusters/default/client-quotas:describe"
STRICT = '{"components":[{"entityType":"user","matchType":"exact","match":"alice"}],"strict":true}'

_BARE = "bare Starlette route, same bytes"
_FINER = 3
"""A read is so short that many short rounds even out more of what else the machine does than few long ones."""


def measure(world: World, *, rounds: int, seconds: float) -> Iterator[Figure]:
    """Yield the figures of reads."""
    rounds, seconds = rounds * _FINER, seconds / _FINER
    with world.service() as service:
        authorization = {"Authorization": f"Bearer {service.token}"}
        with httpx.Client(base_url=service.url, headers=authorization, trust_env=False) as client:
            quotas = {"producer_byte_rate": 1048576, "consumer_byte_rate": 2097152}
            client.put(QUOTAS, json={"quotas": quotas}).raise_for_status()
            configs = {"acks": "all", "session.timeout.ms": "30000"}
            client.put(CONFIGS, json={"configs": configs}).raise_for_status()
            got = client.get(QUOTAS).raise_for_status()
            effective = client.get(EFFECTIVE).raise_for_status()
            content_type = {"Content-Type": "application/json"}
            resolved = client.post(DESCRIBE, content=RESOLVE, headers=content_type).raise_for_status()
            described = client.post(QUOTAS_DESCRIBE, content=STRICT, headers=content_type).raise_for_status()
        get = Load(service.port, QUOTAS, headers=authorization, seconds=seconds)
        unchanged = replace(get, headers={**authorization, "If-None-Match": got.headers["etag"]})
        resolve = Load(service.port, DESCRIBE, method="POST", body=RESOLVE, headers=authorization, seconds=seconds)
        with bare(got) as (port, process):
            ours, revalidated, reference = alternate(
                "GET of one entity | with If-None-Match | bare route",
                rounds,
                lambda _: loaded(get, "200", service.pid),
                lambda _: loaded(unchanged, "304", service.pid),
                lambda _: loaded(replace(get, port=port), "200", process),
            )
        yield from rates("GET of one entity", ours, _BARE, reference, "0.75")
        yield from rates("GET with If-None-Match, 304", revalidated, _BARE, reference)
        polled = replace(get, path=EFFECTIVE)
        yield from _beside_bare("GET of the effective configs of one client", rounds, polled, service.pid, effective)
        yield from _beside_bare("Describe with resolveEntity", rounds, resolve, service.pid, resolved, "0.50")
        strict = replace(resolve, path=QUOTAS_DESCRIBE, body=STRICT)
        yield from _beside_bare("Describe of one entity by a strict filter", rounds, strict, service.pid, described)


def _beside_bare(
    name: str, rounds: int, load: Load, server: int, reply: httpx.Response, goal: str = "information"
) -> Iterator[Figure]:
    """Yield the figures of a load of a server, beside the bare route that answers as the server does."""
    with bare(reply) as (port, process):
        ours, reference = alternate(
            f"{name} | bare route",
            rounds,
            lambda _: loaded(load, "200", server),
            lambda _: loaded(replace(load, port=port), "200", process),
        )
    yield from rates(name, ours, _BARE, reference, goal)
