"""KIP-649's client side against a running service, with the names of confluent-kafka.

The rules are in tests/vectors/clients.json, and the names of the other libraries in the unit tests. With each library a
broker sees the effects in tests/interop/test_dynamic_clients_on_broker.py.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import pytest

from confplane.client import dynamic as package
from confplane.client.dynamic import (
    CONFLUENT_KAFKA,
    AsyncDynamicConsumerConfig,
    AsyncDynamicProducerConfig,
)
from confplane.domain.entities import Entity
from tests.support.proxy import proxy
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.support.facets import ConfplaneClient
    from tests.support.service import Service

SOFTWARE: Final = {"softwareName": "confluent-kafka", "softwareVersion": CONFLUENT_KAFKA.version}


def settings(**own: object) -> dict[str, Any]:
    """Settings of an application that polls five times a second; dots in names are underscores here."""
    given = {"client_id": "billing", "metadata_max_age_ms": 200, **own}
    return {name.replace("_", "."): value for name, value in given.items()}


@asynccontextmanager
async def following(
    service: Service,
    kind: type[AsyncDynamicProducerConfig | AsyncDynamicConsumerConfig],
    user: str,
    **own: object,
) -> AsyncIterator[Any]:
    reached = package.Service(service.url, user, service.token)
    async with kind(settings(**own), library=CONFLUENT_KAFKA, service=reached) as dynamic:
        yield dynamic


async def test_acks_follow_the_levels_and_go_back_to_the_users_own(service: Service, client: ConfplaneClient) -> None:
    user = "levels"
    of_user, of_pair = Entity.of(user=user), Entity.of(user=user, client_id="billing")
    await client.put("client-configs", of_user, {"acks": "0", "session.timeout.ms": "20000"})
    async with following(service, AsyncDynamicProducerConfig, user, acks=1) as dynamic:
        own, zero, every = (settings(acks=acks) for acks in (1, "0", "-1"))
        assert dynamic.settings == zero
        await client.put("client-configs", of_pair, {"acks": "-1"})
        await until(lambda: dynamic.settings == every)
        await client.delete("client-configs", of_pair)
        await until(lambda: dynamic.settings == zero)
        await client.delete("client-configs", of_user)
        await until(lambda: dynamic.settings == own)


async def test_what_a_client_has_taken_over_and_what_it_dropped_is_reported(
    service: Service, client: ConfplaneClient
) -> None:
    user = "reporting"
    first = await client.put("client-configs", Entity.of(user=user), {"acks": "1", "session.timeout.ms": "20000"})

    async def status() -> Any:
        return (await client.request("GET", f"client-configs/user={user}/status")).body

    async def counted(revision: int | None) -> Any:
        found = await status()
        return found if found["applied"] == 2 and found["revision"] == str(revision) else None

    async with (
        following(service, AsyncDynamicProducerConfig, user),
        following(service, AsyncDynamicConsumerConfig, user, heartbeat_interval_ms=25_000),
    ):
        found = await until(lambda: counted(first.revision))
        second = await client.put(
            "client-configs", Entity.of(user=user), {"acks": "all", "session.timeout.ms": "30000"}
        )
        settled = await until(lambda: counted(second.revision))
    assert found["appliedBy"] == [{**SOFTWARE, "appliedRevision": str(first.revision), "instances": 2}]
    assert [(each["key"], each["instances"]) for each in found["refused"]] == [("session.timeout.ms", 1)]
    assert "(25000) would not be below session.timeout.ms (20000)" in found["refused"][0]["reason"]
    assert settled["appliedBy"] == [{**SOFTWARE, "appliedRevision": str(second.revision), "instances": 2}]
    assert settled["refused"] == []


@pytest.mark.parametrize("silent", [False, True], ids=["refusing", "silent"])
async def test_away_at_start_then_back_with_other_values(
    service: Service, client: ConfplaneClient, tmp_path: Path, *, silent: bool
) -> None:
    """A service that refuses connections, or takes them and says nothing."""
    user = f"away-{silent}"
    entity = Entity.of(user=user, client_id="billing")
    await client.put("client-configs", entity, {"acks": "all"})
    async with proxy(f"127.0.0.1:{service.port}") as line:
        reached = package.Service(f"http://127.0.0.1:{line.port}", user, service.token)
        options: dict[str, Any] = {
            "library": CONFLUENT_KAFKA,
            "service": reached,
            "last_known_good": tmp_path / "kept.json",
        }

        def leave() -> None:
            line.accepting = silent
            line.replies.clear()
            if not silent:
                line.cut()

        def come_back() -> None:
            line.accepting = True
            line.replies.set()

        async def becomes(dynamic: AsyncDynamicProducerConfig, acks: str) -> None:
            await until(lambda: str(dynamic.settings.get("acks")) == acks)

        leave()
        async with AsyncDynamicProducerConfig(settings(), **options) as without:
            assert "acks" not in without.settings  # nothing was ever kept
            come_back()
            await becomes(without, "all")
            await until((tmp_path / "kept.json").exists)
            leave()
            await client.put("client-configs", entity, {"acks": "1"})
            async with AsyncDynamicProducerConfig(settings(), **options) as kept:
                assert kept.settings["acks"] == "all"
                come_back()
                await becomes(without, "1")
                await becomes(kept, "1")
