"""Identity, grants and limits: polls by an application beside the admin token's, which has neither grants nor limits.

``python -m tests.bench.access JSON`` with ``port`` and ``pause_s`` sends hostile requests to a service until it is ended.
"""

from __future__ import annotations

import asyncio
import gc
import json
import subprocess
import sys
import time
import tracemalloc
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count, cycle, islice
from typing import TYPE_CHECKING, Final, cast
from uuid import UUID

import httpx
import psycopg

from confplane.domain.access.grants import Grant
from confplane.domain.access.identities import Authentication, Identity
from confplane.domain.access.operations import Operation, PatternType, ResourceType
from confplane.security import api_tokens
from confplane.security.token_cache import TokenCache
from confplane.services.access import AccessControl
from confplane.services.ports.access import AccessDelta, StoredGrant
from tests.bench.caller import Caller
from tests.bench.load import Load
from tests.bench.reads import CONFIGS, DESCRIBE, QUOTAS, RESOLVE
from tests.bench.rounds import Figure, alternate, percentiles, rates, summary
from tests.bench.world import loaded
from tests.support import hostile
from tests.support.credentials import credentials
from tests.support.forged import forged
from tests.support.issuer import Issuer, Signer
from tests.support.processes import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from confplane.services.ports.access import AccessStore
    from tests.bench.rounds import Sample
    from tests.bench.world import World

_GRANTS: Final = 10_000
_PRINCIPALS: Final = 1_000
_CHECKS: Final = 200_000
_FINER: Final = 3
"""As in the bench of reads."""
_SETTLED_S: Final = 3.0
"""Seconds after which every process has read new tokens and grants."""
_ROOM: Final = {kind: {"per_second": 1_000_000, "burst": 10_000_000} for kind in ("read", "bulk")}
"""Limits that are counted and never reached."""
_POLL_PAUSE_S: Final = 0.005
_HOSTILE_PER_SECOND: Final = (200, 1_000)
_FILL: Final = f"""
WITH raised AS (UPDATE access_version SET version = version + 1 RETURNING version)
INSERT INTO grants (
  id, principal, permission, operation, resource, pattern, name, created_at, created_by, change_id, version)
SELECT gen_random_uuid(), 'User:team-' || n % {_PRINCIPALS}, 'allow', 'ALTER_CONFIGS', 'user',
  CASE WHEN n % 2 = 0 THEN 'literal' ELSE 'prefixed' END, 'app-' || n, now(), 'User:admin', gen_random_uuid(), version
FROM raised, generate_series(1, {_GRANTS}) AS n
"""  # noqa: S608 - constants of this module


def measure(world: World, *, rounds: int, seconds: float) -> Iterator[Figure]:
    """Yield the figures of identity and grants."""
    yield from _checks(rounds)
    yield from _polls(world, rounds * _FINER, seconds / _FINER)
    yield from _attacked(world, rounds, seconds)


def _checks(rounds: int) -> Iterator[Figure]:
    callers = [Identity(f"User:team-{number}", Authentication.TOKEN) for number in range(_PRINCIPALS)]
    entities = [f"user=app-{number}" for number in range(1, _GRANTS + 1)]
    first, repeated, memory = [], [], []
    for _ in range(rounds):
        gc.collect()
        tracemalloc.start()
        control = AccessControl(asyncio.run(_book()))
        held = [control.access(caller, "", "") for caller in callers]
        for access in held:
            access.allows("default", Operation.DESCRIBE_CONFIGS, "user=x")
        memory.append(tracemalloc.get_traced_memory()[0] / _GRANTS)
        tracemalloc.stop()
        begun = time.perf_counter()
        for access in held:
            access.allows("default", Operation.ALTER_CONFIGS, "user=x")
        first.append((time.perf_counter() - begun) / _PRINCIPALS * 1e6)
        pairs = list(islice(zip(cycle(held), cycle(entities), strict=False), _CHECKS))
        begun = time.perf_counter()
        for access, entity in pairs:
            access.allows("default", Operation.ALTER_CONFIGS, entity)
        repeated.append((time.perf_counter() - begun) / _CHECKS * 1e6)
    among = f"{_GRANTS:,} grants to {_PRINCIPALS:,} principals"
    yield Figure(f"First check of a caller after a change, {among}", "µs", first, decimals=1)
    yield Figure(f"Check, {among}", "µs", repeated, decimals=2)
    yield Figure("Memory of a grant, with the ranges of its caller", "B", memory)


async def _book() -> TokenCache:
    book = TokenCache(cast("AccessStore", _Tables()), 60)
    await book.refresh()
    return book


class _Tables:
    """Tables with many grants."""

    async def load(self, _: int | None) -> AccessDelta:
        now = datetime.now(UTC)
        patterns = PatternType.LITERAL, PatternType.PREFIXED
        grants = [
            Grant(
                UUID(int=number),
                f"User:team-{number % _PRINCIPALS}",
                operation=Operation.ALTER_CONFIGS,
                resource=ResourceType.USER,
                pattern=patterns[number % 2],
                name=f"app-{number}",
            )
            for number in range(1, _GRANTS + 1)
        ]
        return AccessDelta(1, whole=True, grants=[StoredGrant(grant, now, "User:admin") for grant in grants])


def _polls(world: World, rounds: int, seconds: float) -> Iterator[Figure]:
    dsn = world.database()
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(_FILL)
    text = asyncio.run(_application(dsn))
    with world.service(dsn=dsn, settings={"CONFPLANE_LIMITS__OVERRIDES": json.dumps({"User:alice": _ROOM})}) as service:
        of_admin, of_alice = ({"Authorization": f"Bearer {token}"} for token in (service.token, text))
        with httpx.Client(base_url=service.url, headers=of_admin, trust_env=False) as client:
            client.put(QUOTAS, json={"quotas": {"producer_byte_rate": 1048576}}).raise_for_status()
            client.put(CONFIGS, json={"configs": {"acks": "all"}}).raise_for_status()
        time.sleep(_SETTLED_S)
        get = Load(service.port, QUOTAS, headers=of_admin, seconds=seconds)
        resolve = Load(service.port, DESCRIBE, method="POST", body=RESOLVE, headers=of_admin, seconds=seconds)
        for name, load in (("GET of one entity", get), ("Describe with resolveEntity", resolve)):

            def admin(_: int, load: Load = load) -> Sample:
                return loaded(load, "200", service.pid)

            def alice(_: int, load: Load = load) -> Sample:
                return loaded(replace(load, headers=of_alice), "200", service.pid)

            ours, reference = alternate(f"{name}: by the application | by the admin", rounds, alice, admin)
            yield from rates(
                f"{name} by an application, {_GRANTS:,} grants", ours, "by the admin token", reference, "0.90"
            )


def _attacked(world: World, rounds: int, seconds: float) -> Iterator[Figure]:
    with world.service() as service:
        caller = Caller(service)
        caller("PUT", QUOTAS, '{"quotas":{"producer_byte_rate":1048576}}')

        def alone(_: int) -> Sample:
            took = []
            end = time.monotonic() + seconds
            while (begun := time.monotonic()) < end:
                caller("GET", QUOTAS)
                took.append(time.monotonic() - begun)
                time.sleep(_POLL_PAUSE_S)
            return summary(took)

        alone(0)
        for per_second in _HOSTILE_PER_SECOND:

            def beside(number: int, per_second: int = per_second) -> Sample:
                given = {"port": service.port, "pause_s": hostile.CONNECTIONS / per_second}
                command = [sys.executable, "-m", "tests.bench.access", json.dumps(given)]
                with subprocess.Popen(command, cwd=ROOT) as sender:
                    time.sleep(_SETTLED_S)
                    try:
                        return alone(number)
                    finally:
                        sender.terminate()

            name = f"Poll beside {per_second:,} hostile requests a second"
            ours, reference = alternate(f"{name} | alone, median ms", rounds, beside, alone, decimals=2)
            yield from percentiles(name, ours, "alone", reference, ("information", "0.50"), decimals=2)


def _attack(port: int, pause_s: float) -> None:
    with Issuer() as issuer, Issuer() as other:
        issuer.signers.append(Signer("rsa", "RS256"))
        forgeries = list(forged(issuer, other).values())
        for seed in count():
            hostile.blow(port, hostile.requests(10_000, forgeries, api_tokens.make(), seed=seed), [], pause_s=pause_s)


async def _application(dsn: str) -> str:
    """Make the token of an application that may describe its own user, and return its text."""
    async with credentials(dsn) as tables:
        await tables.grant("User:alice", operation=Operation.DESCRIBE_CONFIGS, resource=ResourceType.USER, name="alice")
        _, text = await tables.token("User:alice", expires_at=datetime.now(UTC) + timedelta(days=90))
    return text


if __name__ == "__main__":
    _attack(**json.loads(sys.argv[1]))
