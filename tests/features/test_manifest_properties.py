"""Random states, owners and documents: an apply makes what the document says, and leaves the rest; on real stores."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import httpx
import pytest
from hypothesis import HealthCheck, Phase, given, settings

from confplane.cli.remote.manifests import ManifestFiles
from confplane.crypto.password_encoder import PasswordEncoder
from confplane.domain.entities import Entity, EntityType
from confplane.domain.facets import Tree, full_path
from confplane.domain.manifests import FACETS
from confplane.services.recorder import record
from confplane.store import ZooKeeperStore
from tests.features.manifest_cases import (
    OWNERS,
    SECRET,
    Apply,
    Case,
    Expected,
    Owned,
    Place,
    Values,
    Write,
    cases,
    number,
)
from tests.support import servers
from tests.support.stores import kafka_writes
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from kazoo.client import KazooClient

    from confplane.devstack.zookeeper import ZooKeeper
    from tests.support.service import Service

CLUSTERS: Final = ("default", "default-copy", "kafka4", "kafka4-copy")
"""Two clusters with the layouts of client configs, one of which has groups and client metrics, and empty ones."""
SCRAM: Final = {"SCRAM-SHA-512": "salt=eA==,stored_key=eA==,server_key=eA==,iterations=4096", "vendor.key": "7"}
"""Keys that no manifest has."""

ENCODER: Final = PasswordEncoder("the secret of the encoder")
Znodes = dict[str, tuple[str, int, dict[str, str]]]
HEAD: Final = {"apiVersion": "confplane/v1", "kind": "Configs"}


class Cluster:
    """A cluster of the service, and what ZooKeeper has."""

    def __init__(self, http: httpx.Client, name: str, zk: KazooClient) -> None:
        self.http = http
        self.zk = zk
        self.base = f"/v1/clusters/{name}"

    def send(self, method: str, path: str, **options: Any) -> httpx.Response:
        return self.http.request(method, self.base + path, **options)

    def items(self) -> Iterator[tuple[Place, dict[str, Any]]]:
        for member, facet in FACETS.items():
            for item in self.send("GET", f"/{facet.value}", params={"view": "full"}).json()["items"]:
                yield (item["id"], member), item

    def stored(self) -> tuple[dict[Place, Owned], dict[Place, dict[str, dict[str, str]]]]:
        """Return the values and owners of all keys, and the labels."""
        places, labels = {}, {}
        for place, item in self.items():
            owners = item["status"].get("owners", {})
            values = item["quotas" if place[1] == "quotas" else "configs"]
            places[place] = {
                key: (number(key, self.secret(place) if key == SECRET else value), owners.get(key))
                for key, value in values.items()
            }
            labels[place] = {owner: each for owner, each in item["status"].get("labels", {}).items() if each}
        return places, labels

    def secret(self, place: Place) -> str:
        """Return the password that is stored for a broker."""
        path = full_path(Tree.CONFIG, Entity.from_id(place[0]))
        return ENCODER.decode(json.loads(self.zk.get(path)[0])["config"][SECRET])

    def write(self, place: Place, values: Values) -> None:
        path = f"/{FACETS[place[1]].value}/{place[0]}"
        if values:
            found = self.send("PUT", path, json={"quotas" if place[1] == "quotas" else "configs": values})
        else:
            found = self.send("DELETE", path)
        assert found.is_success or (not values and found.status_code == 404), (place, values, found.text)

    def plan(self, body: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = self.send("POST", "/manifests:plan", json=body).json()
        return found

    def znodes(self) -> Znodes:
        """Return the entity, the zxid and the config of each znode of an entity."""
        found: Znodes = {}

        def walk(tree: Tree, below: str) -> None:
            path = f"{tree}/{below}"
            if not self.zk.exists(path):
                return
            data, stat = self.zk.get(path)
            if data:
                found[path] = Entity.from_path(below).id, stat.mzxid, json.loads(data)["config"]
            for child in self.zk.get_children(path):
                walk(tree, f"{below}/{child}")

        for tree in Tree:
            for kind in EntityType:
                walk(tree, kind.plural)
        return found

    def clear(self) -> None:
        for place, _ in [*self.items()]:
            self.write(place, {})
        for path, (*_, config) in self.znodes().items():
            if config:
                kafka_writes(self.zk, path.removeprefix(f"{Tree.CONFIG}/"), b'{"version":1,"config":{}}')


@pytest.fixture(scope="module")
def chroots(zookeeper: ZooKeeper) -> dict[str, str]:
    return {name: servers.make_chroot(zookeeper.hosts) for name in CLUSTERS}


@pytest.fixture(scope="module")
def service_options(chroots: Mapping[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """Clusters of which two have Kafka 4's entity types, and a recorder that does not wait between its rounds."""
    secret = tmp_path_factory.mktemp("encoder") / "secret"
    secret.write_text("the secret of the encoder")
    encoder = {"secret_file": str(secret), "iterations": 1024}
    shared = {"dynamic_client_configs": ["client.rack"], "record_external_changes": True, "password_encoder": encoder}
    clusters = {
        name: {
            "zookeeper": chroot,
            "client_configs_layout": "separate" if "kafka4" in name else "shared",
            **shared,
        }
        for name, chroot in chroots.items()
    }
    release = ZooKeeperStore.kafka_release
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            ZooKeeperStore, "kafka_release", lambda store: "4.4" if "kafka4" in store.name else release(store)
        )
        patch.setattr(record, "INTERVAL_S", 0.05)
        yield {
            "settings": {
                "CONFPLANE_CLUSTERS": json.dumps(clusters),
                "CONFPLANE_HTTP__REQUEST_DEADLINE_MS": "60000",
            }
        }


@pytest.fixture(scope="module")
def clusters(service: Service, chroots: Mapping[str, str]) -> Iterator[dict[str, Cluster]]:
    headers = {"Authorization": f"Bearer {service.token}"}
    clients = {name: servers.raw_client(chroot) for name, chroot in chroots.items()}
    with httpx.Client(base_url=service.url, headers=headers, trust_env=False, timeout=120) as http:
        yield {name: Cluster(http, name, next(client)) for name, client in clients.items()}
    for client in clients.values():
        next(client, None)


def manifest(wanted: Mapping[Place, Values]) -> list[dict[str, Any]]:
    """Return the entities of a manifest."""
    found: dict[str, dict[str, Any]] = {}
    for (entity_id, member), values in wanted.items():
        found.setdefault(entity_id, {"id": entity_id})[member] = values
    return [*found.values()]


def body_of(step: Apply) -> dict[str, Any]:
    given = {"owner": step.owner, "labels": step.labels, "scope": step.scope, "maxDeletes": step.max_deletes}
    options = {name: value for name, value in given.items() if value not in (None, {})}
    return {
        **HEAD,
        "entities": manifest(step.wanted),
        "atomic": step.atomic,
        "prune": step.prune,
        "merge": step.merge,
        **options,
    }


def changes(plan: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the changes of a plan, without entities that have warnings alone."""
    return [each for each in plan["changes"] if each["action"] != "none"]


def check_apply(cluster: Cluster, expected: Expected, step: Apply) -> None:
    step.wanted = expected.without_absent_secrets(step)
    body = body_of(step)
    if foreign := expected.foreign(step):
        check_refused(cluster, body, "/problems/owner-conflict")
        if step.forces:
            body["force"] = [{"id": entity_id, "key": key} for entity_id, key in sorted(foreign)]
        else:
            for place, values in step.wanted.items():
                step.wanted[place] = {key: value for key, value in values.items() if (place[0], key) not in foreign}
            body["entities"] = manifest(step.wanted)
    if step.drift is not None:
        check_stale(cluster, expected, step, body)
        step.wanted = expected.without_absent_secrets(step)
        body["entities"] = manifest(step.wanted)
    if too_many(expected, step):
        plan = check_refused(cluster, body, "/problems/invalid-request")
        assert plan["refusal"]["pointer"] == "/maxDeletes", plan
        body["maxDeletes"] = 100
    before = cluster.znodes()
    plan = cluster.plan(body)
    assert plan["refusal"] is None, plan
    applied = cluster.send("POST", "/manifests:apply", json={**body, "planId": plan["planId"]})
    assert (applied.status_code, applied.json()["next"]) == (200, None), applied.text
    expected.apply(step)
    whole = expected.places, expected.all_labels()
    wait_for(lambda: cluster.stored() == whole, 30, why=lambda: (cluster.stored(), whole))
    changed = {each["id"] for each in changes(plan)}
    after = cluster.znodes()
    for path, (entity_id, *found) in before.items():
        assert entity_id in changed or after[path] == (entity_id, *found), path
    again = cluster.plan(body)
    assert (changes(again), again["refusal"]) == ([], None), again


def too_many(expected: Expected, step: Apply) -> bool:
    """Return True if a plan deletes more entities than it may."""
    most = step.max_deletes
    if most is None:
        most = max(1, expected.in_scope(step) // 5) if step.wanted else 0
    return len({entity_id for entity_id, _ in expected.pruned(step)}) > most


def check_refused(cluster: Cluster, body: dict[str, Any], problem: str) -> dict[str, Any]:
    """Check that a plan can't be applied, and return it."""
    before, plan = cluster.znodes(), cluster.plan(body)
    refused = cluster.send("POST", "/manifests:apply", json={**body, "planId": plan["planId"]})
    assert refused.is_client_error, refused.text
    assert refused.json()["type"] == problem, refused.text
    assert cluster.znodes() == before
    return plan


def check_stale(cluster: Cluster, expected: Expected, step: Apply, body: dict[str, Any]) -> None:
    """Check that a plan is refused once one of its entities was written."""
    assert step.drift is not None
    place, values = step.drift.place, step.drift.values
    plan, before = cluster.plan(body), expected.places.get(place, {})
    planned = {expected.znode(each) for each in [*step.wanted, *expected.pruned(step)]}
    cluster.write(place, values)
    expected.write(place, values)
    planned |= {expected.znode(each) for each in expected.pruned(step)}
    if expected.places.get(place, {}) != before and expected.znode(place) in planned:
        znodes = cluster.znodes()
        refused = cluster.send("POST", "/manifests:apply", json={**body, "planId": plan["planId"]})
        assert refused.json()["type"] == "/problems/stale-plan", refused.text
        assert cluster.znodes() == znodes


def check_export(cluster: Cluster, copy: Cluster, directory: Path) -> None:
    """Check that an export is a manifest of what there is, and gives equal znodes in an empty cluster."""
    document = cluster.send("GET", "/manifests:export").json()
    text = cluster.send("GET", "/manifests:export", headers={"Accept": "application/yaml"}).content
    (directory / "export.yaml").write_bytes(text)
    files = ManifestFiles(directory / "export.yaml")
    files.read()
    assert {**files.document, "cluster": ""} == {**document, "cluster": ""}
    assert changes(cluster.plan(document)) == []
    for entity in document["entities"]:
        entity.get("configs", {}).pop(SECRET, None)  # an empty cluster has none to keep
    plan = copy.plan(document)
    applied = copy.send("POST", "/manifests:apply", json={**document, "planId": plan["planId"]})
    assert (applied.status_code, applied.json()["next"]) == (200, None), applied.text
    assert contents(copy) == contents(cluster)


def contents(cluster: Cluster) -> dict[str, dict[str, str]]:
    """Return the configs of all znodes without credentials, passwords and empty ones."""
    configs = {
        path: {key: value for key, value in config.items() if key not in {*SCRAM, SECRET}}
        for path, (*_, config) in cluster.znodes().items()
    }
    return {path: config for path, config in configs.items() if config}


def check_exports_of_owners(cluster: Cluster, expected: Expected) -> None:
    """Check that the export of an owner has its keys, and that its plan only removes keys without an owner."""
    for owner in OWNERS:
        document = cluster.send("GET", "/manifests:export", params={"owner": owner}).json()
        keys = {
            place: {key: None if key == SECRET else value for key, (value, each) in held.items() if each == owner}
            for place, held in expected.places.items()
        }
        keys = {place: values for place, values in keys.items() if values}
        found = {
            (entity["id"], member): {key: number(key, value) for key, value in entity[member].items()}
            for entity in document["entities"]
            for member in FACETS
            if member in entity
        }
        assert found == keys
        plan = cluster.plan(document)
        removed = {(each["id"], diff["key"]) for each in plan["changes"] for diff in each["diff"]}
        assert removed == {
            (place[0], key) for place in keys for key, (_, each) in expected.places[place].items() if each is None
        }
        assert [each for each in plan["changes"] if "claimed" in each] == []


@settings(
    max_examples=20,
    phases=(Phase.explicit, Phase.generate),  # each example takes seconds
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(case=cases())
def test_an_apply_makes_what_the_document_says_and_leaves_the_rest(
    clusters: Mapping[str, Cluster], tmp_path: Path, case: Case
) -> None:
    name = "kafka4" if case.kafka4 else "default"
    cluster, copy = clusters[name], clusters[f"{name}-copy"]
    cluster.clear()
    copy.clear()
    wait_for(lambda: cluster.stored()[0] == copy.stored()[0] == {}, 30, why=lambda: (cluster.stored(), copy.stored()))
    for user in case.users:
        kafka_writes(cluster.zk, user.path, json.dumps({"version": 1, "config": SCRAM}).encode())
    expected = Expected(case.kafka4)
    for step in case.steps:
        if isinstance(step, Write):
            cluster.write(step.place, step.values)
            expected.write(step.place, step.values)
        else:
            check_apply(cluster, expected, step)
    check_export(cluster, copy, tmp_path)
    check_exports_of_owners(cluster, expected)
