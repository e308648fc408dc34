"""The commands of docs/access.md, run as they are printed; and its tables, which are the code's."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from confplane.domain.access.operations import (
    IMPLIES,
    OF_SERVICE,
    OPERATIONS,
    OWN,
    ROLES,
    Operation,
    ResourceType,
    Role,
)
from tests.support.processes import ROOT, path_with_confplane
from tests.support.service import ServiceInThread

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.servers import Database

GUIDE = (ROOT / "docs/access.md").read_text()


def section(heading: str) -> str:
    """Return the text of one section."""
    return GUIDE.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]


def table(heading: str) -> dict[str, list[str]]:
    """Return the rows of a section's table by their first cell."""
    lines = [line for line in section(heading).splitlines() if line.startswith("| `")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {row[0].strip("`"): row[1:] for row in rows}


def named(text: str) -> set[str]:
    return set(re.findall(r"`([^`]+)`", text))


def test_the_team_of_the_guide(module_chroot: str, module_database: Database, tmp_path: Path) -> None:
    blocks = re.findall(r"```sh\n(.*?)```", section("A team of your own"), re.DOTALL)
    with ServiceInThread(tmp_path / "service", connect=module_chroot, dsn=module_database.service_dsn) as service:
        (tmp_path / "admin-token").write_text(service.token)
        script = "set -eu\n" + "echo '#'\n".join(blocks)
        # The service and each command take a moment; in the guide a person reads in between.
        script = script.replace("http://127.0.0.1:8080", service.url).replace("portal() {", "sleep 3\nportal() {")
        who = 'portal "$CONFPLANE/v1/whoami"'
        script = script.replace(f"\n{who}", f"\nuntil {who} | grep -q principal; do sleep 0.2; done\n{who}")
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
            env=os.environ | service._environment | {"PATH": path_with_confplane(tmp_path / "bin")},
        )
    assert done.returncode == 0, done.stdout + done.stderr
    granted, made, denied, used, application, asked, rotated, history = [
        part.strip() for part in done.stdout.split("#\n")
    ]
    assert granted.count("Created the grant") == 3
    assert (made, application) == ("", "")
    assert stat.S_IMODE((tmp_path / "portal-token").stat().st_mode) == 0o600
    assert json.loads(denied)["permission"] == "deny"
    allowed, refused = map(json.loads, used.splitlines())
    assert allowed["id"] == "user=payments-app"
    assert (refused["status"], refused["kafkaErrorCode"]) == (403, 31)
    assert "User:payments-portal lacks the grant ALTER_CONFIGS on user=billing-app" in refused["detail"]
    checks, mine, who, *shown = asked.splitlines()
    assert [each["allowed"] for each in json.loads(checks)["results"]] == [True, False, False]
    assert [item["allowed"] for item in json.loads(mine)["items"]] == [False, True, True, True, True]
    assert {(item["principal"], item["allowed"]) for item in json.loads(who)["items"]} == {
        ("Group:payments", False),
        ("User:*", False),
    }
    assert shown[0].split()[:3] == ["PERMISSION", "OPERATION", "RESOURCE"]
    assert shown[1].split()[:3] == ["deny", "ALTER_CONFIGS", "topic:payments.ledger"]
    assert json.loads(rotated)["principal"] == "User:payments-portal"
    rows: list[dict[str, Any]] = json.loads(history)["items"]
    assert [row["kind"] for row in rows] == ["token-rotated", "token-created", "grant-created"]


@pytest.mark.parametrize("kind", list(ResourceType))
def test_the_table_of_resources(kind: ResourceType) -> None:
    _, operations, remarks = table("Resources")[kind]
    assert named(operations) == set(OPERATIONS[kind])
    assert ("Of no cluster" in remarks) == (kind in OF_SERVICE)


@pytest.mark.parametrize("operation", list(Operation))
def test_the_table_of_operations(operation: Operation) -> None:
    included, _ = table("Operations")[operation]
    if operation is Operation.ALL:
        assert included == "every other"
        return
    assert named(included) == set(IMPLIES.get(operation, ()))


def of_entities(operations: set[frozenset[Operation]], cell: str) -> bool:
    """Return True where a cell has the operations of all entities alike."""
    (alike,) = operations
    return named(cell.partition(" on all")[0]) == alike and cell.endswith(" on all")


@pytest.mark.parametrize("role", list(Role))
def test_the_table_of_roles(role: Role) -> None:
    cluster, entities, own = table("Roles")[role]
    bundle = ROLES[role]
    assert named(cluster) == set(bundle.get(ResourceType.CLUSTER, ()))
    others = {kind: bundle[kind] for kind in bundle if kind not in {ResourceType.CLUSTER, *OWN}}
    if role is Role.APPLICATION:
        assert others == {ResourceType.USER: {Operation.RESOLVE}}
        assert (entities, own) == ("`RESOLVE` on `user`", "")
        return
    assert set(others) == set(ResourceType) - {ResourceType.CLUSTER, *OWN}
    assert of_entities(set(others.values()), entities)
    services = {kind: bundle[kind] for kind in OWN if kind in bundle}
    if set(services) == set(OWN):
        assert of_entities(set(services.values()), own)
    else:
        operation, _, kinds = own.partition(" on ")
        assert {frozenset(named(operation))} == set(services.values())
        assert named(kinds) == set(services)


def test_tables_have_no_other_rows() -> None:
    for heading, known in (("Resources", ResourceType), ("Operations", Operation), ("Roles", Role)):
        assert set(table(heading)) == set(known)
