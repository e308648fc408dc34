"""Hostile callers: no fault, no leak, bounded memory, and honest clients beside them as if there were none."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

import pytest
import pytest_asyncio

from tests.support import hostile
from tests.support.credentials import credentials
from tests.support.facets import ConfplaneClient
from tests.support.forged import forged
from tests.support.honest import honest
from tests.support.issuer import Issuer, Signer
from tests.support.service import Service
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.support import servers

SECRET = 4_711_815
"""The value of a quota that no outsider may see."""


class Scene(NamedTuple):
    """A service with two issuers, and a caller without a grant."""

    service: Service
    issuer: Issuer
    other: Issuer
    outsider: str


@pytest_asyncio.fixture
async def scene(tmp_path: Path, chroot: str, migrated: servers.Database) -> AsyncIterator[Scene]:
    with Issuer() as issuer, Issuer() as other:
        issuer.signers.append(Signer("rsa", "RS256"))
        of_issuer = issuer.settings(algorithms=["ES256", "RS256"])
        of_other = other.settings(prefix="other:")
        settings = {
            "CONFPLANE_OIDC": json.dumps([each.model_dump(mode="json") for each in (of_issuer, of_other)]),
            "CONFPLANE_HTTP__CORS_ORIGINS": '["https://portal.example"]',
        }
        with Service(tmp_path, connect=chroot, dsn=migrated.service_dsn, settings=settings) as service:
            async with credentials(migrated.service_dsn) as tables:
                _, outsider = await tables.token("User:mallory")
            async with ConfplaneClient(service.url, token=outsider) as client:
                await until(lambda: client.request("GET", "/v1/whoami"), refused=Exception)
            yield Scene(service, issuer, other, outsider)


@pytest.mark.parametrize("number", [2_000, pytest.param(10_000, marks=pytest.mark.long)])
async def test_hostile_requests_find_nothing_and_hold_up_nobody(scene: Scene, number: int) -> None:
    service = scene.service
    made = hostile.blow(service.port, [hostile.admins_request(service.token)], [])
    assert made.statuses == {200: 1}
    tokens = [value.encode() for value in (service.token, scene.outsider)]
    secrets = [*tokens, str(SECRET).encode()]
    forgeries = forged(scene.issuer, scene.other).values()
    with honest(service) as seen:
        storm = hostile.blow(service.port, hostile.requests(number, forgeries, scene.outsider, seed=15), secrets)
    assert not storm.leaks, storm.leaks[:3]
    assert not storm.faults, storm.faults[:3]
    assert sum(storm.statuses.values()) > 0.95 * number, storm.statuses
    assert {401, 403} <= storm.statuses.keys(), storm.statuses
    assert seen.longest_read < 2, str(seen)
    assert seen.grown < 100_000_000, str(seen)
    log = service.log.read_bytes()
    assert not [secret for secret in tokens if secret in log]
    async with service.client() as client:
        read = await client.request("GET", "client-quotas/user=alice")
        assert read.body["quotas"] == {"producer_byte_rate": SECRET}
