"""The longest texts that the service accepts, random so that Postgres can't compress them, in each index of the trail."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from uuid_utils.compat import uuid7

from confplane.audit import Database, PostgresAccessStore, PostgresAppliedReports, PostgresAuditLog
from confplane.audit.states import PostgresEntityStates
from confplane.domain.access.grants import Grant
from confplane.domain.access.operations import Operation, PatternType, Permission, ResourceType
from confplane.domain.errors import InvalidRequestError, WriteOutcome
from confplane.domain.facets import Tree
from confplane.domain.texts import LONGEST_INDEXED, LONGEST_PRINCIPAL
from confplane.domain.znode_versions import Point
from confplane.services.ports.access import AccessChange, StoredGrant
from confplane.services.ports.applied import AppliedReport
from confplane.services.ports.recording import Move
from tests.audit.rows import entity, fetch, intent
from tests.audit.test_access import NOW, change, digest_of, token

if TYPE_CHECKING:
    from tests.support import servers

CLUSTER = "c" * 63


def incompressible(size: int, start: str = "") -> str:
    """Printable ASCII that begins with a text, without any repetition to speak of."""
    letters = random.Random(size)  # noqa: S311 - no secret
    return start + "".join(chr(letters.randrange(33, 127)) for _ in range(size - len(start)))


ENTITY = incompressible(LONGEST_INDEXED, "user=")
PRINCIPAL = incompressible(LONGEST_PRINCIPAL, "User:")


async def test_the_longest_id_principal_and_key_are_recorded(log: PostgresAuditLog, migrated: servers.Database) -> None:
    longest = incompressible(LONGEST_INDEXED)
    # A key of 1,024 characters, the bound of a request, takes up to four bytes for each.
    beyond = "".join(chr(0x10000 + number * 37) for number in range(1_024))
    given = intent(
        None, entity(ENTITY, longest, beyond), cluster=CLUSTER, principal=PRINCIPAL, request_id=incompressible(128)
    )
    await log.intend([given])
    assert fetch(migrated.owner_dsn, "SELECT key FROM change_keys") == [(longest,)]
    assert fetch(migrated.owner_dsn, "SELECT keys FROM intent_entities") == [([longest, beyond],)]


async def test_a_change_of_an_entity_that_no_index_takes_is_a_fault_of_the_request(
    log: PostgresAuditLog, migrated: servers.Database
) -> None:
    beside = [intent() for _ in range(3)]
    given = intent(None, entity(incompressible(4_000, "user=")))
    results = await asyncio.gather(*(log.intend([each]) for each in [*beside, given]), return_exceptions=True)
    assert results[:3] == [None] * 3
    refused = results[3]
    assert isinstance(refused, InvalidRequestError)
    assert refused.outcome is WriteOutcome.NOT_APPLIED
    assert f"an entity id takes {LONGEST_INDEXED} bytes at most" in refused.detail
    assert len(fetch(migrated.owner_dsn, "SELECT change_id FROM intents")) == 3


@pytest.mark.parametrize("tree", list(Tree))
async def test_the_longest_id_and_key_have_a_state_and_an_external_change(
    pool: Database, migrated: servers.Database, tree: Tree
) -> None:
    states = PostgresEntityStates(pool)
    watermark = await states.advance(CLUSTER, 1, complete=True, server=None)
    assert watermark is not None
    row: dict[str, Any] = {
        "change_id": str(uuid7()), "path": "/config/users/x", "revision": 5, "time_ms": 5, "writes": 1,
        "version_read": None, "czxid_read": None, "versions": {}, "keys": ["\U0001f418" * 1_000, "acks"], "before": {},
        "after": {}, "reason": None, "kind": "external", "attempt": 1, "principal": "User:external", "writer": "",
        "request_id": "", "position": 0,
    }  # fmt: skip
    key = tree.value, ENTITY
    move = Move(key, None, Point(present=True, czxid=5, version=0, mzxid=5), (row,))
    assert await states.move(CLUSTER, [move], server=watermark.server, incarnation=1) == {key}
    assert fetch(migrated.owner_dsn, "SELECT key FROM change_keys") == [("acks",)]


async def test_the_longest_principal_and_name_have_a_token_and_a_grant(pool: Database) -> None:
    store = PostgresAccessStore(pool)
    made = token(PRINCIPAL)
    await store.create_token(made, digest_of(made), replace(change(), principal=PRINCIPAL))
    assert await store.find_token(made.id) == made
    granted = Grant(
        uuid7(), PRINCIPAL, operation=Operation.DESCRIBE_CONFIGS, resource=ResourceType.CLIENT_METRICS, cluster=CLUSTER,
        name=incompressible(LONGEST_PRINCIPAL, "x"), pattern=PatternType.PREFIXED, permission=Permission.ALLOW,
    )  # fmt: skip
    done = AccessChange(uuid7(), "grant-created", PRINCIPAL, "127.0.0.1", "grants/1", request_id="r")
    created = await store.create_grant(StoredGrant(granted, NOW, PRINCIPAL, "a note"), done)
    assert await store.find_grant(granted.id) == created


async def test_the_longest_id_has_an_applied_report(pool: Database, migrated: servers.Database) -> None:
    reports = PostgresAppliedReports(pool)
    reports.report(CLUSTER, ENTITY, incompressible(64), AppliedReport("kafka-python", "2.2", 7, ()))
    await reports.close()
    assert fetch(migrated.owner_dsn, "SELECT entity_id FROM applied_reports") == [(ENTITY,)]
