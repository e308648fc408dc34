"""Services that apply quotas and configs to a real Kafka 4: by HTTP, through kills, and during external writes."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

from confplane.client.errors import ClientError, ProblemError
from confplane.kraft.views import ConfigResourceType, Resource
from tests.support.commands import target
from tests.support.kraft_writer import KraftWriter
from tests.support.stores import soon
from tests.support.waiting import until

if TYPE_CHECKING:
    from confplane.kraft.client import KraftClient
    from tests.support.facets import ConfplaneClient
    from tests.support.kraft import KraftCluster
    from tests.support.service import Service
    from tests.support.world import World

RATE = "producer_byte_rate"


@pytest.fixture
def service(kraft: KraftCluster, world: World) -> Service:
    """A service that adopted the cluster, not started."""
    return world.adopting(kraft)


async def put(client: ConfplaneClient, user: str, rate: int) -> None:
    await client.request("PUT", f"client-quotas/user={user}", json={"quotas": {RATE: rate}})


async def applied(client: KraftClient, user: str, rate: float | None) -> None:
    """Wait until the cluster has a quota."""

    async def there() -> bool:
        return await client.describe_quotas_of([("user", user)], soon()) == (None if rate is None else {RATE: rate})

    await until(there)


async def kinds(client: ConfplaneClient, entity: str) -> list[str]:
    """The kinds of an entity's changes, oldest first, without those of the import."""
    found = await client.request("GET", f"audit?entity={quote(entity)}")
    return [each["kind"] for each in reversed(found.body["items"]) if each["kind"] != "import"]


async def test_quotas_are_written_by_http_and_by_kafkas_own_way(
    service: Service, kraft: KraftCluster, client: KraftClient
) -> None:
    with service:
        async with service.client() as http, KraftWriter(kraft.bootstrap[0]) as outside:
            await put(http, "adopted", 1000)

            async def taken() -> bool:
                # The same again: nothing is changed, and the answer waits for what is there.
                headers = {"Confplane-Wait-Applied": "5000"}
                body = {"quotas": {RATE: 1000}}
                answer = await http.request("PUT", "client-quotas/user=adopted", json=body, headers=headers)
                assert answer.change_id is None
                return bool(answer.body["applied"]["state"] == "applied")

            await until(taken)
            assert await client.describe_quotas_of([("user", "adopted")], soon()) == {RATE: 1000.0}
            shown = await http.request("GET", "client-quotas/user=adopted?view=full")
            revision = shown.body["status"]["revision"]
            assert shown.body["status"]["applied"]["revision"] == revision

            async def heard() -> bool:
                return ((await http.request("GET", "client-quotas")).applied_revision or 0) >= int(revision)

            await until(heard)
            await outside.quotas(({"user": "adopted"}, {RATE: 2000.0}))

            async def followed() -> bool:
                found = await http.request("GET", "client-quotas/user=adopted")
                return bool(found.body["quotas"] == {RATE: 2000})

            await until(followed)
            await http.request("DELETE", "client-quotas/user=adopted")
            await applied(client, "adopted", None)
            assert await kinds(http, "user=adopted") == ["change", "observed", "change"]

            async def told() -> bool:
                target: dict[str, Any] = (await http.request("GET", "/v1/clusters/default")).body["target"]
                return target["mode"] == "adopt" and target["applying"] is not None

            await until(told)
            assert "none are waiting to be applied" in target(service, "status")


async def test_the_end_of_a_temporary_change_is_applied_and_keeps_what_kafkas_tools_wrote_since(
    service: Service, kraft: KraftCluster, client: KraftClient
) -> None:
    consumers, entity = "consumer_byte_rate", [("user", "for-some-time")]
    with service:
        async with service.client() as http, KraftWriter(kraft.bootstrap[0]) as outside:
            entity_id = "user=for-some-time"
            path = f"client-quotas/{entity_id}"
            await http.request("PUT", path, json={"quotas": {RATE: 1000, consumers: 1000}})
            body = {"quotas": {RATE: 2000, consumers: 2000}}
            begun = await http.request("PUT", f"{path}?expiresIn=3600", json=body)

            async def has(quotas: dict[str, float]) -> bool:
                return await client.describe_quotas_of(entity, soon()) == quotas

            await until(partial(has, {RATE: 2000.0, consumers: 2000.0}))
            await outside.quotas(({"user": "for-some-time"}, {consumers: 3000.0}))

            async def followed() -> bool:
                return bool((await http.request("GET", path)).body["quotas"] == {RATE: 2000, consumers: 3000})

            await until(followed)

            async def ended() -> dict[str, Any] | None:
                # The leader may be busy with the write that it follows.
                with suppress(ProblemError):
                    found: dict[str, Any] = (await http.request("POST", f"schedules/{begun.change_id}:end")).body
                    return found
                return None

            end = await until(ended)
            assert (end["state"], end["kept"]) == ("ended-partly", [{"entity": entity_id, "key": consumers}])
            await until(partial(has, {RATE: 1000.0, consumers: 3000.0}))
            assert await kinds(http, entity_id) == ["change", "change", "observed", "change"]


async def test_configs_of_each_kind_are_written_by_http(
    service: Service, kraft: KraftCluster, client: KraftClient
) -> None:
    written = {
        "topic=adopted-t": (Resource(ConfigResourceType.TOPIC, "adopted-t"), "retention.ms", "7000"),
        "group=adopted-g": (Resource(ConfigResourceType.GROUP, "adopted-g"), "consumer.session.timeout.ms", "46000"),
        "client-metrics=adopted-m": (Resource(ConfigResourceType.CLIENT_METRICS, "adopted-m"), "interval.ms", "5000"),
        "broker": (Resource(ConfigResourceType.BROKER, ""), "log.cleaner.backoff.ms", "16000"),
        "broker=1": (Resource(ConfigResourceType.BROKER, "1"), "log.cleaner.threads", "2"),
    }

    async def shown(resource: Resource, key: str) -> str | None:
        (found,) = await client.describe_configs([resource], soon(), keys=[key])
        return next((each.value for each in found.entries if each.name == key), None)

    async def alter(http: ConfplaneClient, operation: str) -> None:
        ops = [
            {
                "resourceType": resource.type.name,
                "resourceName": resource.name,
                "configs": [{"name": key, "configOperation": operation, "value": value}],
            }
            for resource, key, value in written.values()
        ]
        await http.request("POST", "configs:incrementalAlter", json={"resources": ops})

    with service:
        async with service.client() as http, KraftWriter(kraft.bootstrap[0]) as outside:
            await outside.create_topics("adopted-t")
            await until_released(http)
            before = {entity: await shown(resource, key) for entity, (resource, key, _) in written.items()}
            await alter(http, "SET")
            for resource, key, value in written.values():
                await until(partial(_has, shown, resource, key, value))
            for entity, (_, key, value) in written.items():
                strong = await http.request("GET", f"configs/{entity}?consistency=strong")
                assert strong.body["configs"][key] == value
                assert await kinds(http, entity) == ["change"]
            await alter(http, "DELETE")
            absent = {
                "resourceType": "TOPIC",
                "resourceName": "adopted-absent",
                "configs": [{"name": "retention.ms", "configOperation": "SET", "value": "1"}],
            }
            for validate_only in (True, False):
                body = {"resources": [absent], "validateOnly": validate_only}
                with pytest.raises(ProblemError) as caught:
                    await http.request("POST", "configs:incrementalAlter", json=body)
                assert caught.value.body["type"] == "/problems/unknown-topic"
            entities = [{"id": "topic=adopted-absent", "configs": {"retention.ms": "1"}}]
            manifest = {"apiVersion": "confplane/v1", "kind": "Configs", "entities": entities}
            with pytest.raises(ProblemError) as caught:
                await http.request("POST", "manifests:plan", json=manifest)
            assert caught.value.body["type"] == "/problems/unknown-topic"
            assert caught.value.body["errors"][0]["pointer"] == "/entities/0/id"
            for entity, (resource, key, _) in written.items():
                await until(partial(_has, shown, resource, key, before[entity]))


async def test_an_etag_is_compared_with_what_kafka_has(service: Service, kraft: KraftCluster) -> None:
    """The writes follow each other at once, ahead of the next poll of topics."""
    path, key = "configs/topic=conditional-t", "retention.ms"
    topic = Resource(ConfigResourceType.TOPIC, "conditional-t")
    with service:
        async with service.client() as http, KraftWriter(kraft.bootstrap[0]) as outside:
            await outside.create_topics("conditional-t")
            await until_released(http)
            wait = {"Confplane-Wait-Applied": "60000"}
            answer = await http.request("PUT", path, json={"configs": {key: "7000"}}, headers=wait)
            assert answer.body["applied"]["state"] == "applied"
            etag = (await http.request("GET", path)).etag
            assert etag is not None
            await outside.configs((topic, {key: "8000"}))
            entry = {"resourceType": "TOPIC", "resourceName": "conditional-t", "etag": etag}
            configs = [{"name": key, "configOperation": "SET", "value": "9000"}]
            body = {"resources": [{**entry, "configs": configs}]}
            for call in (
                http.request("PUT", path, json={"configs": {key: "9000"}}, headers={"If-Match": etag}),
                http.request("PUT", path, json={"configs": {key: "9000"}, "etag": etag}),
                http.request("PUT", path, json={"configs": {key: "9000"}}, headers={"If-None-Match": "*"}),
                http.request("DELETE", path, headers={"If-Match": etag}),
                http.request("POST", "configs:incrementalAlter", json=body),
            ):
                with pytest.raises(ProblemError) as caught:
                    await call
                assert caught.value.status == 412
            found = await http.request("GET", path)
            assert found.body["configs"] == {key: "8000"}
            assert await kinds(http, "topic=conditional-t") == ["change", "observed"]
            answer = await http.request(
                "PUT", path, json={"configs": {key: "9000"}}, headers={"If-Match": found.etag or "", **wait}
            )
            assert answer.body["applied"]["state"] == "applied"


async def until_released(http: ConfplaneClient) -> None:
    """Wait until the service knows the release of the cluster, and so the configs of groups."""

    async def known() -> bool:
        return bool((await http.request("GET", "/v1/clusters/default")).body["target"]["release"])

    await until(known)


async def _has(shown: Any, resource: Resource, key: str, value: str | None) -> bool:
    return bool(await shown(resource, key) == value)


async def test_external_changes_are_reverted(service: Service, kraft: KraftCluster, client: KraftClient) -> None:
    """The service is killed once it has sent the value again, and another ends what it began."""
    assert "reverts external changes" in target(service, "enforce", "--reason", "a test")
    with service:
        async with service.client() as http, KraftWriter(kraft.bootstrap[0]) as outside:
            await put(http, "enforced", 1000)

            async def noted() -> bool:
                entry = await http.request("GET", "client-quotas/user=enforced?view=full")
                return bool(entry.body["status"]["applied"]["state"] == "applied")

            # A value without an end would be sent again, over that of others.
            await until(noted)
            service.dies_at("sent")
            await outside.quotas(({"user": "enforced"}, {RATE: 2000.0, "consumer_byte_rate": 5.0}))
            await until(lambda: not service.running)
        service.start()
        async with service.client() as http:

            async def has(quotas: dict[str, float]) -> bool:
                return await client.describe_quotas_of([("user", "enforced")], soon()) == quotas

            await until(lambda: has({RATE: 1000.0, "consumer_byte_rate": 5.0}))
            assert (await http.request("GET", "client-quotas/user=enforced")).body["quotas"] == {RATE: 1000}

            async def listed() -> bool:
                items = (await http.request("GET", "drift")).body["items"]
                keys = [key for each in items if each["id"] == "user=enforced" for key in each["keys"]]
                return [(key["key"], key["state"], key["theirs"]) for key in keys] == [
                    ("consumer_byte_rate", "extra", 5)
                ]

            await until(listed)
            assert await kinds(http, "user=enforced") == ["change", "put-back"]
            history = (await http.request("GET", "client-quotas/user=enforced/history")).body["items"]
            assert [each["kind"] for each in history] == ["change"]
            await http.request("DELETE", "client-quotas/user=enforced")
            await until(lambda: has({"consumer_byte_rate": 5.0}))


@pytest.mark.parametrize("step", ["transaction", "claimed", "sent", "ended"])
async def test_a_service_that_is_killed_ends_its_work_afterwards(
    service: Service, client: KraftClient, step: str
) -> None:
    user = f"killed-{step}"
    with service:
        async with service.client() as http:
            service.dies_at(step)
            with suppress(ClientError):  # it may be killed before it answers
                await put(http, user, 2)
            await until(lambda: not service.running)
        service.start()
        async with service.client() as http:
            # No change at all, unless another transaction was the one behind which it was killed.
            await put(http, user, 2)
            await applied(client, user, 2.0)

            async def settled() -> bool:
                found = await http.request("GET", f"client-quotas/user={user}?consistency=strong")
                return bool(found.body["quotas"] == {RATE: 2})

            await until(settled)
            assert await kinds(http, f"user={user}") == ["change"]
            await http.request("DELETE", f"client-quotas/user={user}")
            await applied(client, user, None)


@pytest.mark.parametrize(
    "step", ["sent", *(pytest.param(each, marks=pytest.mark.long) for each in ("claimed", "ended"))]
)
async def test_a_service_that_is_killed_during_configs_ends_its_work_afterwards(
    service: Service, client: KraftClient, step: str
) -> None:
    entity, key = f"killed-{step}", "interval.ms"
    path, resource = f"configs/client-metrics={entity}", Resource(ConfigResourceType.CLIENT_METRICS, entity)

    async def has(value: str) -> bool:
        (found,) = await client.describe_configs([resource], soon(), keys=[key])
        return [each.value for each in found.entries if each.name == key] == [value]

    with service:
        async with service.client() as http:
            await until_released(http)
            service.dies_at(step)
            with suppress(ClientError):
                await http.request("PUT", path, json={"configs": {key: "5000"}})
            await until(lambda: not service.running)
        service.start()
        async with service.client() as http:
            await until(lambda: has("5000"))
            shown = await http.request("GET", f"{path}?consistency=strong")
            assert shown.body["configs"][key] == "5000"
            assert await kinds(http, f"client-metrics={entity}") == ["change"]
            await http.request("DELETE", path)
            await until(lambda: has("300000"))


async def test_topics_are_enforced_while_quotas_are_observed_and_nothing_is_sent_in_a_freeze(
    service: Service, kraft: KraftCluster, client: KraftClient
) -> None:
    assert "accepts changes of topics" in target(service, "enforce", "--type", "topics", "--reason", "a test")
    assert "accepts no changes of client-quotas" in target(
        service, "observe", "--type", "client-quotas", "--reason", "a test"
    )
    topic, key = Resource(ConfigResourceType.TOPIC, "enforced-t"), "retention.ms"

    async def has(value: str) -> bool:
        (found,) = await client.describe_configs([topic], soon(), keys=[key])
        return [each.value for each in found.entries if each.name == key] == [value]

    with service:
        async with service.client() as http, KraftWriter(kraft.bootstrap[0]) as outside:
            await outside.create_topics("enforced-t")
            await until_released(http)
            with pytest.raises(ProblemError) as caught:
                await put(http, "observed", 1000)
            assert caught.value.body["type"] == "/problems/observed"
            await http.request("PUT", "configs/topic=enforced-t", json={"configs": {key: "7000"}})

            async def noted() -> bool:
                shown = await http.request("GET", "configs/topic=enforced-t?view=full")
                return bool(shown.body["status"]["applied"]["state"] == "applied")

            async def put_back() -> bool:
                # Ahead of the next poll of topics.
                await http.request("GET", "configs/topic=enforced-t?consistency=strong")
                return await has("7000")

            await until(noted)
            await outside.configs((topic, {key: "9000", "segment.ms": "100000"}))
            await until(put_back)
            assert await kinds(http, "topic=enforced-t") == ["change", "put-back"]

            async def rested() -> bool:
                answer = await http.request("POST", "/v1/clusters/default:freeze", json={"reason": "a test"})
                if answer.body["applying"] == {"rested": True, "pending": 0}:
                    return True
                # What waits in a freeze waits until the thaw.
                await http.request("POST", "/v1/clusters/default:thaw", json={"reason": "a test"})
                return False

            await until(rested)
            await outside.configs((topic, {key: "8000"}))
            assert not await put_back()
            await http.request("POST", "/v1/clusters/default:thaw", json={"reason": "a test"})
            await until(put_back)
            assert await kinds(http, "topic=enforced-t") == ["change", "put-back", "put-back"]
            [drifted] = (await http.request("GET", "drift")).body["items"]
            assert (drifted["id"], [each["state"] for each in drifted["keys"]]) == ("topic=enforced-t", ["extra"])
            await outside.delete_topics("enforced-t")
