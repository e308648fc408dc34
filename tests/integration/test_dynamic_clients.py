"""KIP-649's client side against a running service: each rule over HTTP, by the names of each library."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from confplane.client import dynamic as package
from confplane.client.dynamic import (
    AIOKAFKA,
    CONFLUENT_KAFKA,
    KAFKA_PYTHON,
    AsyncDynamicConsumerConfig,
    AsyncDynamicProducerConfig,
    DynamicProducerConfig,
    Library,
)
from confplane.domain.entities import Entity
from tests.support.proxy import proxy
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.support.facets import ConfplaneClient
    from tests.support.service import Service

LIBRARIES = pytest.mark.parametrize(
    "library", [CONFLUENT_KAFKA, KAFKA_PYTHON, AIOKAFKA], ids=lambda library: library.name
)
TIMEOUTS = ("session.timeout.ms", "heartbeat.interval.ms")


def spelled(library: Library, **own: object) -> dict[str, Any]:
    """Settings of a library that polls five times a second; Java's dots are underscores here."""
    return {
        library.spelled(name.replace("_", ".")): value
        for name, value in {"client_id": "billing", "metadata_max_age_ms": 200, **own}.items()
    }


@asynccontextmanager
async def following(
    service: Service,
    kind: type[AsyncDynamicProducerConfig | AsyncDynamicConsumerConfig],
    library: Library,
    user: str,
    **own: object,
) -> AsyncIterator[Any]:
    reached = package.Service(service.url, user, service.token)
    async with kind(spelled(library, **own), library=library, service=reached) as dynamic:
        yield dynamic


@LIBRARIES
async def test_acks_follow_the_levels_and_go_back_to_the_users_own(
    service: Service, client: ConfplaneClient, library: Library
) -> None:
    user = f"levels-{library.name}"
    of_user, of_pair = Entity.of(user=user), Entity.of(user=user, client_id="billing")
    await client.put("client-configs", of_user, {"acks": "0", "session.timeout.ms": "20000"})
    async with following(service, AsyncDynamicProducerConfig, library, user, acks=1) as dynamic:
        own = spelled(library, acks=1)
        zero = dict(own) | {"acks": "0" if library is CONFLUENT_KAFKA else 0}
        assert dynamic.settings == zero
        await client.put("client-configs", of_pair, {"acks": "-1"})
        every = dict(own) | {"acks": "-1" if library is CONFLUENT_KAFKA else "all"}
        await until(lambda: dynamic.settings == every)
        await client.delete("client-configs", of_pair)
        await until(lambda: dynamic.settings == zero)
        await client.delete("client-configs", of_user)
        await until(lambda: dynamic.settings == own)


@LIBRARIES
@pytest.mark.parametrize("own", [{"enable_idempotence": True}, {"transactional_id": "t-1"}])
async def test_acks_are_dropped_where_the_application_needs_its_own(
    service: Service, client: ConfplaneClient, library: Library, own: dict[str, object]
) -> None:
    await client.put("client-configs", Entity.of(user="demanding"), {"acks": "0"})
    async with following(service, AsyncDynamicProducerConfig, library, "demanding", **own) as dynamic:
        assert dynamic.settings == spelled(library, **own)
        assert [dropped.key for dropped in dynamic.decision.dropped] == ["acks"]


@LIBRARIES
async def test_timeouts_are_taken_over_together_or_not_at_all(
    service: Service, client: ConfplaneClient, library: Library
) -> None:
    user = Entity.of(user=f"timeouts-{library.name}")
    session, heartbeat = map(library.spelled, TIMEOUTS)
    await client.put("client-configs", user, dict(zip(TIMEOUTS, ("20000", "6000"), strict=True)))
    name = user.components[0][1] or ""
    async with following(service, AsyncDynamicConsumerConfig, library, name, heartbeat_interval_ms=9000) as dynamic:
        found = dynamic.settings
        assert (str(found[session]), str(found[heartbeat])) == ("20000", "6000")
        # Beside the application's own heartbeat of 9 s.
        await client.put("client-configs", user, {"session.timeout.ms": "8000"})
        await until(lambda: session not in dynamic.settings)
        assert dynamic.settings == spelled(library, heartbeat_interval_ms=9000)
        assert "heartbeat.interval.ms (9000) would not be below" in dynamic.decision.dropped[0].reason


async def test_the_new_group_protocol_leaves_timeouts_out(service: Service, client: ConfplaneClient) -> None:
    await client.put("client-configs", Entity.of(user="new-protocol"), {"session.timeout.ms": "20000"})
    own = {"group_protocol": "consumer"}
    async with following(service, AsyncDynamicConsumerConfig, CONFLUENT_KAFKA, "new-protocol", **own) as dynamic:
        assert dynamic.settings == spelled(CONFLUENT_KAFKA, **own)
        assert len(dynamic.decision.dropped) == 1


@LIBRARIES
async def test_software_and_supported_configs_are_registered(
    service: Service, client: ConfplaneClient, library: Library
) -> None:
    user = f"registered-{library.name}"
    async with (
        following(service, AsyncDynamicProducerConfig, library, user),
        following(service, AsyncDynamicConsumerConfig, library, user, client_id="reader"),
    ):

        async def registered() -> list[Any]:
            ids = [f"user={user},client-id={client_id}" for client_id in ("billing", "reader")]
            found = [item for each in ids async for item in client.items("registrations", id=each)]
            return found if len(found) == 2 else []

        items = await until(registered)
    assert [(item["id"], item["clientInformation"], item["supportedConfigs"]) for item in items] == [
        (f"user={user},client-id={client_id}", {"softwareName": library.name, "softwareVersion": library.version}, keys)
        for client_id, keys in (("billing", ["acks"]), ("reader", ["heartbeat.interval.ms", "session.timeout.ms"]))
    ]


@LIBRARIES
async def test_what_a_client_has_taken_over_and_what_it_dropped_is_reported(
    service: Service, client: ConfplaneClient, library: Library
) -> None:
    user = f"reporting-{library.name}"
    first = await client.put("client-configs", Entity.of(user=user), {"acks": "1", "session.timeout.ms": "20000"})

    async def status() -> Any:
        return (await client.request("GET", f"client-configs/user={user}/status")).body

    async def counted(revision: int | None) -> Any:
        found = await status()
        return found if found["applied"] == 2 and found["revision"] == str(revision) else None

    async with (
        following(service, AsyncDynamicProducerConfig, library, user),
        following(service, AsyncDynamicConsumerConfig, library, user, heartbeat_interval_ms=25_000),
    ):
        found = await until(lambda: counted(first.revision))
        second = await client.put(
            "client-configs", Entity.of(user=user), {"acks": "all", "session.timeout.ms": "30000"}
        )
        settled = await until(lambda: counted(second.revision))
    software = {"softwareName": library.name, "softwareVersion": library.version}
    assert found["appliedBy"] == [{**software, "appliedRevision": str(first.revision), "instances": 2}]
    assert [(each["key"], each["instances"]) for each in found["refused"]] == [("session.timeout.ms", 1)]
    assert "(25000) would not be below session.timeout.ms (20000)" in found["refused"][0]["reason"]
    assert settled["appliedBy"] == [{**software, "appliedRevision": str(second.revision), "instances": 2}]
    assert settled["refused"] == []


@LIBRARIES
async def test_turned_off_the_service_never_hears_of_it(
    service: Service, client: ConfplaneClient, library: Library
) -> None:
    user = f"off-{library.name}"
    await client.put("client-configs", Entity.of(user=user), {"acks": "0"})
    own = {"enable_dynamic_config": "false"}
    async with following(service, AsyncDynamicProducerConfig, library, user, **own) as dynamic:
        assert dynamic.settings == spelled(library)
    assert [item async for item in client.items("registrations", id=f"user={user},client-id=billing")] == []


@LIBRARIES
async def test_a_path_without_the_feature_turns_it_off_with_one_line(
    service: Service, caplog: pytest.LogCaptureFixture, library: Library
) -> None:
    reached = package.Service(service.url, "absent", service.token, cluster="none-such")
    async with AsyncDynamicProducerConfig(spelled(library), library=library, service=reached) as dynamic:
        assert dynamic.settings == spelled(library)
    (record,) = [record for record in caplog.records if record.name.startswith("confplane.client")]
    assert "they are off: 404" in record.getMessage()


@LIBRARIES
@pytest.mark.parametrize("silent", [False, True], ids=["refusing", "silent"])
async def test_away_at_start_then_back_with_other_values(
    service: Service, client: ConfplaneClient, tmp_path: Path, library: Library, *, silent: bool
) -> None:
    """A service that refuses connections, or takes them and says nothing."""
    user = f"away-{library.name}-{silent}"
    entity = Entity.of(user=user, client_id="billing")
    await client.put("client-configs", entity, {"acks": "all"})
    async with proxy(f"127.0.0.1:{service.port}") as line:
        reached = package.Service(f"http://127.0.0.1:{line.port}", user, service.token)
        options: dict[str, Any] = {
            "library": library,
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
        async with AsyncDynamicProducerConfig(spelled(library), **options) as without:
            assert "acks" not in without.settings  # nothing was ever kept
            come_back()
            await becomes(without, "all")
            await until((tmp_path / "kept.json").exists)
            leave()
            await client.put("client-configs", entity, {"acks": "1"})
            async with AsyncDynamicProducerConfig(spelled(library), **options) as kept:
                assert kept.settings["acks"] == "all"
                come_back()
                await becomes(without, "1")
                await becomes(kept, "1")


async def test_a_revoked_token_leaves_the_values_in_force_and_is_logged_once(
    service: Service, client: ConfplaneClient, caplog: pytest.LogCaptureFixture
) -> None:
    entity = Entity.of(user="revoked", client_id="billing")
    await client.put("client-configs", entity, {"acks": "all"})
    made = await client.request("POST", "/v1/tokens", json={"principal": "User:revoked"})
    reached = package.Service(service.url, "revoked", made.body["token"])
    dynamic = DynamicProducerConfig(spelled(CONFLUENT_KAFKA), library=CONFLUENT_KAFKA, service=reached)
    with dynamic:
        assert dynamic.settings["acks"] == "all"
        await client.request("DELETE", f"/v1/tokens/{made.body['id']}")
        await until(lambda: "can't be read, those in force stay: 401" in caplog.text)
        assert dynamic.settings["acks"] == "all"
    assert caplog.text.count("can't be read") == 1
    assert made.body["token"] not in caplog.text


async def test_a_token_that_is_rotated_in_its_file_counts_from_the_next_poll(
    service: Service, client: ConfplaneClient, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    entity = Entity.of(user="rotated", client_id="billing")
    await client.put("client-configs", entity, {"acks": "all"})
    before, after = [
        (await client.request("POST", "/v1/tokens", json={"principal": "User:rotated"})).body for _ in range(2)
    ]
    file = tmp_path / "token"
    file.write_text(before["token"])
    reached = package.Service(service.url, "rotated", file)
    dynamic = DynamicProducerConfig(spelled(CONFLUENT_KAFKA), library=CONFLUENT_KAFKA, service=reached)
    with dynamic:
        assert dynamic.settings["acks"] == "all"
        await client.request("DELETE", f"/v1/tokens/{before['id']}")
        await until(lambda: "can't be read, those in force stay: 401" in caplog.text)
        file.unlink()
        await client.put("client-configs", entity, {"acks": "1"})
        file.write_text(f"{after['token']}\n")
        await until(lambda: dynamic.settings["acks"] == "1")


async def test_an_application_reads_no_configs_of_another_user(
    service: Service, client: ConfplaneClient, caplog: pytest.LogCaptureFixture
) -> None:
    await client.put("client-configs", Entity.of(user="theirs"), {"acks": "0"})
    made = await client.request("POST", "/v1/tokens", json={"principal": "User:mine"})
    reached = package.Service(service.url, "theirs", made.body["token"])
    options: dict[str, Any] = {"library": CONFLUENT_KAFKA, "service": reached}
    async with AsyncDynamicProducerConfig(spelled(CONFLUENT_KAFKA), **options) as dynamic:
        assert "acks" not in dynamic.settings
    assert "can't be read, those in force stay: 403" in caplog.text
