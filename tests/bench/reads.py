"""Reads of one entity: what applications and Terraform poll."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import httpx

from tests.bench.load import Load
from tests.bench.rounds import alternate, rates
from tests.bench.stage import bare, loaded

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.bench.rounds import Figure
    from tests.bench.stage import Stage

QUOTAS = "/v1/clusters/default/client-quotas/user=alice"
CONFIGS = "/v1/clusters/default/client-configs/user=alice"
EFFECTIVE = "/v1/clusters/default/client-configs/user=alice,client-id=billing/effective"
DESCRIBE = "/v1/clusters/default/client-configs:describe"
RESOLVE = (
    '{"components":[{"entityType":"user","matchType":"exact","match":"alice"},'
    '{"entityType":"client-id","matchType":"exact","match":"billing"}],"resolveEntity":true}'
)

_BARE = "bare Starlette route, same bytes"
_FINER = 3
"""A read is so short that many short rounds even out more of what else the machine does than few long ones."""


def measure(stage: Stage, *, rounds: int, seconds: float) -> Iterator[Figure]:
    """Yield the figures of reads."""
    rounds, seconds = rounds * _FINER, seconds / _FINER
    with stage.service() as service:
        authorization = {"Authorization": f"Bearer {service.token}"}
        with httpx.Client(base_url=service.url, headers=authorization, trust_env=False) as client:
            quotas = {"producer_byte_rate": 1048576, "consumer_byte_rate": 2097152}
            client.put(QUOTAS, json={"quotas": quotas}).raise_for_status()
            configs = {"acks": "all", "session.timeout.ms": "30000"}
            client.put(CONFIGS, json={"configs": configs}).raise_for_status()
            got = client.get(QUOTAS).raise_for_status()
            effective = client.get(EFFECTIVE).raise_for_status()
            described = client.post(
                DESCRIBE, content=RESOLVE, headers={"Content-Type": "application/json"}
            ).raise_for_status()
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
        with bare(effective) as (port, process):
            ours, reference = alternate(
                "GET of effective values | bare route",
                rounds,
                lambda _: loaded(polled, "200", service.pid),
                lambda _: loaded(replace(polled, port=port), "200", process),
            )
        yield from rates("GET of the effective configs of one client", ours, _BARE, reference)
        with bare(described) as (port, process):
            ours, reference = alternate(
                "describe with resolveEntity | bare route",
                rounds,
                lambda _: loaded(resolve, "200", service.pid),
                lambda _: loaded(replace(resolve, port=port), "200", process),
            )
        yield from rates("Describe with resolveEntity", ours, _BARE, reference, "0.50")
