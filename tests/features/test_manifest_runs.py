"""Runs of manifests that end before their last entity; the process killed during one."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import httpx
import pytest

from confplane.audit import PostgresManifestRuns
from confplane.domain.errors import UnavailableError
from confplane.services.changes.alter import AlterService
from tests.support import servers
from tests.support.service import Service, ServiceInThread
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from confplane.devstack.zookeeper import ZooKeeper
    from tests.support.world import World

BASE: Final = "/v1/clusters/default"
HEAD: Final = {"apiVersion": "confplane/v1", "kind": "Configs"}
State = dict[tuple[str, str], dict[str, Any]]
"""The keys of each facet of each entity, by entity and member; only those that have keys."""


@pytest.fixture
def http(service: Service) -> Iterator[httpx.Client]:
    with connected(service) as client:
        yield client


def connected(service: Service) -> httpx.Client:
    headers = {"Authorization": f"Bearer {service.token}"}
    return httpx.Client(base_url=f"{service.url}{BASE}", headers=headers, trust_env=False, timeout=60)


def manifest(state: State) -> dict[str, Any]:
    found: dict[str, dict[str, Any]] = {}
    for (entity_id, member), values in state.items():
        found.setdefault(entity_id, {"id": entity_id})[member] = values
    return {**HEAD, "entities": list(found.values())}


def in_background(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work)
    thread.start()
    return thread


def test_a_refused_batch_ends_the_run_which_continues_with_the_same_plan(service: Service, http: httpx.Client) -> None:
    places = [(f"user=run-{number:04}", "quotas") for number in range(4000)]
    body = manifest({place: {"producer_byte_rate": 1} for place in places})
    sent = {**body, "planId": http.post("/manifests:plan", json=body).json()["planId"]}
    answers: list[httpx.Response] = []
    with connected(service) as other:
        thread = in_background(lambda: answers.append(http.post("/manifests:apply", json=sent)))
        wait_for(lambda: other.get("/client-quotas/user=run-0000").status_code == 200)
        assert other.put("/client-quotas/user=run-3999", json={"quotas": {"producer_byte_rate": 9}}).status_code == 200
        busy = other.post("/manifests:apply", json=sent)
        thread.join()
    assert busy.status_code == 409, busy.text
    assert busy.json()["retriable"] is True
    [answer] = answers
    assert answer.status_code == 207, answer.text
    found = answer.json()
    refused = [each for each in found["results"] if each["errorCode"]]
    assert [each["id"] for each in refused] == ["user=run-3999"]
    assert http.get("/client-quotas/user=run-3999").json()["quotas"] == {"producer_byte_rate": 9}
    # The plan does not hold for this entity, until it is what the document says.
    again = http.post("/manifests:apply", json=sent)
    assert again.status_code == 409, again.text
    assert http.put("/client-quotas/user=run-3999", json={"quotas": {"producer_byte_rate": 1}}).status_code == 200
    again = http.post("/manifests:apply", json=sent)
    assert again.status_code == 200, again.text
    assert again.json()["next"] is None
    assert again.json()["runId"] == found["runId"]
    assert http.post("/manifests:plan", json=body).json()["changes"] == []
    other_document = {**sent, "entities": sent["entities"][1:]}
    assert http.post("/manifests:apply", json=other_document).json()["type"] == "/problems/stale-plan"


async def test_a_run_whose_time_was_up_continues_where_it_ended(world: World) -> None:
    one_batch = {"confplane.services.plans.apply._BATCH": 10, "confplane.services.plans.apply._RESERVE": 1e9}
    ids = [f"user=part-{number:02}" for number in range(35)]
    body = manifest({(each, "quotas"): {"producer_byte_rate": 1} for each in ids})

    def of(answer: httpx.Response) -> tuple[int, list[str], dict[str, Any] | None]:
        found = answer.json()
        return answer.status_code, [each["id"] for each in found["results"]], found["next"]

    async with (
        world.service(constants=one_batch) as service,
        httpx.AsyncClient(
            base_url=f"{service.url}{BASE}",
            headers={"Authorization": f"Bearer {service.token}"},
            trust_env=False,
            timeout=60,
        ) as http,
    ):
        sent = {**body, "planId": (await http.post("/manifests:plan", json=body)).json()["planId"]}
        first = await http.post("/manifests:apply", json=sent)
        assert of(first) == (200, ids[:10], {"id": ids[10], "left": 25})
        second = await http.post("/manifests:apply", json=sent)
        assert of(second) == (200, ids[10:20], {"id": ids[20], "left": 15})
        assert second.json()["runId"] == first.json()["runId"]
        other = await http.post("/manifests:apply", json={**sent, "entities": body["entities"][1:]})
        assert other.json()["type"] == "/problems/stale-plan"
        # An entity that is left is changed: it is refused, until it is as the document says.
        for value in (2, 1):
            quotas = {"quotas": {"producer_byte_rate": value}}
            assert (await http.put(f"/client-quotas/{ids[25]}", json=quotas)).status_code == 200
            third = await http.post("/manifests:apply", json=sent)
            if value == 2:
                assert of(third) == (207, ids[20:30], {"id": ids[30], "left": 5}), third.text
                assert [each["id"] for each in third.json()["results"] if each["errorCode"]] == [ids[25]]
        assert of(third) == (200, ids[30:], None), third.text
        assert (await http.post("/manifests:plan", json=body)).json()["changes"] == []


async def test_requests_of_one_process_with_one_request_id_take_turns_at_a_plan(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    find, alter_entries = PostgresManifestRuns.find, AlterService.alter_entries
    found, sending = 0, 0
    all_found, released = asyncio.Event(), threading.Event()

    async def find_together(*given: Any) -> Any:
        nonlocal found
        run = await find(*given)
        found += 1
        if found == 2:
            all_found.set()
        await all_found.wait()
        return run

    async def alter_slowly(*given: Any, **options: Any) -> Any:
        nonlocal sending
        if options["validate_only"]:
            return await alter_entries(*given, **options)
        sending += 1
        if sending == 2:
            released.set()
        await asyncio.to_thread(released.wait)
        return await alter_entries(*given, **options)

    monkeypatch.setattr(PostgresManifestRuns, "find", find_together)
    monkeypatch.setattr(AlterService, "alter_entries", alter_slowly)
    body = manifest({(f"user={uuid4()}", "quotas"): {"producer_byte_rate": 1}})
    headers = {"Authorization": f"Bearer {service.token}", "X-Request-Id": "one-request-id"}
    async with httpx.AsyncClient(
        base_url=f"{service.url}{BASE}", headers=headers, trust_env=False, timeout=60
    ) as client:
        planned = await client.post("/manifests:plan", json=body)
        sent = {**body, "planId": planned.json()["planId"]}
        requests = [asyncio.create_task(client.post("/manifests:apply", json=sent)) for _ in range(2)]
        await asyncio.wait(requests, return_when=asyncio.FIRST_COMPLETED)
        released.set()
        answers = await asyncio.gather(*requests)
    assert sorted(each.status_code for each in answers) == [200, 409]
    assert sending == 1


def test_a_run_continues_at_once_if_postgres_was_unavailable_at_its_end(
    http: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unavailable(*_: Any) -> None:
        raise UnavailableError("Postgres is unavailable")

    monkeypatch.setattr(PostgresManifestRuns, "end", unavailable)
    body = manifest({("user=not-ended", "quotas"): {"producer_byte_rate": 1}})
    sent = {**body, "planId": http.post("/manifests:plan", json=body).json()["planId"]}
    turns = [http.post("/manifests:apply", json=sent) for _ in range(2)]
    assert [[each["id"] for each in turn.json()["results"]] for turn in turns] == [["user=not-ended"], []]


async def test_processes_take_turns_at_a_run(world: World) -> None:
    one_batch = {"confplane.services.plans.apply._BATCH": 10, "confplane.services.plans.apply._RESERVE": 1e9}
    ids = [f"user=turn-{number:02}" for number in range(35)]
    body = manifest({(each, "quotas"): {"producer_byte_rate": 1} for each in ids})
    async with (
        world.service(constants=one_batch) as one,
        world.service(constants=one_batch) as two,
        httpx.AsyncClient(trust_env=False, timeout=60) as http,
    ):

        async def post(service: Service, operation: str, document: dict[str, Any]) -> dict[str, Any]:
            headers = {"Authorization": f"Bearer {service.token}"}
            answer = await http.post(f"{service.url}{BASE}/manifests:{operation}", json=document, headers=headers)
            assert answer.status_code == 200, answer.text
            found: dict[str, Any] = answer.json()
            return found

        sent = {**body, "planId": (await post(one, "plan", body))["planId"]}
        # The first process kept what was left after its first turn, before the second one continued.
        turns = [await post(service, "apply", sent) for service in (one, two, one, two)]
    assert [[each["id"] for each in turn["results"]] for turn in turns] == [ids[:10], ids[10:20], ids[20:30], ids[30:]]
    assert len({turn["runId"] for turn in turns}) == 1


def test_a_run_whose_process_was_killed_continues_with_the_same_plan(
    tmp_path: Path, zookeeper: ZooKeeper, migrated: servers.Database
) -> None:
    connect = servers.make_chroot(zookeeper.hosts)
    places = [(f"user=killed-{number:04}", "quotas") for number in range(4000)]
    body = {**manifest({place: {"producer_byte_rate": 1} for place in places}), "owner": "killed"}
    with Service(tmp_path / "one", connect=connect, dsn=migrated.service_dsn) as one, connected(one) as http:
        sent = {**body, "planId": http.post("/manifests:plan", json=body).json()["planId"]}

        def send() -> None:
            with pytest.raises(httpx.TransportError):
                http.post("/manifests:apply", json=sent)

        with connected(one) as other:
            thread = in_background(send)
            wait_for(lambda: other.get("/client-quotas/user=killed-0600").status_code == 200)
            one.stop(kill=True)
        thread.join()
    with ServiceInThread(tmp_path / "two", connect=connect, dsn=migrated.service_dsn) as two, connected(two) as http:

        def continued() -> httpx.Response | None:
            answer = http.post("/manifests:apply", json=sent)
            return None if answer.is_error and answer.json()["retriable"] else answer

        answer = wait_for(continued)
        assert answer.status_code == 200, answer.text
        found = answer.json()
        assert found["next"] is None
        assert 0 < len(found["results"]) < len(places)
        assert http.post("/manifests:plan", json=body).json()["changes"] == []
    for client in servers.raw_client(connect):
        # Each entity was written once.
        versions = {client.exists(f"/config/users/killed-{number:04}").version for number in range(4000)}
        assert versions == {0}
