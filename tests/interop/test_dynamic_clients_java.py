"""KIP-649's rules over HTTP with the example of a client in Java, and its producer as a broker feels it."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from app.domain.entities import Entity
from tests.interop.admin import JavaCalls
from tests.interop.compare import new_topics
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.interop.admin import Admin
    from tests.interop.broker import Broker
    from tests.support.facets import ConfplaneClient
    from tests.support.service import Service

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

TIMEOUTS: Final = {"session.timeout.ms": "20000", "heartbeat.interval.ms": "6000"}
_SOURCE: Final = Path(__file__).with_name("Followers.java")


class Followers:
    """Settings that follow the service in one process of Java, by user."""

    def __init__(self, calls: JavaCalls, token: str) -> None:
        self._calls = calls
        self._token = token

    async def follow(self, kind: str, user: str, **own: str) -> Any:
        """Follow the configs of a user, and return the first settings; Java's dots are underscores here."""
        given = {"metadata.max.age.ms": "200"} | {name.replace("_", "."): value for name, value in own.items()}
        return await self.call("follow", kind=kind, user=user, own=given, token=self._token)

    async def becomes(self, user: str, settings: dict[str, str]) -> None:
        """Wait for settings of a user."""

        async def equal() -> bool:
            return bool(await self.call("settings", user=user) == {"metadata.max.age.ms": "200"} | settings)

        await until(equal)

    async def call(self, call: str, **arguments: Any) -> Any:
        return await asyncio.to_thread(self._calls.call, call, **arguments)


@pytest.fixture(scope="module")
def followers(compiled: str, service: Service, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Followers]:
    log = tmp_path_factory.mktemp("followers") / "log"
    options = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    cluster = f"{service.url}/v1/clusters/default"
    with JavaCalls(_SOURCE, log, class_path=compiled, bootstrap=cluster, options=options) as calls:
        yield Followers(calls, service.token)


async def test_acks_follow_the_levels_and_go_back_to_the_users_own(
    followers: Followers, client: ConfplaneClient
) -> None:
    of_user, of_pair = Entity.of(user="java-acks"), Entity.of(user="java-acks", client_id="billing")
    own = {"client.id": "billing", "acks": "1"}
    await client.put("client-configs", of_user, {"acks": "0", **TIMEOUTS})
    settings = await followers.follow("PRODUCER", "java-acks", client_id="billing", acks="1")
    assert settings == {"metadata.max.age.ms": "200", **own, "acks": "0"}
    await client.put("client-configs", of_pair, {"acks": "-1"})
    await followers.becomes("java-acks", {**own, "acks": "-1"})
    await client.delete("client-configs", of_pair)
    await followers.becomes("java-acks", {**own, "acks": "0"})
    await client.delete("client-configs", of_user)
    await followers.becomes("java-acks", own)


@pytest.mark.parametrize("own", [{"enable_idempotence": "true"}, {"transactional_id": "t-1"}], ids=str)
async def test_acks_are_dropped_where_the_application_needs_its_own(
    followers: Followers, client: ConfplaneClient, own: dict[str, str]
) -> None:
    (name,) = own
    user = f"java-{name}"
    await client.put("client-configs", Entity.of(user=user), {"acks": "0"})
    settings = await followers.follow("PRODUCER", user, **own)
    assert settings == {"metadata.max.age.ms": "200", name.replace("_", "."): own[name]}


async def test_timeouts_are_taken_over_together_or_not_at_all(followers: Followers, client: ConfplaneClient) -> None:
    user = Entity.of(user="java-timeouts")
    own = {"heartbeat.interval.ms": "9000"}
    await client.put("client-configs", user, TIMEOUTS)
    settings = await followers.follow("CONSUMER", "java-timeouts", heartbeat_interval_ms="9000")
    assert settings == {"metadata.max.age.ms": "200", **TIMEOUTS}
    # Beside the application's own heartbeat of 9 s.
    await client.put("client-configs", user, {"session.timeout.ms": "8000"})
    await followers.becomes("java-timeouts", own)
    await client.put("client-configs", user, {"session.timeout.ms": "10000"})
    await followers.becomes("java-timeouts", {**own, "session.timeout.ms": "10000"})
    await client.delete("client-configs", user)
    await followers.becomes("java-timeouts", own)


async def test_the_new_group_protocol_leaves_timeouts_out(followers: Followers, client: ConfplaneClient) -> None:
    await client.put("client-configs", Entity.of(user="java-protocol"), TIMEOUTS)
    settings = await followers.follow("CONSUMER", "java-protocol", group_protocol="consumer")
    assert settings == {"metadata.max.age.ms": "200", "group.protocol": "consumer"}


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
