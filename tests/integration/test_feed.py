"""The feed of changes, through two services: in order, without a loss, from any position."""

from __future__ import annotations

import asyncio
import itertools
import json
from contextlib import AsyncExitStack, aclosing
from typing import TYPE_CHECKING, Any, Final

import httpx
import pytest

from confplane.domain.entities import Entity
from confplane.services.feed.positions import decode, encode
from tests.support.both_clients import KINDS, Kind, connected
from tests.support.feeding import events, one_by_one, page, streaming
from tests.support.service import Service
from tests.support.stores import content, kafka_writes, rate
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kazoo.client import KazooClient

    from tests.support.facets import ConfplaneClient
    from tests.support.servers import Database

RATE: Final = "producer_byte_rate"


@pytest.fixture(scope="module", autouse=True)
def recorded(pair: tuple[Service, Service]) -> None:
    pair[0].wait_recorded()


@pytest.fixture
def third(
    pair: tuple[Service, Service], module_chroot: str, module_database: Database, tmp_path: Path
) -> Callable[[], Service]:
    """Makes a service on the stores of the pair."""
    del pair
    return lambda: Service(tmp_path, connect=module_chroot, dsn=module_database.service_dsn)


def user(name: str) -> Entity:
    return Entity.of(user=name)


def quota(event: dict[str, Any]) -> list[tuple[str, Any, Any]]:
    return [(each["id"], key["before"], key["after"]) for each in event["entities"] for key in each["keys"]]


async def start(service: Service) -> str:
    answer = await page(service)
    assert answer.status_code == 200, answer.text
    assert answer.json()["events"] == []
    position: str = answer.json()["position"]
    return position


async def test_an_event_has_the_change_with_its_values_before_and_after(pair: tuple[Service, Service]) -> None:
    async with streaming(pair[1]) as response, pair[0].client() as client:
        assert response.headers["Content-Type"] == "text/event-stream"
        assert response.headers["Cache-Control"] == "no-store"
        assert response.headers["X-Accel-Buffering"] == "no"
        await client.put("client-quotas", user("alice"), {RATE: 1})
        second = await client.put("client-quotas", user("alice"), {RATE: 2}, reason="more", ticket="T-1")
        found = events(response)
        first = await anext(found)
        event = await anext(found)
        assert quota(first) == [("user=alice", None, 1)]
        assert event["revision"] == str(second.revision)
        assert event["changeId"] == second.change_id
        assert (event["principal"], event["reason"], event["ticket"]) == ("User:admin", "more", "T-1")
        assert (event["source"], event["partial"]) == ("confplane", False)
        assert event["entities"] == [
            {
                "facet": "client-quotas",
                "id": "user=alice",
                "entity": {"user": "alice"},
                "revision": str(second.revision),
                "complete": False,
                "keys": [{"key": RATE, "before": 1, "after": 2, "sensitive": False}],
            }
        ]
        assert event["id"] == event["sse"]


async def test_temporary_changes_and_their_ends_are_marked(pair: tuple[Service, Service]) -> None:
    async with streaming(pair[1], entity="user=temporary") as response, pair[0].client() as client:
        begun = await client.put("client-quotas", user("temporary"), {RATE: 1}, expires_in=3_600)
        assert begun.change_id is not None
        ended = (await client.schedules.end(begun.change_id)).body
        found = events(response)
        first, second = await anext(found), await anext(found)
        assert (first["changeId"], first["revertAt"][:23]) == (begun.change_id, ended["revertAt"][:23])
        assert "ends" not in first
        assert (second["ends"], quota(second)) == (begun.change_id, [("user=temporary", 1, None)])
        assert "revertAt" not in second


async def test_external_changes_have_the_state_that_was_read(pair: tuple[Service, Service], zk: KazooClient) -> None:
    position = await start(pair[0])
    kafka_writes(zk, "users/outside", rate(5))
    kafka_writes(zk, "users/outside", rate(6))
    async with streaming(pair[0], after=position, entity="user=outside") as response:
        found = events(response)
        event = await anext(found)
        while quota(event)[0][2] != 6:
            event = await anext(found)
    assert (event["source"], event["principal"]) == ("external", "External:unknown")
    assert event["entities"][0]["revision"] == str(zk.exists("/config/users/outside").mzxid)


class Following:
    """The events that a consumer has received, until it has all that were written."""

    def __init__(self, outside: dict[str, Any]) -> None:
        self.own: list[dict[str, Any]] = []
        self._expected = outside
        self._outside: dict[str, tuple[int, Any]] = {}

    def add(self, event: dict[str, Any]) -> None:
        """Add an event. Of an external state that comes again, the one with the higher revision counts."""
        if event["source"] == "confplane":
            self.own.append(event)
            return
        for each in event["entities"]:
            known = self._outside.get(each["id"], (0, None))[0]
            if each["id"] in self._expected and each["keys"] and int(each["revision"]) >= known:
                self._outside[each["id"]] = (int(each["revision"]), each["keys"][0]["after"])

    def is_complete(self, own: int) -> bool:
        """Return True if it has so many own changes, and the last external states."""
        return len(self.own) >= own and {key: value for key, (_, value) in self._outside.items()} == self._expected


async def test_a_consumer_that_is_cut_off_after_each_event_misses_and_repeats_nothing(
    pair: tuple[Service, Service], zk: KazooClient
) -> None:
    """Single changes of many callers share transactions, the entries of a request as well; brokers write in between."""
    position = await start(pair[0])
    own: list[str] = []

    async def write(client: ConfplaneClient, number: int) -> None:
        for value in range(1, 4):
            answer = await client.put("client-quotas", user(f"w{number}"), {RATE: value})
            own.append(str(answer.change_id))

    async def write_bulk(client: ConfplaneClient, number: int) -> None:
        entries = [(user(f"b{number}-{each}"), {RATE: number + 1}) for each in range(10)]
        answer = await client.alter("client-quotas", entries)
        own.extend(each["changeId"] for each in answer.body["entries"])

    def write_outside() -> None:
        for value in range(1, 11):
            kafka_writes(zk, f"users/x{value % 3}", rate(value))

    following = Following({"user=x0": 9, "user=x1": 10, "user=x2": 8})
    async with pair[0].client() as one, pair[1].client() as two:
        writers = [write((one, two)[number % 2], number) for number in range(16)]
        writers += [write_bulk((one, two)[number % 2], number) for number in range(4)]
        done = asyncio.gather(*writers, asyncio.to_thread(write_outside))
        async with asyncio.timeout(120), aclosing(one_by_one(pair, position, 46)) as found:
            async for event in found:
                following.add(event)
                if done.done() and following.is_complete(len(own)):
                    break
        await done
    assert len(own) == 16 * 3 + 4 * 10
    seen = following.own
    assert sorted(own) == sorted(event["changeId"] for event in seen)
    order = [(int(event["revision"]), event["changeId"]) for event in seen]
    assert order == sorted(order)
    before: dict[str, Any] = {}
    for event in seen:
        for entity_id, was, now in quota(event):
            assert was == before.get(entity_id)
            before[entity_id] = now


async def test_a_position_before_the_ring_is_served_from_the_trail(
    pair: tuple[Service, Service], third: Callable[[], Service]
) -> None:
    """A service that starts later has nothing of its own from before."""
    position = await start(pair[0])
    async with pair[0].client() as client:
        written = [await client.put("client-quotas", user("earlier"), {RATE: value}) for value in range(1, 4)]
    with third() as later:
        answer = await until(lambda: _served(later, position))
    found = [event for event in answer["events"] if event["source"] == "confplane"]
    assert [event["changeId"] for event in found] == [each.change_id for each in written]


async def test_the_first_change_after_a_load_has_the_keys_of_a_write_without_a_notification(
    pair: tuple[Service, Service], third: Callable[[], Service], zk: KazooClient
) -> None:
    """The consumer is at a process that was loaded with the write, so the write has no event of its own there."""
    async with pair[0].client() as client:
        await client.put("client-quotas", user("silent"), {RATE: 1})
    position = await start(pair[0])
    zk.set("/config/users/silent", content(producer_byte_rate="2", consumer_byte_rate="3"))
    with third() as later:
        answer = await until(lambda: _served(later, position, "user=silent"))
        assert answer["events"] == []
        async with later.client() as client:
            written = await client.put(
                "client-quotas", user("silent"), {RATE: 2, "consumer_byte_rate": 3, "request_percentage": 4}
            )
        found = (await page(later, after=answer["position"], wait="60", entity="user=silent")).json()["events"]
    [event] = [event for event in found if event["changeId"] == written.change_id]
    assert event["entities"][0]["complete"]
    assert [(key["key"], key["after"]) for key in event["entities"][0]["keys"]] == [
        ("consumer_byte_rate", 3),
        (RATE, 2),
        ("request_percentage", 4),
    ]


async def _served(service: Service, position: str, entity: str = "user=earlier") -> Any:
    answer = await page(service, after=position, entity=entity)
    if answer.status_code == 503:
        return None
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_now_is_after_every_change_that_any_process_has_answered(pair: tuple[Service, Service]) -> None:
    async with pair[0].client() as client:
        for value in range(1, 21):
            written = await client.put("client-quotas", user("now"), {RATE: value})
            position = decode("default", await start(pair[value % 2]), "after")
            assert written.revision is not None
            assert position.place.revision >= written.revision


async def _has(service: Service, position: str, count: int) -> bool:
    return len((await page(service, after=position)).json()["events"]) >= count


async def test_lines_of_json_and_filters(pair: tuple[Service, Service]) -> None:
    position = await start(pair[0])
    async with pair[0].client() as client:
        for name in ("f1", "f2", "g1"):
            await client.put("client-quotas", user(name), {RATE: 1})
        await client.put("client-configs", user("f2"), {"acks": "1"})
    # A page without a wait has what the process has by then.
    await until(lambda: _has(pair[0], position, 4))
    filters: list[tuple[dict[str, str], list[str]]] = [
        ({"prefix": "f"}, ["user=f1", "user=f2", "user=f2"]),
        ({"entity": "user=g1"}, ["user=g1"]),
        ({"user": "f2", "facet": "client-configs"}, ["user=f2"]),
        ({"key": "acks"}, ["user=f2"]),
        ({"entityType": "ip"}, []),
        ({"principal": "User:nobody"}, []),
    ]
    for query, expected in filters:
        answer = (await page(pair[0], after=position, **query)).json()
        assert [each["id"] for event in answer["events"] for each in event["entities"]] == expected, query
        assert (await page(pair[0], after=answer["position"], **query)).json()["events"] == []
    async with streaming(pair[0], after=position, accept="application/x-ndjson", entity="user=g1") as response:
        lines = (line async for line in response.aiter_lines() if line)
        event = json.loads(await anext(lines))
    assert (event["type"], event["entities"][0]["id"]) == ("change", "user=g1")


@pytest.mark.parametrize("kind", KINDS)
async def test_the_client_iterates_over_changes(pair: tuple[Service, Service], kind: Kind) -> None:
    position = await start(pair[0])
    name = f"iterated-{kind.__name__}"
    async with pair[1].client() as writer, connected(kind, pair[0].url, token=pair[0].token) as client:
        written = [await writer.put("client-quotas", user(name), {RATE: value}) for value in range(1, 4)]
        found = await first(client.changes(after=position, entity=f"user={name}"), 3)
    assert [event["changeId"] for event in found] == [each.change_id for each in written]


async def first(changes: Any, count: int) -> list[Any]:
    """The first of an iteration of either client."""
    if hasattr(changes, "__aiter__"):
        async with aclosing(changes):
            return [await anext(changes) for _ in range(count)]
    return await asyncio.to_thread(lambda: list(itertools.islice(changes, count)))


async def test_a_snapshot_continues_anywhere_and_its_changes_follow(
    pair: tuple[Service, Service], zk: KazooClient
) -> None:
    """Writes go on in the meantime: what is not in the snapshot comes after it."""
    names = [f"shot{number}" for number in range(8)]
    states: dict[tuple[str, str, str], tuple[int, Any]] = {}
    async with pair[0].client() as client:
        for name in names:
            await client.put("client-quotas", user(name), {RATE: 1})
        await client.put("client-configs", user("shot0"), {"acks": "1"})
        kafka_writes(zk, "users/shot-outside", rate(5))
        await until(lambda: _has_state(pair[1], "user=shot-outside"))
        count, complete, last = 0, False, "shot3"
        async with (
            asyncio.timeout(120),
            aclosing(one_by_one(pair, None, seed=7, snapshot="true", prefix="shot")) as found,
        ):
            async for event in found:
                if event["type"] == "bookmark":
                    if not complete:
                        await client.put("client-quotas", user(last), {RATE: 7})
                    complete = True
                    continue
                assert event["type"] == ("change" if complete else "state")
                for each in event["entities"]:
                    for key in each["keys"]:
                        known = states.get((each["facet"], each["id"], key["key"]), (0, None))
                        if int(each["revision"]) > known[0]:
                            states[each["facet"], each["id"], key["key"]] = int(each["revision"]), key["after"]
                count += 1
                if count == 2:
                    await client.put("client-quotas", user("shot0"), {RATE: 3})
                    await client.put("client-quotas", user("shot7"), {RATE: 4})
                if states.get(("client-quotas", f"user={last}", RATE), (0, None))[1] == 7:
                    break
    expected: dict[tuple[str, str, str], Any] = {("client-quotas", f"user={name}", RATE): 1 for name in names}
    expected |= {("client-quotas", f"user={name}", RATE): value for name, value in (("shot0", 3), ("shot7", 4))}
    expected |= {("client-quotas", "user=shot-outside", RATE): 5, ("client-configs", "user=shot0", "acks"): "1"}
    expected["client-quotas", f"user={last}", RATE] = 7
    assert {key: value for key, (_, value) in states.items()} == expected


async def _has_state(service: Service, entity: str) -> bool:
    answer = await page(service, snapshot="true", entity=entity)
    return answer.status_code == 200 and bool(answer.json()["snapshot"]["states"])


@pytest.mark.parametrize("kind", KINDS)
async def test_the_client_iterates_over_a_snapshot_of_many_parts(pair: tuple[Service, Service], kind: Kind) -> None:
    prefix = f"part-{kind.__name__}-"
    entities = [user(f"{prefix}{number:03}") for number in range(601)]
    async with pair[1].client() as writer, connected(kind, pair[0].url, token=pair[0].token) as client:
        written = await writer.alter("client-quotas", [(entity, {RATE: 1}) for entity in entities])
        await until(lambda: _has_state(pair[0], entities[-1].id))
        found = await first(client.changes(snapshot=True, prefix=prefix), 602)
        assert [event["type"] for event in found] == ["state"] * 601 + ["bookmark"]
        assert [event["entities"][0]["id"] for event in found[:-1]] == [entity.id for entity in entities]
        revisions = {int(event["revision"]) for event in found[:-1]}
        assert revisions == {int(each["revision"]) for each in written.body["entries"]}
        assert int(found[-1]["revision"]) >= max(revisions)
        again = await first(client.changes(after=found[599]["id"], prefix=prefix), 2)
    assert [event["type"] for event in again] == ["state", "bookmark"]


async def test_a_snapshot_shows_what_its_consumer_may_describe_and_no_secrets(
    pair: tuple[Service, Service], zk: KazooClient
) -> None:
    token = await granted(pair[0], "User:looker", "open-shot")
    async with pair[0].client() as client:
        for name in ("open-shot", "hidden-shot"):
            await client.put("client-quotas", user(name), {RATE: 1})
    kafka_writes(zk, "brokers/77", json.dumps({"version": 1, "config": {"ssl.key.password": "planted-shot"}}).encode())
    answer = await page(pair[0], token=token, snapshot="true")
    assert [state["entities"][0]["id"] for state in answer.json()["snapshot"]["states"]] == ["user=open-shot"]
    assert answer.json()["snapshot"]["bookmark"]["revision"] == answer.json()["revision"]
    await until(lambda: _has_state(pair[0], "broker=77"))
    answer = await page(pair[0], snapshot="true", entity="broker=77")
    [state] = answer.json()["snapshot"]["states"]
    assert [(key["after"], key["sensitive"]) for key in state["entities"][0]["keys"]] == [(None, True)]
    assert "planted-shot" not in answer.text


async def test_a_long_poll_ends_with_the_first_event(pair: tuple[Service, Service]) -> None:
    position = await start(pair[0])
    waiting = asyncio.create_task(page(pair[0], after=position, wait="60", entity="user=polled"))
    async with pair[1].client() as client:
        written = await client.put("client-quotas", user("polled"), {RATE: 1})
    answer = await waiting
    assert [event["changeId"] for event in answer.json()["events"]] == [written.change_id]


async def test_a_token_in_the_query_is_refused_and_not_logged(pair: tuple[Service, Service]) -> None:
    answer = await page(pair[0], access_token="planted-in-a-query")
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (400, "access_token")
    assert "planted-in-a-query" not in pair[0].log.read_text()


async def granted(service: Service, principal: str, *names: str) -> str:
    """A token of a principal that may describe the users with these names."""
    headers = {"Authorization": f"Bearer {service.token}"}
    async with httpx.AsyncClient(base_url=service.url, headers=headers, trust_env=False, timeout=60) as admin:
        for name in names:
            grant = {"principal": principal, "operation": "DESCRIBE_CONFIGS", "resourceType": "user", "name": name}
            assert (await admin.post("/v1/grants", json=grant)).status_code == 201
        made = await admin.post("/v1/tokens", json={"principal": principal})
        assert made.status_code == 201, made.text
        token: str = made.json()["token"]
    await until(lambda: _accepted(service, token))
    return token


async def _accepted(service: Service, token: str) -> bool:
    return (await page(service, token=token)).status_code == 200


async def test_hidden_entities_are_in_no_event_and_no_count(pair: tuple[Service, Service]) -> None:
    token = await granted(pair[0], "User:seer", "seen")
    position = await start(pair[0])
    async with pair[0].client() as client:
        await client.put("client-quotas", user("unseen"), {RATE: 1})
        await client.alter("client-quotas", [(user("seen"), {RATE: 2}), (user("unseen"), {RATE: 3})], atomic=True)
    answer = await page(pair[0], token=token, after=position, wait="60")
    [event] = answer.json()["events"]
    assert (quota(event), event["partial"]) == ([("user=seen", None, 2)], True)
    assert "unseen" not in answer.text
    refused = await page(pair[0], token=token, after=position, entity="user=unseen")
    assert refused.status_code == 403
    whole = (await page(pair[0], after=position, principal="User:admin")).json()["events"]
    assert [event["partial"] for event in whole] == [False, False]


async def test_a_stream_ends_with_its_token(pair: tuple[Service, Service]) -> None:
    token = await granted(pair[0], "User:leaver", "leaver")
    headers = {"Authorization": f"Bearer {pair[0].token}"}
    async with streaming(pair[0], token=token) as response:
        assert response.status_code == 200
        found = events(response)
        async with httpx.AsyncClient(base_url=pair[0].url, headers=headers, trust_env=False, timeout=60) as admin:
            listed = (await admin.get("/v1/tokens", params={"principal": "User:leaver"})).json()["items"]
            assert (await admin.delete(f"/v1/tokens/{listed[0]['id']}")).status_code == 200
        last = await anext(found)
        assert (last["type"], last["reason"]) == ("goodbye", "credential-ended")
        assert await anext(found, None) is None


async def test_a_principal_has_twenty_streams_and_gets_room_when_one_is_closed(pair: tuple[Service, Service]) -> None:
    token = await granted(pair[0], "User:crowd", "crowd")
    async with AsyncExitStack() as streams:
        for _ in range(20):
            response = await streams.enter_async_context(streaming(pair[0], token=token))
            assert response.status_code == 200
        refused = await page(pair[0], token=token)
        assert refused.status_code == 429
        assert int(refused.headers["Retry-After"]) >= 1
    await until(lambda: _accepted(pair[0], token))


async def test_positions_that_can_not_be_served_are_refused(pair: tuple[Service, Service]) -> None:
    now = decode("default", await start(pair[0]), "after")
    ahead = now._replace(place=now.place._replace(revision=now.place.revision + 1_000_000))
    other = now._replace(place=now.place._replace(incarnation=now.place.incarnation + 1))
    early = now._replace(place=now.place._replace(revision=1))
    for position, cluster, status, problem in (
        (ahead, "default", 400, "invalid-request"),
        (now, "elsewhere", 400, "invalid-request"),
        (other, "default", 410, "store-replaced"),
        (early, "default", 410, "before-history"),
    ):
        answer = await page(pair[0], after=encode(cluster, position))
        assert (answer.status_code, answer.json()["type"]) == (status, f"/problems/{problem}")
        assert answer.json()["errors"][0]["pointer"] == "after"
    assert (await page(pair[0], after=answer.json()["oldest"])).status_code == 200


async def test_maintenance_that_changes_no_value_gives_no_event(pair: tuple[Service, Service]) -> None:
    async with pair[0].client() as client:
        await client.put("client-quotas", user("kept"), {RATE: 1})
        position = await start(pair[0])
        await client.put("client-quotas", user("kept"), {RATE: 1})
        await client.request("POST", ":freeze", json={"reason": "maintenance"})
        await client.request("POST", ":thaw", json={"reason": "done"})
        written = await client.put("client-quotas", user("kept"), {RATE: 2})
    answer = await page(pair[1], after=position, wait="60", entity="user=kept")
    assert [event["changeId"] for event in answer.json()["events"]] == [written.change_id]
