"""Single entities as resources: what is declared, conditional requests, lists, effective values."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from confplane.api import kraft
from confplane.client import (
    NothingSetError,
    ProblemError,
    ResourceNotFoundError,
    UnknownClusterError,
    UnknownRouteError,
)
from confplane.domain.entities import Entity
from confplane.domain.errors import UnknownTopicError
from confplane.services.kraft.apply.apply_status import ApplyWaiter
from confplane.services.reads import applied
from confplane.services.reads.config_describe import ConfigReader
from confplane.services.reads.owners import OwnerViews

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kazoo.client import KazooClient

    from confplane.domain.changes import Node
    from confplane.services.cluster_facet import ClusterFacet
    from tests.support.facets import ConfplaneClient
    from tests.support.service import Service


async def problem(awaitable: Any) -> ProblemError:
    with pytest.raises(ProblemError) as caught:
        await awaitable
    return caught.value


async def test_a_read_waits_for_no_kafka_cluster_where_there_is_none(
    client: ConfplaneClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[int] = []
    wait = ApplyWaiter.wait_for_revision

    async def watched(waiter: ApplyWaiter, revision: int, deadline: float) -> bool:
        waits.append(revision)
        return await wait(waiter, revision, deadline)

    monkeypatch.setattr(ApplyWaiter, "wait_for_revision", watched)
    await client.put("client-quotas", "user=unapplied", {"producer_byte_rate": 1})
    read = await client.request("GET", "client-quotas/user=unapplied", headers={"Confplane-Wait-Applied": "1"})
    assert (read.body["quotas"], read.applied_revision, waits) == ({"producer_byte_rate": 1}, None, [])


async def test_a_read_has_the_revision_of_the_state_that_it_shows(
    client: ConfplaneClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_nodes, path, values = OwnerViews.of_nodes, "client-quotas/user=overtaken", iter(range(2, 9))

    async def overtaken(views: OwnerViews, cluster_facet: ClusterFacet, nodes: Sequence[Node]) -> Any:
        await client.put("client-quotas", "user=overtaken", {"producer_byte_rate": next(values)})
        return await of_nodes(views, cluster_facet, nodes)

    put = await client.put("client-quotas", "user=overtaken", {"producer_byte_rate": 1})
    monkeypatch.setattr(OwnerViews, "of_nodes", overtaken)
    read = await client.request("GET", path, params={"view": "full"})
    assert (read.body["quotas"], read.revision) == ({"producer_byte_rate": 1}, put.revision)
    latest = await client.request("GET", path)
    listed = await client.request("GET", "client-quotas", params={"view": "full", "id": "user=overtaken"})
    assert ([each["quotas"] for each in listed.body["items"]], listed.revision) == (
        [{"producer_byte_rate": 2}],
        latest.revision,
    )


async def test_a_describe_has_the_revision_of_the_oldest_state_that_it_shows(
    client: ConfplaneClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    effective = ConfigReader.effective

    async def overtaken(*given: Any, pointer: str) -> Any:
        found = await effective(*given, pointer=pointer)
        await client.put("configs", "topic=overtaken", {"retention.ms": "2"})
        return found

    put = await client.put("configs", "topic=overtaken", {"retention.ms": "1"})
    monkeypatch.setattr(ConfigReader, "effective", overtaken)
    resource = {"resourceType": "TOPIC", "resourceName": "overtaken", "configurationKeys": ["retention.ms"]}
    read = await client.request("POST", "configs:describe", json={"resources": [resource]})
    [result] = read.body["results"]
    assert ([each["value"] for each in result["configs"]], read.revision) == (["1"], put.revision)


async def test_a_describe_without_results_has_the_revision_of_the_state_that_it_shows(
    client: ConfplaneClient, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def overtaken(*_: Any, **__: Any) -> Any:
        async with service.client() as other:
            await other.put("configs", "topic=overtaken", {"retention.ms": "4"})
        raise UnknownTopicError("There is no such topic", pointer="/resources/0/resourceName")

    put = await client.put("configs", "topic=overtaken", {"retention.ms": "3"})
    monkeypatch.setattr(ConfigReader, "effective", overtaken)
    url = f"{service.url}/v1/clusters/default/configs:describe"
    headers = {"Authorization": f"Bearer {service.token}"}
    async with httpx.AsyncClient(headers=headers, trust_env=False, timeout=60) as http:
        named = {"resourceType": "TOPIC", "resourceName": "absent"}
        refused = await http.post(url, json={"resources": [named]})
    assert (refused.status_code, int(refused.headers["Confplane-Revision"])) == (404, put.revision)


async def test_counts_of_clients_have_the_revision_of_the_state_that_they_show(
    client: ConfplaneClient, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    status = applied.status

    async def overtaken(*given: Any) -> Any:
        found = await status(*given)
        async with service.client() as other:
            await other.put("client-configs", "user=overtaken", {"acks": "all"})
        return found

    put = await client.put("client-configs", "user=overtaken", {"acks": "1"})
    monkeypatch.setattr(applied, "status", overtaken)
    counted = await client.request("GET", "client-configs/user=overtaken/status")
    assert (int(counted.body["revision"]), counted.revision) == (put.revision, put.revision)


async def test_a_write_has_the_revision_of_the_state_that_it_shows(
    client: ConfplaneClient, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    await client.put("client-quotas", "user=rewritten", {"producer_byte_rate": 1})
    wait_for_status, values = kraft.wait_for_status, iter(range(2, 9))

    async def overtaken(call: Any, written: Any) -> Any:
        async with service.client() as other:
            monkeypatch.setattr(kraft, "wait_for_status", wait_for_status)
            await other.put("client-quotas", "user=rewritten", {"producer_byte_rate": next(values)})
        monkeypatch.setattr(kraft, "wait_for_status", overtaken)
        return await wait_for_status(call, written)

    monkeypatch.setattr(kraft, "wait_for_status", overtaken)
    put = await client.put("client-quotas", "user=rewritten", {"producer_byte_rate": 9})
    entries = [
        {
            "entity": [{"entityType": "user", "entityName": "rewritten"}],
            "ops": [{"key": "consumer_byte_rate", "value": 9, "remove": False}],
        }
    ]
    altered = await client.request("POST", "client-quotas:alter", json={"entries": entries})
    [result] = altered.body["entries"]
    unchanged = await client.put("client-quotas", "user=rewritten", {"producer_byte_rate": 3})
    history = await client.request("GET", "client-quotas/user=rewritten/history")
    _, put_3, of_alter, _, of_put, _ = [int(each["revision"]) for each in history.body["items"][:6]]
    assert (put.body["quotas"], put.revision) == ({"producer_byte_rate": 9}, of_put)
    assert (int(result["revision"]), altered.revision) == (of_alter, of_alter)
    assert (unchanged.body["quotas"], unchanged.change_id, unchanged.revision) == (
        {"producer_byte_rate": 3},
        None,
        put_3,
    )


async def test_a_write_without_effect_has_the_revision_of_the_cluster(client: ConfplaneClient) -> None:
    await client.put("client-quotas", "user=unaltered", {"producer_byte_rate": 1})
    latest = await client.put("client-quotas", "user=altered-after", {"producer_byte_rate": 1})
    again = await client.put("client-quotas", "user=unaltered", {"producer_byte_rate": 1})
    assert (again.change_id, again.revision) == (None, latest.revision)


async def test_get_returns_what_was_put(client: ConfplaneClient) -> None:
    entity = Entity.of(user="CN=Alice, O=Acme/x y*é")
    quotas = {"producer_byte_rate": 9223372036854775807, "request_percentage": 12.25, "consumer_byte_rate": 0}
    put = await client.put("client-quotas", entity, quotas)
    assert put.status == 200
    got = await client.get("client-quotas", entity)
    assert got.body == {"id": "user=CN~3DAlice~2C~20O~3DAcme~2Fx~20y~2A~C3~A9", "quotas": quotas}
    assert got.etag is not None
    assert got.etag == put.etag
    full = await client.get("client-quotas", entity, full=True)
    assert full.etag is None
    assert full.body["entity"] == {"user": "CN=Alice, O=Acme/x y*é"}
    assert full.body["status"]["etag"] == got.etag
    assert full.body["status"]["revision"] == str(put.revision)
    again = await client.request("PUT", f"client-quotas/{entity.id}", json=full.body)
    assert again.change_id is None
    assert again.etag == got.etag


async def test_put_replaces_only_its_own_keys(client: ConfplaneClient, zk: KazooClient) -> None:
    scram = "salt=c2FsdA==,stored_key=c3RvcmVk,server_key=c2VydmVy,iterations=4096"
    config = {"SCRAM-SHA-256": scram, "producer_byte_rate": "10", "acks": "1", "later.key": "x"}
    foreign = {"version": 1, "config": config, "owner": ["someone", 1]}
    zk.ensure_path("/config/users")
    zk.create("/config/users/carol", json.dumps(foreign, separators=(",", ":")).encode())
    zk.create("/config/changes/config_change_", b'{"version":2,"entity_path":"users/carol"}', sequence=True)
    carol = Entity.of(user="carol")
    assert (await client.get("client-quotas", carol, strong=True)).body["quotas"] == {"producer_byte_rate": 10}
    await client.put("client-quotas", carol, {"consumer_byte_rate": 20})
    stored = json.loads(zk.get("/config/users/carol")[0])
    assert stored["owner"] == ["someone", 1]
    assert stored["config"] == {
        "SCRAM-SHA-256": scram, "acks": "1", "later.key": "x", "consumer_byte_rate": "20",
    }  # fmt: skip
    assert (await client.delete("client-quotas", carol)).body == {"id": "user=carol"}
    stored = json.loads(zk.get("/config/users/carol")[0])
    assert stored["config"] == {"SCRAM-SHA-256": scram, "acks": "1", "later.key": "x"}
    trail = [item async for item in client.items("audit", entity="user=carol")]
    assert "c3RvcmVk" not in json.dumps(trail)
    assert trail[0]["entities"][0]["after"] == {"SCRAM-SHA-256": None, "acks": "1", "later.key": None}


async def test_an_emptied_entity_keeps_its_node(client: ConfplaneClient, zk: KazooClient) -> None:
    entity = Entity.of(client_id="gone")
    await client.put("client-quotas", entity, {"request_percentage": 10})
    await client.delete("client-quotas", entity)
    assert zk.get("/config/clients/gone")[0] == b'{"version":1,"config":{}}'
    assert (await problem(client.get("client-quotas", entity))).status == 404
    again = await client.delete("client-quotas", entity)
    assert again.status == 200
    assert again.change_id is None


async def test_etags_guard_writes(client: ConfplaneClient) -> None:
    entity = Entity.of(user="etags")
    created = await client.create("client-quotas", entity, {"producer_byte_rate": 1})
    assert created.status == 201
    assert (await client.create("client-quotas", entity, {"producer_byte_rate": 1})).status == 200
    assert (await problem(client.create("client-quotas", entity, {"producer_byte_rate": 2}))).status == 409
    assert created.etag is not None
    changed = await client.put("client-quotas", entity, {"producer_byte_rate": 3}, if_match=created.etag)
    stale = await problem(client.put("client-quotas", entity, {"producer_byte_rate": 4}, if_match=created.etag))
    assert stale.status == 412
    assert stale.body["etag"] == changed.etag
    assert stale.outcome == "not_applied"
    unchanged = await client.get("client-quotas", entity, if_none_match=changed.etag)
    assert unchanged.status == 304
    only_new = await problem(
        client.request(
            "PUT",
            f"client-quotas/{entity.id}",
            json={"quotas": {"producer_byte_rate": 5}},
            headers={"If-None-Match": "*"},
        )
    )
    assert only_new.status == 412
    body = {"quotas": {"producer_byte_rate": 6}, "etag": created.etag}
    assert (await problem(client.request("PUT", f"client-quotas/{entity.id}", json=body))).status == 412
    absent = await problem(client.delete("client-quotas", Entity.of(user="never"), if_match="*"))
    assert absent.status == 412
    assert (await client.get("client-quotas", entity)).body["quotas"] == {"producer_byte_rate": 3}


async def test_etags_of_equal_content_are_equal(client: ConfplaneClient) -> None:
    one = await client.put("client-configs", Entity.of(user="e1"), {"acks": "1", "session.timeout.ms": "9000"})
    two = await client.put("client-configs", Entity.of(user="e2"), {"session.timeout.ms": "9000", "acks": "1"})
    assert one.etag == two.etag


async def test_validate_only_writes_nothing(client: ConfplaneClient, zk: KazooClient) -> None:
    before = zk.get_children("/config/changes")
    answer = await client.request(
        "PUT", "client-quotas/user=dry", json={"quotas": {"producer_byte_rate": 1}}, params={"validateOnly": "true"}
    )
    assert answer.body == {"id": "user=dry", "quotas": {"producer_byte_rate": 1}}
    assert answer.change_id is None
    altered = await client.alter(
        "client-quotas", [(Entity.of(user="dry"), {"producer_byte_rate": 7})], validate_only=True
    )
    assert altered.body["entries"][0]["diff"] == [{"key": "producer_byte_rate", "before": None, "after": 7}]
    assert zk.exists("/config/users/dry") is None
    assert zk.get_children("/config/changes") == before
    assert [item async for item in client.items("audit", entity="user=dry")] == []


async def test_the_facet_of_an_id_is_checked(client: ConfplaneClient) -> None:
    assert (await problem(client.get("client-configs", "ip=10.0.0.1"))).status == 400
    assert (await problem(client.get("client-configs", "client-id=a"))).status == 400
    assert (await problem(client.get("client-quotas", "topic=a"))).status == 400


@pytest.mark.parametrize(
    ("spelled", "canonical"),
    [
        ("client-id=b,user=a", "user=a,client-id=b"),
        ("user=a%2Fb", "user=a~2Fb"),
        ("user=a/b", "user=a~2Fb"),
    ],
)
async def test_another_spelling_is_refused_with_the_right_one(
    client: ConfplaneClient, spelled: str, canonical: str
) -> None:
    refused = await problem(client.request("GET", f"client-quotas/{spelled}"))
    assert refused.status == 400
    assert refused.body["canonicalId"] == canonical


async def test_encoded_separators_are_the_same_id(client: ConfplaneClient) -> None:
    entity = Entity.of(user="enc", client_id="x")
    await client.put("client-quotas", entity, {"producer_byte_rate": 1})
    assert (await client.request("GET", "client-quotas/user%3Denc%2Cclient-id%3Dx")).body["id"] == entity.id


async def test_lists_page_and_filter(client: ConfplaneClient) -> None:
    entities = [Entity.of(user=f"list-{index:02}", client_id="app") for index in range(25)]
    await client.alter("client-quotas", [(entity, {"producer_byte_rate": 5}) for entity in entities])
    await client.alter("client-quotas", [(Entity.of(user="list-00"), {"request_percentage": 5})])
    page = (await client.request("GET", "client-quotas", params={"client-id": "app", "pageSize": "10"})).body
    assert [item["id"] for item in page["items"]] == [entity.id for entity in entities[:10]]
    found = [item["id"] async for item in client.items("client-quotas", **{"client-id": "app", "pageSize": "10"})]
    assert found == [entity.id for entity in entities]
    found = [item["id"] async for item in client.items("client-quotas", user="list-00")]
    assert found == ["user=list-00", "user=list-00,client-id=app"]
    found = [item["id"] async for item in client.items("client-quotas", user="list-00", key="request_percentage")]
    assert found == ["user=list-00"]
    found = [item["id"] async for item in client.items("client-quotas", pageSize="7", kind="user,client-id")]
    assert [entity.id for entity in entities] == [entity for entity in found if "list-" in entity]
    assert found == sorted(found)
    everything = [item["id"] async for item in client.items("client-quotas", pageSize="3")]
    assert everything == sorted(set(everything))
    assert (await problem(client.request("GET", "client-quotas", params={"pageToken": "abc"}))).status == 400


@pytest.mark.parametrize("facet", ["client-quotas", "client-configs"])
async def test_lists_find_names_by_their_beginning(client: ConfplaneClient, facet: str) -> None:
    begin = f"é %~,{facet}"
    wanted = [Entity.of(user=begin), Entity.of(user=begin + " a/b"), Entity.of(user=begin, client_id="x")]
    others = [Entity.of(user=None), Entity.of(user=begin[:-1]), Entity.of(user="x" + begin)]
    value = {"request_percentage": 5} if facet == "client-quotas" else {"session.timeout.ms": "30000"}
    if facet == "client-quotas":
        wanted += [Entity.of(client_id=begin + "9")]
        others += [Entity.of(user=None, client_id=begin)]
    else:
        others = others[1:]
    await client.alter(facet, [(entity, value) for entity in (*wanted, *others)])
    ids = sorted(entity.id for entity in wanted)
    for size in ("1", "100"):
        assert [item["id"] async for item in client.items(facet, prefix=begin, pageSize=size)] == ids
    users = [entity.id for entity in wanted[:2]]
    assert [item["id"] async for item in client.items(facet, prefix=begin, kind="user")] == users
    pairs = [item["id"] async for item in client.items(facet, prefix=begin, **{"client-id": "x"})]
    assert pairs == [wanted[2].id]
    named = [item["id"] async for item in client.items(facet, prefix=begin + "x", user=begin)]
    assert named == []
    assert [item["id"] async for item in client.items(facet, prefix=begin, user=begin)] == [wanted[0].id, wanted[2].id]


async def test_effective_quotas_show_every_level(client: ConfplaneClient) -> None:
    user, client_id = "eff", "eff-app"
    levels: list[tuple[Entity, dict[str, Any]]] = [
        (Entity.of(user=user, client_id=None), {"producer_byte_rate": 2}),
        (Entity.of(user=user), {"producer_byte_rate": 3, "request_percentage": 33.5}),
        (Entity.of(user=None, client_id=client_id), {"consumer_byte_rate": 4}),
        (Entity.of(client_id=client_id), {"consumer_byte_rate": 7, "controller_mutation_rate": 1}),
    ]
    await client.alter("client-quotas", levels)
    answer = await client.effective("client-quotas", Entity.of(user=user, client_id=client_id))
    assert [level["level"] for level in answer.body["levels"]] == [1, 2, 3, 4, 5, 6, 7, 8]
    effective = {item["key"]: (item["value"], item["source"]) for item in answer.body["quotas"]}
    assert effective == {
        "producer_byte_rate": (2, "user=eff,client-id"),
        "request_percentage": (33.5, "user=eff"),
        "consumer_byte_rate": (4, "user,client-id=eff-app"),
        "controller_mutation_rate": (1, "client-id=eff-app"),
    }
    synonyms = next(item for item in answer.body["quotas"] if item["key"] == "producer_byte_rate")["synonyms"]
    assert [item["source"] for item in synonyms] == ["user=eff,client-id", "user=eff"]
    assert all(level["reason"] for level in answer.body["levels"])
    etag = answer.etag
    assert etag is not None
    polled = await client.request(
        "GET", f"client-quotas/user={user},client-id={client_id}/effective", headers={"If-None-Match": etag}
    )
    assert polled.status == 304


@pytest.mark.parametrize("rate", [1e300, 2**70, 1e-7, 0.1])
async def test_the_trail_answers_numbers_of_any_size(client: ConfplaneClient, rate: float) -> None:
    entity = Entity.of(user=f"large-{rate}")
    put = await client.put("client-quotas", entity, {"request_percentage": rate})
    assert float(put.body["quotas"]["request_percentage"]) == rate
    change = (await client.request("GET", f"audit/{put.change_id}")).body
    [op] = change["entities"][0]["ops"]
    assert (op["key"], float(op["value"]), len(op)) == ("request_percentage", rate, 2)


@pytest.mark.parametrize(
    ("facet", "entity", "member"),
    [
        ("client-quotas", "user=nobody", "quotas"),
        ("client-configs", "user=nobody,client-id=x", "configs"),
        ("configs", "topic=nothing", "configs"),
        ("configs", "broker=977", "configs"),
    ],
)
async def test_what_is_absent_is_answered_as_empty_on_request(
    client: ConfplaneClient, facet: str, entity: str, member: str
) -> None:
    path = f"{facet}/{entity}"
    for params in ({}, {"view": "full"}, {"consistency": "strong"}):
        assert (await problem(client.request("GET", path, params=params))).status == 404
        found = await client.request("GET", path, params={**params, "absent": "empty"})
        assert (found.status, found.body["id"], found.body[member], found.etag) == (200, entity, {}, None)
    for odd in ({"absent": ""}, {"absent": "404"}, {"absent": "empty", "missing": "empty"}):
        assert (await problem(client.request("GET", path, params=odd))).status == 400
    for method, body in (("PUT", {member: {}}), ("DELETE", None)):
        refused = await problem(client.request(method, path, json=body, params={"absent": "empty"}))
        assert refused.status == 400
    assert (await problem(client.request("GET", f"{facet}/x=y", params={"absent": "empty"}))).status in {400, 404}


async def test_what_is_there_is_answered_as_it_is_whatever_is_asked_for(client: ConfplaneClient) -> None:
    entity = Entity.of(user="present")
    put = await client.put("client-quotas", entity, {"producer_byte_rate": 1})
    path = f"client-quotas/{entity.id}"
    found = await client.request("GET", path, params={"absent": "empty"})
    assert (found.body["quotas"], found.etag) == ({"producer_byte_rate": 1}, put.etag)
    await client.delete("client-quotas", entity)
    assert (await client.request("GET", path, params={"absent": "empty"})).body["quotas"] == {}


@pytest.mark.parametrize(
    ("path", "kind", "error"),
    [
        ("/v1/clusters/default/client-quotas/user=unset", "nothing-set", NothingSetError),
        ("/v1/clusters/default/configs/broker=77", "nothing-set", NothingSetError),
        ("/v1/clusters/nowhere/client-quotas/user=unset", "unknown-cluster", UnknownClusterError),
        ("/v1/clusters/nowhere/configs:describe", "unknown-cluster", UnknownClusterError),
        ("/prefix/v1/clusters/default/client-quotas/user=unset", "unknown-route", UnknownRouteError),
        ("/v1/cluster/default", "unknown-route", UnknownRouteError),
        ("/v1/clusters/default/audit/019a9c5e-7b2c-7d11-8a52-5d0c6f7e9b10", "not-found", ResourceNotFoundError),
    ],
)
async def test_each_thing_that_is_not_there_has_its_problem(
    client: ConfplaneClient, path: str, kind: str, error: type[ResourceNotFoundError]
) -> None:
    post = path.endswith(":describe")
    found = await problem(client.request("POST" if post else "GET", path, json={"resources": []} if post else None))
    assert (found.status, found.problem_type, found.kafka_error_code) == (404, kind, 91)
    assert type(found) is error
