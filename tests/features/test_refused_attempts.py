"""Refused writes are recorded with who, what and why, and without values; other failures are not."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import httpx
import pytest
import pytest_asyncio
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from confplane.domain.access.operations import Operation, PatternType, ResourceType
from tests.audit.rows import fetch
from tests.support.commands import run_here
from tests.support.inside import Inside, running_inside
from tests.support.proxy import proxy
from tests.support.waiting import until, wait_for

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.support.servers import Database
    from tests.support.service import Service

RULES: Final = """\
rules:
  - name: no-huge-quota
    match: {facets: [client-quotas]}
    ranges: {producer_byte_rate: {max: 1048576}}
"""
HUGE: Final = 987_654_321
QUOTA: Final = "producer_byte_rate"
PUT_QUOTAS: Final = "putClientQuotas"


def alter(*names: str, value: float = HUGE, **more: Any) -> dict[str, Any]:
    entries = [
        {"entity": [{"entityType": "user", "entityName": name}], "ops": [{"key": QUOTA, "value": value}]}
        for name in names
    ]
    return {"entries": entries, **more}


@asynccontextmanager
async def ruled(chroot: str, database: Database, directory: Path) -> AsyncIterator[Inside]:
    rules = directory / "rules.yaml"
    rules.write_text(RULES)
    async with running_inside(chroot, database, directory, policy_file=str(rules)) as running:
        yield running


@pytest_asyncio.fixture
async def inside(chroot: str, migrated: Database, tmp_path: Path) -> AsyncIterator[Inside]:
    async with ruled(chroot, migrated, tmp_path) as running:
        yield running


@pytest_asyncio.fixture(scope="module")
async def shared(
    module_chroot: str, module_database: Database, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Inside]:
    """One service for tests that tell attempts apart by the ids of their requests."""
    async with ruled(module_chroot, module_database, tmp_path_factory.mktemp("shared")) as running:
        yield running


async def refused(inside: Inside, reader: str = "admin", **filters: Any) -> list[dict[str, Any]]:
    query = httpx.QueryParams({"result": "refused", **filters})
    answer = await inside.send(reader, "GET", f"audit?{query}")
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["items"]
    return found


async def recorded(inside: Inside, request_id: str, number: int = 1) -> list[tuple[Any, ...]]:
    """Wait for the attempts of a request, and return what was refused and why, in order."""
    found = await until(lambda: _of_request(inside, request_id, number))
    assert {each["requestId"] for each in found} == {request_id}
    rows = [(each["operation"], each["entity"], each["keys"], each["errorCode"], each["problem"]) for each in found]
    return sorted(rows, key=lambda row: (row[1] is None, row[1]))


async def _of_request(inside: Inside, request_id: str, number: int) -> list[dict[str, Any]] | None:
    found = await refused(inside, requestId=request_id)
    assert len(found) <= number
    return found if len(found) == number else None


ALICE: Final = "user=alice"
POLICY: Final = (44, "/problems/policy-violation")
INVALID: Final = (42, "/problems/invalid-request")


@pytest.mark.parametrize(
    ("method", "path", "body", "expected"),
    [
        pytest.param(
            "PUT", "client-quotas/user=alice", {"quotas": {QUOTA: HUGE}},
            [(PUT_QUOTAS, ALICE, [QUOTA], *POLICY)], id="policy",
        ),
        pytest.param(
            "POST", "client-quotas", {"id": "user=alice", "quotas": {QUOTA: HUGE}},
            [("createClientQuotas", ALICE, [QUOTA], *POLICY)], id="create",
        ),
        pytest.param(
            "PUT", "client-quotas/user=alice", {"quotas": {QUOTA: -HUGE}},
            [(PUT_QUOTAS, ALICE, [QUOTA], *INVALID)], id="value",
        ),
        pytest.param(
            "PUT", "client-quotas/user=alice", {"quotas": {"no~such/key": 1}},
            [(PUT_QUOTAS, ALICE, ["no~such/key"], *INVALID)], id="key",
        ),
        pytest.param(
            "PUT", "client-quotas/user=alice", {"quotas": 7},
            [(PUT_QUOTAS, ALICE, [], *INVALID)], id="body",
        ),
        pytest.param(
            "PUT", "client-quotas/user=%61%6C", {"quotas": 7},
            [(PUT_QUOTAS, "user=al", [], 42, "/problems/invalid-entity-id")], id="escaped",
        ),
        pytest.param(
            "DELETE", "client-quotas/nonsense=alice", None,
            [("deleteClientQuotas", None, [], 42, "/problems/invalid-entity-id")], id="id",
        ),
        pytest.param(
            "PUT", f"client-quotas/user={'n' * 4_000}", {"quotas": {QUOTA: 1}},
            [(PUT_QUOTAS, f"user={'n' * 251}…", [QUOTA], *INVALID)], id="long",
        ),
        pytest.param(
            "POST", "client-quotas:alter",
            {"entries": [
                *alter("alice", "bob")["entries"], *alter("fine", value=7)["entries"],
                {"entity": [{"entityType": "nonsense", "entityName": "x"}], "ops": []},
            ]},
            [
                ("alterClientQuotas", ALICE, [QUOTA], *POLICY),
                ("alterClientQuotas", "user=bob", [QUOTA], *POLICY),
                ("alterClientQuotas", None, [], *INVALID),
            ],
            id="bulk",
        ),
        pytest.param(
            "POST", "client-quotas:alter", alter("alice", "bob", atomic=True),
            [("alterClientQuotas", ALICE, [QUOTA], *POLICY)], id="atomic",
        ),
        pytest.param(
            "POST", "entity-configs:alter",
            {"entities": [
                {"entityType": "users", "entityName": "alice", "addedConfigs": [{"configKey": QUOTA, "configValue": str(HUGE)}]},
                {"entityType": "users", "entityName": "bob", "addedConfigs": [{"configKey": "nonsense", "configValue": "1"}]},
                {"entityType": "users", "entityName": "fine", "addedConfigs": [{"configKey": QUOTA, "configValue": "7"}]},
            ]},
            [
                ("alterEntityConfigs", ALICE, [QUOTA], *POLICY),
                ("alterEntityConfigs", "user=bob", ["nonsense"], 40, "/problems/invalid-config"),
            ],
            id="KIP-21",
        ),
        pytest.param(
            "POST", "global-config:change", {"configData": [{"configKey": "log.dirs", "configValue": 7}]},
            [("changeGlobalConfig", None, [], *INVALID)], id="KIP-5",
        ),
        pytest.param(
            "POST", "audit:revert", {"principal": "User:a"}, [("revertChanges", None, [], *INVALID)], id="revert"
        ),
        pytest.param(
            "POST", "/v1/clusters/default:freeze", {"reason": " "},
            [("freezeCluster", "cluster", [], *INVALID)], id="freeze",
        ),
    ],
)  # fmt: skip
async def test_a_refused_write_is_recorded_whatever_its_form(
    shared: Inside, method: str, path: str, body: Any, expected: list[tuple[Any, ...]]
) -> None:
    this = uuid4().hex
    answer = await shared.send("admin", method, path, body, X_Request_Id=this)
    assert answer.status_code in {207, 400, 422}, answer.text
    assert await recorded(shared, this, len(expected)) == expected


@pytest.mark.parametrize(
    ("method", "path", "body", "headers", "status"),
    [
        ("PUT", "client-quotas/user=alice?validateOnly=true", {"quotas": {QUOTA: HUGE}}, {}, 422),
        ("PUT", "client-quotas/user=alice?validateOnly=true", {"quotas": {QUOTA: -1}}, {}, 400),
        ("POST", "client-quotas:alter", alter("alice", validateOnly=True), {}, 422),
        ("POST", "client-quotas:alter", {"entries": 7, "validateOnly": True}, {}, 400),
        ("PUT", "client-quotas/user=alice", {"quotas": {QUOTA: 1}}, {"If_Match": '"other"'}, 412),
        ("DELETE", "client-quotas/user=nothing-is-set", None, {}, 200),
        ("POST", "client-quotas:describe", {"components": 7}, {}, 400),
        ("GET", "client-quotas?kind=nonsense", None, {}, 400),
        ("POST", "audit:revert", {"changeId": "019a9c5e-7b2c-7d11-8a52-5d0c6f7e9b10"}, {}, 404),
        ("PUT", "client-quotas/user=alice", {"quotas": {QUOTA: 1}}, {}, 200),
        ("PUT", "/v1/clusters/nonsense/client-quotas/user=alice", {"quotas": {QUOTA: HUGE}}, {}, 404),
        ("POST", "/v1/tokens", {"principal": 7}, {}, 400),
    ],
)
async def test_what_is_no_refused_write_is_not_recorded(
    shared: Inside, method: str, path: str, body: Any, headers: dict[str, str], status: int
) -> None:
    before = [each["requestId"] for each in await refused(shared)]
    last = uuid4().hex
    answer = await shared.send("admin", method, path, body, **headers)
    assert answer.status_code == status, answer.text
    unauthenticated = await shared.client.put("/v1/clusters/default/client-quotas/user=alice", json={"quotas": 7})
    assert unauthenticated.status_code == 401
    await shared.send("admin", "PUT", "client-quotas/user=last", {"quotas": {QUOTA: HUGE}}, X_Request_Id=last)
    await recorded(shared, last)
    assert [each["requestId"] for each in await refused(shared)] == [last, *before]


async def test_frozen_clusters_and_missing_grants_refuse_and_are_recorded(inside: Inside) -> None:
    frozen = await inside.send("admin", "POST", "/v1/clusters/default:freeze", {"reason": "a migration"})
    assert frozen.status_code == 200, frozen.text
    body = {"quotas": {QUOTA: 1}}
    assert (await inside.send("admin", "PUT", f"client-quotas/{ALICE}", body, X_Request_Id="1")).status_code == 409
    assert await recorded(inside, "1") == [(PUT_QUOTAS, ALICE, [QUOTA], -1, "/problems/frozen")]
    assert (
        await inside.send("olga", "POST", "/v1/clusters/default:thaw", {"reason": "impatience"}, X_Request_Id="2")
    ).status_code == 403
    assert await recorded(inside, "2") == [("thawCluster", "cluster", [], 31, "/problems/forbidden")]
    assert (await inside.send("olga", "PUT", f"client-quotas/{ALICE}", body, X_Request_Id="3")).status_code == 403
    assert await recorded(inside, "3") == [(PUT_QUOTAS, ALICE, [QUOTA], 31, "/problems/forbidden")]
    [row] = await refused(inside, principal="User:olga", entity=ALICE)
    assert (row["cluster"], row["principal"], row["onBehalfOf"], row["count"]) == ("default", "User:olga", None, 1)
    assert (
        await inside.send("olga", "POST", f"client-quotas/{ALICE}:revert", {"to": "1"}, X_Request_Id="4")
    ).status_code == 403
    assert await recorded(inside, "4") == [("revertClientQuotas", ALICE, [], 31, "/problems/forbidden")]


async def test_only_those_who_may_describe_an_entity_see_the_attempts_on_it(inside: Inside) -> None:
    await inside.give(
        "User:olga", operation=Operation.DESCRIBE_CONFIGS, resource=ResourceType.USER, name="a",
        pattern=PatternType.PREFIXED,
    )  # fmt: skip
    await inside.give("User:zoe", operation=Operation.DESCRIBE, resource=ResourceType.AUDIT)
    long = f"user=a{'n' * 300}"
    for number, entity in enumerate((ALICE, "user=bob", long, "nonsense")):
        await inside.send(
            "admin", "PUT", f"client-quotas/{entity}", {"quotas": {QUOTA: HUGE}}, X_Request_Id=f"{number}"
        )
        await recorded(inside, f"{number}")
    cut = f"{long[:256]}…"
    assert [each["entity"] for each in await refused(inside, "zoe")] == [None, cut, "user=bob", ALICE]
    assert [each["entity"] for each in await refused(inside, "olga")] == [ALICE]
    assert await refused(inside, "olga", requestId="1") == []
    for hidden in ("user=bob", "cluster"):
        answer = await inside.send("olga", "GET", f"audit?result=refused&entity={hidden}")
        assert answer.status_code == 403, answer.text


async def test_no_value_and_no_secret_is_stored(inside: Inside, migrated: Database) -> None:
    secret = "hunter2-hunter2"
    for number, (path, body) in enumerate(
        [
            (f"client-quotas/{ALICE}", {"quotas": {QUOTA: HUGE}}),
            (f"client-quotas/{ALICE}", {"quotas": {QUOTA: secret}}),
            ("configs/broker=0", {"configs": {"ssl.keystore.password": secret, "nonsense": secret}}),
            ("configs/topic=t", {"configs": {"retention.ms": secret}}),
            (f"client-configs/{ALICE}", {"configs": {"acks": secret}}),
        ]
    ):
        answer = await inside.send("admin", "PUT", path, body, X_Request_Id=f"{number}")
        assert answer.status_code in {400, 422}, answer.text
        await recorded(inside, f"{number}")
    stored = fetch(migrated.owner_dsn, "SELECT refused_attempts::text FROM refused_attempts")
    assert len(stored) == 5
    assert secret not in str(stored)
    assert str(HUGE) not in str(stored)


async def test_an_outcome_cannot_be_combined(inside: Inside) -> None:
    answer = await inside.send("admin", "GET", "audit?result=refused&outcome=rejected")
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (400, "outcome")
    answer = await inside.send("admin", "GET", "audit?result=nonsense")
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (400, "result")


# A connect that times out as its reply arrives leaves the connection to the garbage collector.
@pytest.mark.filterwarnings("ignore:.*BaseConnection.__del__:pytest.PytestUnraisableExceptionWarning")
async def test_a_hung_postgres_delays_no_response_and_a_flood_is_summed_up(
    chroot: str, migrated: Database, tmp_path: Path
) -> None:
    target = conninfo_to_dict(migrated.service_dsn)
    (tmp_path / "rules.yaml").write_text(RULES)
    async with proxy(f"{target['host']}:{target['port']}") as line:
        hung = replace(migrated, service_dsn=make_conninfo(migrated.service_dsn, host="127.0.0.1", port=line.port))
        async with running_inside(chroot, hung, tmp_path, policy_file=str(tmp_path / "rules.yaml")) as inside:
            line.lose(requests=True, replies=True)
            names = [f"user-{number}" for number in range(2_500)]
            answers = await asyncio.gather(
                *(inside.send("admin", "POST", "client-quotas:alter", alter(*names, value=-1)) for _ in range(4))
            )
            # A write that waited for Postgres would be answered 503.
            assert {answer.status_code for answer in answers} == {400}
            assert {answer.json()["failed"] for answer in answers} == {len(names)}
            assert fetch(migrated.service_dsn, "SELECT id FROM refused_attempts") == []
            line.restore()
            # They may be of two minutes.
            await until(lambda: len(fetch(migrated.service_dsn, "SELECT id FROM refused_attempts")) >= 60)
    rows = fetch(migrated.service_dsn, "SELECT count, error_code FROM refused_attempts")
    assert sum(count for count, _ in rows) == 10_000
    assert len(rows) <= 2 * 61


def test_the_command_line_lists_them(service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "token").write_text(service.token)
    monkeypatch.setenv("CONFPLANE_URL", service.url)
    monkeypatch.setenv("CONFPLANE_TOKEN_FILE", str(tmp_path / "token"))
    assert run_here("configs", "--alter", "--user", "refused-cli", "--add-config", f"{QUOTA}=-1").code != 0
    listed = (
        "audit",
        "--refused",
        "--entity",
        "user=refused-cli",
        "--principal",
        "User:admin",
        "--since",
        "1h",
        "--json",
    )
    said = wait_for(lambda: run_here(*listed).out)
    row = json.loads(said)
    assert (row["entity"], row["keys"], row["errorCode"], row["count"]) == ("user=refused-cli", [QUOTA], 42, 1)
    table = run_here(*listed[:-1])
    assert [line.split()[1:6] for line in table.out.splitlines()[1:]] == [
        ["User:admin", row["operation"], "user=refused-cli", QUOTA, "invalid-request"]
    ]
    assert run_here("audit", "--refused", "--entity", "user=refused-nothing").err.startswith("No such refused attempt")
    assert run_here("audit", "--refused", "--outcome", "rejected").code == 2
