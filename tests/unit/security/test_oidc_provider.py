"""The fetching of keys, from an issuer on loopback."""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from confplane.domain.errors import UnavailableError
from confplane.security.oidc.provider import ASK_S, OLDEST_S, REFRESH_S, Provider
from confplane.settings import UnusableSettingsError
from tests.support.alerts import PartAlerts
from tests.support.clock import Clock
from tests.support.issuer import DISCOVERY, JWKS, Issuer, Signer
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with Issuer() as running:
        yield running


class World:
    def __init__(self, issuer: Issuer) -> None:
        self.issuer = issuer
        self.clock = Clock(1000.0)
        self.provider = Provider(issuer.settings(), clock=self.clock)

    async def fetched(self) -> None:
        """Wait for the end of a fetch that is under way or asked for."""
        await until(lambda: not (self.provider._fetching or self.provider._fetch_requested.is_set()))

    async def start(self) -> None:
        self.provider.start()
        await until(lambda: self.provider.keys is not None)

    async def fail(self) -> None:
        """Make the issuer fail, and wait for a fetch that has failed."""
        self.issuer.documents[JWKS] = (503, b"")
        before = self.failures
        self.clock.now += ASK_S
        with pytest.raises(UnavailableError):
            self.provider.find("unknown", "ES256")
        await until(lambda: self.failures > before)
        await self.fetched()

    @property
    def failures(self) -> float:
        return float(self.sample("oidc_fetch_failures"))

    def sample(self, name: str) -> Any:
        return {sample.name: sample.value for sample in self.provider.metrics()}.get(name)


@pytest_asyncio.fixture
async def world(issuer: Issuer) -> AsyncIterator[World]:
    made = World(issuer)
    yield made
    await made.provider.stop()


async def test_keys_are_found_by_discovery(world: World) -> None:
    with pytest.raises(UnavailableError):
        world.provider.find("one", "ES256")
    assert "never fetched" in str(world.provider.warnings()[0])
    assert world.sample("oidc_keys_age_seconds") is None
    await world.start()
    assert world.provider.find("one", "ES256") is not None
    assert world.issuer.requests == [DISCOVERY, JWKS]
    assert world.provider.warnings() == []
    world.clock.now += 5
    assert world.sample("oidc_keys_age_seconds") == 5
    assert world.sample("oidc_keys") == 1
    alerts = PartAlerts(world.provider)
    assert alerts.scrape() == set()
    world.clock.now += 1796
    assert alerts.scrape() == {"IssuerKeysStale"}


async def test_an_unknown_key_costs_one_fetch_in_thirty_seconds(world: World) -> None:
    await world.start()
    before = world.issuer.fetches
    world.issuer.gate.clear()
    for number in range(1000):
        with pytest.raises(UnavailableError) as raised:
            world.provider.find(f"unknown-{number}", "ES256")
        assert raised.value.retry_after_s == 1
    world.issuer.gate.set()
    await until(lambda: world.issuer.fetches > before)
    await world.fetched()
    for number in range(1000):
        assert world.provider.find(f"unknown-{number}", "ES256") is None
    assert not world.provider._fetch_requested.is_set()
    assert world.issuer.fetches == before + 1
    world.clock.now += ASK_S
    with pytest.raises(UnavailableError):
        world.provider.find("unknown", "ES256")
    await until(lambda: world.issuer.fetches == before + 2)


async def test_a_new_key_is_found_by_its_first_token(world: World) -> None:
    await world.start()
    known = world.provider.keys
    world.issuer.signers.insert(0, Signer("two"))
    with pytest.raises(UnavailableError):
        world.provider.find("two", "ES256")
    await world.fetched()
    assert world.provider.find("two", "ES256") is not None
    assert world.provider.find("one", "ES256") is not None
    assert world.provider.keys is not known


async def test_the_same_keys_stay_the_same_object(world: World) -> None:
    await world.start()
    known = world.provider.keys
    with pytest.raises(UnavailableError):
        world.provider.find("unknown", "ES256")
    await world.fetched()
    assert world.provider.keys is known


async def test_keys_are_kept_for_a_day_while_the_issuer_is_away(world: World) -> None:
    await world.start()
    await world.fail()
    assert world.provider.warnings() == []
    with pytest.raises(UnavailableError, match="can't be asked"):
        world.provider.find("unknown", "ES256")
    world.clock.now += 3600
    assert world.provider.find("one", "ES256") is not None
    [notice] = world.provider.warnings()
    assert "are old" in notice.public
    assert world.issuer.url not in notice.public
    assert world.issuer.url in notice.text(named=True)
    world.clock.now += OLDEST_S
    with pytest.raises(UnavailableError):
        world.provider.find("one", "ES256")
    assert "older than a day" in str(world.provider.warnings()[0])
    # And it comes back by itself.
    del world.issuer.documents[JWKS]
    await until(lambda: world.provider.warnings() == [])
    assert world.provider.find("one", "ES256") is not None


async def test_fetches_that_fail_are_tried_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr("confplane.security.oidc.provider.random.uniform", lambda low, high: (low + high) / 2)

    def timeout(seconds: float) -> Any:
        if seconds != 10:
            waits.append(seconds)
            seconds = 0.0
        return real(seconds)

    real = asyncio.timeout
    world.issuer.documents[JWKS] = (503, b"")
    monkeypatch.setattr("confplane.security.oidc.provider.asyncio.timeout", timeout)
    world.provider.start()
    await until(lambda: len(waits) >= 9)
    monkeypatch.setattr("confplane.security.oidc.provider.asyncio.timeout", real)
    assert waits[:9] == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert REFRESH_S not in waits


@pytest.mark.parametrize(
    ("path", "status", "content"),
    [
        (DISCOVERY, 404, b""),
        (DISCOVERY, 302, b"/elsewhere"),
        (DISCOVERY, 200, b"<html>"),
        (DISCOVERY, 200, b'{"issuer": "https://other.example.com", "jwks_uri": "https://other.example.com/jwks"}'),
        (DISCOVERY, 200, b'{"issuer": "ISSUER"}'),
        (DISCOVERY, 200, b'{"issuer": "ISSUER", "jwks_uri": 5}'),
        (DISCOVERY, 200, b'{"issuer": "ISSUER", "jwks_uri": "http://id.example.com/jwks"}'),
        (DISCOVERY, 200, b'{"issuer": "ISSUER", "jwks_uri": "file:///etc/passwd"}'),
        (DISCOVERY, 200, b'{"issuer": "ISSUER", "jwks_uri": "https://[::1"}'),
        (JWKS, 301, b"/elsewhere"),
        (JWKS, 200, b"{}"),
        (JWKS, 200, b"x" * 300_000),
        (JWKS, 200, b'{"keys": []}'),
    ],
)
async def test_a_wrong_answer_is_no_answer(world: World, path: str, status: int, content: bytes) -> None:
    world.issuer.documents[path] = (status, content.replace(b"ISSUER", world.issuer.url.encode()))
    world.provider.start()
    await until(lambda: world.failures > 0)
    assert world.provider.keys is None
    with pytest.raises(UnavailableError):
        world.provider.check()
    assert "/elsewhere" not in world.issuer.requests


async def test_an_issuers_certificate_is_verified(issuer: Issuer, tmp_path: Path) -> None:
    provider = Provider(issuer.settings())
    assert provider.tls.verify_mode is ssl.CERT_REQUIRED
    assert provider.tls.check_hostname
    wrong = tmp_path / "authorities"
    for content in (None, "no certificate"):
        if content is not None:
            wrong.write_text(content)
        with pytest.raises(UnusableSettingsError, match=f"ca_file of {issuer.url}"):
            Provider(issuer.settings(ca_file=wrong))
