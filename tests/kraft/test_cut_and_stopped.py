"""Changes by callers whose requests or answers are lost, whose broker hangs, or whose leader stops for a while.

At the end cluster and tree are equal, each change has one row, and nothing of ours is in a row of external changes.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import struct
from typing import TYPE_CHECKING, Any

import pytest

from confplane.kraft.views import ConfigResourceType, Resource
from tests.kraft.test_adopting import RATE, kinds, put, until_released
from tests.kraft.test_adopting_faults import active, configured, value_of
from tests.support.commands import target
from tests.support.kraft_client import client_of
from tests.support.kraft_writer import KraftWriter
from tests.support.metrics import scrape
from tests.support.proxy import proxy
from tests.support.stores import soon
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from confplane.kraft.client import KraftClient
    from tests.support.facets import ConfplaneClient
    from tests.support.kraft import KraftCluster
    from tests.support.service import Service
    from tests.support.world import World

KEY = "interval.ms"
ALTERS = [struct.pack(">hh", api, 1) for api in (49, 44)]
"""The begins of requests: AlterClientQuotas and IncrementalAlterConfigs in version 1."""


class Named:
    """One user and one subscription, whose quota and config callers write together."""

    def __init__(self, name: str, client: KraftClient) -> None:
        self.user, self.metrics = f"user={name}", f"client-metrics={name}"
        self._name, self._client = name, client
        self._resource = Resource(ConfigResourceType.CLIENT_METRICS, name)

    async def write(self, http: ConfplaneClient, number: int, *, quota: bool = True, config: bool = True) -> None:
        """Write a number to both, or to one of them."""
        if quota:
            await put(http, self._name, number)
        if config:
            await configured(http, self.metrics, KEY, str(number))

    async def set_by_others(self, kraft: KraftCluster, number: int) -> None:
        """Set both in the cluster."""
        async with KraftWriter(kraft.bootstrap[0]) as writer:
            await writer.quotas(({"user": self._name}, {RATE: float(number)}))
            await writer.configs((self._resource, {KEY: str(number)}))

    async def has(self, number: int) -> bool:
        """Say whether the cluster has a number in both."""
        quotas = await self._client.describe_quotas_of([("user", self._name)], soon())
        return quotas == {RATE: number} and await value_of(self._client, self._resource, KEY) == str(number)

    async def shows(self, http: ConfplaneClient, number: int, *, quota: bool = True, config: bool = True) -> bool:
        """Look at both, or at one of them, and say whether they have a number here, and are applied."""
        looked = [await _shows(http, f"client-quotas/{self.user}", {"quotas": {RATE: number}})] if quota else []
        if config:
            looked.append(await _shows(http, f"configs/{self.metrics}", {"configs": {KEY: str(number)}}))
        return all(looked)

    async def expect(
        self, http: ConfplaneClient, number: int, *, quotas: int, configs: int, last: Sequence[str] = ()
    ) -> None:
        """Expect a number in cluster and tree, and just so many rows of callers, then the last ones; remove both."""

        async def rests() -> bool:
            return await self.has(number) and await self.shows(http, number) and await self.has(number)

        await until(rests)
        assert await kinds(http, self.user) == ["change"] * quotas + [*last]
        assert await kinds(http, self.metrics) == ["change"] * configs + [*last]
        await http.request("DELETE", f"client-quotas/{self.user}")
        await http.request("DELETE", f"configs/{self.metrics}")


async def _shows(http: ConfplaneClient, path: str, values: dict[str, Any]) -> bool:
    """Look at an entity, and say whether it is applied and has some values."""
    shown = (await http.request("GET", f"{path}?consistency=strong&view=full")).body
    return bool(values.items() <= shown.items() and shown["status"]["applied"]["state"] == "applied")


@pytest.mark.parametrize("lost", ["request", "answer"])
async def test_requests_and_answers_that_are_lost_leave_one_row_of_each_change(
    kraft: KraftCluster, client: KraftClient, world: World, lost: str
) -> None:
    both = Named(f"lost-{lost}", client)
    async with proxy(kraft.bootstrap[0]) as line:
        by_the_line = {"bootstrap": [f"127.0.0.1:{line.port}"]}
        service = await asyncio.to_thread(world.adopting, kraft, settings=by_the_line)
        # A new process has its connections by way of the line.
        await asyncio.to_thread(service.start)
        async with service.client() as http:
            await until_released(http)
            await both.write(http, 1000)
            await until(lambda: _applied(http, both))
            await asyncio.to_thread(target, service, "pause", "--reason", "a test")
            await both.write(http, 2000)
            line.swallowing = lost == "request"
            if lost == "answer":
                line.replies.clear()
            await asyncio.to_thread(target, service, "resume", "--reason", "a test")
            if lost == "request":
                await until(lambda: all(each in line.swallowed for each in ALTERS))
            else:
                await until(lambda: both.has(2000))
            line.cut()
            line.swallowing = False
            line.replies.set()
            await both.expect(http, 2000, quotas=2, configs=2)
            found = await asyncio.to_thread(scrape, service)
            assert found.total("applied_changes_total", end="unknown") >= 2
        await asyncio.to_thread(service.stop)


async def _applied(http: ConfplaneClient, both: Named) -> bool:
    paths = f"client-quotas/{both.user}", f"configs/{both.metrics}"
    shown = [await http.request("GET", f"{path}?view=full") for path in paths]
    return all(each.body["status"]["applied"]["state"] == "applied" for each in shown)


STOPS = list(itertools.product(("claimed", "sending", "sent", "ended"), ("quota", "config"), ("callers", "others")))
SHORT = [("sending", "quota", "callers"), ("sending", "config", "others")]


@pytest.mark.parametrize(
    ("step", "kind", "newer"),
    [*SHORT, *(pytest.param(*each, marks=pytest.mark.long) for each in STOPS if each not in SHORT)],
)
async def test_a_leader_that_stops_during_a_delivery_while_another_leads_undoes_nothing(
    kraft: KraftCluster,
    client: KraftClient,
    world: World,
    step: str,
    kind: str,
    newer: str,
) -> None:
    """Its session ends meanwhile; it goes on behind a newer change: by callers, which the other leader has applied, or
    by others in the cluster, which that one has followed.
    """
    both = Named(f"stopped-{step}-{kind}-{newer}", client)
    alone = {"quota": kind == "quota", "config": kind == "config"}
    pair = (
        await asyncio.to_thread(world.adopting, kraft),
        world.make_service(cluster={"kafka": {"bootstrap": kraft.bootstrap}}, deadline_ms=10_000),
    )
    files = [each.step_file for each in pair]
    with pair[0], pair[1]:
        async with pair[0].client() as one, pair[1].client() as other:
            clients = one, other
            for http in clients:
                await until_released(http)
            await both.write(one, 1000)
            await until(lambda: _applied(one, both))
            for file in files:
                file.write_text(f"{step}:SIGSTOP")
            # Either of them leads, and stops. It may not answer then.
            writing = asyncio.ensure_future(both.write(one, 2000, **alone))
            (stopped,) = await until(lambda: [at for at in (0, 1) if files[at].with_suffix(".taken").exists()])
            try:
                files[1 - stopped].unlink()
                beside = clients[1 - stopped]
                # Once the other leader has ended what this one began.
                await until(lambda: both.shows(beside, 2000, **alone))
                if newer == "callers":
                    await both.write(beside, 3000)
                else:
                    await both.set_by_others(kraft, 3000)
                    await until(lambda: both.shows(beside, 3000))
                await until(lambda: both.has(3000))
            finally:
                os.kill(pair[stopped].pid, signal.SIGCONT)
            await asyncio.gather(writing, return_exceptions=True)
            if step == "sending":
                # Beside those of the first change.
                await until(lambda: _applied_by(pair[stopped], more_than=2))
            callers, last = (2, []) if newer == "callers" else (1, ["observed"])
            await both.expect(
                beside, 3000, quotas=callers + alone["quota"], configs=callers + alone["config"], last=last
            )


async def _applied_by(service: Service, *, more_than: int) -> bool:
    return (await asyncio.to_thread(scrape, service)).total("applied_changes_total") > more_than


@pytest.mark.timeout(600)
async def test_a_broker_that_hangs_past_the_time_out_holds_up_nothing_but_its_own_configs(
    quorum: KraftCluster, world: World
) -> None:
    leader = await active(quorum)
    hung = next(node for node in quorum.brokers if node is not leader)
    own, key = Resource(ConfigResourceType.BROKER, str(hung.node_id)), "log.cleaner.threads"
    # The one broker that is named is asked first.
    service = await asyncio.to_thread(
        world.adopting, quorum, settings={"bootstrap": [hung.bootstrap], "request_timeout_ms": 2_000}
    )
    with service:
        async with client_of(leader.bootstrap) as client, service.client() as http:
            both = Named("hung", client)
            await until_released(http)
            await both.write(http, 1000)
            await until(lambda: _applied(http, both))
            await asyncio.to_thread(target, service, "pause", "--reason", "a test")
            await both.write(http, 2000)
            await configured(http, f"broker={hung.node_id}", key, "2")
            hung.pause()
            try:
                await asyncio.to_thread(target, service, "resume", "--reason", "a test")
                await until(lambda: both.has(2000))
                found = await asyncio.to_thread(scrape, service)
                # The first request to the broker that hangs; further ones go to another broker.
                apis = "AlterClientQuotas", "IncrementalAlterConfigs"
                assert sum(found.total("target_requests_total", api=each, code="timeout") for each in apis)
            finally:
                hung.resume()
            await until(lambda: _is(client, own, key, "2"))
            await both.expect(http, 2000, quotas=2, configs=2)
            assert await kinds(http, f"broker={hung.node_id}") == ["change"]
            await http.request("DELETE", f"configs/broker={hung.node_id}")
            await until(lambda: _is(client, own, key, "1"))


async def _is(client: KraftClient, resource: Resource, key: str, value: str) -> bool:
    return await value_of(client, resource, key) == value


@pytest.mark.long
@pytest.mark.timeout(900)
async def test_ten_thousand_and_one_quotas_reach_the_cluster_each_with_one_row(
    kraft: KraftCluster, client: KraftClient, world: World
) -> None:
    """More than the controller takes in one request."""
    # A busy machine commits 2,000 entries in more than the ten seconds that a service gives a request.
    service = await asyncio.to_thread(world.adopting, kraft, deadline_ms=120_000)
    names = [f"ten-thousand-{number}" for number in range(10_001)]

    async def alter(http: ConfplaneClient, op: Mapping[str, Any]) -> None:
        await asyncio.to_thread(target, service, "pause", "--reason", "a test")
        for part in (names[at : at + 2_000] for at in range(0, len(names), 2_000)):
            entries = [{"entity": [{"entityType": "user", "entityName": name}], "ops": [op]} for name in part]
            answer = await http.request("POST", "client-quotas:alter", json={"entries": entries})
            assert {each["errorCode"] for each in answer.body["entries"]} == {0}
        await asyncio.to_thread(target, service, "resume", "--reason", "a test")

    async def has(count: int) -> bool:
        found = await client.describe_quotas(None, soon())
        assert found.entries is not None
        return sum("ten-thousand-" in str(each.entity) for each in found.entries) == count

    async def rests() -> bool:
        target = (await http.request("GET", "/v1/clusters/default")).body["target"]
        return target["applying"] is not None and not target["applying"]["pending"]

    with service:
        async with service.client(timeout_s=300.0) as http:
            await alter(http, {"key": RATE, "value": 1000})
            await until(lambda: has(len(names)), 400, pause_s=1.0)
            await until(rests)
            rows: list[str] = []
            token: str | None = ""
            while token is not None:
                params = {"pageSize": "1000", **({"pageToken": token} if token else {})}
                page = (await http.request("GET", "audit", params=params)).body
                rows += [each["kind"] for each in page["items"] if names[0][:-1] in each["entities"][0]["id"]]
                token = page.get("nextPageToken")
            assert rows == ["change"] * len(names)
            await alter(http, {"key": RATE, "remove": True})
            await until(lambda: has(0), 400, pause_s=1.0)
