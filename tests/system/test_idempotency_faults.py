"""Requests with an Idempotency-Key cut off in the middle, and sent again: each is applied once, and answered."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from confplane.devstack.postgres import SERVICE
from tests.audit.rows import fetch, run
from tests.integration.test_idempotency import WAYS, entry, new_key, opened, quota, same
from tests.support.processes import stopped
from tests.support.stepping import REASON
from tests.support.waiting import until
from tests.support.world import World

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from kazoo.client import KazooClient

    from tests.support.proxy import Proxy
    from tests.support.servers import Database
    from tests.support.service import Service

NODE = "/config/users/alice"
PATH = "/client-quotas/user=alice"
STEP = {"reason": REASON}


class Scene(World):
    """Its services come with clients."""

    @asynccontextmanager
    async def served(self, **options: Any) -> AsyncIterator[tuple[Service, httpx.AsyncClient]]:
        """Run a service, with a client."""
        async with self.service(**options) as service, opened(service) as client:
            client.timeout = httpx.Timeout(300)
            yield service, client

    def run(self, sql: str) -> None:
        """Run a statement as the owner of the tables."""
        run(self.database.owner_dsn, sql)

    def committed(self) -> dict[str, int]:
        """The number of committed changes of each entity; all changes have ended."""
        await_open = fetch(
            self.database.owner_dsn, "SELECT change_id FROM intents EXCEPT SELECT change_id FROM outcomes"
        )
        assert await_open == []
        return dict(
            fetch(
                self.database.owner_dsn,
                "SELECT entity_id, count(*) FROM outcomes JOIN intent_entities USING (change_id, attempt)"
                " WHERE committed GROUP BY entity_id",
            )
        )


@pytest.fixture
def scene(tmp_path: Path, chroot: str, migrated: Database, raw_zk: KazooClient) -> Scene:
    return Scene(tmp_path, chroot, migrated, raw_zk)


async def test_a_revert_of_a_span_killed_during_its_write_is_done_once_through_another_process(scene: Scene) -> None:
    """The second run finds the first one's change in the span; to revert that too would undo the revert."""
    key, body = new_key(), {"principal": "User:admin", "since": "2020-01-01T00:00:00Z"}
    async with scene.served(step="transaction:SIGKILL") as (one, first), scene.served() as (_, second):
        made = [(await second.put(PATH, json=quota(value))).headers["Confplane-Change-Id"] for value in (1, 2)]
        with pytest.raises(httpx.TransportError):
            await first.post("/audit:revert", json=body, headers=key, params=STEP)
        assert await asyncio.to_thread(one.stop, kill=True) == -signal.SIGKILL
        answer = await second.post("/audit:revert", json=body, headers=key)
        [result] = answer.json()["results"]
        assert (answer.status_code, result["reverts"]) == (200, made)
        assert result["diff"] == [{"key": "producer_byte_rate", "before": 2, "after": None}]
        assert answer.headers["Idempotency-Replayed"] == "true"
        assert (await second.get(PATH)).status_code == 404
        assert scene.committed() == {"user=alice": 3}


@pytest.mark.parametrize("atomic", [False, True], ids=["each", "atomic"])
@pytest.mark.parametrize("at", ["intent", "transaction"])
async def test_a_batch_killed_in_the_middle_is_applied_once_by_the_next(
    scene: Scene, raw_zk: KazooClient, at: str, *, atomic: bool
) -> None:
    users = [f"u{number}" for number in range(30)]
    # u3 is as asked already, and u4 can't be.
    value = {user: -1 if user == "u4" and not atomic else 7 for user in users}
    body = {"entries": [entry(user, value[user]) for user in users], "atomic": atomic}
    key = new_key()
    async with scene.served(step=f"{at}:SIGKILL") as (one, first), scene.served() as (_, second):
        await second.put("/client-quotas/user=u3", json=quota(7))
        with pytest.raises(httpx.TransportError):
            await first.post("/client-quotas:alter", json=body, headers=key, params=STEP)
        assert await asyncio.to_thread(one.stop, kill=True) == -signal.SIGKILL
        # Several at once go on with it; one of them does.
        answers = await asyncio.gather(*(second.post("/client-quotas:alter", json=body, headers=key) for _ in range(5)))
        assert {answer.status_code for answer in answers} == {200 if atomic else 207}
        assert len({answer.content for answer in answers}) == 1
        entries = answers[0].json()["entries"]
        done = [user for user in users if value[user] == 7]
        for user, told in zip(users, entries, strict=True):
            assert told["errorCode"] == (0 if user in done else 42), told
            if user in done:
                stat = raw_zk.exists(f"/config/users/{user}")
                assert (stat.version, int(told["revision"])) == (0, stat.mzxid)
                assert bool(told["changeId"]) == (user != "u3")
                assert told["diff"] == (
                    [] if user == "u3" else [{"key": "producer_byte_rate", "before": None, "after": 7}]
                )
        assert scene.committed() == {f"user={user}": 1 for user in done}


async def test_while_the_first_is_alive_and_in_time_it_is_waited_for_and_then_409(
    scene: Scene, raw_zk: KazooClient
) -> None:
    key = new_key()
    async with (
        scene.served(step="intent:SIGSTOP", cluster={"session_timeout_ms": 40_000}) as (one, first),
        scene.served(deadline_ms=1_000) as (_, second),
    ):
        writing = asyncio.create_task(first.put(PATH, json=quota(1), headers=key, params=STEP))
        await until(lambda: stopped(one.pid))
        try:
            busy = await second.put(PATH, json=quota(1), headers=key)
        finally:
            os.kill(one.pid, signal.SIGCONT)
        assert (busy.status_code, busy.json()["type"]) == (409, "/problems/idempotency-key-busy")
        assert busy.json()["outcome"] == "unknown"
        assert busy.json()["retriable"] is True
        assert int(busy.headers["Retry-After"]) >= 1
        answer = await writing
        assert answer.status_code == 200
        same(answer, await second.put(PATH, json=quota(1), headers=key))
        assert raw_zk.exists(NODE).version == 0


@pytest.mark.parametrize(("at", "lost"), [("intent", "session"), ("intent", "time"), ("transaction", "time")])
async def test_a_paused_holder_that_lost_the_key_reports_what_the_next_one_did(
    scene: Scene, raw_zk: KazooClient, at: str, lost: str
) -> None:
    """The holder is paused until its session has ended, or past its deadline while its session lives."""
    key, cluster = new_key(), {"session_timeout_ms": 40_000} if lost == "time" else {}
    async with scene.served(step=f"{at}:SIGSTOP", cluster=cluster) as (one, first), scene.served() as (_, second):
        writing = asyncio.create_task(first.put(PATH, json=quota(1), headers=key, params=STEP))
        await until(lambda: stopped(one.pid))
        try:
            if lost == "time":
                scene.run("UPDATE request_keys SET until = now()")
            answer = await second.put(PATH, json=quota(1), headers=key)
            assert answer.status_code == 200
        finally:
            os.kill(one.pid, signal.SIGCONT)
        told = await writing
        assert (told.status_code, told.content) == (200, answer.content)
        assert told.headers["Confplane-Change-Id"] == answer.headers["Confplane-Change-Id"]
        assert told.headers["Idempotency-Replayed"] == "true"
        assert raw_zk.exists(NODE).version == 0
        assert scene.committed() == {"user=alice": 1}


@pytest.mark.parametrize("arrived", [True, False])
async def test_an_unknown_outcome_is_not_the_answer_of_the_next(
    scene: Scene, zk_proxy: Proxy, raw_zk: KazooClient, *, arrived: bool
) -> None:
    key = new_key()
    async with (
        scene.served(through=zk_proxy, deadline_ms=3_000) as (_, client),
        scene.served() as (_, other),
    ):
        # The node is there, and what a transaction on it needs is known.
        await poll_for(lambda: client.put(PATH, json=quota(1)), {200})
        zk_proxy.replies.clear()
        zk_proxy.swallowing = not arrived
        writing = asyncio.create_task(client.put(PATH, json=quota(2), headers=key))
        await until(lambda: raw_zk.exists(NODE).version == 1 if arrived else zk_proxy.swallowed_a_write)
        zk_proxy.accepting = False
        zk_proxy.cut()
        unknown = await writing
        assert (unknown.status_code, unknown.json()["outcome"]) == (504, "unknown")
        answer = await other.put(PATH, json=quota(2), headers=key)
        assert answer.status_code == 200, answer.text
        assert ("Idempotency-Replayed" in answer.headers) == arrived
        assert (answer.headers["Confplane-Change-Id"] == unknown.headers["Confplane-Change-Id"]) == arrived
        assert raw_zk.exists(NODE).version == 1
        zk_proxy.swallowing = False
        zk_proxy.replies.set()
        zk_proxy.accepting = True
        last = await poll_for(lambda: client.put(PATH, json=quota(2), headers=key), {200})
        assert last.content == answer.content
        assert scene.committed() == {"user=alice": 2}


async def poll_for(send: Callable[[], Awaitable[httpx.Response]], statuses: set[int]) -> httpx.Response:
    """Send until an answer has one of these statuses."""
    deadline = time.monotonic() + 120
    while (answer := await send()).status_code not in statuses:
        assert time.monotonic() < deadline, answer.text
        await asyncio.sleep(0.1)
    return answer


async def test_an_answer_that_could_not_be_stored_is_rebuilt_from_what_was_applied(
    scene: Scene, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text("the-secret")
    encoder = {"password_encoder": {"secret_file": str(tmp_path / "secret"), "iterations": 1024}}
    async with scene.served(cluster=encoder) as (_, client):
        columns = "status, headers, answer, needs"
        scene.run(
            f"REVOKE UPDATE ON request_keys FROM {SERVICE}; GRANT UPDATE (until, holder, writer) ON request_keys TO {SERVICE}",
        )
        ways: dict[str, tuple[str, str, Any, dict[str, str]]]
        ways = {way: (method, path, body, {}) for way, (method, path, body, _) in WAYS.items()}
        ways["full"] = ("PUT", "/client-quotas/user=full", quota(1), {"view": "full"})
        secret = {"configs": {"background.threads": "11", "listener.name.internal.ssl.key.password": "hidden"}}
        ways["secret"] = ("PUT", "/configs/broker=3", secret, {})
        sent = {way: (*given, new_key()) for way, given in ways.items()}
        first = {
            way: await client.request(method, path, json=body, headers=key, params=params)
            for way, (method, path, body, params, key) in sent.items()
        }
        assert all(answer.is_success and answer.headers["Confplane-Change-Id"] for answer in first.values())
        scene.run(f"GRANT UPDATE ({columns}) ON request_keys TO {SERVICE}")
        # Others write meanwhile, so that the nodes are not what they were.
        for path in ("/client-quotas/user=put", "/client-quotas/user=full", "/client-quotas/user=create"):
            assert (await client.put(path, json=quota(99))).is_success
        assert (await client.delete("/configs/broker=3")).is_success
        scene.run("UPDATE request_keys SET until = now()")
        before = scene.committed()
        assert "hidden" not in str(fetch(scene.database.owner_dsn, "SELECT results FROM request_changes"))
        for _ in range(2):
            for way, (method, path, body, params, key) in sent.items():
                same(first[way], await client.request(method, path, json=body, headers=key, params=params))
        assert scene.committed() == before
        [unstored] = fetch(scene.database.owner_dsn, "SELECT count(*) FROM request_keys WHERE status IS NULL")
        assert unstored == (0,)


async def test_not_applied_is_reported_once_postgres_said_that_the_key_is_new(
    scene: Scene, raw_zk: KazooClient
) -> None:
    key = new_key()
    async with scene.served() as (_, client):
        scene.run(f"REVOKE INSERT ON intents FROM {SERVICE}")
        refused = await client.put(PATH, json=quota(1), headers=key)
        assert (refused.status_code, refused.json()["outcome"]) == (503, "not_applied")
        scene.run(f"REVOKE SELECT ON TABLE request_keys FROM {SERVICE}")  # noqa: S608 - a constant
        for method, body in (("PUT", quota(1)), ("DELETE", None)):
            unknown = await client.request(method, PATH, headers=key, json=body)
            assert (unknown.status_code, unknown.json()["outcome"]) == (503, "unknown")
            assert int(unknown.headers["Retry-After"]) >= 1
        assert raw_zk.exists(NODE) is None
        scene.run(f"GRANT SELECT ON request_keys TO {SERVICE}; GRANT INSERT ON intents TO {SERVICE}")
        assert (await client.put(PATH, json=quota(1), headers=key)).status_code == 200
        assert scene.committed() == {"user=alice": 1}


async def test_keys_are_forgotten_after_a_while_and_across_a_restart_they_are_not(scene: Scene) -> None:
    key = new_key()
    async with scene.served() as (_, client):
        first = await client.put(PATH, json=quota(1), headers=key)
    async with scene.served() as (_, client):
        same(first, await client.put(PATH, json=quota(1), headers=key))
    purging = {
        "confplane.services.changes.idempotency.KEEP_S": 0.5,
        "confplane.services.changes.idempotency.PURGE_S": 0.5,
    }
    async with scene.served(constants=purging) as (_, client):
        for table in ("request_keys", "request_changes"):
            await until(lambda: not fetch(scene.database.owner_dsn, f"SELECT FROM {table}"))  # noqa: B023
        anew = await client.put(PATH, json=quota(2), headers=key)
        assert (anew.status_code, "Idempotency-Replayed" in anew.headers) == (200, False)
