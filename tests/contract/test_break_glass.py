"""``Confplane-Break-Glass``: writes past the rules, which another person has to acknowledge, and never past the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest
import pytest_asyncio

from confplane.domain.access.operations import Operation, ResourceType, Role
from confplane.security.events import EventLog
from tests.audit import rows
from tests.support.entry_points import ALL, THIRD, filled, reset, ruled

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import httpx

    from confplane.devstack.postgres import Postgres
    from confplane.devstack.zookeeper import ZooKeeper
    from tests.support.entry_points import Sent
    from tests.support.inside import Inside

WHY: Final = "an outage of the payments"
ALICE: Final = "client-quotas/user=alice"
RATE: Final = THIRD["client-quotas"]


class World:
    """The service, and what its trail and its change requests have."""

    def __init__(self, inside: Inside, dsn: str) -> None:
        self.inside = inside
        self.dsn = dsn
        self.broken: list[str] = []
        """The change requests of the security events."""

    async def send(self, principal: str, sent: Sent, *, why: str | None = WHY, **headers: str) -> httpx.Response:
        method, path, body = sent
        if why is not None:
            headers["Confplane_Break_Glass"] = why
        return await self.inside.send(principal, method, path, body, **headers)

    def requests(self) -> list[tuple[str, str, list[str]]]:
        """The id, the state and the entities of each change request, the oldest first."""
        return rows.fetch(self.dsn, "SELECT id::text, state, entity_ids FROM change_requests ORDER BY id")

    def changes(self) -> list[tuple[str, str, str | None, str | None]]:
        """The id, principal, reason and change request of each change, the oldest first."""
        return rows.fetch(
            self.dsn, "SELECT change_id::text, principal, reason, applies::text FROM intents ORDER BY change_id"
        )

    def events(self) -> int:
        """The number of security events."""
        return len(self.broken)


@pytest_asyncio.fixture(scope="module")
async def world(
    zookeeper: ZooKeeper, postgres: Postgres, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[World]:
    """A service, and a caller that may alter everything and bypass the rules."""
    async with ruled(zookeeper, postgres, tmp_path_factory) as (inside, database):
        await inside.give("User:breaker", role=Role.OPERATOR)
        await inside.give("User:breaker", operation=Operation.BYPASS_RULES, resource=ResourceType.CLUSTER)
        await inside.give("User:some", role=Role.OPERATOR)
        bypass = {"operation": Operation.BYPASS_RULES, "resource": ResourceType.USER}
        await inside.give("User:some", name="alice", **bypass)
        await inside.give("User:no-writer", name="*", **bypass)
        found = World(inside, database.owner_dsn)
        noted = EventLog.broke_glass

        def note(events: EventLog, *facts: Any) -> None:
            found.broken.append(facts[-1])
            noted(events, *facts)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(EventLog, "broke_glass", note)
            yield found


@pytest.mark.parametrize(("name", "row"), ALL)
async def test_a_write_past_the_rules_is_made_and_has_to_be_acknowledged(world: World, name: str, row: Sent) -> None:
    await reset(world.inside)
    changes, requests, events = world.changes(), world.requests(), world.events()
    sent = await filled(world.inside, row)
    answer = await world.send("breaker", sent)
    assert answer.status_code < 300, (name, answer.text)
    [*_, change] = made = world.changes()[len(changes) :]
    [request] = world.requests()[len(requests) :]
    assert [each[1:] for each in made] == [("User:breaker", WHY, request[0])] * len(made), change
    assert request[1] == "open"
    assert world.events() == events + 1


@pytest.mark.parametrize(("name", "row"), ALL)
async def test_nobody_bypasses_the_rules_without_the_grant(world: World, name: str, row: Sent) -> None:
    await reset(world.inside)
    before = world.changes(), world.requests(), world.events()
    answer = await world.send("writer", await filled(world.inside, row))
    assert (answer.status_code, answer.json()["kafkaErrorCode"]) == (403, 31), (name, answer.text)
    assert "BYPASS_RULES" in answer.text
    assert (world.changes(), world.requests(), world.events()) == before


def put(entity: str, rate: float = 7000, **query: str) -> Sent:
    asked = "&".join(f"{name}={text}" for name, text in query.items())
    return "PUT", f"client-quotas/{entity}?{asked}", {"quotas": {"producer_byte_rate": rate}}


@pytest.mark.parametrize(
    ("principal", "sent", "status"),
    [
        ("no-writer", put("user=alice"), 403),
        ("some", put("user=bob"), 403),
        ("breaker", put("user=alice", rate=-1), 400),
        ("breaker", ("PUT", "client-configs/user=alice", {"configs": {"acks": "sometimes"}}), 400),
        ("breaker", ("POST", "client-quotas", {"id": "user=alice", "quotas": {"producer_byte_rate": 9}}), 409),
    ],
)
async def test_nothing_else_is_bypassed(world: World, principal: str, sent: Sent, status: int) -> None:
    await reset(world.inside)
    before = world.changes(), world.requests(), world.events()
    answer = await world.send(principal, sent)
    assert answer.status_code == status, answer.text
    assert (world.changes(), world.requests(), world.events()) == before


async def test_a_frozen_cluster_stays_as_it_is(world: World) -> None:
    await reset(world.inside)
    assert (await world.inside.send("admin", "POST", "/v1/clusters/default:freeze", {"reason": "x"})).status_code == 200
    try:
        changes = world.changes()
        answer = await world.send("breaker", put("user=alice"))
        assert (answer.status_code, answer.json()["outcome"]) == (409, "not_applied"), answer.text
        assert world.changes() == changes
        assert world.requests()[-1][1] == "cancelled"
    finally:
        await world.inside.send("admin", "POST", "/v1/clusters/default:thaw", {"reason": "x"})


async def test_a_grant_on_an_entity_is_enough_for_it(world: World) -> None:
    answer = await world.send("some", put("user=alice", 8000))
    assert answer.status_code < 300, answer.text


async def test_rules_that_deny_are_bypassed(world: World) -> None:
    sent: Sent = ("PUT", "client-quotas/ip=10.0.0.9?view=full", {"quotas": {"connection_creation_rate": 5}})
    assert (await world.send("breaker", sent, why=None)).status_code == 422
    answer = await world.send("breaker", sent)
    assert answer.status_code < 300, answer.text
    assert "Past the rules: rule 'never'" in answer.text
    assert "Past the rules: ip=10.0.0.9 needs approval: rule 'two-people'" in answer.text


async def test_a_manifest_that_rules_deny_is_planned_and_applied(world: World) -> None:
    requests, events = world.requests(), world.events()
    entities = [{"id": "ip=10.0.0.8", "quotas": {"connection_creation_rate": 5}}]
    document = {"apiVersion": "confplane/v1", "kind": "Configs", "entities": entities, "merge": True}
    refused = (await world.send("breaker", ("POST", "manifests:plan", document), why=None)).json()
    assert refused["failed"] == 1
    plan = await world.send("breaker", ("POST", "manifests:plan", document))
    assert plan.status_code == 200, plan.text
    assert "Past the rules: rule 'never'" in plan.text
    assert (world.requests(), world.events()) == (requests, events), "a plan opens nothing"
    sent: Sent = ("POST", "manifests:apply", {**document, "planId": plan.json()["planId"]})
    stale = await world.send("breaker", sent, why=None)
    assert (stale.status_code, "made with break glass" in stale.json()["detail"]) == (409, True), stale.text
    stale = await world.send("breaker", ("POST", "manifests:apply", {**document, "planId": refused["planId"]}))
    assert (stale.status_code, "made without break glass" in stale.json()["detail"]) == (409, True), stale.text
    stale = await world.send("breaker", ("POST", "manifests:apply", {**document, "planId": "0" * 40}))
    assert (stale.status_code, "are not those of the plan" in stale.json()["detail"]) == (409, True), stale.text
    answer = await world.send("breaker", sent)
    assert answer.status_code == 200, answer.text
    assert world.requests()[-1][1:] == ("open", ["ip=10.0.0.8"])
    assert world.events() == events + 1


async def test_a_trial_shows_what_would_be_bypassed_and_opens_nothing(world: World) -> None:
    await reset(world.inside)
    before = world.changes(), world.requests(), world.events()
    answer = await world.send("breaker", put("user=alice", validateOnly="true", view="full"))
    assert answer.status_code == 200, answer.text
    assert "Past the rules: user=alice needs approval" in answer.text
    assert (world.changes(), world.requests(), world.events()) == before


async def test_a_write_within_the_rules_needs_no_acknowledgement(world: World) -> None:
    await reset(world.inside)
    requests, events = world.requests(), world.events()
    assert (await world.send("admin", put("user=alice", 123))).status_code == 200
    assert (await world.send("writer", put("user=alice", 123))).status_code == 200, "it changes nothing"
    assert (world.requests(), world.events()) == (requests, events)
    assert world.changes()[-1][3] is None


@pytest.mark.parametrize("atomic", [False, True])
async def test_a_batch_is_acknowledged_as_a_whole(world: World, *, atomic: bool) -> None:
    requests, events = world.requests(), world.events()
    names = [f"batch-{atomic}-{number}" for number in range(30)]
    entries: list[dict[str, Any]] = [
        {"entity": [{"entityType": "user", "entityName": name}], "ops": [{"key": "producer_byte_rate", "value": 1}]}
        for name in names
    ]
    answer = await world.send("breaker", ("POST", "client-quotas:alter", {"entries": entries, "atomic": atomic}))
    assert answer.status_code == 200, answer.text
    [request] = world.requests()[len(requests) :]
    assert request[1:] == ("open", sorted(f"user={name}" for name in names))
    assert {each[3] for each in world.changes() if each[3] == request[0]} == {request[0]}
    assert world.events() == events + 1


async def test_only_entities_that_the_request_may_alter_have_to_be_acknowledged(world: World) -> None:
    await reset(world.inside)
    for operation in (Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS, Operation.BYPASS_RULES):
        await world.inside.give("User:of-alice", operation=operation, resource=ResourceType.USER, name="alice")
    entities = [("user", "alice"), ("user", "bob"), ("nothing", "x")]
    entries = [
        {"entity": [{"entityType": kind, "entityName": name}], "ops": [{"key": "producer_byte_rate", "value": 4321}]}
        for kind, name in entities
    ]
    answer = await world.send("of-alice", ("POST", "client-quotas:alter", {"entries": entries}))
    assert [each["errorCode"] == 0 for each in answer.json()["entries"]] == [True, False, False], answer.text
    assert world.requests()[-1][1:] == ("open", ["user=alice"])


async def test_a_repeated_request_is_acknowledged_once(world: World) -> None:
    await reset(world.inside)
    refused = await world.send("breaker", put("user=alice"), why=None, Idempotency_Key="bg-1")
    assert refused.status_code == 422
    requests, events = world.requests(), world.events()
    first = await world.send("breaker", put("user=alice"), Idempotency_Key="bg-1")
    again = await world.send("breaker", put("user=alice"), Idempotency_Key="bg-1")
    assert (first.status_code, again.status_code) == (200, 200), first.text
    assert again.headers["idempotency-replayed"] == "true"
    assert len(world.requests()) == len(requests) + 1
    assert world.events() == events + 1


@pytest.mark.parametrize("why", ["", "x" * 1025])
async def test_a_reason_is_needed(world: World, why: str) -> None:
    answer = await world.send("breaker", put("user=alice"), why=why)
    assert answer.status_code == 400, answer.text
    assert "Confplane-Break-Glass" in answer.text


async def test_the_reason_of_the_request_is_kept_beside_that_of_the_emergency(world: World) -> None:
    await reset(world.inside)
    assert (await world.send("breaker", put("user=alice", reason="OPS-1"))).status_code == 200
    assert world.changes()[-1][2] == "OPS-1"
    [[kept]] = rows.fetch(world.dsn, "SELECT content ->> 'reason' FROM change_requests ORDER BY id DESC LIMIT 1")
    assert kept == WHY
