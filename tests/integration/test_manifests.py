"""Plans of manifests over HTTP, on real stores."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any, Final

import pytest
import pytest_asyncio

from confplane.domain.access.operations import Operation, PatternType, ResourceType
from confplane.domain.errors import InvalidRequestError
from confplane.strict_yaml import YamlNode, read_document
from tests.support import servers
from tests.support.inside import running_inside
from tests.support.waiting import until
from tests.unit.cli.test_manifest_files import HIDDEN, ROWS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import httpx
    from kazoo.client import KazooClient

    from confplane.devstack.postgres import Postgres
    from tests.support.inside import Inside

HEAD: Final = {"apiVersion": "confplane/v1", "kind": "Configs"}


@pytest_asyncio.fixture(scope="module")
async def inside(
    module_chroot: str, postgres: Postgres, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Inside]:
    directory = tmp_path_factory.mktemp("inside")
    (directory / "encoder").write_text("an encoder secret")
    encoder = {"secret_file": str(directory / "encoder"), "iterations": 1024}
    database = servers.make_migrated(postgres)
    async with running_inside(module_chroot, database, directory, password_encoder=encoder) as running:
        yield running


def form_of(text: str) -> YamlNode | None:
    """Return a document as YAML has it; None if it is not one, or has no content."""
    try:
        return read_document(io.BytesIO(text.encode()), "m.yaml")
    except InvalidRequestError:
        return None


def line_of(node: YamlNode, pointer: str) -> int:
    """Return the line of the part that a pointer names, or of the nearest part around it."""
    for step in pointer.split("/")[1:]:
        name: Any = step.replace("~1", "/").replace("~0", "~")
        value = node.value
        if isinstance(value, list) and name.isdecimal() and int(name) < len(value):
            node = value[int(name)]
        elif isinstance(value, dict) and name in value:
            node = value[name]
        else:
            break
    return node.line


def document(*entities: dict[str, Any], **members: Any) -> dict[str, Any]:
    return {**HEAD, "entities": list(entities), **members}


async def plan(inside: Inside, *entities: dict[str, Any], caller: str = "admin", **options: Any) -> dict[str, Any]:
    answer = await inside.send(caller, "POST", "manifests:plan", document(*entities, **options))
    assert answer.status_code in {200, 207}, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def put(inside: Inside, facet: str, entity_id: str, **values: Any) -> None:
    member = "quotas" if facet == "client-quotas" else "configs"
    answer = await inside.send("admin", "PUT", f"{facet}/{entity_id}", {member: values})
    assert answer.status_code == 200, answer.text


def diffs(found: dict[str, Any]) -> dict[tuple[str, str], tuple[str, dict[str, tuple[Any, Any]]]]:
    return {
        (each["id"], each["facet"]): (
            each["action"],
            {item["key"]: (item["before"], item["after"]) for item in each["diff"]},
        )
        for each in found["changes"]
    }


async def test_a_plan_has_creates_updates_and_removals(inside: Inside) -> None:
    await put(inside, "configs", "topic=plan-a", **{"retention.ms": "1000", "max.message.bytes": "5"})
    await put(inside, "client-quotas", "user=plan-a", producer_byte_rate=5, consumer_byte_rate=6)
    await put(inside, "client-configs", "user=plan-a", acks="all")
    found = await plan(
        inside,
        {"id": "topic=plan-a", "configs": {"retention.ms": "2000"}},
        {"id": "user=plan-a", "quotas": {"producer_byte_rate": 7, "consumer_byte_rate": 6}},
        {"id": "user=plan-new,client-id=c", "quotas": {"request_percentage": 1.5}, "clientConfigs": {"acks": "1"}},
        {"id": "topic=plan-b", "configs": {}},
    )
    assert diffs(found) == {
        ("topic=plan-a", "configs"): ("update", {"max.message.bytes": ("5", None), "retention.ms": ("1000", "2000")}),
        ("user=plan-a", "client-quotas"): ("update", {"producer_byte_rate": (5, 7)}),
        ("user=plan-new,client-id=c", "client-quotas"): ("create", {"request_percentage": (None, 1.5)}),
        ("user=plan-new,client-id=c", "client-configs"): ("create", {"acks": (None, "1")}),
    }
    assert found["summary"] == {"create": 2, "update": 2, "delete": 0, "claim": 0, "none": 1, "refused": 0}
    assert found["failed"] == 0
    assert found["refusal"] is None
    stored = (await inside.send("admin", "GET", "configs/topic=plan-a")).json()
    assert stored["configs"] == {"max.message.bytes": "5", "retention.ms": "1000"}


async def test_a_merge_keeps_the_keys_that_the_document_does_not_name(inside: Inside) -> None:
    await put(inside, "configs", "topic=merge-a", **{"retention.ms": "1000", "max.message.bytes": "5"})
    await put(inside, "client-quotas", "user=merge-a", producer_byte_rate=5, consumer_byte_rate=6)
    path, secret = (f"listener.name.internal.ssl.keystore.{name}" for name in ("location", "password"))
    await put(inside, "configs", "broker=7", **{secret: "planted", path: "/a.jks"})
    entities: list[dict[str, Any]] = [
        {"id": "topic=merge-a", "configs": {"retention.ms": "2000"}},
        {"id": "user=merge-a", "quotas": {"producer_byte_rate": 7}, "clientConfigs": {"acks": "all"}},
        {"id": "broker=7", "configs": {secret: None, path: "/a.jks"}},  # an alter would warn of the path
        {"id": "topic=merge-b", "configs": {}},
    ]
    found = await plan(inside, *entities, merge=True)
    assert diffs(found) == {
        ("topic=merge-a", "configs"): ("update", {"retention.ms": ("1000", "2000")}),
        ("user=merge-a", "client-quotas"): ("update", {"producer_byte_rate": (5, 7)}),
        ("user=merge-a", "client-configs"): ("create", {"acks": (None, "all")}),
    }
    assert found["planId"] != (await plan(inside, *entities))["planId"]
    body = document(*entities, planId=found["planId"])
    other = await inside.send("admin", "POST", "manifests:apply", body)
    assert (other.status_code, other.json()["type"]) == (409, "/problems/stale-plan")
    done = await inside.send("admin", "POST", "manifests:apply", {**body, "merge": True})
    assert (done.status_code, len(done.json()["results"])) == (200, 3), done.text
    stored = (await inside.send("admin", "GET", "configs/topic=merge-a")).json()
    assert stored["configs"] == {"max.message.bytes": "5", "retention.ms": "2000"}
    assert diffs(await plan(inside, *entities, merge=True)) == {}


async def test_a_removed_key_has_the_value_that_takes_effect(inside: Inside) -> None:
    await put(inside, "client-quotas", "user", producer_byte_rate=11)
    await put(inside, "client-quotas", "user=fall", producer_byte_rate=12, consumer_byte_rate=13)
    await put(inside, "client-quotas", "user=fall,client-id=c", producer_byte_rate=14)
    await put(inside, "client-configs", "user=fall", acks="all")
    await put(inside, "client-configs", "user=fall,client-id=c", acks="1")
    await put(inside, "configs", "topic=fall", **{"retention.ms": "1"})
    await put(inside, "configs", "topic=fall-default", **{"cleanup.policy": "compact"})
    await put(inside, "configs", "broker", **{"log.retention.ms": "77"})
    found = await plan(
        inside,
        {"id": "user=fall", "quotas": {}, "clientConfigs": {"acks": "0"}},
        {"id": "user=fall,client-id=c", "quotas": {}, "clientConfigs": {}},
        {"id": "topic=fall", "configs": {}},
        {"id": "topic=fall-default", "configs": {}},
        {"id": "broker", "configs": {"log.retention.ms": "78"}},
    )
    fallbacks = {
        (each["id"], each["facet"], item["key"]): item["fallback"]
        for each in found["changes"]
        for item in each["diff"]
        if "fallback" in item
    }
    # The plan itself counts: it changes the user and the default of all brokers.
    assert fallbacks == {
        ("user=fall", "client-quotas", "producer_byte_rate"): {"value": 11, "source": "user"},
        ("user=fall,client-id=c", "client-quotas", "producer_byte_rate"): {"value": 11, "source": "user"},
        ("user=fall,client-id=c", "client-configs", "acks"): {"value": "0", "source": "user=fall"},
        ("topic=fall", "configs", "retention.ms"): {"value": "78", "source": "DYNAMIC_DEFAULT_BROKER_CONFIG"},
        ("topic=fall-default", "configs", "cleanup.policy"): {"value": "delete", "source": "DEFAULT_CONFIG"},
    }
    assert {each["action"] for each in found["changes"] if each["id"].startswith("topic=")} == {"delete"}


async def test_a_plan_counts_the_registered_clients_that_would_see_other_values(inside: Inside) -> None:
    rate = "controller_mutation_rate"
    await put(inside, "client-quotas", "user=seen-a,client-id=x", **{rate: 5})
    for names in ({"user": "seen-a"}, {"user": "seen-a", "client-id": "x"}, {"user": "seen-b", "client-id": "x"}):
        polled = await inside.send(
            "admin",
            "POST",
            "client-configs:describe",
            {
                "components": [
                    {"entityType": kind, "matchType": "exact", "match": name} for kind, name in names.items()
                ],
                "resolveEntity": True,
                "supportedConfigs": ["acks"],
                "clientInformation": {"softwareName": "a-client", "softwareVersion": "1"},
            },
        )
        assert polled.status_code == 200, polled.text
    user_a = {"resource": ResourceType.USER, "name": "seen-a", "pattern": PatternType.LITERAL}
    client_id = {"resource": ResourceType.CLIENT_ID, "name": "x", "pattern": PatternType.LITERAL}
    for given in (user_a, client_id):
        await inside.give("User:counter", operation=Operation.DESCRIBE_CONFIGS, **given)

    async def affected(entity_id: str, caller: str = "admin", **members: Any) -> int:
        count: int = (await plan(inside, {"id": entity_id, **members}, caller=caller))["affectedClients"]
        return count

    quotas: dict[str, Any] = {"quotas": {rate: 7}}
    configs: dict[str, Any] = {"clientConfigs": {"acks": "1"}}

    async def known() -> bool:
        return await affected("user=seen-a", **configs) + await affected("user=seen-b", **configs) == 3

    assert await until(known)
    assert await affected("user=seen-a", **quotas) == 1, "the pair has a quota of its own"
    assert await affected("user,client-id=x", **quotas) == 1
    assert await affected("client-id=x", **quotas) == 1
    assert await affected("user=seen-a,client-id=x", quotas={rate: 5}) == 0
    assert await affected("user=seen-a,client-id=x", quotas={}) == 1
    assert await affected("user=seen-c", **quotas) == 0
    # Those that the caller may not describe do not count.
    assert await affected("client-id=x", "counter", **quotas) == 0
    assert await affected("user=seen-a", "counter", **configs) == 2


async def test_prune_deletes_what_the_scope_has_and_the_document_does_not_name(inside: Inside) -> None:
    for name in ("prune-a", "prune-b", "pruned", "prun"):
        await put(inside, "configs", f"topic={name}", **{"retention.ms": "1"})
    await put(inside, "client-quotas", "user=prune-a", producer_byte_rate=1)
    kept = {"id": "topic=prune-a", "configs": {"retention.ms": "1"}}
    found = await plan(inside, kept, prune=True, scope="topic:prune-", maxDeletes=1)
    assert diffs(found) == {("topic=prune-b", "configs"): ("delete", {"retention.ms": ("1", None)})}
    assert [each["pruned"] for each in found["changes"]] == [True]
    assert found["refusal"] is None

    found = await plan(inside, prune=True, scope="topic:prune-")
    assert found["refusal"]["pointer"] == "/maxDeletes"
    assert found["summary"]["delete"] == 2
    assert (await plan(inside, prune=True, scope="topic:prune-", maxDeletes=2))["refusal"] is None
    assert (await plan(inside, prune=True, scope="topic:prune", maxDeletes=2))["refusal"] is not None
    assert (await plan(inside, prune=True, scope="topic:prune-none"))["changes"] == []

    await put(inside, "client-configs", "user=prune-a,client-id=x", acks="1")
    found = await plan(inside, prune=True, scope="user:prune-", maxDeletes=9)
    assert set(diffs(found)) == {("user=prune-a", "client-quotas"), ("user=prune-a,client-id=x", "client-configs")}
    found = await plan(inside, {"id": "user=prune-a", "clientConfigs": {"acks": "1"}}, prune=True, scope="user:prune-")
    assert diffs(found)["user=prune-a", "client-quotas"][0] == "delete"


async def test_the_id_of_a_plan_is_that_of_what_it_rests_on(inside: Inside) -> None:
    one = {"id": "topic=same", "configs": {"retention.ms": "1", "max.message.bytes": "2"}}
    two = {"id": "user=same", "quotas": {"producer_byte_rate": 1}}
    first = await plan(inside, one, two)
    assert (await plan(inside, two, one))["planId"] == first["planId"]
    assert (await plan(inside, one, two, atomic=True))["planId"] != first["planId"]
    assert (await plan(inside, one))["planId"] != first["planId"]
    await put(inside, "client-quotas", "user=elsewhere", producer_byte_rate=1)
    assert (await plan(inside, one, two))["planId"] == first["planId"]
    await put(inside, "client-quotas", "user=same", producer_byte_rate=1)  # presence
    created = await plan(inside, one, two)
    assert created["planId"] != first["planId"]
    await put(inside, "client-quotas", "user=same", producer_byte_rate=2)
    await put(inside, "client-quotas", "user=same", producer_byte_rate=1)  # the same content, another version
    again = await plan(inside, one, two)
    assert again["planId"] != created["planId"]
    assert int(again["revision"]) > int(created["revision"])


async def test_a_caller_who_only_reads_makes_plans(inside: Inside) -> None:
    prefixed = {"pattern": PatternType.PREFIXED, "name": "may-"}
    for operation, name in ((Operation.DESCRIBE_CONFIGS, "may-"), (Operation.ALTER_CONFIGS, "may-alter-")):
        await inside.give(
            "User:planner", operation=operation, resource=ResourceType.TOPIC, **{**prefixed, "name": name}
        )
    await put(inside, "configs", "topic=hidden", **{"retention.ms": "4321"})
    some = [{"id": f"topic={name}", "configs": {"retention.ms": "7"}} for name in ("may-see", "may-alter-it", "hidden")]
    answer = await inside.send("planner", "POST", "manifests:plan", document(*some))
    assert answer.status_code == 207
    assert "4321" not in answer.text
    found = answer.json()
    assert {each["id"]: (each["mayAlter"], each["errorCode"]) for each in found["changes"]} == {
        "topic=may-see": (False, 0),
        "topic=may-alter-it": (True, 0),
        "topic=hidden": (False, 29),
    }
    assert found["failed"] == 1
    admins = await plan(inside, *some[:2])
    assert (await plan(inside, *some[:2], caller="planner"))["planId"] == admins["planId"]
    # A scope has what the caller may describe.
    assert (await plan(inside, caller="planner", prune=True, scope="topic:"))["changes"] == []


async def test_a_reader_can_not_guess_a_password_by_plans(inside: Inside) -> None:
    broker = {"resource": ResourceType.BROKER, "name": "7"}
    await inside.give("User:guesser", operation=Operation.DESCRIBE_CONFIGS, **broker)
    key = "listener.name.a.ssl.key.password"
    await put(inside, "configs", "broker=7", **{key: "the-password"})
    for guess in ("the-password", "another"):
        body = document({"id": "broker=7", "configs": {key: guess}})
        answer = await inside.send("guesser", "POST", "manifests:plan", body)
        assert answer.status_code == 403, answer.text
        [found] = answer.json()["changes"]
        assert found["diff"] == []
        assert found["errors"][0]["pointer"] == f"/entities/0/configs/{key}"
    assert (await plan(inside, {"id": "broker=7", "configs": {key: None}}, caller="guesser"))["changes"] == []
    await inside.give("User:guesser", operation=Operation.ALTER_CONFIGS, **broker)
    found = await plan(inside, {"id": "broker=7", "configs": {key: "the-password"}}, caller="guesser")
    assert found["summary"] == {"create": 0, "update": 0, "delete": 0, "claim": 0, "none": 1, "refused": 0}


async def apply(inside: Inside, body: dict[str, Any], planned: dict[str, Any], caller: str = "admin") -> httpx.Response:
    sent = {**body, "planId": planned["planId"], "revision": planned["revision"]}
    return await inside.send(caller, "POST", "manifests:apply", sent)


async def test_an_apply_does_what_the_plan_says(inside: Inside) -> None:
    await put(inside, "configs", "topic=do-a", **{"retention.ms": "1", "flush.ms": "2"})
    await put(inside, "configs", "topic=do-b", **{"retention.ms": "1"})
    await put(inside, "client-configs", "user=do", acks="all")
    body = document(
        {"id": "user=do,client-id=c", "quotas": {"producer_byte_rate": 2}},
        {"id": "user=do", "quotas": {"producer_byte_rate": 1}},
        {"id": "topic=do-a", "configs": {"retention.ms": "3"}},
        prune=True,
        scope="topic:do-",
        maxDeletes=1,
    )
    planned = (await inside.send("admin", "POST", "manifests:plan", body)).json()
    answer = await apply(inside, body, planned)
    assert answer.status_code == 200, answer.text
    done = answer.json()
    assert done["next"] is None
    assert {(each["id"], each["action"], each["errorCode"]) for each in done["results"]} == {
        ("user=do,client-id=c", "create", 0),
        ("user=do", "create", 0),
        ("topic=do-a", "update", 0),
        ("topic=do-b", "delete", 0),
    }
    assert (await inside.send("admin", "GET", "configs/topic=do-a")).json()["configs"] == {"retention.ms": "3"}
    assert (await inside.send("admin", "GET", "configs/topic=do-b")).status_code == 404
    assert (await inside.send("admin", "GET", "client-configs/user=do")).json()["configs"] == {"acks": "all"}
    again = (await inside.send("admin", "POST", "manifests:plan", body)).json()
    assert again["changes"] == []
    # Sent again, for example after a lost answer: there is nothing left to do.
    repeated = await apply(inside, body, planned)
    assert repeated.status_code == 200
    assert repeated.json()["results"] == []
    assert repeated.json()["runId"] == done["runId"]

    reverted = await inside.send("admin", "POST", "audit:revert", {"requestId": done["runId"]})
    assert reverted.status_code == 200, reverted.text
    assert (await inside.send("admin", "GET", "configs/topic=do-b")).json()["configs"] == {"retention.ms": "1"}
    found = (await inside.send("admin", "GET", "configs/topic=do-a")).json()
    assert found["configs"] == {"flush.ms": "2", "retention.ms": "1"}


async def test_a_stale_plan_is_refused_with_the_changes(inside: Inside) -> None:
    await put(inside, "configs", "topic=stale", **{"retention.ms": "1"})
    body = document(
        {"id": "topic=stale", "configs": {"retention.ms": "3"}}, {"id": "topic=stale-new", "configs": {"flush.ms": "1"}}
    )
    planned = await plan(inside, *body["entities"])
    changes = (
        ("topic=stale", {"retention.ms": "2"}),  # a version
        ("topic=stale-new", {"flush.ms": "9"}),  # presence
    )
    for entity_id, values in changes:
        await put(inside, "configs", entity_id, **values)
        answer = await apply(inside, body, planned)
        assert answer.status_code == 409, answer.text
        found = answer.json()
        assert found["type"] == "/problems/stale-plan"
        assert found["outcome"] == "not_applied"
        assert [each["id"] for each in found["changedSince"]] == [entity_id]
        assert {each["id"] for each in found["changes"]} == {"topic=stale", "topic=stale-new"}
        planned = await plan(inside, *body["entities"])
        assert planned["planId"] == found["planId"]
    for options in ({"atomic": True}, {"entities": body["entities"][:1]}):
        answer = await apply(inside, {**body, **options}, planned)
        assert answer.json()["type"] == "/problems/stale-plan", answer.text
    await inside.send("admin", "DELETE", "configs/topic=stale-new")
    assert (await apply(inside, body, planned)).status_code == 409
    stored = (await inside.send("admin", "GET", "configs/topic=stale")).json()
    assert stored["configs"] == {"retention.ms": "2"}


async def test_a_plan_with_a_refusal_is_not_applied(inside: Inside) -> None:
    for bad in ({"id": "user=ref", "quotas": {"producer_byte_rate": -1}}, {"id": "user=ref"}):
        body = document({"id": "topic=ref", "configs": {"flush.ms": "1"}}, bad)
        planned = await plan(inside, *body["entities"])
        answer = await apply(inside, body, planned)
        assert answer.status_code == 400, answer.text
        assert answer.json()["errors"][0]["pointer"].startswith("/entities/1")
    await put(inside, "configs", "topic=ref-pruned", **{"flush.ms": "1"})
    body = document(prune=True, scope="topic:ref-")
    answer = await apply(inside, body, await plan(inside, prune=True, scope="topic:ref-"))
    assert answer.status_code == 400
    assert answer.json()["errors"][0]["pointer"] == "/maxDeletes"
    assert (await inside.send("admin", "GET", "configs/topic=ref")).status_code == 404


async def test_an_apply_needs_the_right_to_alter_each_changed_entity(inside: Inside) -> None:
    for operation, name in ((Operation.DESCRIBE_CONFIGS, "grant-"), (Operation.ALTER_CONFIGS, "grant-mine")):
        await inside.give(
            "User:applier", operation=operation, resource=ResourceType.TOPIC, pattern=PatternType.PREFIXED, name=name
        )
    await put(inside, "configs", "topic=grant-other", **{"flush.ms": "1"})
    mine = {"id": "topic=grant-mine", "configs": {"flush.ms": "1"}}
    body = document(mine, {"id": "topic=grant-other", "configs": {"flush.ms": "2"}})
    answer = await apply(inside, body, await plan(inside, *body["entities"]), "applier")
    assert answer.status_code == 403
    assert answer.json()["errors"][0]["pointer"] == "/entities/1/id"
    assert (await inside.send("admin", "GET", "configs/topic=grant-mine")).status_code == 404
    # What stays as it is needs no right to alter.
    body = document(mine, {"id": "topic=grant-other", "configs": {"flush.ms": "1"}})
    answer = await apply(inside, body, await plan(inside, *body["entities"]), "applier")
    assert answer.status_code == 200, answer.text


async def test_an_atomic_apply_is_one_change(inside: Inside) -> None:
    entities = [{"id": f"user=atom-{number}", "quotas": {"producer_byte_rate": number}} for number in range(5)]
    body = document(*entities, atomic=True)
    done = (await apply(inside, body, await plan(inside, *entities, atomic=True))).json()
    assert len({each["changeId"] for each in done["results"]}) == 1
    assert len(done["results"]) == 5


async def test_a_plan_that_was_begun_shows_its_entities_only_to_those_who_may_describe_them(inside: Inside) -> None:
    await inside.give(
        "User:curious",
        operation=Operation.DESCRIBE_CONFIGS,
        resource=ResourceType.TOPIC,
        pattern=PatternType.PREFIXED,
        name="begun-open",
    )
    await put(inside, "configs", "topic=begun-pruned", **{"retention.ms": "86421"})
    entities = [
        {"id": f"topic={name}", "configs": {"retention.ms": "97531"}} for name in ("begun-open", "begun-secret")
    ]
    body = document(*entities, prune=True, scope="topic:begun-")
    planned = await plan(inside, *entities, prune=True, scope="topic:begun-")
    assert (await apply(inside, body, planned)).status_code == 200
    await put(inside, "configs", "topic=begun-pruned", **{"retention.ms": "86421"})
    for sent in (document(), document(entities[0]), document(entities[0], prune=True, scope="topic:begun-")):
        answer = await apply(inside, sent, planned, "curious")
        assert answer.json()["type"] == "/problems/stale-plan"
        assert "begun-secret" not in answer.text
        assert "begun-pruned" not in answer.text
    # The plan in the response is the one of the document that was sent.
    answer = await apply(inside, document(entities[0]), planned)
    found = answer.json()
    assert found["type"] == "/problems/stale-plan"
    assert found["changes"] == []
    assert found["planId"] == (await plan(inside, entities[0]))["planId"]


async def test_a_run_continues_around_an_entity_that_is_refused_by_now(inside: Inside, zk: KazooClient) -> None:
    entities = [{"id": f"topic=broken-{name}", "configs": {"retention.ms": "1"}} for name in "ab"]
    body, planned = document(*entities), await plan(inside, *entities)
    assert (await apply(inside, body, planned)).status_code == 200
    zk.set("/config/topics/broken-a", b"not JSON")
    assert (await inside.send("admin", "DELETE", "configs/topic=broken-b")).status_code == 200
    answer = await apply(inside, body, planned)
    assert answer.status_code == 207, answer.text
    found = {each["id"]: each for each in answer.json()["results"]}
    assert "/config/topics/broken-a" in found["topic=broken-a"]["errorMessage"]
    assert found["topic=broken-b"]["changeId"] is not None


DOCUMENTS: Final = [row for row in ROWS if form_of(row[0]) is not None]
"""The invalid documents of the command that JSON can express."""


@pytest.mark.parametrize(("text", "line"), [row[:2] for row in DOCUMENTS])
async def test_an_invalid_document_of_the_command_is_refused_with_a_pointer_to_the_same_line(
    inside: Inside, text: str, line: int
) -> None:
    found = form_of(text)
    assert found is not None
    answer = await inside.send("admin", "POST", "manifests:plan", found.plain())
    assert 400 <= answer.status_code < 500, answer.text
    assert HIDDEN not in answer.text
    problem = answer.json()
    parts = [problem, *problem.get("changes", ())]
    pointers = [part["pointer"] for each in parts for part in each.get("errors") or ()]
    assert line in {line_of(found, pointer) for pointer in pointers}, problem


async def test_an_owner_needs_grants_on_manifests(inside: Inside) -> None:
    """ALTER on the own owner, and TAKE_OVER on the owner of a forced key; the plan needs neither."""
    topics = {"resource": ResourceType.TOPIC, "name": "granted-", "pattern": PatternType.PREFIXED}
    await inside.give("User:owner", operation=Operation.ALTER_CONFIGS, **topics)

    async def applied(body: dict[str, Any], caller: str = "owner") -> tuple[int, str]:
        planned = await inside.send("admin", "POST", "manifests:plan", body)
        assert planned.status_code == 200, planned.text
        answer = await inside.send(caller, "POST", "manifests:apply", {**body, "planId": planned.json()["planId"]})
        return answer.status_code, answer.json().get("detail", "")

    entity = {"id": "topic=granted-a", "configs": {"retention.ms": "1"}}
    assert await applied(document(entity, owner="team-a"), "admin") == (200, "")
    body = document(entity, owner="team-b", force=[{"id": "topic=granted-a", "key": "retention.ms"}])
    status, detail = await applied(body)
    assert (status, "ALTER" in detail, "manifests" in detail) == (403, True, True), detail
    owners = {"resource": ResourceType.MANIFESTS, "name": "team-", "pattern": PatternType.PREFIXED}
    await inside.give("User:owner", operation=Operation.ALTER, **owners)
    planned = (await inside.send("owner", "POST", "manifests:plan", body)).json()
    assert [each["mayAlter"] for each in planned["changes"]] == [False]
    status, detail = await applied(body)
    assert (status, "TAKE_OVER" in detail) == (403, True), detail
    literal = {"resource": ResourceType.MANIFESTS, "name": "team-a", "pattern": PatternType.LITERAL}
    await inside.give("User:owner", operation=Operation.TAKE_OVER, **literal)
    assert await applied(body) == (200, "")
