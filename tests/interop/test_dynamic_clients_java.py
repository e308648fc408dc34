"""KIP-649's rules over HTTP with the example of a client in Java, and its producer as a broker feels it."""

from __future__ import annotations

import asyncio
import uuid
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from confplane.domain.entities import Entity
from tests.interop.admin import JavaCalls
from tests.interop.compare import new_topics
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.interop.admin import Admin
    from tests.support.broker import Broker
    from tests.support.facets import ConfplaneClient
    from tests.support.service import Service

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

_SOURCE: Final = Path(__file__).with_name("Followers.java")


class Followers:
    """Settings that follow the service in one process of Java, by user."""

    def __init__(self, calls: JavaCalls, token: str) -> None:
        self._calls = calls
        self._token = token

    async def follow(self, kind: str, user: str, cluster: str | None = None, **own: str) -> Any:
        """Follow the configs of a user, and return the first settings; Java's dots are underscores here."""
        given = {"metadata.max.age.ms": "200"} | {name.replace("_", "."): value for name, value in own.items()}
        at = {} if cluster is None else {"cluster": cluster}
        return await self.call("follow", kind=kind, user=user, own=given, token=self._token, **at)

    async def becomes(self, user: str, settings: dict[str, str]) -> None:
        """Wait for settings of a user."""

        async def equal() -> bool:
            return bool(await self.call("settings", user=user) == {"metadata.max.age.ms": "200"} | settings)

        await until(equal)

    async def call(self, call: str, **arguments: Any) -> Any:
        return await asyncio.to_thread(self._calls.call, call, **arguments)


@contextmanager
def running(compiled: str, service: Service, log: Path) -> Iterator[tuple[Followers, JavaCalls]]:
    options = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    cluster = f"{service.url}/v1/clusters/default"
    with JavaCalls(_SOURCE, log, class_path=compiled, bootstrap=cluster, options=options) as calls:
        yield Followers(calls, service.token), calls


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The process's standard error."""
    return tmp_path_factory.mktemp("followers") / "log"


@pytest.fixture(scope="module")
def followers(compiled: str, service: Service, log: Path) -> Iterator[Followers]:
    with running(compiled, service, log) as (made, _):
        yield made


async def test_what_a_client_has_taken_over_and_what_it_dropped_is_reported(
    followers: Followers, client: ConfplaneClient
) -> None:
    user = Entity.of(user="java-reporting")

    async def counted(revision: int | None) -> Any:
        found = (await client.request("GET", f"client-configs/{user.id}/status")).body
        return found if [each["appliedRevision"] for each in found["appliedBy"]] == [str(revision)] else None

    changed = await client.put("client-configs", user, {"session.timeout.ms": "20000"})
    await followers.follow("CONSUMER", "java-reporting", heartbeat_interval_ms="25000")
    await followers.call("runs", user="java-reporting")
    found = await until(lambda: counted(changed.revision))
    assert [(each["key"], each["softwareName"]) for each in found["refused"]] == [
        ("session.timeout.ms", "apache-kafka-java")
    ]
    changed = await client.put("client-configs", user, {"session.timeout.ms": "30000"})
    await followers.becomes("java-reporting", {"heartbeat.interval.ms": "25000", "session.timeout.ms": "30000"})
    await followers.call("runs", user="java-reporting")
    assert (await until(lambda: counted(changed.revision)))["refused"] == []


@pytest.mark.long
async def test_a_dead_consumer_is_removed_after_its_dynamic_session_timeout(
    broker: Broker, service: Service, client: ConfplaneClient, admin: Admin, compiled: str, tmp_path: Path
) -> None:
    """Beside it dies one with Java's default of 45 s, which is still a member then."""
    soon, late = (f"dies-{name}-{uuid.uuid4().hex}" for name in ("soon", "late"))
    await new_topics(client, admin, soon, late)
    await client.put("client-configs", Entity.of(user=soon), {"session.timeout.ms": "6000"})
    with running(compiled, service, tmp_path / "log") as (followers, calls):
        for user in (soon, late):
            settings = await followers.follow("CONSUMER", user, bootstrap_servers=broker.bootstrap, group_id=user)
            assert await followers.call("stay", settings=settings, topic=user)
        calls._process.kill()
        await until(lambda: f"in group {soon} has failed, removing it" in broker.said())
        assert f"in group {late} has failed, removing it" not in broker.said()


async def test_dynamic_acks_are_those_of_the_producers_requests(
    broker: Broker, followers: Followers, client: ConfplaneClient, admin: Admin
) -> None:
    """A broker answers a request with acks=0 by nothing, so the producer never learns the record's offset."""
    topic = f"felt-java-{uuid.uuid4().hex}"
    await new_topics(client, admin, topic)
    for number, (acks, answered) in enumerate((("1", True), ("0", False), ("all", True))):
        user = f"{topic}-{acks}"
        await client.put("client-configs", Entity.of(user=user), {"acks": acks})
        settings = await followers.follow("PRODUCER", user, bootstrap_servers=broker.bootstrap)
        offset = await followers.call("send", settings=settings, topic=topic)
        assert (offset == number) is answered, acks


async def test_a_dynamic_session_timeout_is_the_members_until_its_key_is_removed(
    broker: Broker, followers: Followers, client: ConfplaneClient, admin: Admin
) -> None:
    user = f"timeout-java-{uuid.uuid4().hex}"
    await new_topics(client, admin, user)
    await client.put("client-configs", Entity.of(user=user), {"session.timeout.ms": "20000"})
    own = {"bootstrap.servers": broker.bootstrap, "group.id": user, "session.timeout.ms": "25000"}
    settings = await followers.follow("CONSUMER", user, **{name.replace(".", "_"): own[name] for name in own})
    assert await followers.call("join", settings=settings, topic=user)
    await client.delete("client-configs", Entity.of(user=user))
    await followers.becomes(user, own)
    assert await followers.call("join", settings=await followers.call("settings", user=user), topic=user)
    await until(lambda: broker.timeouts_of_leavers(user) == [20_000, 25_000])
