"""An earlier release beside this one, as in a rolling restart: each reads, settles and replays what the other wrote."""

from __future__ import annotations

import asyncio
import itertools
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import httpx
import pytest

from confplane.domain.entities import Entity
from tests.audit.rows import fetch
from tests.integration.test_idempotency import entry, new_key, opened, quota, same
from tests.support import kinds
from tests.support import releases as releases_module
from tests.support.kinds import NEW, NODE_FREEZE, NODE_LAYOUT, OLD, PASSWORD, RATE, config, opens, stored
from tests.support.releases import PRESENT, Release, earlier
from tests.support.stores import kafka_writes
from tests.support.tools import REQUIRE_VARIABLE
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kazoo.client import KazooClient

    from tests.support.service import Service
    from tests.support.world import World

APPLIED: Final = {"intent": False, "transaction": True}
"""By step, whether a change whose process dies right after it is applied."""
EMPTY: Final = "/config/users/olga/clients/x"


@pytest.fixture(scope="module")
def earlier_release(tmp_path_factory: pytest.TempPathFactory) -> Release:
    """The earlier release."""
    return earlier(tmp_path_factory.mktemp("earlier"))


@pytest.fixture(params=["earlier-first", "present-first"])
def releases(request: pytest.FixtureRequest, earlier_release: Release) -> tuple[Release, Release]:
    """The two, in either order: the first makes changes, the second finds them."""
    return (earlier_release, PRESENT) if request.param == "earlier-first" else (PRESENT, earlier_release)


def test_a_checkout_without_its_history_skips_unless_all_is_required(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(releases_module, "EARLIER", "0" * 40)
    monkeypatch.delenv(REQUIRE_VARIABLE, raising=False)
    with pytest.raises(pytest.skip.Exception, match="without its history"):
        earlier(tmp_path)
    monkeypatch.setenv(REQUIRE_VARIABLE, "1")
    with pytest.raises(pytest.fail.Exception, match="Fetch the history"):
        earlier(tmp_path)


@dataclass(frozen=True)
class Request:
    """A change that a request makes."""

    method: str
    path: str
    body: dict[str, Any]


@dataclass(frozen=True)
class Kind:
    """A kind of change, and how to see in ZooKeeper that it is applied."""

    made: Request | tuple[str, ...]
    """By a request, or by a command."""
    applied: Callable[[KazooClient], bool]
    changes: int = 1
    """The number of its changes. Several share a transaction, which the earlier release never makes."""


_BULK: Final = ("bulk-a", "bulk-b", "bulk-c")


def _batch() -> dict[str, Any]:
    pair = [{"entityType": "user", "entityName": "new"}, {"entityType": "client-id", "entityName": "x"}]
    ops = [{"key": RATE, "value": 1}]
    return {"entries": [entry("batch", 1), {"entity": pair, "ops": ops}], "atomic": True}


# Renames are left out, since the catalog of neither release has one. In this order: a thaw is of what was frozen before
# it, a move of client configs that were written before it.
KINDS: Final = {
    "alter": Kind(
        Request("PUT", "/client-quotas/user=alice", {"quotas": {RATE: 1}}),
        lambda zk: config(zk, "/config/users/alice") == {RATE: "1"},
    ),
    "batch": Kind(
        Request("POST", "/client-quotas:alter", _batch()),
        lambda zk: [config(zk, f"/config/users/{path}") for path in ("batch", "new/clients/x")] == [{RATE: "1"}] * 2,
    ),
    "bulk": Kind(
        Request("POST", "/client-quotas:alter", {"entries": [entry(user, 1) for user in _BULK]}),
        lambda zk: [config(zk, f"/config/users/{user}") for user in _BULK] == [{RATE: "1"}] * 3,
        changes=3,
    ),
    "first client configs": Kind(
        Request("PUT", "/client-configs/user=carl", {"configs": {"acks": "1"}}),
        lambda zk: config(zk, "/config/users/carl") == {"acks": "1"} and stored(zk, NODE_LAYOUT) is not None,
    ),
    "freeze": Kind(("freeze", "--reason", "upgrade"), lambda zk: stored(zk, NODE_FREEZE) is not None),
    "thaw": Kind(("thaw", "--reason", "upgraded"), lambda zk: stored(zk, NODE_FREEZE) is None),
    "compaction": Kind(("compact", "--older-than", "0s", "--apply"), lambda zk: not zk.exists("/config/users/olga")),
    "rotation": Kind(("secrets", "rotate", "--all"), lambda zk: opens(NEW, config(zk, "/config/brokers/0")[PASSWORD])),
    "beginning of a move": Kind(
        ("layout", "move", "--to", "separate", "--apply"), lambda zk: "from" in (stored(zk, NODE_LAYOUT) or {})
    ),
    "move of an entity": Kind(
        ("layout", "move", "--to", "separate", "--apply"),
        lambda zk: config(zk, "/confplane/client-configs/users/carl") == {"acks": "1"},
    ),
}

PASSING: Final = ("first client configs", "freeze", "beginning of a move")
"""Kinds whose state a later one ends."""


class Scene:
    """The stores of a test, and what the trail says of its changes."""

    def __init__(self, world: World, **cluster: Any) -> None:
        self._world = world
        self._cluster = cluster
        self.zk = world.zk
        self._dsn = world.database.owner_dsn
        self._values = itertools.count(1)

    def service(self, release: Release) -> Service:
        """Return a service of a release, not started."""
        return release.service(self._world, **self._cluster)

    def run(self, release: Release, *arguments: str, dies_at: str | None = None) -> None:
        """Run a command of a release."""
        release.run(self.service(release), *arguments, dies_at=dies_at)

    def external(self) -> set[str]:
        """The changes that the recorder took for external ones."""
        rows = fetch(self._dsn, "SELECT change_id::text FROM intents WHERE kind = 'external'")
        return {change_id for (change_id,) in rows}

    async def recorded(self) -> None:
        """Wait until the recorder, whoever's it is, has gone past all that is written now."""
        first = next(self._values)
        while True:
            kafka_writes(self.zk, "users/last", _content({RATE: str(next(self._values))}))
            rows = fetch(
                self._dsn,
                "SELECT after ->> %s FROM intents JOIN intent_entities USING (change_id, attempt)"
                " WHERE kind = 'external' AND entity_id = 'user=last'",
                RATE,
            )
            if any(int(value) >= first for (value,) in rows):
                return
            await asyncio.sleep(0.1)

    def open(self) -> set[str]:
        """The changes without an outcome."""
        rows = fetch(
            self._dsn,
            "SELECT DISTINCT change_id::text FROM intents WHERE change_id NOT IN (SELECT change_id FROM outcomes)",
        )
        return {change_id for (change_id,) in rows}

    def outcomes(self) -> dict[str, bool]:
        """By change, whether it was committed."""
        return dict(fetch(self._dsn, "SELECT change_id::text, committed FROM outcomes"))

    def not_ours(self) -> list[tuple[str, str, int]]:
        """Kind, entity and number of writes of what the recorder took for no change of ours, but for its own probe."""
        return sorted(
            fetch(
                self._dsn,
                "SELECT kind, entity_id, writes FROM intents JOIN intent_entities USING (change_id, attempt)"
                " WHERE kind <> 'change' AND entity_id <> 'user=last'",
            )
        )

    def assert_explained(self) -> None:
        """Every version that a znode of ours got is explained once: by the change that the trail has for it."""
        rows = fetch(
            self._dsn,
            "SELECT path, version_read, (versions ->> path)::int, coalesce(writes, 1) FROM intents"
            " JOIN intent_entities USING (change_id, attempt) JOIN outcomes USING (change_id, attempt)"
            " WHERE committed AND entity_id <> 'user=last' ORDER BY path, revision",
        )
        at: dict[str, int] = {}
        for path, read, version, writes in rows:
            if path in at:
                assert read == at[path], rows
            if version is not None:
                assert version == (-1 if read is None else read) + writes, rows
                at[path] = version
            else:
                at.pop(path, None)
        for path, version in at.items():
            stat = self.zk.exists(path)
            assert stat is not None, path
            assert stat.version == version, path


def _content(values: dict[str, str]) -> bytes:
    return json.dumps({"version": 1, "config": values}).encode()


@pytest.fixture
def scene(tmp_path: Path, world: World) -> Scene:
    """Stores with what the kinds of change need."""
    encoder = kinds.secrets_of(tmp_path).model_dump(mode="json")
    world.zk.create("/config/brokers/0", _content({PASSWORD: OLD.encode("hush")}), makepath=True)
    world.zk.create(EMPTY, _content({}), makepath=True)
    return Scene(world, password_encoder=encoder, client_configs_layout="shared")


@pytest.mark.parametrize("sampled", [True, pytest.param(False, marks=pytest.mark.long)], ids=["sample", "whole"])
async def test_changes_of_one_that_was_killed_are_settled_and_recorded_by_the_other(
    scene: Scene, releases: tuple[Release, Release], *, sampled: bool
) -> None:
    first, second = releases
    wanted: dict[str, bool] = {}
    with scene.service(second) as leader:
        await scene.recorded()
        made = {name: kind for name, kind in KINDS.items() if kind.changes == 1 or first is PRESENT}
        for number, (name, kind) in enumerate(made.items()):
            for step, applied in APPLIED.items():
                if sampled and not applied and number % 3:
                    continue  # the kinds after it need those that are applied
                known = scene.open() | scene.outcomes().keys()
                await _killed(scene, first, kind.made, step)
                assert kind.applied(scene.zk) is applied, (name, step)
                changes = (scene.open() | scene.outcomes().keys()) - known - scene.external()
                assert len(changes) == kind.changes
                wanted |= dict.fromkeys(changes, applied)
        await until(lambda: not scene.open(), why=leader.tail)
        assert {change: committed for change, committed in scene.outcomes().items() if change in wanted} == wanted
        # What the first began, the second ends.
        scene.run(second, *_command(KINDS["move of an entity"]))
        assert stored(scene.zk, NODE_LAYOUT)["layout"] == "separate"
        assert "from" not in stored(scene.zk, NODE_LAYOUT)
        assert [name for name, kind in made.items() if not kind.applied(scene.zk)] == list(PASSING)
        await scene.recorded()
    assert scene.not_ours() == []
    scene.assert_explained()


def _command(kind: Kind) -> tuple[str, ...]:
    assert isinstance(kind.made, tuple)
    return kind.made


async def _killed(scene: Scene, release: Release, made: Request | tuple[str, ...], step: str) -> None:
    """Have a process of a release make a change, and die at a step of it."""
    if isinstance(made, tuple):
        await asyncio.to_thread(scene.run, release, *made, dies_at=step)
        return
    service = scene.service(release)
    await asyncio.to_thread(service.start)
    try:
        service.dies_at(step)
        async with opened(service) as http:
            with pytest.raises(httpx.TransportError):
                await http.request(made.method, made.path, json=made.body)
        assert await asyncio.to_thread(service.died)
    finally:
        service.__exit__()


async def test_a_request_begun_at_one_is_answered_by_the_other(scene: Scene, releases: tuple[Release, Release]) -> None:
    first, second = releases
    with scene.service(second) as two, scene.service(first) as one, scene.service(first) as another:
        async with opened(one) as http, opened(another) as other, opened(two) as then:
            for method, path, body in _REQUESTS:
                key = new_key()
                answer = await http.request(method, path, json=body, headers=key)
                assert answer.is_success, answer.text
                same(answer, await then.request(method, path, json=body, headers=key))
            key = new_key()
            assert (await http.put("/client-quotas/user=put", json=quota(2), headers=key)).is_success
            assert (await then.put("/client-quotas/user=put", json=quota(3), headers=key)).status_code == 422
            cut = {step: (new_key(), client) for step, client in (("intent", http), ("transaction", other))}
            for service, (step, (key, client)) in zip((one, another), cut.items(), strict=True):
                service.dies_at(step)
                with pytest.raises(httpx.TransportError):
                    await client.put(f"/client-quotas/user={step}", json=quota(5), headers=key)
                assert await asyncio.to_thread(service.died)
            answers = await asyncio.gather(
                *(then.put(f"/client-quotas/user={step}", json=quota(5), headers=key) for step, (key, _) in cut.items())
            )
            for (step, (key, _)), answer in zip(cut.items(), answers, strict=True):
                assert (answer.status_code, answer.json()["quotas"]) == (200, quota(5)["quotas"])
                stat = scene.zk.exists(f"/config/users/{step}")
                assert stat.version == 0
                assert int(answer.headers["Confplane-Revision"]) >= stat.mzxid
                # What was applied before the crash is told as that.
                assert ("Idempotency-Replayed" in answer.headers) == (step == "transaction")
                again = await then.put(f"/client-quotas/user={step}", json=quota(5), headers=key)
                assert (again.content, again.headers["Idempotency-Replayed"]) == (answer.content, "true")
    assert scene.open() == set()


_REQUESTS: Final[tuple[tuple[str, str, dict[str, Any]], ...]] = (
    ("PUT", "/client-quotas/user=put", quota(1)),
    ("POST", "/client-configs", {"id": "user=posted", "configs": {"acks": "all"}}),
    (
        "POST",
        "/client-quotas:alter",
        {"entries": [entry("one", 1), entry("two", -1), {**entry("three", 3)}]},
    ),
    (
        "POST",
        "/configs:incrementalAlter",
        {
            "resources": [
                {
                    "resourceType": "BROKER",
                    "resourceName": "0",
                    "configs": [
                        {"name": PASSWORD, "configOperation": "SET", "value": "new"},
                        {"name": "log.cleaner.threads", "configOperation": "SET", "value": "2"},
                    ],
                }
            ]
        },
    ),
)


@pytest.mark.parametrize(
    "releases", ["earlier-first", pytest.param("present-first", marks=pytest.mark.long)], indirect=True
)
async def test_a_freeze_by_one_release_is_respected_by_the_other_and_the_trail_stays_complete(
    scene: Scene, releases: tuple[Release, Release]
) -> None:
    first, second = releases
    one, two = scene.service(first), scene.service(second)
    try:
        with one:
            await scene.recorded()  # it leads
            two.start()
            async with opened(one) as http, opened(two) as then:
                for value, (release, other) in enumerate(((first, then), (second, http)), 1):
                    await asyncio.to_thread(scene.run, release, "freeze", "--reason", release.name)
                    for client in (http, then):
                        refused = await client.put("/client-quotas/user=frozen", json=quota(value))
                        assert refused.status_code == 409, refused.text
                        assert release.name in refused.json()["detail"]
                    await asyncio.to_thread(scene.run, _other(release, releases), "thaw", "--reason", "done")
                    assert (await other.put("/client-quotas/user=frozen", json=quota(value))).status_code == 200
                await _busy(http, then, scene, "together")
                await scene.recorded()
                await _assert_both_show_the_trail(http, then)
                await _assert_reverts(*((http, then) if second is PRESENT else (then, http)))
        # Now the other leads, from where the first one's recorder ended.
        async with opened(two) as then:
            await _busy(then, then, scene, "alone")
            await scene.recorded()
    finally:
        two.__exit__()
    assert scene.not_ours() == [("external", f"user={name}-theirs", 1) for name in ("alone", "together")]
    scene.assert_explained()


async def _assert_both_show_the_trail(*clients: httpx.AsyncClient) -> None:
    """Services of both releases answer the same changes, whichever wrote the rows."""
    shown = []
    for client in clients:
        answer = await client.get("/audit", params={"pageSize": 1000, "entity": "user=frozen"})
        assert answer.status_code == 200, answer.text
        items = answer.json()["items"]
        ops = [op for item in items for entity in item["entities"] for op in entity.pop("ops")]
        assert {(op["key"], op["value"]) for op in ops} == {(RATE, 1), (RATE, 2)}
        shown.append(items)
    common = shown[0][0].keys() & shown[1][0].keys()
    # Members that the earlier release does not have yet say nothing about these changes.
    assert not any(item[key] for items in shown for item in items for key in item.keys() - common)
    one, other = ([{key: item[key] for key in common} for item in items] for items in shown)
    assert one == other
    assert [item["outcome"] for item in shown[0]] == ["committed", "committed"]


async def _assert_reverts(earlier: httpx.AsyncClient, present: httpx.AsyncClient) -> None:
    """The present release reverts changes of the earlier one, which shows the revert; later changes are named."""
    changes = []
    for value in (1, 2):
        answer = await earlier.put("/client-quotas/user=reverted", json=quota(value))
        changes.append(answer.headers["Confplane-Change-Id"])
    done = await present.post("/audit:revert", json={"changeId": changes[1]})
    assert done.json()["results"][0]["reverts"] == changes[1:]
    for client in (earlier, present):
        shown = await client.get("/client-quotas/user=reverted", headers=_min_revision_of(done))
        assert shown.json()["quotas"] == {RATE: 1}
    [last] = (await earlier.get("/audit", params={"pageSize": 1, "entity": "user=reverted"})).json()["items"]
    assert (last["changeId"], last["outcome"]) == (done.headers["Confplane-Change-Id"], "committed")
    late = await earlier.put("/client-quotas/user=reverted", json=quota(3))
    refused = await present.post("/audit:revert", json={"changeId": last["changeId"]})
    assert [each["changeId"] for each in refused.json()["laterChanges"]] == [late.headers["Confplane-Change-Id"]]


def _min_revision_of(answer: httpx.Response) -> dict[str, str]:
    return {"Confplane-Min-Revision": answer.headers["Confplane-Revision"]}


def _other(release: Release, both: tuple[Release, Release]) -> Release:
    return both[1] if release is both[0] else both[0]


async def _busy(one: httpx.AsyncClient, two: httpx.AsyncClient, scene: Scene, name: str) -> None:
    """Many changes through both at once, of the same entities and of others; and one of somebody else amid them."""

    async def alters(client: httpx.AsyncClient, number: int) -> None:
        for value in range(1, 4):
            users = f"{name}-{number % 5}", f"{name}-own-{number}"
            answers = await asyncio.gather(
                *(client.put(f"/client-quotas/user={user}", json=quota(100 * number + value)) for user in users)
            )
            assert {answer.status_code for answer in answers} <= {200}, [answer.text for answer in answers]
        entries = [entry(f"{name}-many-{each}", 100 * number + each) for each in range(20)]
        answer = await client.post("/client-quotas:alter", json={"entries": entries})
        assert answer.status_code == 200, answer.text
        pair = Entity.of(user=f"{name}-new-{number}", client_id="x")
        assert (await client.put(f"/client-quotas/{pair.id}", json=quota(1))).is_success

    works = [alters(client, number) for number in range(10) for client in (one, two)]
    busy = asyncio.gather(*works)
    kafka_writes(scene.zk, f"users/{name}-theirs", _content({RATE: "1"}))
    await busy
