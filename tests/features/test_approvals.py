"""Rules that ask for approvals: given and missing ones, sizes, exempt changes, and commands."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING, Any, Final

import pytest

from confplane.cli.remote.configs import command
from confplane.domain.access.identities import GROUP
from confplane.domain.approvals import Approval, Globs, Requirement
from confplane.domain.entities import Entity
from confplane.domain.errors import PolicyViolationError
from confplane.domain.facets import FacetName, Tree
from confplane.domain.ops import Op, OpType
from confplane.services.changes.edits import Edit, EditResult
from tests.features.test_manifest_runs import HEAD, connected
from tests.support.commands import run_here
from tests.support.people import person
from tests.support.reviewers import token_of
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from pathlib import Path

    from confplane.services.changes.callers import Caller
    from tests.support.replicas import Replica
    from tests.support.service import Service
    from tests.support.world import World

RULES: Final = """\
rules:
  - name: two-people
    match: {names: {user: "held-*"}}
    approvals: {count: 1, from: "Group:leads"}
  - name: large
    match: {facets: client-quotas, names: {user: "many-*"}}
    approvals: {count: 1, min_entities: 3}
  - name: owned
    match: {owners: red, except_principals: "User:red-pipeline"}
    approvals: {count: 1}
  - name: taken
    match: {owners: green, names: {user: "taken-*"}}
    approvals: {count: 1, min_entities: 3}
  - name: closed
    match: {names: {user: "closed-*"}}
    protected: true
"""
RATE: Final = "producer_byte_rate"
HELD: Final = Entity.of(user="held-1")
ON_HELD: Final = frozenset({HELD.id})
LEADS: Final = frozenset({f"{GROUP}leads"})
LEAD: Final = Approval("User:lena", LEADS, ON_HELD)


@pytest.fixture(scope="module")
def service_options(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    path = tmp_path_factory.mktemp("policy") / "policy.yaml"
    path.write_text(RULES)
    return {"cluster": {"policy_file": str(path)}}


@pytest.fixture
async def replica(world: World, tmp_path: Path) -> Replica:
    (tmp_path / "policy.yaml").write_text(RULES)
    return await world.replica(policy_file=tmp_path / "policy.yaml")


async def write(replica: Replica, caller: Caller, *entities: Entity, rate: float = 1, **more: Any) -> list[EditResult]:
    cluster_facet = replica.parts.clusters.get("default").facets[FacetName.CLIENT_QUOTAS]
    edits = [Edit(each, (Op(RATE, OpType.SET, rate),)) for each in entities]
    return await replica.parts.alter.alter(cluster_facet, edits, caller, **more)


def refused(results: list[EditResult]) -> list[bool]:
    assert all(result.error is None or isinstance(result.error, PolicyViolationError) for result in results)
    return [result.error is not None for result in results]


@pytest.mark.parametrize(
    ("approvals", "missing"),
    [
        (None, True),
        ((), True),
        ((Approval("User:bob", entities=ON_HELD), Approval("User:carl", frozenset({"Group:staff"}), ON_HELD)), True),
        ((Approval("User:lena", LEADS, frozenset({"user=held-2"})),), True),
        ((Approval("User:bob", entities=ON_HELD), LEAD), False),
    ],
)
async def test_a_change_is_written_with_the_approvals_that_its_rules_ask_for(
    replica: Replica, approvals: tuple[Approval, ...] | None, *, missing: bool
) -> None:
    author = person("User:alice", approvals=approvals)
    [trial] = await write(replica, author, HELD, validate_only=True)
    assert trial.requirements == (Requirement("two-people", 1, Globs(["Group:leads"])),)
    assert any("needs approval" in warning for warning in trial.warnings) is missing
    [written] = await write(replica, author, HELD)
    assert refused([written]) == [missing]
    assert (replica.store.get(Tree.CONFIG, HELD.id) is None) is missing


async def test_a_value_that_is_there_already_needs_no_approval(replica: Replica) -> None:
    await replica.alter(HELD, producer_byte_rate=1)
    [result] = await write(replica, person("User:alice"), HELD)
    assert (result.error, result.requirements) == (None, ())


async def test_work_of_the_service_and_its_commands_needs_no_approval(replica: Replica) -> None:
    assert (await replica.alter(HELD, producer_byte_rate=1)).error is None


def many(*numbers: int) -> list[Entity]:
    return [Entity.of(user=f"many-{number}") for number in numbers]


@pytest.mark.parametrize("atomic", [False, True])
async def test_a_large_request_needs_approval(replica: Replica, *, atomic: bool) -> None:
    alice = person("User:alice")
    results = await write(replica, alice, *many(1, 2, 3), atomic=atomic)
    assert all(result.error is not None for result in results)
    assert refused(await write(replica, alice, *many(1, 2), atomic=atomic)) == [False, False]


async def test_what_a_request_leaves_as_it_is_does_not_count(replica: Replica) -> None:
    for each in many(1, 2, 3):
        await replica.alter(each, producer_byte_rate=1)
    alice = person("User:alice")
    assert refused(await write(replica, alice, *many(1, 2, 3, 4))) == [False] * 4
    assert refused(await write(replica, alice, *many(1, 4, 2), rate=2)) == [True] * 3


async def test_changes_of_the_last_hour_count_for_their_author(replica: Replica, world: World) -> None:
    alice, bob = person("User:alice"), person("User:bob")
    for number in (1, 2):
        assert refused(await write(replica, alice, *many(number))) == [False]
    assert refused(await write(replica, alice, *many(3))) == [True]
    assert refused(await write(replica, alice, *many(1), rate=2)) == [False], "it counts already"
    assert refused(await write(replica, alice, Entity.of(user="other"))) == [False], "the rule does not apply to it"
    assert refused(await write(replica, bob, *many(3))) == [False]
    [trial] = await write(replica, alice, *many(4), validate_only=True)
    assert [each.rule for each in trial.requirements] == ["large"]
    world.age("intents", 3_700)
    assert refused(await write(replica, alice, *many(4))) == [False]


async def test_a_request_of_several_parts_counts_as_a_whole(replica: Replica) -> None:
    altered = frozenset((FacetName.CLIENT_QUOTAS.value, each) for each in many(1, 2, 3))
    assert refused(await write(replica, person("User:alice", altered=altered), *many(1))) == [True]


def test_a_change_of_a_key_of_an_owner_needs_approval(service: Service) -> None:
    with connected(service) as http:

        def put(entity: str, **values: float) -> tuple[int, int]:
            answer = http.put(f"/client-quotas/{entity}", json={"quotas": values})
            return answer.status_code, answer.json().get("kafkaErrorCode", 0)

        def owners() -> Any:
            shown = http.get("/client-quotas/user=owned", params={"view": "full"}).json()
            return shown["status"].get("owners")

        body = {**HEAD, "owner": "red", "entities": [{"id": "user=owned", "quotas": {RATE: 5}}]}
        plan = http.post("/manifests:plan", json=body).json()
        answer = http.post("/manifests:apply", json={**body, "planId": plan["planId"]})
        assert answer.status_code == 200, answer.text
        wait_for(lambda: owners() == {RATE: "red"})
        refused = (422, 44)
        assert put("user=owned", **{RATE: 6}) == refused
        assert put("user=owned", consumer_byte_rate=1) == refused, "it removes the key of the owner"
        assert put("user=owned", **{RATE: 5}, consumer_byte_rate=1) == (200, 0)
        assert put("user=unowned", **{RATE: 6}) == (200, 0)
        assert http.delete("/client-quotas/user=owned").json()["kafkaErrorCode"] == 44
        # A new apply of the owner needs it as well, unless the rule leaves its pipeline out.
        changed = {**body, "entities": [{"id": "user=owned", "quotas": {RATE: 7}}]}
        plan = http.post("/manifests:plan", json=changed).json()
        again = http.post("/manifests:apply", json={**changed, "planId": plan["planId"]})
        assert "needs approval" in again.text
        # Neither does another owner get the key without it, although no value changes.
        key = {"id": "user=owned", "key": RATE}
        same = {"id": "user=owned", "quotas": {RATE: 5, "consumer_byte_rate": 1}}
        thief = {**body, "owner": "blue", "force": [key], "entities": [same]}
        plan = http.post("/manifests:plan", json=thief).json()
        taken = http.post("/manifests:apply", json={**thief, "planId": plan["planId"]})
        assert "needs approval" in taken.text
        assert owners() == {RATE: "red"}


def test_keys_that_are_only_taken_over_count_for_the_size_of_a_change(service: Service) -> None:
    users = [f"user=taken-{number}" for number in range(3)]
    with connected(service) as http:
        grant = {"principal": "User:green", "operation": "ALTER", "resourceType": "manifests", "name": "green"}
        assert http.post(f"{service.url}/v1/grants", json=grant).is_success
        green = token_of(service, "green", ("ALTER_CONFIGS",))
        body = {**HEAD, "owner": "green", "entities": [{"id": user, "quotas": {RATE: 5}} for user in users]}
        others = {"Authorization": f"Bearer {green}"}
        plan = http.post("/manifests:plan", json=body, headers=others).json()
        done = http.post("/manifests:apply", json={**body, "planId": plan["planId"]}, headers=others)
        assert done.status_code == 200, done.text

        def owners(user: str) -> Any:
            return http.get(f"/client-quotas/{user}", params={"view": "full"}).json()["status"].get("owners")

        wait_for(lambda: all(owners(user) == {RATE: "green"} for user in users))
        blue = {**body, "owner": "blue", "force": [{"id": user, "key": RATE} for user in users]}
        plan = http.post("/manifests:plan", json=blue).json()
        needed = [any("rule 'taken' asks" in text for text in each["warnings"]) for each in plan["changes"]]
        assert needed == [True] * 3, plan
        taken = http.post("/manifests:apply", json={**blue, "planId": plan["planId"]}).json()
        assert (taken.get("kafkaErrorCode"), taken.get("outcome")) == (44, "not_applied"), taken
        few = {name: part[:2] if isinstance(part, list) else part for name, part in blue.items()}
        assert "rule 'taken'" not in http.post("/manifests:plan", json=few).text


@pytest.fixture
def _commands(service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "token").write_text(service.token)
    monkeypatch.setenv("CONFPLANE_URL", service.url)
    monkeypatch.setenv("CONFPLANE_TOKEN_FILE", str(tmp_path / "token"))


@pytest.mark.usefixtures("_commands")
def test_commands_say_how_to_propose_a_change(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.run(shlex.split("--alter --user held-2 --add-config producer_byte_rate=1")) != 0
    assert "--propose" in capsys.readouterr().err
    dump = tmp_path / "dump.jsonl"
    assert run_here("set", "user=loaded", f"{RATE}=1").code == 0
    exported = run_here("export")
    assert exported.code == 0, exported
    dump.write_text(exported.out.replace("loaded", "held-2"))
    for line in (["load", str(dump)], ["set", "user=held-2", f"{RATE}=1"]):
        said = run_here(*line)
        assert said.code != 0, said
        assert "needs approval: rule 'two-people' asks for an approval of Group:leads" in said.err + said.out


@pytest.mark.usefixtures("_commands")
def test_commands_break_the_glass(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    glass = ["--break-glass", "an outage"]
    assert command.run([*shlex.split("--alter --user held-3 --add-config producer_byte_rate=1"), *glass]) == 0
    assert "Past the rules" in capsys.readouterr().err
    assert command.run([*shlex.split("--describe --user held-3"), *glass]) != 0
    assert "--break-glass is only for --alter" in capsys.readouterr().err
    dump = tmp_path / "dump.jsonl"
    dump.write_text(run_here("export").out.replace("held-3", "held-4"))
    for line in (
        ["set", "user=held-3", f"{RATE}=2"],
        ["delete", "user=held-3", RATE],
        ["load", str(dump)],
    ):
        said = run_here(*line, *glass)
        assert said.code == 0, said
    closed = tmp_path / "closed.yaml"
    for rate, line in enumerate((["load", "--validate-only"], ["load"], ["apply", "--yes"]), 1):
        closed.write_text(json.dumps({**HEAD, "entities": [{"id": "user=closed-1", "quotas": {RATE: rate}}]}))
        line.append(str(closed))
        assert "rule 'closed'" in run_here(*line).err
        said = run_here(*line, *glass)
        assert (said.code, "Past the rules: rule 'closed'" in said.err) == (0, True), said
    said = run_here("audit", "--json", "--entity", "user=closed-1")
    assert [line.count('"reason": "an outage"') for line in said.out.splitlines()] == [1, 1], said
    said = run_here("audit", "--json", "--entity", "user=held-4")
    assert ("user=held-4" in said.out, '"reason": "an outage"' in said.out) == (True, True), said
