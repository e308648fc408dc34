"""Results of rollups over HTTP, and by `confplane rollups show`: whole runs, page by page, filtered by their columns."""

from __future__ import annotations

import csv
import json
import re
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from confplane.audit.rollup_runs import RollupRuns
from confplane.domain.rollups import ROLLUPS
from tests.audit.rows import run as execute
from tests.support.commands import Commands
from tests.support.published import NOON, publish

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from uuid import UUID

    from tests.support import servers
    from tests.support.service import Service

BASE = "/v1/clusters/default/rollups"
MISMATCHES = [
    {
        "tree": "/config",
        "entity_id": entity,
        "kind": kind,
        "config_key": key,
        "trail_revision": 2**53 + 1 + number,
        "change_id": None,
        "expected": "1",
        "found": None,
        "trail_version": number,
        "version": None,
        "znode_revision": None if kind == "no_znode" else 2**53 + 2,
        "pending": number == 0,
    }
    for number, (entity, kind, key) in enumerate(
        [
            ("broker=0", "content", "log.cleaner.threads"),
            ("user=CN~3Da~20b", "no_znode", ""),
            ("user=alice", "content", "acks"),
            ("user=alice", "content", "producer_byte_rate"),
            ("user=alice", "version", ""),
        ]
    )
]
QUOTAS = [
    {
        "config_key": "producer_byte_rate",
        "entity_id": entity,
        "value": value,
        "level": level,
        "source": None,
        "budget": None,
        "clients": 1,
        "unlimited": 0,
        "unreadable": 0,
        "budgets": 1,
        "capacity": 1e9,
        "share": 0.1,
    }
    for entity, value, level in (("", 1e22, None), ("user=alice", 1024, 3), ("user=bob", 1e-7, 3))
]
COMPATIBILITY = [
    {
        "entity_id": f"user={name}",
        "software_name": "lib",
        "software_version": "1",
        "supported_configs": configs,
        "common_configs": configs[:1],
        "first_seen": "2026-01-01T00:00:00.000000Z",
        "last_seen": "2026-01-31T11:59:59.123456Z",
        "instances": len(refused),
        "applied_revision": 2**60 if refused else None,
        "refused_configs": refused,
    }
    for name, configs, refused in (("alice", ["acks", "linger.ms"], ["acks"]), ("bob", ["acks"], []))
]

OF_AN_EARLIER_VERSION = {
    "facet": "client-quotas",
    "default_id": "user",
    "config_key": "producer_byte_rate",
    "value": "1024",
    "affected": 3,
    "overridden": 1,
    "once_a_column": "gone",
    "examples": [],
}


@pytest.fixture(scope="module")
def runs(module_database: servers.Database) -> dict[str, UUID]:
    dsn = module_database.service_dsn
    made = {
        "integrity": publish(dsn, "integrity", MISMATCHES),
        "quotas": publish(dsn, "quotas", QUOTAS),
        "compatibility": publish(dsn, "compatibility", COMPATIBILITY),
    }
    publish(dsn, "integrity", MISMATCHES[:1], at=NOON - timedelta(days=1))
    made["failed"] = publish(dsn, "quotas", [], at=NOON + timedelta(days=1), complete=False)
    return made


@pytest.fixture(scope="module")
def http(service: Service) -> Iterator[httpx.Client]:
    with httpx.Client(
        base_url=service.url, headers={"Authorization": f"Bearer {service.token}"}, trust_env=False, timeout=60
    ) as client:
        yield client


def get(http: httpx.Client, path: str, status: int = 200, /, **parameters: str) -> dict[str, Any]:
    answer = http.get(f"{BASE}{path}", params=parameters)
    assert answer.status_code == status, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_all_rollups_are_listed_with_their_runs(http: httpx.Client, runs: dict[str, UUID]) -> None:
    items = {item["name"]: item for item in get(http, "")["items"]}
    assert list(items) == list(ROLLUPS)
    assert items["impact"] == {
        "name": "impact",
        "question": ROLLUPS["impact"].question,
        "run": None,
        "lastAttempt": None,
    }
    run = items["integrity"]["run"]
    assert run.pop("startedAt") <= run.pop("finishedAt")
    assert run == {
        "id": str(runs["integrity"]),
        "asOf": "2026-01-31T12:00:00.000Z",
        "principal": "User:olga@cli",
        "rows": 5,
        "revisions": {"floor": str(2**62), "horizon": str(2**62 + 1), "watermark": None, "folded": None},
        "previous": None,
    }
    # An older moment that was told of later is the last attempt, and not current.
    assert items["integrity"]["lastAttempt"]["id"] != run["id"]
    assert items["integrity"]["lastAttempt"]["state"] == "complete"
    failed = items["quotas"]["lastAttempt"]
    assert (failed["id"], failed["state"]) == (str(runs["failed"]), "failed")
    assert failed["error"] == "Postgres did not answer in time"
    assert items["quotas"]["run"]["id"] == str(runs["quotas"])


def test_rows_have_the_names_and_forms_of_json(http: httpx.Client, runs: dict[str, UUID]) -> None:
    found = get(http, "/integrity")
    assert found["run"]["id"] == str(runs["integrity"])
    assert found["nextPageToken"] is None
    assert len(found["items"]) == 5
    assert list(found["items"][0]) == [column.member for column in ROLLUPS["integrity"].columns]
    assert found["items"][0] == {
        "tree": "/config",
        "entityId": "broker=0",
        "kind": "content",
        "configKey": "log.cleaner.threads",
        "trailRevision": "9007199254740993",
        "changeId": None,
        "expected": "1",
        "found": None,
        "trailVersion": 0,
        "version": None,
        "znodeRevision": "9007199254740994",
        "pending": True,
    }
    text = http.get(f"{BASE}/quotas").text
    for number in ('"value":10000000000000000000000,', '"value":0.0000001,', '"capacity":1000000000,'):
        assert number in text


@pytest.mark.parametrize("size", ["1", "2", "5", "1000"])
def test_pages_are_of_one_run_and_lose_nothing(http: httpx.Client, runs: dict[str, UUID], size: str) -> None:
    entities: list[str] = []
    token: dict[str, str] = {}
    while True:
        page = get(http, "/integrity", pageSize=size, **token)
        assert page["run"]["id"] == str(runs["integrity"])
        entities += [item["entityId"] for item in page["items"]]
        if page["nextPageToken"] is None:
            break
        token = {"pageToken": page["nextPageToken"]}
    assert entities == [item["entity_id"] for item in MISMATCHES]


@pytest.mark.parametrize(
    ("path", "filters", "numbers"),
    [
        ("/integrity", {"entityId": "user=alice"}, [2, 3, 4]),
        ("/integrity", {"entityId": "user=alice", "kind": "content"}, [2, 3]),
        ("/integrity", {"entityId": "user=CN~3Da~20b"}, [1]),
        ("/integrity", {"trailRevision": str(2**53 + 3)}, [2]),
        ("/integrity", {"configKey": ""}, [1, 4]),
        ("/integrity", {"pending": "true"}, [0]),
        ("/integrity", {"pending": "false", "trailVersion": "4"}, [4]),
        ("/integrity", {"znodeRevision": str(2**53 + 2)}, [0, 2, 3, 4]),
        ("/integrity", {"expected": "2"}, []),
        ("/quotas", {"entityId": ""}, [0]),
        ("/quotas", {"value": "1e22"}, [0]),
        ("/quotas", {"value": "1024.0"}, [1]),
        ("/quotas", {"share": "0.1", "level": "3"}, [1, 2]),
        ("/compatibility", {"supportedConfigs": "linger.ms"}, [0]),
        ("/compatibility", {"commonConfigs": "acks"}, [0, 1]),
        ("/compatibility", {"lastSeen": "2026-01-31T12:59:59.123456+01:00"}, [0, 1]),
        ("/compatibility", {"lastSeen": "2026-01-31T11:59:59Z"}, []),
    ],
)
@pytest.mark.usefixtures("runs")
def test_filters_are_exact(http: httpx.Client, path: str, filters: dict[str, str], numbers: list[int]) -> None:
    every = get(http, path)["items"]
    assert get(http, path, **filters)["items"] == [every[number] for number in numbers]


@pytest.mark.parametrize(
    ("path", "parameters", "numbers"),
    [
        ("/integrity", {"filter": "trailVersion >= 3"}, [3, 4]),
        ("/integrity", {"filter": "trail_version>0,trail_version<3"}, [1, 2]),
        ("/integrity", {"filter": "znodeRevision is null"}, [1]),
        ("/integrity", {"filter": "znode_revision IS NOT NULL", "kind": "version"}, [4]),
        ("/integrity", {"filter": f"trailRevision > {2**53 + 3}", "entityId": "user=alice"}, [3, 4]),
        ("/integrity", {"filter": "change_id is not null"}, []),
        ("/quotas", {"filter": "value <= 1024"}, [1, 2]),
        ("/compatibility", {"filter": "lastSeen >= 2026-01-31T12:59:59.123456+01:00"}, [0, 1]),
        ("/compatibility", {"filter": "lastSeen > 2026-01-31T11:59:59.123456Z"}, []),
        ("/integrity", {"orderBy": "trailVersion desc"}, [4, 3, 2, 1, 0]),
        ("/integrity", {"orderBy": "kind, trail_version desc"}, [3, 2, 0, 1, 4]),
        # Rows without a value are last, whatever the direction; rows that are equal stay in the order of the key.
        ("/integrity", {"orderBy": "znodeRevision desc"}, [0, 2, 3, 4, 1]),
        ("/quotas", {"orderBy": "value asc"}, [2, 1, 0]),
        ("/integrity", {"orderBy": "entityId desc", "filter": "trailVersion < 4", "entityId": "user=alice"}, [2, 3]),
    ],
)
@pytest.mark.usefixtures("runs")
def test_rows_have_ranges_nulls_and_orders(
    http: httpx.Client, path: str, parameters: dict[str, str], numbers: list[int]
) -> None:
    every = get(http, path)["items"]
    assert get(http, path, **parameters)["items"] == [every[number] for number in numbers]
    # The same by pages of one row.
    found: list[dict[str, Any]] = []
    token: dict[str, str] = {}
    while True:
        page = get(http, path, pageSize="1", **parameters, **token)
        found += page["items"]
        if page["nextPageToken"] is None:
            break
        token = {"pageToken": page["nextPageToken"]}
    assert found == [every[number] for number in numbers]


@pytest.mark.usefixtures("runs")
def test_pages_are_csv_on_request(http: httpx.Client) -> None:
    lines, token, parameters = [], None, {"format": "csv", "pageSize": "2", "orderBy": "value desc"}
    while token != "":
        answer = http.get(f"{BASE}/quotas", params={**parameters, **({} if token is None else {"pageToken": token})})
        assert answer.headers["content-type"] == "text/csv; charset=utf-8"
        assert "confplane-revision" in answer.headers
        lines += answer.text.split("\r\n")[:-1]
        token = answer.headers.get("confplane-next-page-token", "")
    header, *rows = csv.reader(lines)
    assert header == [column.name for column in ROLLUPS["quotas"].columns]
    assert [dict(zip(header, row, strict=True))["value"] for row in rows] == [
        "10000000000000000000000",
        "1024",
        "0.0000001",
    ]
    assert rows[0][header.index("level")] == ""


@pytest.mark.usefixtures("runs")
def test_too_many_rows_are_not_put_in_an_order(http: httpx.Client, module_database: servers.Database) -> None:
    found = publish(module_database.service_dsn, "drift", [])
    query = f"UPDATE rollup_runs SET row_count = 200001 WHERE id = '{found}'"  # noqa: S608 - an id made here
    execute(module_database.owner_dsn, query)
    problem = get(http, "/drift", 400, orderBy="entities desc")
    assert "the run has 200,001 rows, and at most 200,000 can be put in an order here" in problem["detail"]


@pytest.mark.parametrize(
    ("path", "parameters", "says"),
    [
        ("/integrity", {"owner": "x"}, "Unknown query parameter 'owner'"),
        ("/integrity", {"entity_id": "user=alice"}, "Unknown query parameter"),
        ("/integrity", {"entityId": "user=a%20b"}, "is not an entity id"),
        ("/integrity", {"trailRevision": "-1"}, "trailRevision is not a whole number: '-1'"),
        ("/integrity", {"trailVersion": "1.0"}, "trailVersion is not a whole number"),
        ("/integrity", {"pending": "yes"}, "pending is not true or false: 'yes'"),
        ("/quotas", {"value": "nan"}, "value is not a number"),
        ("/quotas", {"value": "1e999"}, "value is not a number"),
        ("/compatibility", {"firstSeen": "2026-01-31"}, "firstSeen is not a time with its offset"),
        ("/activity", {"day": "2026-02-30"}, "day is not a date such as 2026-01-31"),
        ("/integrity", {"pageToken": "7"}, "pageToken is not one that this API gave"),
        ("/integrity", {"pageSize": "0"}, "pageSize"),
        ("/integrity", {"filter": "owner is null"}, "has no column 'owner'"),
        ("/integrity", {"filter": "trailVersion ~ 3"}, "is not a condition"),
        ("/integrity", {"filter": "trailVersion > x"}, "trailVersion is not a whole number"),
        ("/integrity", {"filter": "kind > a"}, "kind can't be compared with >"),
        ("/integrity", {"filter": ""}, "is not a condition"),
        ("/integrity", {"orderBy": "trailVersion down"}, "is not a column, or a column followed by asc or desc"),
        ("/integrity", {"orderBy": "x); DROP TABLE rollup_rows; --"}, "orderBy"),
        ("/compatibility", {"orderBy": "supportedConfigs"}, "supportedConfigs has several values in a row"),
        ("/integrity", {"format": "xml"}, "format"),
    ],
)
@pytest.mark.usefixtures("runs")
def test_what_is_not_understood_is_refused(
    http: httpx.Client, path: str, parameters: dict[str, str], says: str
) -> None:
    problem = get(http, path, 400, **parameters)
    assert says in problem["detail"]
    assert problem["errors"][0]["pointer"] == next(iter(parameters))


@pytest.mark.usefixtures("runs")
def test_what_is_not_there_says_what_is(http: httpx.Client) -> None:
    assert "there are: compatibility, drift" in get(http, "/nothing", 404)["detail"]
    detail = get(http, "/impact", 404)["detail"]
    assert "never run on default; run `confplane rollups run impact --cluster default`" in detail
    assert http.get("/v1/clusters/other/rollups/impact").status_code == 404
    assert http.get(f"{BASE}/impact", headers={"Authorization": "Bearer nobody"}).status_code == 401


def test_an_unchanged_run_is_not_sent_again(http: httpx.Client, runs: dict[str, UUID]) -> None:
    first = http.get(f"{BASE}/integrity")
    etag = first.headers["etag"]
    assert etag == f'"{runs["integrity"]}"'
    again = http.get(f"{BASE}/integrity", headers={"If-None-Match": etag})
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", etag)
    assert "confplane-revision" in again.headers
    assert http.get(f"{BASE}/integrity", headers={"If-None-Match": '"other"'}).status_code == 200
    assert http.get(f"{BASE}/integrity", headers={"If-None-Match": "nonsense"}).status_code == 400


def test_a_page_of_a_replaced_run_is_there_for_a_while_and_then_gone(
    http: httpx.Client, module_database: servers.Database
) -> None:
    dsn = module_database.service_dsn
    rows = [dict.fromkeys(("facet", "default_id", "config_key", "value"), "") | {"affected": 1, "overridden": 0, "unsupported": 0, "examples": []}] * 3  # fmt: skip
    first = publish(dsn, "impact", rows)
    token = get(http, "/impact", pageSize="2")["nextPageToken"]
    for day in range(1, 4):
        publish(dsn, "impact", [], at=NOON + timedelta(days=day))
    ledger = RollupRuns(dsn, "default")
    ledger.purge("impact")
    page = get(http, "/impact", pageToken=token)
    assert (page["run"]["id"], len(page["items"])) == (str(first), 1)
    assert get(http, "/impact")["items"] == []
    execute(module_database.owner_dsn, "UPDATE rollup_runs SET finished_at = finished_at - interval '2 hours'")
    assert ledger.purge("impact") == [first]
    problem = get(http, "/impact", 410, pageToken=token)
    assert problem["type"] == "/problems/result-gone"
    assert "begin again without pageToken" in problem["detail"]
    assert problem["errors"][0]["pointer"] == "pageToken"


def test_columns_are_in_the_order_of_the_job_and_those_of_earlier_versions_do_no_harm(
    chroot: str, migrated: servers.Database, tmp_path: Path
) -> None:
    rows: dict[str, list[dict[str, Any]]] = {
        "compatibility": COMPATIBILITY,
        "impact": [OF_AN_EARLIER_VERSION],
        "quotas": QUOTAS,
        "integrity": MISMATCHES,
    }
    for name, items in rows.items():
        publish(migrated.service_dsn, name, items)
    commands = Commands(tmp_path, connect=chroot, dsn=migrated.service_dsn)
    assert commands.run_here("rollups", "report", "--output", str(tmp_path / "page.html")).code == 0
    tables = re.findall(r"<table>(.*?)</table>", (tmp_path / "page.html").read_text(), re.DOTALL)
    for name, table in zip(rows, tables, strict=True):
        columns = ROLLUPS[name].columns
        said = commands.run_here("rollups", "show", name, "--json")
        assert list(json.loads(said.out.splitlines()[0])) == [column.member for column in columns]
        said = commands.run_here("rollups", "show", name)
        assert said.out.splitlines()[0].split() == [column.name for column in columns]
        assert re.findall(r"<th>(.*?)</th>", table) == [column.name for column in columns]
    cells = ["client-quotas", "user", "producer_byte_rate", "1024", "3", "1", "-", ""]
    assert re.findall(r"<td.*?>(.*?)</td>", tables[1]) == cells
    assert commands.run_here("rollups", "show", "impact").out.splitlines()[1].split() == cells[:-1]


@pytest.mark.parametrize("over_api", [False, True])
def test_the_command_shows_the_same(
    module_chroot: str,
    module_database: servers.Database,
    tmp_path: Path,
    service: Service,
    http: httpx.Client,
    runs: dict[str, UUID],
    *,
    over_api: bool,
) -> None:
    commands = Commands(tmp_path, connect=module_chroot, dsn=module_database.service_dsn)
    if over_api:
        commands.environment |= {"CONFPLANE_URL": service.url, "CONFPLANE_TOKEN": service.token}
        listed = [json.loads(line) for line in commands.run_here("rollups", "list", "--json").out.splitlines()]
        assert listed == get(http, "")["items"]
        table = commands.run_here("rollups", "list").out.splitlines()
        assert [line.split()[0] for line in table] == ["ROLLUP", *ROLLUPS]
    said = commands.run_here("rollups", "show", "integrity", "--json")
    assert said.code == 0, said.err
    assert [json.loads(line) for line in said.out.splitlines()] == get(http, "/integrity")["items"]
    said = commands.run_here("rollups", "show", "integrity", "--where", "kind=content", "--limit", "2")
    lines = said.out.splitlines()
    assert lines[0].split() == [column.name for column in ROLLUPS["integrity"].columns]
    assert lines[1].split()[:4] == ["/config", "broker=0", "content", "log.cleaner.threads"]
    assert len(lines) == 5
    assert lines[-2] == f"content: {ROLLUPS['integrity'].kinds['content']}."
    assert lines[-1].startswith("2 of 5 rows; --limit ends the list. As of 2026-01-31T12:00:00.000Z, run ")
    assert str(runs["integrity"]) in lines[-1]
    # Columns are taken by either of their names.
    for key in ("configKey", "config_key"):
        said = commands.run_here("rollups", "show", "integrity", "--where", f"{key}=acks", "--json")
        assert [json.loads(line)["entityId"] for line in said.out.splitlines()] == ["user=alice"]
    said = commands.run_here(
        *(
            "rollups",
            "show",
            "integrity",
            "--csv",
            "--where",
            "trail_version>=1",
            "--where",
            "znodeRevision is not null",
        ),
        *("--order-by", "trail_version desc", "--limit", "2"),
    )
    header, *rows = csv.reader(said.out.splitlines())
    assert header == [column.name for column in ROLLUPS["integrity"].columns]
    assert [row[header.index("trail_version")] for row in rows] == ["4", "3"]
    assert "2 of 5 rows; --limit ends the list" in said.err
    said = commands.run_here("rollups", "show", "integrity", "--csv", "--json")
    assert (said.code, "either --json or --csv" in said.err) == (2, True)
    said = commands.run_here("rollups", "show", "quotas")
    assert f"{ROLLUPS['quotas'].scope}." in said.out.splitlines()
    said = commands.run_here("rollups", "show", "activity")
    assert (said.code, said.out) == (1, "")
    assert "run `confplane rollups run activity --cluster default`" in said.err
    said = commands.run_here("rollups", "show", "quotas", "--where", "color=red")
    assert said.code == 2
    assert "has no column 'color'. Available: config_key, entity_id" in said.err
    said = commands.run_here("rollups", "show", "nothing")
    assert said.code == 2
    assert "Available: compatibility" in said.err


def test_the_report_has_all_current_results(
    module_chroot: str, module_database: servers.Database, tmp_path: Path, runs: dict[str, UUID]
) -> None:
    commands = Commands(tmp_path, connect=module_chroot, dsn=module_database.service_dsn)
    page = tmp_path / "page.html"
    said = commands.run_here("rollups", "report", "--output", str(page))
    assert (said.code, said.err) == (0, "")
    assert said.out.startswith(f"{page}: ")
    text = page.read_text()
    assert str(runs["integrity"]) in text
    assert "5 mismatches" in text
    assert "Not run yet: confplane rollups run activity" in text
    assert '<a href="#' in text
    assert '<a href="http' not in text
    pictures = tmp_path / "pictures"
    said = commands.run_here(
        *("rollups", "report", "--output", str(page), "--png", str(pictures)),
        "--base-url",
        "https://confplane.example.com",
    )
    assert (said.code, said.err) == (0, "")
    assert '<a href="https://confplane.example.com/v1/clusters/default/rollups/integrity">' in page.read_text()
    drawn = sorted(path.name for path in pictures.iterdir())
    assert said.out.splitlines()[1] == f"{pictures}: {len(drawn)} pictures"
    assert "integrity-mismatches.png" in drawn
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in pictures.iterdir())
    for address in (
        "confplane.example.com",
        "ftp://confplane",
        "https://olga:pw@confplane",
        "https://c?x=1",
        "https://[",
    ):
        said = commands.run_here("rollups", "report", "--output", str(page), "--base-url", address)
        assert said.code == 2
        assert "not an address such as" in said.err
    said = commands.run_here("rollups", "report", "--output", str(tmp_path / "none" / "page.html"))
    assert (said.code, said.out) == (1, "")
    assert "No such file or directory" in said.err
