"""Limits on a running service: what each class costs, and that a refused request is answered and does nothing."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from tests.support.metrics import Scraped
from tests.support.service import ServiceInThread

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support import servers
    from tests.support.service import Service

BASE = "/v1/clusters/default"
SLOW = 0.001
"""Units a second: nothing comes again while a test runs."""


def limit(burst: int) -> dict[str, float]:
    return {"per_second": SLOW, "burst": burst}


OVERRIDE = {"read": limit(6), "bulk": limit(260), "write": limit(5), "waiting": 2}


@pytest.fixture
def limited(chroot: str, migrated: servers.Database, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service with small limits for its admin."""
    settings = {"CONFPLANE_LIMITS__OVERRIDES": json.dumps({"User:admin": OVERRIDE})}
    directory = tmp_path_factory.mktemp("limited")
    with ServiceInThread(directory, connect=chroot, dsn=migrated.service_dsn, settings=settings) as running:
        yield running


def ask(service: Service, method: str, path: str, **options: Any) -> httpx.Response:
    headers = {"Authorization": f"Bearer {service.token}", **options.pop("headers", {})}
    return httpx.request(method, service.url + path, headers=headers, trust_env=False, timeout=60, **options)


def left(answer: httpx.Response) -> int:
    [_, rest] = answer.headers["ratelimit"].split(";r=")
    return int(rest.partition(";")[0])


def entries(count: int) -> dict[str, Any]:
    return {
        "entries": [
            {"entity": [{"entityType": "user", "entityName": f"u{number}"}], "ops": [{"key": "acks", "value": "1"}]}
            for number in range(count)
        ]
    }


def test_each_class_has_its_own_costs(limited: Service) -> None:
    whoami = ask(limited, "GET", "/v1/whoami")
    assert whoami.headers["ratelimit-policy"] == '"read";q=6;w=6000'
    assert left(whoami) == 5

    altered = ask(limited, "POST", f"{BASE}/client-configs:alter", json=entries(8))
    assert altered.status_code == 200, altered.text
    assert altered.json()["throttleTimeMs"] > 3_900_000
    assert altered.headers["ratelimit"].startswith('"write";r=0;t=')
    refused = ask(limited, "PUT", f"{BASE}/client-configs/user=late", json={"configs": {"acks": "1"}})
    assert (refused.status_code, refused.json()["kafkaErrorCode"]) == (429, 89)
    assert refused.json()["outcome"] == "not_applied"
    assert int(refused.headers["retry-after"]) > 3_900
    assert refused.json()["throttleTimeMs"] > 3_900_000

    page = ask(limited, "GET", f"{BASE}/client-configs?pageSize=3")
    assert len(page.json()["items"]) == 3
    # Each item of a bulk read costs a unit, and so does each KiB of its response.
    assert 260 - 50 - 3 - 2 <= left(page) <= 260 - 50 - 3
    # An entity costs a unit whether or not the filters select it, but less if its keys leave it out.
    before, filtered = left(page), ask(limited, "GET", f"{BASE}/client-configs?kind=user,client-id")
    assert filtered.json()["items"] == []
    assert left(filtered) == before - 50 - 8
    everything = ask(limited, "POST", f"{BASE}/client-configs:describe", json={"components": []})
    assert len(everything.json()["entries"]) == 8
    assert everything.json()["throttleTimeMs"] == 0
    assert left(everything) == 4, "a describe is a read besides"
    assert 0 < left(ask(limited, "GET", f"{BASE}/audit")) <= 260 - (50 + 3) - 2 * (50 + 8) - (50 + 8)
    ask(limited, "GET", f"{BASE}/audit?entity=user%3Du1")
    assert ask(limited, "GET", f"{BASE}/audit").status_code == 429
    describe = ask(limited, "POST", f"{BASE}/client-configs:describe", json={"components": []})
    assert (describe.status_code, describe.headers["ratelimit"].partition(";")[0]) == (429, '"read"')

    assert ask(limited, "GET", f"{BASE}/client-configs/user=u1").status_code == 200
    assert ask(limited, "GET", "/readyz").status_code == 200
    scraped = Scraped(ask(limited, "GET", "/metrics").text)
    assert scraped("requests_limited_total", **{"class": "write"}) == 1
    assert scraped("requests_limited_total", **{"class": "bulk"}) == 2


def test_an_apply_of_a_manifest_pays_for_what_it_plans_and_what_it_sends(limited: Service) -> None:
    entities = [{"id": f"user=u{number}", "quotas": {"producer_byte_rate": 1}} for number in range(40)]

    def sent(operation: str, some: list[dict[str, Any]], **members: Any) -> httpx.Response:
        body = {"apiVersion": "confplane/v1", "kind": "Configs", "entities": some, **members}
        answer = ask(limited, "POST", f"{BASE}/manifests:{operation}", json=body)
        assert answer.status_code == 200, answer.text
        return answer

    plan = sent("plan", entities[:1])
    done = sent("apply", entities[:1], planId=plan.json()["planId"])
    assert left(done) == 4
    # Sent again, it plans the entity, and sends nothing.
    assert left(sent("apply", entities[:1], planId=plan.json()["planId"])) == 3
    before = left(sent("plan", entities))
    deleted = sent("plan", [], prune=True, scope="user:u0", maxDeletes=1)
    assert before - 50 - 1 - 2 <= left(deleted) <= before - 50 - 1
    done = sent("apply", entities, planId=sent("plan", entities).json()["planId"])
    assert done.json()["throttleTimeMs"] > 1000 * (39 + 2 - 3) / SLOW


@pytest.mark.parametrize(
    ("operation", "member", "named"),
    [
        ("configs", "resources", {"resourceType": "BROKER", "resourceName": "0", "configurationKeys": ["log.dirs"]}),
        ("entity-configs", "entities", {"entityType": "user", "entityName": "u1"}),
    ],
)
def test_what_a_describe_names_repeatedly_is_charged_each_time(
    limited: Service, operation: str, member: str, named: dict[str, Any]
) -> None:
    answer = ask(limited, "POST", f"{BASE}/{operation}:describe", json={member: [named] * 150})
    assert answer.status_code == 200, answer.text
    assert 260 - 50 - 150 - 2 <= left(answer) <= 260 - 50 - 150


def test_a_replay_is_one_write_and_a_poll_one_read(limited: Service) -> None:
    for _ in range(2):
        answer = ask(
            limited,
            "POST",
            f"{BASE}/client-configs:alter",
            json=entries(2),
            headers={"Idempotency-Key": "one"},
        )
        assert answer.status_code == 200, answer.text
    assert answer.headers["idempotency-replayed"] == "true"
    assert left(answer) == 5 - 2 - 1
    body = {"components": [{"entityType": "user", "matchType": "EXACT", "match": "u1"}], "resolveEntity": True}
    for remaining in range(5, -1, -1):
        polled = ask(limited, "POST", f"{BASE}/client-configs:describe", json=body)
        assert (polled.status_code, left(polled)) == (200, remaining)
    assert polled.json()["throttleTimeMs"] > 0
    assert ask(limited, "POST", f"{BASE}/client-configs:describe", json=body).status_code == 429


def test_a_report_is_charged_for_its_row_and_a_repeated_one_is_not(limited: Service) -> None:
    report = {"softwareName": "kafka-python", "softwareVersion": "2.2", "appliedRevision": "1"}
    for remaining in (1, 0):
        answer = ask(limited, "PUT", f"{BASE}/client-configs/user=u1/instances/one", json=report)
        assert (answer.status_code, left(answer)) == (200, remaining), answer.text


async def test_waiting_requests_have_their_own_bound(limited: Service) -> None:
    headers = {"Authorization": f"Bearer {limited.token}"}
    async with httpx.AsyncClient(base_url=limited.url, headers=headers, trust_env=False, timeout=60) as client:
        far = {"Confplane-Min-Revision": str(2**62)}
        waiting = [asyncio.create_task(client.get(BASE, headers=far)) for _ in range(3)]
        answers = await asyncio.gather(*waiting)
        assert sorted(answer.status_code for answer in answers) == [429, 503, 503]
        [refused] = [answer for answer in answers if answer.status_code == 429]
        assert "waiting for a revision" in refused.json()["detail"]
        assert (await client.get(f"{BASE}?consistency=strong")).status_code == 200


def test_the_admin_token_is_not_limited_by_default(service: Service) -> None:
    answer = ask(service, "GET", "/v1/whoami")
    assert (answer.status_code, "ratelimit" in answer.headers) == (200, False)
