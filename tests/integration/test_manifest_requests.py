"""Change requests with a manifest, on real stores: planned, approved, and applied as a run of the plan."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import httpx
import pytest
from uuid_utils.compat import uuid7

from confplane.api.change_requests.render import whole
from confplane.domain.access.operations import Operation, ResourceType
from confplane.domain.change_requests import RequestState
from confplane.domain.entities import Entity
from confplane.domain.errors import (
    ForbiddenError,
    InvalidRequestError,
    OwnerConflictError,
    RequestStateError,
    StalePlanError,
    UnavailableError,
)
from confplane.domain.etags import Precondition
from confplane.domain.facets import FacetName
from confplane.domain.manifests import ManifestScope
from confplane.policy.loading import read_policy
from confplane.services.changes.alter import AlterService
from confplane.services.changes.callers import Caller
from confplane.services.plans.planned import PlanReference
from confplane.services.ports.change_requests import RequestApplication, RequestEvent
from confplane.services.requests.proposals import RequestTerms
from confplane.services.requests.reader import visible_differences
from tests.audit.rows import fetch
from tests.integration.test_change_requests import BOB, DEV, OPS, SRE, started
from tests.support.access_world import ADMINISTRATOR, allow, deny
from tests.support.reverting import now
from tests.support.reviewers import PROPOSES, REVIEWS, token_of
from tests.support.stores import ALICE, soon

if TYPE_CHECKING:
    from pathlib import Path

    from confplane.services.ports.change_requests import ChangeRequest
    from tests.support.change_requests import Requests
    from tests.support.service import Service
    from tests.support.world import World

BASE: Final = "/v1/clusters/default"
CAROL: Final = Entity.of(user="carol")


async def test_a_manifest_is_applied_as_the_plan_that_was_approved(world: World) -> None:
    one = await started(world)
    await one.replica.alter(ALICE, producer_byte_rate=1, consumer_byte_rate=1)
    await one.replica.alter(CAROL, producer_byte_rate=1)
    manifest = one.manifest(
        one.entry(ALICE, producer_byte_rate=2),
        one.entry(BOB, request_percentage=5),
        scope=ManifestScope.parse("user:"),
        prune=True,
        max_deletes=1,
    )
    tried = await one.propose_manifest(DEV, manifest, validate_only=True)
    request = await one.propose_manifest(DEV, manifest, expires_at=tried.expires_at)
    assert (request.digest, request.draft) == (tried.digest, tried.draft)
    assert request.entity_ids == (ALICE.id, BOB.id, CAROL.id)
    shown = whole(one.cluster, request, ())
    assert {each["id"]: [part["after"] for part in each["diff"]] for each in shown["changes"]} == {
        ALICE.id: [None, 2],
        BOB.id: [5],
        CAROL.id: [None],
    }
    assert (await one.approve(request, OPS)).state is RequestState.APPROVED
    applied = await one.apply(request, DEV)
    assert applied == await one.found(request)
    assert applied.state is RequestState.APPLIED
    assert (await now(one.replica, ALICE), await now(one.replica, BOB), await now(one.replica, CAROL)) == (
        {"producer_byte_rate": "2"},
        {"request_percentage": "5.0"},
        {},
    )
    changes = await one.changes(request)
    assert len(changes) == 3
    assert {each.intent.request_id for each in changes} == {f"request-{request.id}"}
    assert {each.intent.principal for each in changes} == {"User:dev"}
    assert await one.apply(request, DEV) == applied
    assert await one.actions(request) == ["open", "approve", "begin", "finish"]


async def test_a_state_that_changed_opens_the_request_again(world: World) -> None:
    one = await started(world)
    await one.replica.alter(ALICE, producer_byte_rate=2)
    manifest = one.manifest(one.entry(ALICE, producer_byte_rate=2), one.entry(BOB, request_percentage=5))
    request = await one.propose_manifest(DEV, manifest)
    await one.approve(request, OPS)
    await one.replica.alter(ALICE, producer_byte_rate=7)  # the plan leaves it as it was, and rests on it
    with pytest.raises(RequestStateError):
        await one.apply(request, DEV)
    opened = await one.found(request)
    assert (opened.state, opened.approvals) == (RequestState.OPEN, ())
    assert [each["entity"] for each in opened.differences] == [ALICE.id]
    await one.access.give(allow("User:reader", Operation.DESCRIBE_CONFIGS, ResourceType.USER, "bob"))
    reader = one.caller(replace(DEV, principal="User:reader")).access
    read = await one.service.reader.find("default", request.id, reader)
    assert (visible_differences(one.caller(DEV).access, read), visible_differences(reader, read)) == (
        opened.differences,
        (),
    )
    assert await now(one.replica, BOB) == {}
    with pytest.raises(RequestStateError):
        await one.approve(opened, OPS)
    revised = await one.service.proposals.revise(one.cluster, request.id, None, one.caller(DEV), Precondition())
    assert (revised.entity_ids, revised.draft["document"] != request.draft["document"]) == ((ALICE.id, BOB.id), True)
    await one.approve(revised, OPS)
    assert (await one.apply(revised, DEV)).state is RequestState.APPLIED
    assert await now(one.replica, ALICE) == {"producer_byte_rate": "2"}


async def test_a_plan_that_was_not_seen_is_not_proposed(world: World) -> None:
    one = await started(world)
    manifest = one.manifest(one.entry(ALICE, producer_byte_rate=2))
    seen = await one.propose_manifest(DEV, manifest, validate_only=True)
    kept = manifest._replace(plan_id=seen.draft["plan"]["id"])
    assert (await one.propose_manifest(DEV, kept, validate_only=True)).draft == seen.draft
    await one.replica.alter(ALICE, producer_byte_rate=1)
    with pytest.raises(StalePlanError):
        await one.propose_manifest(DEV, kept)


async def test_a_manifest_that_changes_nothing_or_too_much_or_lacks_a_grant_is_not_proposed(world: World) -> None:
    one = await started(world)
    await one.replica.alter(ALICE, producer_byte_rate=1)
    with pytest.raises(InvalidRequestError, match="changes nothing"):
        await one.propose_manifest(DEV, one.manifest(one.entry(ALICE, producer_byte_rate=1)))
    many = one.manifest(*[one.entry(Entity.of(user=f"m-{each}"), request_percentage=5) for each in range(1_001)])
    with pytest.raises(InvalidRequestError, match="1001 changes"):
        await one.propose_manifest(DEV, many)
    with pytest.raises(InvalidRequestError, match="entities"):
        await one.propose_manifest(DEV, many._replace(document=[*many.document] * 10))
    reader = replace(DEV, principal="User:reader")
    await one.access.give(allow("User:reader", Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER))
    with pytest.raises(ForbiddenError):
        await one.propose_manifest(reader, one.manifest(one.entry(ALICE, producer_byte_rate=2)))


async def test_keys_of_another_owner_are_taken_over_with_the_approval_of_who_may_do_that(world: World) -> None:
    one = await started(world)
    await one.replica.record()  # owners are known only where all changes are recorded
    whole_cluster = (Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS)
    red, blue, both = (replace(OPS, principal=f"User:{name}") for name in ("red", "blue", "both"))
    for who in (red, blue, both):
        for operation in whole_cluster:
            await one.access.give(allow(who.principal, operation, ResourceType.CLUSTER))
    for who, operation, owner in (
        (red, Operation.ALTER, "red"),
        (blue, Operation.ALTER, "blue"),
        (both, Operation.ALTER, "blue"),
        (both, Operation.TAKE_OVER, "red"),
    ):
        await one.access.give(allow(who.principal, operation, ResourceType.MANIFESTS, owner))
    entry = one.entry(ALICE, producer_byte_rate=2)
    first = await one.approve(await one.propose_manifest(DEV, one.manifest(entry, owner="red")), red)
    assert (await one.apply(first, DEV)).state is RequestState.APPLIED
    await one.replica.record()
    entry = one.entry(ALICE, producer_byte_rate=3)
    with pytest.raises(OwnerConflictError, match="red"):
        await one.propose_manifest(DEV, one.manifest(entry, owner="blue"))
    forced = one.manifest(entry, owner="blue", forced=frozenset({(ALICE.id, "producer_byte_rate")}))
    reader = replace(DEV, principal="User:reader")
    await one.access.give(allow("User:reader", Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER))
    with pytest.raises(ForbiddenError):
        await one.propose_manifest(reader, forced)
    request = await one.propose_manifest(DEV, forced)
    [change] = whole(one.cluster, request, ())["changes"]
    assert change["claimed"] == [{"key": "producer_byte_rate", "owner": "red"}]
    # Neither who may write for one of the owners, nor both of them together, may take keys over.
    for who in (red, blue):
        assert (await one.approve(request, who)).state is RequestState.OPEN
    with pytest.raises(RequestStateError):
        await one.apply(request, DEV)
    assert (await one.approve(request, both)).state is RequestState.APPROVED
    # A grant that was taken away in between does not count.
    await one.access.give(deny("User:both", Operation.TAKE_OVER, ResourceType.MANIFESTS, "red"))
    with pytest.raises(RequestStateError, match="red"):
        await one.apply(request, DEV)
    opened = await one.found(request)
    assert (opened.state, await now(one.replica, ALICE)) == (RequestState.OPEN, {"producer_byte_rate": "2"})
    for operation, owner in ((Operation.ALTER, "blue"), (Operation.TAKE_OVER, "red")):
        await one.access.give(allow("User:sre", operation, ResourceType.MANIFESTS, owner))
    assert (await one.approve(opened, SRE)).state is RequestState.APPROVED
    assert (await one.apply(request, DEV)).state is RequestState.APPLIED
    await one.replica.record()
    entry = one.entry(ALICE, producer_byte_rate=4)
    taken = await one.propose_manifest(DEV, one.manifest(entry, owner="blue"), validate_only=True)
    assert "claimed" not in whole(one.cluster, taken, ())["changes"][0]


async def test_passwords_of_a_manifest_are_proposed_and_supplied_again_by_those_who_may_set_them(
    world: World, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text("encoder")
    one = await started(world, password_encoder={"secret_file": str(tmp_path / "secret")})
    broker, key, planted = Entity.of(broker="1"), "listener.name.internal.ssl.key.password", "hunter2-pl4nted"
    manifest = one.manifest(
        one.entry(broker, FacetName.CONFIGS, **{key: planted}), one.entry(BOB, request_percentage=5)
    )
    request = await one.approve(await one.propose_manifest(SRE, manifest), OPS)
    for supplied in ({}, {key: "another-pl4nted"}):
        with pytest.raises(InvalidRequestError, match=key) as refused:
            await one.apply(request, SRE, **supplied)
        assert "pl4nted" not in refused.value.detail
    assert await one.found(request) == request
    assert (await one.changes(request), await now(one.replica, BOB)) == ([], {})
    assert (await one.apply(request, SRE, **{key: planted})).state is RequestState.APPLIED
    # A right and a wrong guess are refused alike.
    for guess in (planted, "another-pl4nted"):
        guessed = one.manifest(one.entry(broker, FacetName.CONFIGS, **{key: guess}))
        with pytest.raises(ForbiddenError, match="ALTER_CONFIGS"):
            await one.propose_manifest(DEV, guessed, validate_only=True)
    assert await now(one.replica, BOB) == {"request_percentage": "5.0"}
    tables = [
        name
        for (name,) in fetch(world.database.owner_dsn, "SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
    ]
    assert {"change_requests", "change_request_revisions", "intents", "manifest_runs"} <= {*tables}
    for table in tables:
        rows = fetch(world.database.owner_dsn, f"SELECT to_jsonb(x)::text FROM {table} AS x")  # noqa: S608 - of this test
        assert "pl4nted" not in repr(rows), table


async def interrupt(one: Requests, request: ChangeRequest, *written: Entity) -> None:
    """Leave an approved request behind as a process does that is gone once it has written some entities."""
    begun = replace(
        request,
        state=RequestState.APPLYING,
        version=request.version + 1,
        application=RequestApplication("a-process-that-is-gone", one.now()),
    )
    assert await one.store.write(begun, RequestEvent(uuid7(), "begin", one.now(), state=RequestState.APPLYING))
    for each in written:
        caller = replace(Caller.operator("User:dev", "127.0.0.1", "run", soon(30)), applies=request.id)
        await one.replica.parts.alter.alter_entries([one.entry(each, producer_byte_rate=2)], caller)


@pytest.mark.parametrize(
    ("written", "state"), [([], "approved"), ([ALICE], "partly-applied"), ([ALICE, BOB], "applied")]
)
async def test_a_run_whose_process_is_gone_is_found_as_far_as_it_came(
    world: World, written: list[Entity], state: str
) -> None:
    one = await started(world)
    manifest = one.manifest(one.entry(ALICE, producer_byte_rate=2), one.entry(BOB, producer_byte_rate=2))
    request = await one.approve(await one.propose_manifest(DEV, manifest), OPS)
    await interrupt(one, request, *written)
    await one.scheduler.round()
    found = await one.found(request)
    assert (found.state, found.change_id is not None) == (state, bool(written))
    if state != "partly-applied":
        return
    listed = await one.service.reader.page("default", one.caller(DEV).access, state=found.state, before=None, size=10)
    assert [each.id for each in listed.requests] == [request.id]
    assert (await one.service.reader.events(request))[-1].state is RequestState.PARTLY_APPLIED
    with pytest.raises(StalePlanError):
        await one.apply(request, DEV)  # no run is stored that could be continued
    assert await one.state(request) is RequestState.PARTLY_APPLIED
    for action in (one.service.reviews.cancel, one.service.reviews.reject):
        with pytest.raises(RequestStateError):
            await action(one.cluster, request.id, "no", one.caller(ADMINISTRATOR))


@pytest.mark.parametrize("owner", [None, "red"])
async def test_a_run_that_was_begun_without_the_request_is_not_continued_by_it(
    world: World, monkeypatch: pytest.MonkeyPatch, owner: str | None
) -> None:
    one = await started(world)
    await one.replica.record()  # owners are known only where all changes are recorded
    await one.access.give(allow("User:ops", Operation.ALTER, ResourceType.MANIFESTS, "red"))
    manifest = one.manifest(one.entry(ALICE, producer_byte_rate=2), one.entry(BOB, producer_byte_rate=2), owner=owner)
    request = await one.approve(await one.propose_manifest(DEV, manifest), OPS)
    planned, alter = PlanReference(request.draft["plan"]["id"]), AlterService.alter_entries

    async def unavailable(service: AlterService, entries: Any, caller: Caller, **options: Any) -> Any:
        if options.get("validate_only"):
            return await alter(service, entries, caller, **options)
        raise UnavailableError("ZooKeeper is away")

    with monkeypatch.context() as patch:
        patch.setattr(AlterService, "alter_entries", unavailable)
        with pytest.raises(UnavailableError):  # its run is stored, and nothing is written
            await one.applies.apply(one.cluster, *manifest[:2], planned, one.caller(OPS), seconds=30)
    assert (await one.apply(request, DEV)).state is RequestState.APPLIED
    assert {each.intent.request_id for each in await one.changes(request)} == {f"request-{request.id}"}
    await one.replica.record()
    revert = await one.service.reversals.revert(one.cluster, request.id, RequestTerms(), one.caller(DEV))
    await one.approve(revert, OPS)
    assert (await one.apply(revert, DEV)).state is RequestState.APPLIED
    assert (await now(one.replica, ALICE), await now(one.replica, BOB)) == ({}, {})


async def test_a_revert_leaves_changes_alone_that_only_have_the_request_id_of_the_run(world: World) -> None:
    one = await started(world)
    manifest = one.manifest(one.entry(ALICE, producer_byte_rate=2))
    request = await one.approve(await one.propose_manifest(DEV, manifest), OPS)
    await one.apply(request, DEV)
    forging = Caller.operator("User:mallory", "127.0.0.1", f"request-{request.id}", soon(30))
    await one.replica.parts.alter.alter_entries([one.entry(CAROL, producer_byte_rate=2)], forging)
    revert = await one.service.reversals.revert(one.cluster, request.id, RequestTerms(), one.caller(DEV))
    assert (revert.entity_ids, revert.reverts_partly) == ((ALICE.id,), False)
    await one.approve(revert, OPS)
    await one.apply(revert, DEV)
    assert (await now(one.replica, ALICE), await now(one.replica, CAROL)) == ({}, {"producer_byte_rate": "2"})


async def test_other_policies_with_the_same_result_leave_the_approvals_of_a_manifest(
    world: World, tmp_path: Path
) -> None:
    path = tmp_path / "policy.yaml"
    rule = "rules: [{name: leads, match: {names: {user: alice}}, approvals: {count: 1}}]"
    path.write_text(rule)
    one = await started(world, policy_file=path)

    def rules(text: str) -> None:
        path.write_text(text)
        one.replica.parts.policies["default"].replace_rules(read_policy(path))

    manifest = one.manifest(one.entry(ALICE, producer_byte_rate=2), one.entry(BOB, producer_byte_rate=2))
    request = await one.propose_manifest(DEV, manifest)
    rules(rule.replace("leads", "others"))
    approved = await one.approve(request, OPS)
    assert (approved.state, [each.rule for each in approved.requirements[ALICE.id]]) == ("approved", ["others"])
    rules(rule.replace("count: 1", "count: 2"))
    with pytest.raises(RequestStateError, match="2 approvals"):
        await one.apply(request, DEV)
    opened = await one.found(request)
    assert (opened.state, len(opened.approvals)) == (RequestState.OPEN, 1)
    await one.approve(opened, SRE)
    rules(rule.replace("alice", "nobody"))
    assert (await one.apply(request, DEV)).state is RequestState.APPLIED
    assert await now(one.replica, BOB) == {"producer_byte_rate": "2"}


class People:
    """A developer, an operator and an administrator of a service."""

    def __init__(self, service: Service, http: httpx.AsyncClient) -> None:
        self.tokens = {"dev": token_of(service, "dev", PROPOSES), "ops": token_of(service, "ops", REVIEWS)}
        self.tokens["admin"] = service.token
        self.http = http

    async def send(self, who: str, method: str, path: str, body: Any = None, **query: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.tokens[who]}"}
        return await self.http.request(method, path, json=body, headers=headers, params=query)

    async def read(self, path: str, **query: Any) -> dict[str, Any]:
        found: dict[str, Any] = (await self.send("admin", "GET", f"{BASE}{path}", **query)).json()
        return found

    async def plan(self, body: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = (await self.send("dev", "POST", f"{BASE}/manifests:plan", body)).json()
        return found

    async def propose(self, manifest: dict[str, Any]) -> httpx.Response:
        return await self.send("dev", "POST", f"{BASE}/change-requests", {"manifest": manifest})

    async def step(self, who: str, request: dict[str, Any], verb: str, **body: Any) -> dict[str, Any]:
        answer = await self.send(who, "POST", f"{BASE}/change-requests/{request['id']}:{verb}", body)
        assert answer.is_success, answer.text
        found: dict[str, Any] = answer.json()
        return found

    async def approve(self, request: dict[str, Any]) -> str:
        """Approve a request, and return its state."""
        return str((await self.step("ops", request, "approve", digest=request["digest"]))["state"])

    async def put(self, entity_id: str, rate: int) -> None:
        path = f"{BASE}/client-quotas/{entity_id}"
        assert (await self.send("ops", "PUT", path, {"quotas": {"producer_byte_rate": rate}})).is_success


async def test_a_run_that_ends_early_leaves_the_request_partly_applied_and_is_continued(world: World) -> None:
    ids = [f"user=owned-{number:02}" for number in range(15)]
    one_batch = {"confplane.services.plans.apply._BATCH": 10, "confplane.services.plans.apply._RESERVE": 1e9}
    entities = [{"id": each, "quotas": {"producer_byte_rate": 5}} for each in ids]
    document = {"apiVersion": "confplane/v1", "kind": "Configs", "owner": "payments", "labels": {"stage": "test"}}
    async with (
        world.service(constants=one_batch) as service,
        httpx.AsyncClient(base_url=service.url, trust_env=False, timeout=60) as http,
    ):
        people = People(service, http)
        plan = await people.plan({**document, "entities": entities})
        made = await people.propose({**document, "entities": entities, "planId": plan["planId"]})
        assert made.status_code == 201, made.text
        request = made.json()
        manifest, run = request["manifest"], request["manifest"]["runId"]
        assert (manifest["planId"], manifest["owner"], manifest["labels"]) == (
            plan["planId"],
            "payments",
            {"stage": "test"},
        )
        assert request["changes"][0]["claimed"] == [{"key": "producer_byte_rate", "owner": None}]
        # An approver has to be allowed to write for the owner.
        assert await people.approve(request) == "open"
        grant = {"principal": "User:ops", "operation": "ALTER", "resourceType": "manifests", "name": "payments"}
        granted = await people.send("admin", "POST", "/v1/grants", grant)
        assert granted.is_success, granted.text
        assert await people.approve(request) == "approved"
        # Each call sends one batch here.
        first = await people.step("dev", request, "apply")
        assert (first["state"], "before 5 entities" in first["error"]) == ("partly-applied", True)
        await people.step("dev", request, "comment", comment="why?")
        applied = await people.step("dev", request, "apply")
        assert (applied["state"], applied["error"]) == ("applied", None)
        assert [each["state"] for each in applied["events"] if each["action"] == "comment"] == ["partly-applied"]
        trail = (await people.read("/audit", requestId=run, pageSize=100))["items"]
        assert {(each["applies"], each["principal"]) for each in trail} == {(request["id"], "User:dev")}
        assert (await people.plan({**document, "entities": entities}))["changes"] == []
        owned = await people.read(f"/client-quotas/{ids[0]}", view="full")
        assert owned["status"]["owners"] == {"producer_byte_rate": "payments"}
        assert len(trail) == len(ids)
        back = await people.step("dev", request, "revert")
        assert await people.approve(back) == "approved"
        assert (await people.step("dev", back, "apply"))["state"] == "applied"
        assert (await people.read(f"/change-requests/{request['id']}"))["state"] == "reverted"


async def test_an_entity_that_was_changed_during_a_run_ends_it(world: World) -> None:
    ids = [f"user=changed-{number:02}" for number in range(15)]
    one_batch = {"confplane.services.plans.apply._BATCH": 10, "confplane.services.plans.apply._RESERVE": 1e9}
    entities = [{"id": each, "quotas": {"producer_byte_rate": 5}} for each in ids]
    async with (
        world.service(constants=one_batch) as service,
        httpx.AsyncClient(base_url=service.url, trust_env=False, timeout=60) as http,
    ):
        people = People(service, http)
        request = (await people.propose({"apiVersion": "confplane/v1", "kind": "Configs", "entities": entities})).json()
        assert await people.approve(request) == "approved"
        assert (await people.step("dev", request, "apply"))["state"] == "partly-applied"
        await people.put(ids[14], 9)
        second = await people.step("dev", request, "apply")
        assert (second["state"], ids[14] in second["error"]) == ("partly-applied", True)
        refused = await people.send("dev", "POST", f"{BASE}/change-requests/{request['id']}:apply", {})
        assert (refused.status_code, ids[14] in refused.text) == (409, True)
        await people.put(ids[14], 5)  # as the document says
        applied = await people.step("dev", request, "apply")
        assert (applied["state"], applied["error"]) == ("applied", None)


async def test_a_refused_manifest_is_pointed_into(world: World) -> None:
    head = {"apiVersion": "confplane/v1", "kind": "Configs"}
    wrong = {**head, "entities": [{"id": "user=a", "quotas": {"no_such_key": 1}}]}
    seen: dict[str, Any] = {**head, "entities": [{"id": "user=a", "quotas": {"producer_byte_rate": 1}}]}
    async with (
        world.service() as service,
        httpx.AsyncClient(base_url=service.url, trust_env=False, timeout=60) as http,
    ):
        people = People(service, http)
        refused = await people.propose(wrong)
        assert [each["pointer"] for each in refused.json()["errors"]] == ["/manifest/entities/0/quotas/no_such_key"]
        stale = await people.propose({**seen, "atomic": True, "planId": (await people.plan(seen))["planId"]})
        assert (stale.status_code, stale.json()["errors"][0]["pointer"]) == (409, "/manifest/planId"), stale.text
        twice = await people.propose({**seen, "entities": [seen["entities"][0]] * 2})
        assert [each["pointer"] for each in twice.json()["errors"]] == ["/manifest/entities/0/id"], twice.text
        edits = [{"facet": "client-quotas", "id": "user=a", "ops": [{"key": "producer_byte_rate", "value": 1}]}] * 2
        repeated = await people.send("dev", "POST", f"{BASE}/change-requests", {"edits": edits})
        assert [each["pointer"] for each in repeated.json()["errors"]] == ["/edits/1/id"]
        both = {"manifest": seen, "edits": [{"facet": "client-quotas", "id": "user=a", "ops": []}]}
        assert (await people.send("dev", "POST", f"{BASE}/change-requests", both)).status_code == 400
