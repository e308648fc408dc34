"""A portal acts for a user: both are in the trail, both must be allowed, and both count for policies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx
import pytest

from confplane.domain.access.operations import Operation, Permission, ResourceType
from tests.support.credentials import credentials
from tests.support.service import Service, ServiceInThread
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support import servers

BASE = "/v1/clusters/default"
RULES = """
rules:
  - name: not-by-mallory
    match: {principals: "User:mallory"}
    protected: true
  - name: audited
    match: {names: {user: audited}, except_principals: ["User:admin", "User:olga"]}
    protected: true
"""


@pytest.fixture
def guarded(chroot: str, migrated: servers.Database, tmp_path: Path) -> Iterator[Service]:
    """A service with rules about principals."""
    (tmp_path / "rules.yaml").write_text(RULES)
    cluster = {"policy_file": str(tmp_path / "rules.yaml")}
    with ServiceInThread(tmp_path, connect=chroot, dsn=migrated.service_dsn, cluster=cluster) as running:
        yield running


def ask(service: Service, method: str, path: str, user: str | None = None, **options: Any) -> httpx.Response:
    token = options.pop("token", service.token)
    headers = [("Authorization", f"Bearer {token}"), *options.pop("headers", [])]
    if user is not None:
        headers.append(("Confplane-On-Behalf-Of", user))
    return httpx.request(method, service.url + path, headers=headers, trust_env=False, timeout=60, **options)


async def test_both_are_in_the_trail_and_before_the_policies_and_both_must_be_allowed(
    guarded: Service, migrated: servers.Database
) -> None:
    async with credentials(migrated.service_dsn) as made:
        cluster = {"resource": ResourceType.CLUSTER}
        await made.grant("User:portal", operation=Operation.ALTER_CONFIGS, **cluster)
        await made.grant("User:portal", operation=Operation.IMPERSONATE, **cluster)
        for user in ("User:olga", "User:mallory", "User:peter"):
            await made.grant(user, operation=Operation.ALTER_CONFIGS, resource=ResourceType.USER, name="audited")
        for user in ("User:peter", "User:paula"):
            await made.grant(user, operation=Operation.ALTER_CONFIGS, resource=ResourceType.USER, name="closed")
        quarantined = {"operation": Operation.ALTER_CONFIGS, "resource": ResourceType.USER, "name": "closed"}
        await made.grant("Group:quarantine", permission=Permission.DENY, **quarantined)
        await made.token("User:peter", groups=frozenset({"Group:quarantine"}))
        # Behind the grants: a process that knows the token knows them too.
        _, portal = await made.token("User:portal")
    await until_granted(guarded, portal)

    def put(name: str, user: str | None, token: str = portal) -> httpx.Response:
        body = {"configs": {"acks": "all" if user == "User:olga" else "1"}}
        return ask(guarded, "PUT", f"{BASE}/client-configs/user={name}", user, json=body, token=token)

    done = put("audited", "User:olga", guarded.token)
    assert done.status_code == 200, done.text
    by_portal = put("audited", "User:peter")
    assert by_portal.json()["type"] == "/problems/policy-violation", "the rule excepts neither of them"
    assert put("audited", "User:mallory", guarded.token).status_code == 422, "a rule about the user for whom one acts"
    refused = put("others", "User:olga")
    assert (refused.status_code, refused.json()["kafkaErrorCode"]) == (403, 31)
    assert put("others", None).status_code == 200
    assert put("closed", "User:peter").status_code == 403, "a deny to a group that a token of the user has"
    assert put("closed", "User:paula").status_code == 200
    trail = ask(guarded, "GET", f"{BASE}/audit").json()["items"]
    both = [(item["principal"], item["onBehalfOf"]) for item in trail]
    assert both == [("User:portal", "User:paula"), ("User:portal", None), ("User:admin", "User:olga")]
    one = ask(guarded, "GET", f"{BASE}/audit/{trail[2]['changeId']}").json()
    assert one["onBehalfOf"] == "User:olga"


async def until_granted(service: Service, token: str) -> None:
    """Wait until the process knows the token."""
    await until(lambda: ask(service, "GET", "/v1/whoami", token=token).status_code == httpx.codes.OK)


def test_headers_that_name_nobody_are_refused_and_name_the_header(service: Service) -> None:
    answer = ask(service, "GET", "/v1/whoami", "User:*")
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (400, "Confplane-On-Behalf-Of")
    twice = [("Confplane-On-Behalf-Of", "User:olga")]
    answer = ask(service, "GET", "/v1/whoami", "User:olga", headers=twice)
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (400, "Confplane-On-Behalf-Of")
    assert "more than once" in answer.json()["detail"]


def test_whoami_names_both(service: Service) -> None:
    assert ask(service, "GET", "/v1/whoami", "User:olga").json()["onBehalfOf"] == "User:olga"
    assert ask(service, "GET", "/v1/whoami").json()["onBehalfOf"] is None
