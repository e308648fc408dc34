"""The store of tokens and grants in memory, held against Postgres: tests of services stand on it."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from uuid_utils.compat import uuid7

from confplane.audit import Database, PostgresAccessStore
from confplane.domain.access.grants import Grant
from confplane.domain.access.operations import Operation, PatternType, ResourceType, Role
from confplane.domain.errors import ConfplaneError
from confplane.services.ports.access import AccessChange, AccessDelta, AccessQuery, StoredGrant, Token
from tests.support.access_store import MemoryAccessStore

if TYPE_CHECKING:
    from uuid import UUID

    from confplane.services.ports.access import AccessStore

PRINCIPALS = ("User:a", "User:b", "Group:c")
KINDS = ("token-created", "grant-created")
STEPS = 120


class Pair:
    """Two stores of which each is asked the same."""

    def __init__(self, *stores: AccessStore) -> None:
        self._stores = stores

    async def ask(self, method: str, *given: Any, **named: Any) -> Any:
        """Ask both, and return the one answer."""
        answers = []
        for store in self._stores:
            try:
                answers.append(_comparable(await getattr(store, method)(*given, **named)))
            except ConfplaneError as error:
                answers.append(type(error))
        first, second = answers
        assert first == second, (method, given, named)
        return first


def _comparable(answer: Any) -> Any:
    """Return an answer without what a clock made: the moments at which a store revoked or recorded."""
    match answer:
        case Token(revoked_at=datetime()):
            return replace(answer, revoked_at=datetime.min.replace(tzinfo=UTC))
        case AccessChange():
            assert answer.recorded_at is not None
            return replace(answer, recorded_at=None)
        case AccessDelta():
            tokens = {digest: _comparable(token) for digest, token in answer.tokens.items()}
            return replace(answer, tokens=tokens, grants=sorted(answer.grants, key=lambda each: each.grant.id))
        case tuple() | list():
            return [_comparable(each) for each in answer]
    return answer


class Walk:
    """Random changes of a few tokens and grants.

    Args:
        seed: Of the random numbers.
        both: The stores.
    """

    def __init__(self, seed: int, both: Pair) -> None:
        self._rng = random.Random(seed)  # noqa: S311 - a walk, not a secret
        self._both = both
        self.now = datetime.now(UTC)
        self.tokens: list[Token] = []
        self.tokens.append(self._token())
        self.grants: dict[UUID, StoredGrant] = {}

    def change(self) -> AccessChange:
        """Return a row of history."""
        choose = self._rng.choice
        return AccessChange(uuid7(), choose(KINDS), choose(PRINCIPALS), "::1", choose("xy"), request_id="r")

    def _token(self) -> Token:
        days = self._rng.choice((-1, 5, 50))
        principal = self._rng.choice(PRINCIPALS[:2])
        creator = self._rng.choice((None, *(token.id for token in self.tokens[-3:])))
        return Token(uuid7(), principal, self.now, "User:admin", self.now + timedelta(days=days), created_with=creator)

    def _grant(self) -> StoredGrant:
        choose = self._rng.choice
        right: dict[str, Any] = {
            "operation": choose((Operation.ALTER_CONFIGS, Operation.REPORT)),
            "resource": ResourceType.USER,
            "pattern": choose(list(PatternType)),
            "name": choose("no"),
        }
        right = choose((right, {"role": Role.VIEWER}))
        grant = Grant(uuid7(), choose(PRINCIPALS), cluster=choose((None, "one")), **right)
        return StoredGrant(grant, self.now, "User:admin", choose((None, "note")))

    async def create_token(self) -> None:
        made = self._token()
        if await self._both.ask("create_token", made, made.id.bytes * 2, self.change()):
            self.tokens.append(made)

    async def revoke_token(self) -> None:
        await self._both.ask("revoke_token", self._rng.choice(self.tokens).id, self.change())

    async def rotate_token(self) -> None:
        old, days = self._rng.choice(self.tokens).id, self._rng.choice((0, 9))
        made = replace(self._token(), replaces=old)
        until = self.now + timedelta(days=days)
        if await self._both.ask("rotate_token", old, until, made, made.id.bytes * 2, self.change()):
            self.tokens.append(made)

    async def invalidate_tokens(self) -> None:
        before = self.now + timedelta(days=self._rng.choice((-1, -1, 1)))
        await self._both.ask("invalidate_tokens", before, self.change())

    async def confirm_tokens(self) -> None:
        await self._both.ask("confirm_tokens", self.change())

    async def create_grant(self) -> None:
        found = await self._both.ask("create_grant", self._grant(), self.change())
        self.grants[found.grant.id] = found

    async def replace_grant(self) -> None:
        old = self._known()
        grant = replace(self._grant().grant, id=old.grant.id)
        answer = await self._both.ask("replace_grant", replace(old, grant=grant), self.change())
        if isinstance(answer, StoredGrant):
            self.grants[answer.grant.id] = answer

    async def remove_grant(self) -> None:
        old = self._known()
        await self._both.ask("remove_grant", old.grant.id, old.revision, self.change())

    def _known(self) -> StoredGrant:
        """Return a grant as it is or was, with its revision or another."""
        found = self._rng.choice([self._grant(), *self.grants.values()])
        return replace(found, revision=self._rng.choice((found.revision, found.revision, 0)))

    async def step(self) -> None:
        """Make one change, and read what it may have changed."""
        work = (
            self.create_token,
            self.revoke_token,
            self.rotate_token,
            self.invalidate_tokens,
            self.confirm_tokens,
            self.create_grant,
            self.create_grant,
            self.replace_grant,
            self.remove_grant,
        )
        await self._rng.choice(work)()
        for token in self.tokens[-2:]:
            await self._both.ask("find_token", token.id)
            await self._both.ask("created_with", token.id)
        for grant_id in list(self.grants)[-2:]:
            await self._both.ask("find_grant", grant_id)


async def compare_lists(both: Pair) -> None:
    """Compare the pages of all lists."""
    for principal in (None, *PRINCIPALS):
        for size in (1, 3, 1_000):
            cursor = None
            while True:
                _, cursor = await both.ask("list_tokens", principal=principal, page_size=size, after=cursor)
                if cursor is None:
                    break
            _, cursor = await both.ask("list_grants", principal=principal, cluster=None, page_size=size, after=None)
            await both.ask("list_grants", principal=principal, cluster="one", page_size=size, after=cursor)


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 20))])
async def test_both_answer_alike(pool: Database, seed: int) -> None:
    both = Pair(PostgresAccessStore(pool), MemoryAccessStore())
    walk = Walk(seed, both)
    versions: list[int | None] = [None, 10**6]
    for _ in range(STEPS):
        await walk.step()
        loaded = await both.ask("load", versions[-1])
        if loaded is not None:
            versions.append(loaded.version)
    assert len(versions) > STEPS // 2
    for version in versions:
        await both.ask("load", version)
    await both.ask("record_use", {token.id: walk.now for token in walk.tokens[1:3]})
    await both.ask("record_use", {walk.tokens[1].id: walk.now - timedelta(days=1)})
    await compare_lists(both)
    await both.ask("add_events", [walk.change()])
    for query in (
        AccessQuery(),
        AccessQuery(kind=KINDS[0], page_size=2),
        AccessQuery(principal="User:a", subject="x"),
        AccessQuery(until=walk.now - timedelta(days=1)),
        AccessQuery(since=walk.now - timedelta(days=1), page_size=1_000),
    ):
        _, cursor = await both.ask("search", query)
        await both.ask("search", replace(query, before=cursor))
