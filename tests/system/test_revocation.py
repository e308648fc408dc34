"""Revoked tokens, and tokens while Postgres is away: on every replica, under load."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from confplane.client import ConnectionFailedError, ProblemError
from confplane.devstack.postgres import SERVICE, Postgres
from confplane.security import api_tokens
from tests.support.credentials import credentials
from tests.support.facets import ConfplaneClient
from tests.support.service import Service, ServiceInThread
from tests.support.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support import servers

CONNECTIONS = 8
"""Connections to each replica."""


class Answered(NamedTuple):
    """One request: when it was sent, and how it was answered."""

    sent_at: float
    status: int


async def poll(service: Service, token: str, pause_s: float, until_at: list[float], answers: list[Answered]) -> None:
    """Poll on one connection until a moment that is set while it runs."""
    reader, writer = await asyncio.open_connection("127.0.0.1", service.port)
    request = f"GET /v1/whoami HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n".encode()
    while not until_at or time.monotonic() < until_at[0]:
        sent_at = time.monotonic()
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        [length] = [line for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")]
        await reader.readexactly(int(length.split(b":")[1]))
        answers.append(Answered(sent_at, int(head[9:12])))
        await asyncio.sleep(max(0.0, pause_s - (time.monotonic() - sent_at)))
    writer.close()
    await writer.wait_closed()


async def revoked_under_load(
    directory: Path, connect: str, database: servers.Database, *, rate: float, seconds: float
) -> tuple[list[list[Answered]], float]:
    """Poll two replicas with a token that is revoked meanwhile; return the answers of each, and the moment after."""
    async with AsyncExitStack() as stack:
        replicas = []
        for number in range(2):
            service = Service(directory / str(number), connect=connect, dsn=database.service_dsn)
            await asyncio.to_thread(service.start)
            stack.push_async_callback(asyncio.to_thread, service.__exit__)
            replicas.append(service)
        tables = await stack.enter_async_context(credentials(database.service_dsn))
        token_id, text = await tables.token("User:alice")
        for service in replicas:
            await until(partial(_is, service, text, 200))
        answers: list[list[Answered]] = [[], []]
        end: list[float] = []
        pause_s = 2 * CONNECTIONS / rate
        async with asyncio.TaskGroup() as pollers:
            for service, of_replica in zip(replicas, answers, strict=True):
                for _ in range(CONNECTIONS):
                    pollers.create_task(poll(service, text, pause_s, end, of_replica))
            await asyncio.sleep(seconds)
            await tables.revoke(token_id)
            revoked_at = time.monotonic()
            end.append(revoked_at + 2 + seconds)
        return answers, revoked_at


async def test_a_revoked_token_is_refused_by_every_replica_for_good(
    tmp_path: Path, chroot: str, migrated: servers.Database
) -> None:
    answers, revoked_at = await revoked_under_load(tmp_path, chroot, migrated, rate=200, seconds=1)
    for of_replica in answers:
        assert {each.status for each in of_replica} == {200, 401}
        first = min(each.sent_at for each in of_replica if each.status == 401)
        assert first > revoked_at - 1
        # Answers of other connections may be under way at the moment of the first refusal.
        assert not [each for each in of_replica if each.sent_at > first + 0.5 and each.status == 200]


@pytest.mark.long
async def test_no_token_is_accepted_two_seconds_after_its_revocation(
    tmp_path: Path, chroot: str, migrated: servers.Database
) -> None:
    """A promise in seconds, so a test of time: on a machine with room for a thousand requests a second."""
    answers, revoked_at = await revoked_under_load(tmp_path, chroot, migrated, rate=1000, seconds=5)
    late = [each.sent_at - revoked_at for of in answers for each in of if each.status == 200]
    assert max(late) < 2, f"of {sum(map(len, answers))} requests the last was accepted after {max(late):.3f} s"


async def whoami(service: Service, token: str) -> int | None:
    """Return the status of a request with this token; None where it is refused without saying when to try again."""
    async with ConfplaneClient(service.url, token=token) as client:
        try:
            return (await client.request("GET", "/v1/whoami")).status
        except ProblemError as error:
            return None if error.status == 503 and error.retry_after_s is None else error.status


async def test_tokens_while_postgres_is_away(tmp_path: Path, chroot: str, own_postgres: Postgres) -> None:
    dsn = own_postgres.dsn(SERVICE, "trail")
    options: dict[str, Any] = {"connect": chroot, "dsn": dsn, "settings": {"CONFPLANE_ACCESS__MAX_AGE_S": "10"}}
    restarted = Service(tmp_path / "restarted", **options)
    with Service(tmp_path / "steady", **options) as steady:
        await asyncio.to_thread(restarted.start)
        async with credentials(dsn) as tables:
            _, text = await tables.token("User:alice")
            for service in (steady, restarted):
                await until(partial(_is, service, text, 200))
        await asyncio.to_thread(restarted.stop)
        own_postgres.stop()
        unknown = api_tokens.make()
        assert await whoami(steady, text) == 200
        assert await whoami(steady, unknown) == 401
        await asyncio.to_thread(restarted.start, wait_ready=False)
        try:
            await until(lambda: _is(restarted, restarted.token, 200), refused=ConnectionFailedError)
            assert await whoami(restarted, text) == await whoami(restarted, unknown) == 503
            # Past the longest age, no token is decided by what was known then.
            await until(lambda: _is(steady, text, 503))
            assert await whoami(steady, unknown) == 503
            assert await whoami(steady, steady.token) == 200
            async with steady.client() as client:
                body = (await client.request("GET", "/readyz")).body
            assert any("Tokens and grants are as of" in warning for warning in body["warnings"])
            own_postgres.start()
            for service in (steady, restarted):
                await until(partial(_is, service, text, 200))
                assert await whoami(service, unknown) == 401
        finally:
            await asyncio.to_thread(restarted.__exit__)


async def test_a_request_that_waits_ends_with_its_token(
    tmp_path: Path, chroot: str, migrated: servers.Database
) -> None:
    settings = {"CONFPLANE_HTTP__REQUEST_DEADLINE_MS": "60000"}
    with ServiceInThread(tmp_path, connect=chroot, dsn=migrated.service_dsn, settings=settings) as service:
        async with credentials(migrated.service_dsn) as tables:
            token_id, text = await tables.token("User:alice")
            await until(partial(_is, service, text, 200))
            async with ConfplaneClient(service.url, token=text, timeout_s=90) as client:
                far = {"Confplane-Min-Revision": str(2**60)}
                waiting = asyncio.create_task(client.request("GET", "client-quotas", headers=far))
                await asyncio.sleep(1)
                assert not waiting.done()
                await tables.revoke(token_id)
                began = time.monotonic()
                with pytest.raises(ProblemError) as refused:
                    await waiting
    assert refused.value.status == 401
    assert time.monotonic() - began < 30, "it ended by its deadline"


async def _is(service: Service, token: str, status: int) -> bool:
    return await whoami(service, token) == status
