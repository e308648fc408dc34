"""Keys that the settings of a cluster declare: through the API, and applied to a Kafka cluster, which is a double."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import httpx
import pytest

from confplane.client import ProblemError
from confplane.domain.entities import Entity
from confplane.domain.facets import FacetName
from confplane.domain.ops import Op, OpType
from tests.support.adopting import TOPIC, alter, kinds, opener, restore, rows
from tests.support.kafka_double import KafkaDouble

if TYPE_CHECKING:
    from kazoo.client import KazooClient

    from tests.support.facets import ConfplaneClient
    from tests.support.service import Service
    from tests.support.world import World

COPIES, TOKEN = "acme.extra.copies", "acme.extra.token"
EXTRA_KEYS: Final = [
    {"key": COPIES, "entity_types": ["topic", "broker"], "type": "int", "description": "Copies in other regions."},
    {"key": TOKEN, "entity_types": ["topic", "broker"], "type": "string", "sensitive": True},
    {"key": "acme.below.*", "entity_types": ["topic", "broker"], "type": "int", "description": "Of the plug-in."},
]
BROKER: Final = Entity.of(broker="1")


@pytest.fixture(scope="module")
def service_options() -> dict[str, Any]:
    """A service whose cluster has keys of its own, and whose log says all that it can."""
    return {"cluster": {"extra_keys": EXTRA_KEYS}, "settings": {"CONFPLANE_LOG_LEVEL": "debug"}}


@pytest.mark.parametrize("release", ["3.9", "4.4"])
async def test_definitions_have_the_declared_keys(client: ConfplaneClient, release: str) -> None:
    answer = await client.request("GET", "config-definitions", params={"search": "acme.extra", "release": release})
    copies, token = [each for each in answer.body["items"] if each["section"] == "topic"]
    assert copies == {
        "section": "topic",
        "name": COPIES,
        "type": "INT",
        "default": None,
        "required": False,
        "valid": None,
        "importance": "MEDIUM",
        "dynamic": True,
        "scope": "per-topic",
        "settableOn": ["topic"],
        "sensitive": False,
        "internal": False,
        "synonyms": [],
        "group": [],
        "listenerPrefix": None,
        "prefixRequired": False,
        "unit": None,
        "description": "Copies in other regions.",
        "documentation": None,
        "releases": [],
    }
    assert (token["name"], token["sensitive"], token["description"]) == (TOKEN, True, None)


async def test_definitions_have_the_prefix_of_declared_keys(client: ConfplaneClient) -> None:
    answer = await client.request("GET", "config-definitions", params={"search": "acme.below"})
    found = [(each["section"], each["name"], each["type"], each["description"]) for each in answer.body["items"]]
    assert found == [(section, "acme.below.*", "INT", "Of the plug-in.") for section in ("topic", "broker")]


@pytest.mark.parametrize("entity", ["topic=below", "broker=7302"])
async def test_keys_below_a_declared_prefix_are_validated_and_shown(client: ConfplaneClient, entity: str) -> None:
    with pytest.raises(ProblemError, match=r"acme\.below\.copies must be a whole number"):
        await client.put("configs", entity, {"acme.below.copies": "many"})
    values = {"acme.below.copies": " 3"}
    answer = await client.request("PUT", f"configs/{entity}", json={"configs": values}, params={"view": "full"})
    assert not any("acme" in each for each in answer.body["status"]["warnings"])
    assert (await client.get("configs", entity)).body["configs"] == values
    kind, _, name = entity.partition("=")
    resource = {"resourceType": kind.upper(), "resourceName": name, "configurationKeys": ["acme.below.copies"]}
    body = {"resources": [resource], "includeDocumentation": True}
    [shown] = (await client.request("POST", "configs:describe", json=body)).body["results"][0]["configs"]
    assert (shown["value"], shown["configType"], shown["documentation"]) == ("3", "INT", "Of the plug-in.")


def test_the_page_of_definitions_names_the_setting(service: Service) -> None:
    headers = {"Authorization": f"Bearer {service.token}", "Accept": "text/html"}
    url = f"{service.url}/v1/clusters/default/config-definitions"
    page = httpx.get(url, params={"search": COPIES}, headers=headers, trust_env=False)
    assert page.text.count("Declared by the setting extra_keys") == 2


@pytest.mark.parametrize("entity", ["topic=extra", "broker=7301"])
async def test_declared_keys_are_validated_and_shown(
    client: ConfplaneClient, zk: KazooClient, service: Service, entity: str
) -> None:
    with pytest.raises(ProblemError, match=r"acme\.extra\.copies must be a whole number"):
        await client.put("configs", entity, {COPIES: "many"})
    values = {COPIES: " 3", TOKEN: "hidden-token"}
    answer = await client.request("PUT", f"configs/{entity}", json={"configs": values}, params={"view": "full"})
    assert not any("acme" in each for each in answer.body["status"]["warnings"])
    kind, _, name = entity.partition("=")
    assert json.loads(zk.get(f"/config/{kind}s/{name}")[0])["config"] == values
    assert (await client.get("configs", entity)).body["configs"] == {COPIES: " 3", TOKEN: None}
    resource = {"resourceType": kind.upper(), "resourceName": name, "configurationKeys": [COPIES, TOKEN]}
    body = {"resources": [resource], "includeDocumentation": True}
    described = await client.request("POST", "configs:describe", json=body)
    copies, token = described.body["results"][0]["configs"]
    assert (copies["value"], copies["configType"], copies["isSensitive"]) == ("3", "INT", False)
    assert copies["documentation"] == "Copies in other regions."
    assert (token["value"], token["isSensitive"]) == (None, True)
    trail = await client.request("GET", "audit", params={"entity": entity, "view": "full"})
    [row] = [each for each in trail.body["items"] if each["outcome"] == "committed"]
    assert row["entities"][0]["after"] == {COPIES: " 3", TOKEN: None}
    answers = [json.dumps(each.body) for each in (answer, described, trail)]
    assert not any("hidden-token" in each for each in [*answers, service.log.read_text()])


@pytest.fixture
def kafka() -> KafkaDouble:
    made = KafkaDouble()
    made.create_topic("t")
    made.alter(TOPIC, {"retention.ms": "1000"})
    made.alter(BROKER, {"log.retention.ms": "1000"})
    return made


@pytest.mark.parametrize("entity", [TOPIC, BROKER], ids=str)
@pytest.mark.parametrize("mode", ["adopt", "enforce"])
async def test_a_declared_key_whose_value_the_cluster_hides_is_delivered_once(
    world: World, kafka: KafkaDouble, mode: str, entity: Entity
) -> None:
    kafka.opaque_keys = {COPIES, TOKEN}
    async with opener(world, kafka, extra_keys=EXTRA_KEYS) as open_one:
        one = await open_one(mode)
        await alter(one, entity, {COPIES: "3", TOKEN: "hush"})
        for _ in range(3):
            await restore(one)
        assert kafka.requests == [{entity: {COPIES: "3", TOKEN: "hush"}}]
        await alter(one, entity, {COPIES: None})
        await restore(one)
        assert COPIES not in kafka.now.configs[entity]
        assert COPIES not in (one.config(entity) or {})
        assert await kinds(one, entity) == ["change", "change"]
        assert [each.intent.entities[0].after.get(TOKEN) for each in await rows(one, entity)] == [None, None]


@pytest.mark.parametrize("mode", ["observe", "adopt", "enforce"])
async def test_a_declared_key_whose_value_the_cluster_shows_is_compared_by_value(
    world: World, kafka: KafkaDouble, mode: str
) -> None:
    kafka.alter(TOPIC, {COPIES: "3", TOKEN: "hush", "acme.other": "1"})
    async with opener(world, kafka, extra_keys=EXTRA_KEYS) as open_one:
        one = await open_one(mode)
        # Values that may be secrets are not imported.
        assert one.config(TOPIC) == {"retention.ms": "1000", COPIES: "3"}
        kafka.alter(TOPIC, {COPIES: "03"})
        await restore(one)
        assert await kinds(one, TOPIC) == []
        kafka.alter(TOPIC, {COPIES: "4"})
        await restore(one)
        kept = mode == "enforce"
        assert await kinds(one, TOPIC) == ["put-back" if kept else "observed"]
        assert (one.config(TOPIC) or {})[COPIES] == kafka.now.configs[TOPIC][COPIES] == ("3" if kept else "4")


async def test_a_listener_s_form_of_a_declared_key_is_known(world: World, kafka: KafkaDouble) -> None:
    async with opener(world, kafka, extra_keys=EXTRA_KEYS) as open_one:
        one = await open_one()
        op = Op(f"listener.name.external.{COPIES}", OpType.SET, "3")
        (result,) = await one.replica.edit(BROKER, FacetName.CONFIGS, (op,))
        assert (result.error, [each for each in result.warnings if "acme" in each]) == (None, [])
