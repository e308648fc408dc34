"""``confplane tokens`` and ``confplane grants`` over the API and on Postgres, and a service that obeys them."""

from __future__ import annotations

import json
import re
import stat
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from tests.support.commands import Said, run_here
from tests.support.credentials import parse
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.service import Service

ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def local(service: Service, *arguments: str, **environment: str) -> Said:
    """Run a command on the settings of the service."""
    return run_here(*arguments, environment=service._environment | {"LOGNAME": "olga"} | environment)


def confplane(service: Service, *arguments: str) -> Said:
    """Run a command over the API of the service."""
    return local(service, *arguments, CONFPLANE_URL=service.url, CONFPLANE_TOKEN=service.token)


def whoami(service: Service, token: str) -> httpx.Response:
    return httpx.get(f"{service.url}/v1/whoami", headers={"Authorization": f"Bearer {token}"}, trust_env=False)


def eventually(service: Service, token: str, status: int) -> dict[str, Any]:
    """Return the body of the first answer with a status."""

    def body() -> Any:
        answer = whoami(service, token)
        return answer.json() if answer.status_code == status else None

    found: dict[str, Any] = wait_for(body, why=f"a status {status}")
    return found


def test_a_token_from_its_making_to_its_end(service: Service, tmp_path: Path) -> None:
    limits = ("--read-only", "--cluster", "default", "--operation", "DESCRIBE_CONFIGS", "--expires-in", "1d")
    made = confplane(
        service, "tokens", "create", "--principal", "User:app", "--group", "Group:apps", "--note", "n", *limits
    )
    assert made.code == 0, made.err
    token = made.out.removesuffix("\n")
    assert parse(token.encode()), "standard output has the token alone"
    assert "can't be shown again" in made.err
    assert token not in made.err
    found = ID.search(made.err)
    assert found is not None
    seen = eventually(service, token, 200)
    assert (seen["principal"], seen["groups"], seen["tokenId"]) == ("User:app", ["Group:apps"], found[0])
    assert seen["narrowing"] == {"readOnly": True, "clusters": ["default"], "operations": ["DESCRIBE_CONFIGS"]}
    assert whoami(service, token).headers["confplane-token-expires"] == seen["expiresAt"]

    (listed,) = [
        json.loads(line)
        for line in confplane(service, "tokens", "list", "--principal", "User:app", "--json").out.splitlines()
    ]
    assert (listed["id"], listed["status"], listed["note"]) == (found[0], "active", "n")
    assert listed["createdBy"] == "User:admin"
    table = confplane(service, "tokens", "list", "--principal", "User:app").out.splitlines()
    assert table[0].split()[:3] == ["ID", "PRINCIPAL", "STATUS"]
    assert table[1].split()[:3] == [found[0], "User:app", "active"]

    file = tmp_path / "token"
    file.write_text("the token of before")
    file.chmod(0o644)
    rotated = confplane(service, "tokens", "rotate", found[0], "--overlap", "1h", "--output", str(file))
    assert (rotated.code, rotated.out) == (0, ""), rotated.err
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [file]
    new = file.read_text().removesuffix("\n")
    assert "The old token" in rotated.err
    eventually(service, new, 200)
    assert whoami(service, token).status_code == 200

    revoked = confplane(service, "tokens", "revoke", found[0], "--reason", "leaked")
    assert (revoked.code, "every process rejects" in revoked.out) == (0, True)
    eventually(service, token, 401)
    assert whoami(service, new).status_code == 200
    history = httpx.get(
        f"{service.url}/v1/audit?subject=tokens/{found[0]}",
        headers={"Authorization": f"Bearer {service.token}"},
        trust_env=False,
    ).json()["items"]
    assert [(row["kind"], row["principal"], row["reason"]) for row in history] == [
        ("token-revoked", "User:admin", "leaked"),
        ("token-created", "User:admin", None),
    ]


def test_a_grant_from_its_making_to_its_end(service: Service) -> None:
    token = confplane(service, "tokens", "create", "--principal", "User:gina").out.strip()
    eventually(service, token, 200)
    given = ("--operation", "ALTER_CONFIGS", "--resource", "user:gina-", "--prefixed", "--reason", "hers")
    made = confplane(service, "grants", "create", "--principal", "User:gina", *given)
    assert made.code == 0, made.err
    found = ID.search(made.out)
    assert found is not None
    assert made.out.endswith("allow User:gina ALTER_CONFIGS on user:gina-... (prefix) of all clusters\n")
    again = confplane(service, "grants", "create", "--principal", "User:gina", *given)
    assert again.out.startswith(f"There is already the grant {found[0]}")
    role = confplane(service, "grants", "create", "--principal", "User:*", "--role", "viewer", "--cluster", "default")
    assert role.code == 0, role.err
    denied = ("--deny", "--operation", "ALTER_CONFIGS", "--resource", "cluster")
    assert confplane(service, "grants", "create", "--principal", "Group:apps", *denied).code == 0

    wait_for(lambda: len(whoami(service, token).json()["grants"]) >= 2)
    url = f"{service.url}/v1/clusters/default/client-quotas"
    headers = {"Authorization": f"Bearer {token}"}
    body = {"quotas": {"producer_byte_rate": 1}}
    assert httpx.put(f"{url}/user=gina-app", json=body, headers=headers, trust_env=False).status_code == 200
    assert httpx.put(f"{url}/user=other", json=body, headers=headers, trust_env=False).status_code == 403

    items = [json.loads(line) for line in confplane(service, "grants", "list", "--json").out.splitlines()]
    assert [item["principal"] for item in items] == ["User:gina", "User:*", "Group:apps"]
    table = confplane(service, "grants", "list", "--cluster", "default").out.splitlines()
    assert len(table) == 2
    assert table[1].split()[1:] == ["User:*", "allow", "default", "role", "viewer", "all", "-", "-"]
    listed = confplane(service, "grants", "list", "--principal", "Group:apps")
    assert "DESCRIBE_CONFIGS, REPORT, RESOLVE" in listed.out.splitlines()[1]
    assert "They are denied now, unless a separate grant allows them" in listed.err
    shown = confplane(
        service, "grants", "show", "--principal", "User:gina", "--group", "Group:apps", "--cluster", "default"
    ).out
    lines = [line.split("  ") for line in shown.splitlines()]
    rows = [[cell.strip() for cell in line if cell.strip()] for line in lines]
    assert rows[1][:3] == ["deny", "ALTER_CONFIGS", "cluster"]
    assert ["allow", "ALTER_CONFIGS", "user:gina-... (prefix)", "User:gina", found[0]] in rows
    assert ["allow", "RESOLVE", "user:gina", "User:gina", "-"] in rows

    removed = confplane(service, "grants", "remove", found[0], "--reason", "left")
    assert (removed.code, removed.out.startswith(f"Removed the grant {found[0]}")) == (0, True)
    assert confplane(service, "grants", "remove", found[0]).code == 1


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("tokens", "create", "--principal", "User:admin"), 1, "admin token alone"),
        (("tokens", "create", "--principal", "User:a", "--expires-in", "soon"), 2, "such as 90m"),
        (("tokens", "create", "--principal", "User:a", "--output", "/nowhere/token"), 1, "can't be written"),
        (("tokens", "revoke", "019a9c5e-7b2c-7d11-8a52-5d0c6f7e9b10"), 1, "There is no token"),
        (("tokens", "create", "--principal", "User:a", "--output", "/dev/null"), 2, "not a regular file"),
        (("tokens", "revoke", "abc"), 2, "not an id of a token"),
        (("grants", "create", "--principal", "User:a", "--operation", "ALL", "--resource", "queue:a"), 2, "Available:"),
        (("grants", "create", "--principal", "User:a", "--operation", "ALL", "--resource", "user"), 2, "user:NAME"),
        (("grants", "create", "--principal", "User:a", "--role", "viewer", "--prefixed"), 2, "--resource"),
        (("grants", "show", "--principal", "User:a", "--cluster", "none"), 1, "--cluster names one"),
        (("tokens", "create", "--principal", "User:a", "--local", "--profile", "a"), 2, "--profile"),
    ],
)
def test_what_is_refused_and_with_which_code(
    service: Service, arguments: tuple[str, ...], code: int, text: str
) -> None:
    said = confplane(service, *arguments)
    assert (said.code, said.out) == (code, ""), said
    assert text in " ".join(said.err.replace("│", " ").split())


def test_without_postgres_nothing_is_done(service: Service) -> None:
    away = {"CONFPLANE_POSTGRES__DSN": "postgresql://nobody@127.0.0.1:1/none"}
    said = local(service, "grants", "create", "--principal", "User:a", "--role", "viewer", **away)
    assert (said.code, said.out) == (1, ""), said
    assert "Not created: " in said.err


def test_every_command_has_a_result_for_programs(service: Service, tmp_path: Path) -> None:
    def result(*arguments: str) -> Any:
        said = confplane(service, *arguments, "--json")
        assert said.code == 0, said
        return json.loads(said.out)

    made = result("tokens", "create", "--principal", "User:json", "--expires-in", "1h")
    assert parse(made["token"].encode())
    assert (made["principal"], made["status"]) == ("User:json", "active")
    file = tmp_path / "token"
    kept = result("tokens", "rotate", made["id"], "--output", str(file))
    assert (kept["replaces"], "token" in kept, bool(parse(file.read_bytes().strip()))) == (made["id"], False, True)
    revoked = result("tokens", "revoke", kept["id"])
    assert (revoked["status"], revoked["createdRevoked"], revoked["createdActive"]) == ("revoked", 0, 0)
    assert result("tokens", "confirm") == {"confirmed": False}
    assert result("tokens", "invalidate", "--issued-before", "2020-01-01T00:00:00Z") == {"revoked": 0}

    grant = result("grants", "create", "--principal", "User:json", "--role", "viewer")
    assert (grant["principal"], grant["role"]) == ("User:json", "viewer")
    shown = confplane(service, "grants", "show", "--principal", "User:json", "--cluster", "default", "--json")
    *given, own = [json.loads(line) for line in shown.out.splitlines()]
    assert (own["allowed"], own["grant"]) == (True, None)
    assert grant["id"] in {item["grant"]["id"] for item in given}
    assert own["rights"][0].keys() == {"operation", "resourceType", "patternType", "name"}
    assert result("grants", "remove", grant["id"])["id"] == grant["id"]

    refused = confplane(service, "tokens", "revoke", "019a9c5e-7b2c-7d11-8a52-5d0c6f7e9b10", "--json")
    assert (refused.code, json.loads(refused.err)["exitCode"]) == (1, 1)


@pytest.mark.parametrize("options", [(), ("--local",)])
def test_the_first_token_and_its_grant_are_created_without_the_api(service: Service, options: tuple[str, ...]) -> None:
    first = ("tokens", "create", "--principal", "User:first", "--expires-in", "1h", "--group", "Group:firsts")
    made = local(service, *first, "--operation", "DESCRIBE", *options, "--json")
    assert made.code == 0, made
    token = json.loads(made.out)
    assert (token["createdBy"], token["groups"]) == ("User:olga@cli", ["Group:firsts"])
    assert token["narrowing"] == {"readOnly": False, "clusters": None, "operations": ["DESCRIBE"]}
    eventually(service, token["token"], 200)
    granted = local(service, "grants", "create", "--principal", "User:first", "--role", "viewer", *options)
    assert (granted.code, "User:first role viewer on all resources of all clusters" in granted.out) == (0, True), (
        granted
    )
