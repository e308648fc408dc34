"""The cache of tokens and grants: what it returns, and for how long."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID, uuid4

import pytest

from confplane.domain.access.grants import Grant
from confplane.domain.access.identities import ADMIN, Authentication, Identity
from confplane.domain.access.operations import Operation, Permission, ResourceType, Role
from confplane.domain.errors import UnauthenticatedError, UnavailableError
from confplane.security import api_tokens
from confplane.security.token_cache import TokenCache
from confplane.services.access import AccessControl
from confplane.services.ports.access import AccessDelta, StoredGrant, Token
from tests.support.alerts import PartAlerts
from tests.support.grants import Grants, access_of
from tests.support.waiting import until

if TYPE_CHECKING:
    from confplane.services.ports.access import AccessStore

NOW = datetime(2026, 11, 27, tzinfo=UTC)
ALICE = Identity("User:alice", Authentication.OIDC)
ROOT = Identity(ADMIN, Authentication.ADMIN_TOKEN)


class Tables:
    """Tables of tokens and grants that answer with what a test puts there."""

    def __init__(self) -> None:
        self.next: AccessDelta | None = AccessDelta(1, whole=True)
        self.asked: list[int | None] = []
        self.used: dict[UUID, datetime] = {}
        self.away = False

    async def load(self, since: int | None) -> AccessDelta | None:
        self.asked.append(since)
        if self.away:
            raise UnavailableError("Postgres is away")
        found, self.next = self.next, None
        return found

    async def record_use(self, used: dict[UUID, datetime]) -> None:
        if self.away:
            raise UnavailableError("Postgres is away")
        self.used |= used


@pytest.fixture
def tables() -> Tables:
    return Tables()


class Clock:
    """A monotonic clock and the time of day, which a test advances."""

    def __init__(self) -> None:
        self.passed_s = 0.0

    def monotonic(self) -> float:
        return 1000 + self.passed_s

    def time(self) -> float:
        return NOW.timestamp() + self.passed_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def made(tables: Tables, clock: Clock) -> TokenCache:
    return TokenCache(cast("AccessStore", tables), 60, clock=clock.monotonic, now=clock.time)


def token(**more: Any) -> tuple[bytes, bytes, Token]:
    """The text of a new token, its digest, and the token."""
    text = api_tokens.make()
    given = {"expires_at": NOW + timedelta(days=1), **more}
    return text.encode(), api_tokens.digest(text), Token(uuid4(), "User:alice", NOW, "User:admin", **given)


def grant(principal: str, number: int = 1) -> StoredGrant:
    made = Grant(UUID(int=number), principal, operation=Operation.ALTER_CONFIGS, resource=ResourceType.USER, name="x")
    return StoredGrant(made, NOW, "User:admin")


def admitted(of: TokenCache, text: bytes) -> Identity:
    """The identity of a token that is known and valid."""
    identity = of.authenticate(text)
    assert identity is not None
    of.check(identity)
    return identity


async def loaded(of: TokenCache, tables: Tables, **more: Any) -> None:
    """Have the cache read these changes."""
    tables.next = AccessDelta(**{"version": (of._version or 0) + 1, **more})
    await of.refresh()


async def test_before_the_first_load_only_the_admin_is_authenticated(made: TokenCache, tables: Tables) -> None:
    text, digest, one = token()
    with pytest.raises(UnavailableError, match="never read"):
        made.authenticate(text)
    with pytest.raises(UnavailableError):
        made.check(ALICE)
    made.check(ROOT)
    assert made.warnings()
    assert made.authenticate(b"another kind") is None
    await loaded(made, tables, tokens={digest: one}, whole=True)
    assert made.authenticate(text) is not None
    made.check(ALICE)
    assert not made.warnings()


async def test_a_token_is_its_principal_with_what_narrows_it(made: TokenCache, tables: Tables) -> None:
    text, digest, one = token(groups=frozenset({"Group:payments"}), owner="team payments")
    await loaded(made, tables, tokens={digest: one})
    assert made.authenticate(text) == Identity(
        "User:alice",
        Authentication.TOKEN,
        groups=one.groups,
        token_id=one.id,
        owner="team payments",
        expires_at=one.expires_at,
    )


@pytest.mark.parametrize("ended", [{"revoked_at": NOW}, {"expires_at": NOW}])
async def test_a_token_that_ended_is_refused_also_where_it_was_admitted_before(
    made: TokenCache, tables: Tables, ended: dict[str, Any]
) -> None:
    text, digest, one = token()
    await loaded(made, tables, tokens={digest: one})
    identity = admitted(made, text)
    access = AccessControl(made).access(identity, "here", "r")
    assert access.allowed("payments", Operation.RESOLVE)
    await loaded(made, tables, tokens={digest: replace(one, **ended)})
    with pytest.raises(UnauthenticatedError):
        admitted(made, text)
    with pytest.raises(UnauthenticatedError):
        access.allowed("payments", Operation.RESOLVE)


async def test_a_token_expires_by_the_clock_alone(made: TokenCache, tables: Tables, clock: Clock) -> None:
    text, digest, one = token(expires_at=NOW + timedelta(seconds=30))
    await loaded(made, tables, tokens={digest: one})
    clock.passed_s = 29.9
    identity = admitted(made, text)
    clock.passed_s = 30
    with pytest.raises(UnauthenticatedError):
        admitted(made, text)
    with pytest.raises(UnauthenticatedError):
        made.check(identity)


async def test_an_unknown_token_is_refused_and_its_text_not_repeated(made: TokenCache, tables: Tables) -> None:
    await loaded(made, tables)
    text, _, _ = token()
    with pytest.raises(UnauthenticatedError) as refused:
        made.authenticate(text)
    assert text.decode() not in str(refused.value)


async def test_grants_are_those_of_the_principal_its_groups_and_everybody(made: TokenCache, tables: Tables) -> None:
    names = ("User:alice", "Group:payments", "User:*", "User:bob", "Group:other")
    grants = [grant(name, number) for number, name in enumerate(names)]
    await loaded(made, tables, grants=grants)
    of_alice = replace(ALICE, groups=frozenset({"Group:payments"}))
    assert {each.principal for each in made.grants_of(of_alice)} == set(names[:3])
    assert {each.principal for each in made.grants_of(ALICE)} == {"User:alice", "User:*"}
    moved = replace(grants[0], grant=replace(grants[0].grant, principal="User:bob"))
    await loaded(made, tables, grants=[moved], removed=frozenset({UUID(int=2)}))
    assert list(made.grants_of(ALICE)) == []
    assert len(made._grants) == 4


async def test_the_groups_of_a_user_are_those_of_its_valid_tokens(made: TokenCache, tables: Tables) -> None:
    def groups(*names: str) -> frozenset[str]:
        return frozenset(f"Group:{name}" for name in names)

    _, first, one = token(groups=groups("a"))
    _, second, two = token(groups=groups("b", "c"))
    _, third, ended = token(groups=groups("d"), expires_at=NOW)
    await loaded(made, tables, tokens={first: one, second: two, third: ended})
    assert made.groups_of("User:alice") == groups("a", "b", "c")
    assert made.groups_of("User:bob") == frozenset()
    await loaded(made, tables, tokens={second: replace(two, revoked_at=NOW)})
    assert made.groups_of("User:alice") == groups("a")
    allow, deny = grant("Group:a", 1), grant("Group:a", 2)
    deny = replace(deny, grant=replace(deny.grant, permission=Permission.DENY))
    await loaded(made, tables, grants=[allow, deny])
    acting = Identity("User:alice", Authentication.BEHALF, denying_groups=groups("a"))
    assert list(made.grants_of(acting)) == [deny.grant]
    await loaded(made, tables, whole=True)
    assert made.groups_of("User:alice") == frozenset()


async def test_rights_change_with_the_grants(made: TokenCache, tables: Tables) -> None:
    await loaded(made, tables)
    access = AccessControl(made).access(ALICE, "here", "r")
    assert not access.allows("payments", Operation.ALTER_CONFIGS, "user=x")
    await loaded(made, tables, grants=[grant("User:alice")])
    assert access.allows("payments", Operation.ALTER_CONFIGS, "user=x")
    await loaded(made, tables, removed=frozenset({UUID(int=1)}))
    assert not access.allows("payments", Operation.ALTER_CONFIGS, "user=x")


async def test_a_whole_load_leaves_nothing_of_before(made: TokenCache, tables: Tables) -> None:
    text, digest, one = token()
    await loaded(made, tables, tokens={digest: one}, grants=[grant("User:alice")])
    await loaded(made, tables, whole=True)
    with pytest.raises(UnauthenticatedError):
        admitted(made, text)
    assert made._grants == {}


async def test_while_postgres_is_away_the_cache_is_used_until_it_is_too_old(
    made: TokenCache, tables: Tables, clock: Clock
) -> None:
    text, digest, one = token()
    await loaded(made, tables, tokens={digest: one})
    tables.away = True
    clock.passed_s = 60
    with pytest.raises(UnavailableError):
        await made.refresh()
    admitted(made, text)
    clock.passed_s = 60.1
    for given in (text, token()[0]):
        with pytest.raises(UnavailableError) as refused:
            admitted(made, given)
        assert refused.value.retry_after_s is not None
    with pytest.raises(UnavailableError):
        made.check(ALICE)
    made.check(ROOT)
    tables.away = False
    await made.refresh()
    admitted(made, text)


async def test_the_age_of_the_cache_counts_from_the_request_and_not_from_its_response(
    made: TokenCache, tables: Tables, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change that commits while the response is under way is not in it."""
    load = tables.load

    async def load_slowly(since: int | None) -> AccessDelta | None:
        clock.passed_s += 59
        return await load(since)

    monkeypatch.setattr(tables, "load", load_slowly)
    await made.refresh()
    assert made.age_s() == 59
    made.check(ALICE)
    alerts = PartAlerts(made)
    assert alerts.scrape() == set()
    clock.passed_s += 2
    assert alerts.scrape() == {"AccessStale"}
    with pytest.raises(UnavailableError, match="61 seconds ago"):
        made.check(ALICE)


async def test_after_a_loss_of_postgres_everything_is_read_again(made: TokenCache, tables: Tables) -> None:
    await loaded(made, tables)
    tables.away = True
    with pytest.raises(UnavailableError):
        await made.refresh()
    tables.away = False
    await made.refresh()
    await made.refresh()
    assert tables.asked == [None, 1, None, 1]


async def test_it_follows_by_itself_and_notes_uses(tables: Tables, clock: Clock) -> None:
    made = TokenCache(cast("AccessStore", tables), 60, now=clock.time, interval_s=0.01, uses_s=0.01)
    text, digest, one = token()
    made.start()
    await until(lambda: made.age_s() is not None)
    tables.next = AccessDelta(2, tokens={digest: one})
    await until(lambda: tables.next is None)
    admitted(made, text)
    await until(lambda: one.id in tables.used)
    tables.away = True
    asked = len(tables.asked)
    await until(lambda: len(tables.asked) > asked + 2)
    before = tables.used[one.id]
    clock.passed_s = 1
    admitted(made, text)
    tables.away = False
    await until(lambda: tables.used[one.id] > before)
    await made.stop()


def test_a_role_of_everything_is_everything() -> None:
    access = access_of("User:alice", Grants(Grant(uuid4(), "User:alice", role=Role.ADMIN)))
    resources = ("cluster", "user", "user=x,client-id", "topic=t", "broker", "broker=1", "tokens=User~3Ax", "audit")
    for spelling in resources:
        assert access.allows("payments", Operation.ALL, spelling), spelling
