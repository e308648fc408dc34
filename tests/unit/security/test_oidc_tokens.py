"""Access tokens of an issuer on loopback: good ones, and hostile ones."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from confplane.domain.access.identities import Authentication
from confplane.domain.errors import UnauthenticatedError, UnavailableError
from confplane.security.oidc import compact
from confplane.security.oidc.provider import OLDEST_S, Provider
from confplane.security.oidc.tokens import OidcTokens, identity_of
from tests.support.forged import forged, resigned
from tests.support.issuer import AUDIENCE, Issuer, Signer
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from confplane.domain.access.identities import Identity


class World:
    """An issuer, a second one whose principals are Kafka's users, and what authenticates their tokens."""

    def __init__(self, issuer: Issuer, kafka: Issuer, **more: Any) -> None:
        self.issuer = issuer
        self.kafka = kafka
        self.later = 0.0
        settings = issuer.settings(algorithms=["ES256", "RS256"], groups_claim="groups", **more)
        self.providers = [
            Provider(settings, clock=lambda: time.monotonic() + self.later),
            Provider(kafka.settings(prefix="", kafka_users=True), clock=time.monotonic),
        ]
        self.tokens = OidcTokens(self.providers, now=lambda: time.time() + self.later)

    def authenticate(self, token: bytes) -> Identity:
        found = self.tokens.authenticate(token)
        assert found is not None
        return found

    def signed(self, **more: Any) -> bytes:
        return self.issuer.token(**more)

    async def start(self) -> None:
        for provider in self.providers:
            provider.start()
        await self.until_known()

    async def until_known(self) -> None:
        await until(lambda: all(provider.keys is not None for provider in self.providers))

    async def refreshed(self) -> None:
        """Make the issuer's keys be fetched once more."""
        before = self.issuer.fetches
        self.providers[0]._fetch_requested.set()
        await self.fetched(before)

    async def fetched(self, before: int) -> None:
        """Wait for the end of a fetch that follows so many others."""
        await until(lambda: self.issuer.fetches > before and not self.providers[0]._fetching)


@pytest.fixture(scope="module")
def rsa() -> Signer:
    """One key for all tests: to find one takes longer than most of these."""
    return Signer("rsa", "RS256")


@pytest_asyncio.fixture
async def world(rsa: Signer) -> AsyncIterator[World]:
    with Issuer() as issuer, Issuer() as kafka:
        issuer.signers.append(rsa)
        made = World(issuer, kafka, required_claims={"team": ("a", "b"), "trusted": True})
        issuer.usual = {"team": "a", "trusted": True}
        await made.start()
        yield made
        for provider in made.providers:
            await provider.stop()


async def test_a_good_token_makes_an_identity(world: World) -> None:
    found = world.authenticate(world.signed(groups=["dev", "ops"], exp=int(time.time()) + 100))
    assert found.principal == "User:test:olga"
    assert found.groups == {"Group:test:dev", "Group:test:ops"}
    assert (found.kind, found.issuer) == (Authentication.OIDC, world.issuer.url)
    assert not found.is_kafka_user
    assert not found.is_admin
    assert found.own_user is None
    assert found.expires_at is not None
    kafka = world.authenticate(world.kafka.token(aud=["other", AUDIENCE]))
    assert (kafka.principal, kafka.own_user, kafka.groups) == ("User:olga", "olga", frozenset())
    assert (
        world.authenticate(world.issuer.signers[1].sign(world.issuer.claims()).encode()).principal == "User:test:olga"
    )
    for kind in ("at+jwt", "JWT", "application/at+jwt"):
        world.authenticate(world.issuer.signers[0].sign(world.issuer.claims(), typ=kind).encode())


@pytest.mark.parametrize(
    "given", [b"", b"abc", b"a.b", b"a.b.c.d", b"a.b.c.d.e", b"a.\xff.c", b"..", b"a..c", b"confplane_x", b"a b.c.d"]
)
async def test_other_forms_are_others(world: World, given: bytes) -> None:
    assert world.tokens.authenticate(given) is None


NOW = int(time.time())


@pytest.mark.parametrize(
    "claims",
    [
        {"iss": "https://other.example.com"},
        {"iss": None},
        {"iss": ["x"]},
        {"aud": "other"},
        {"aud": None},
        {"aud": []},
        {"aud": {"confplane": 1}},
        {"aud": [["confplane"]]},
        {"exp": NOW - 60, "iat": NOW - 120},
        {"exp": None},
        {"exp": "4102444800"},
        {"exp": True},
        {"exp": -1},
        {"exp": 10**400},
        {"exp": 1e300},
        {"exp": NOW + 200_000},
        {"exp": NOW + 200_000, "iat": None},
        {"exp": 253_402_300_799, "iat": 0},
        {"nbf": NOW + 80_000},
        {"nbf": "soon"},
        {"iat": NOW + 80_000},
        {"iat": []},
        {"sub": None},
        {"sub": ""},
        {"sub": 5},
        {"sub": ["olga"]},
        {"sub": "x" * 251},
        {"sub": "a\nb"},
        {"sub": "a\u202eb"},
        {"sub": "a\x00"},
        {"sub": "\ud800"},
        {"sub": "olga "},
        {"groups": ["ok", 5]},
        {"groups": {"a": 1}},
        {"groups": None, "_claim_names": {"groups": "src1"}},
        {"groups": ["ok"], "_claim_names": {"groups": "src1"}},
        {"_claim_names": ["groups"]},
        {"hasgroups": True},
        {"hasgroups": "true"},
        {"hasgroups": 1},
        {"groups": ["ok"], "hasgroups": True},
        {"groups": ["a\tb"]},
        {"team": "c"},
        {"team": None},
        {"team": ["c"]},
        {"trusted": 1},
        {"trusted": "true"},
    ],
)
async def test_a_token_with_wrong_claims_is_refused(world: World, claims: dict[str, Any]) -> None:
    header = {"alg": "ES256", "kid": "one", "typ": "JWT"}
    token = resigned(world.issuer.signers[0], header, world.issuer.claims(**claims))
    with pytest.raises(UnauthenticatedError) as raised:
        world.tokens.authenticate(token)
    assert "olga" not in raised.value.detail


def test_the_longest_key_id_is_read() -> None:
    header = {"alg": "ES256", "kid": "k" * compact.MAX_KID, "typ": "JWT"}
    token = resigned(Signer("one"), header, {"iss": "https://id.example"})
    assert compact.read(token).kid == header["kid"]


async def test_claims_within_bounds_are_accepted(world: World) -> None:
    now = int(time.time())
    good: tuple[dict[str, Any], ...] = (
        {"exp": now - 10, "iat": now - 100},
        {"nbf": now + 10, "iat": now + 10, "exp": now + 86_410},
        {"iat": None},
        {"exp": now + 60.5},
        {"team": ["z", "b"]},
        {"groups": []},
        {"groups": ["dev"], "hasgroups": False},
        {"hasgroups": False},
        {"_claim_names": {"other": "src1"}},
        {"groups": "one"},
        {"sub": "x" * 250},
        {"sub": "CN=a b,O=Ä"},
    )
    for claims in good:
        assert world.authenticate(world.signed(**claims)).principal.startswith("User:test:")


async def test_groups_are_required_where_the_settings_say_so(world: World) -> None:
    settings = world.issuer.settings(algorithms=["ES256", "RS256"], groups_claim="groups", groups_required=True)
    now = time.time()
    for groups in ([], ["dev"], "dev"):
        assert identity_of(world.issuer.claims(groups=groups), settings, (), now).principal == "User:test:olga"
    with pytest.raises(UnauthenticatedError, match="has no claim groups, which this service requires"):
        identity_of(world.issuer.claims(), settings, (), now)


async def test_another_claim_of_groups_is_complete_although_entra_left_its_own_out(world: World) -> None:
    settings = world.issuer.settings(algorithms=["ES256"], groups_claim="roles")
    now = time.time()
    found = identity_of(world.issuer.claims(roles=["dev"], hasgroups=True), settings, (), now)
    assert found.groups == {"Group:test:dev"}
    with pytest.raises(UnauthenticatedError, match="leaves roles out"):
        identity_of(world.issuer.claims(hasgroups=True), settings, (), now)


async def test_the_groups_of_a_user_are_known_while_its_token_is_valid(world: World) -> None:
    assert world.tokens.groups_of("User:test:olga") == frozenset()
    world.authenticate(world.signed(groups=["dev"]))
    world.authenticate(world.signed())
    assert world.tokens.groups_of("User:test:olga") == {"Group:test:dev"}, "a token without groups hides none"
    world.authenticate(world.signed(groups=["ops"]))
    assert world.tokens.groups_of("User:test:olga") == {"Group:test:ops"}
    assert world.tokens.groups_of("User:test:peter") == frozenset()
    world.later = 331
    assert world.tokens.groups_of("User:test:olga") == frozenset()


async def test_no_issuer_makes_a_reserved_or_anothers_name(world: World) -> None:
    for name in ("admin", "*", "test:olga", "test:"):
        with pytest.raises(UnauthenticatedError, match="no token of its issuer"):
            world.tokens.authenticate(world.kafka.token(sub=name))
    assert world.authenticate(world.kafka.token(sub="tes")).principal == "User:tes"
    assert world.authenticate(world.signed(sub="admin")).principal == "User:test:admin"


async def test_hostile_tokens_are_refused_and_make_no_fetch(world: World) -> None:
    before = list(world.issuer.requests)
    for name, token in forged(world.issuer, world.kafka).items():
        with pytest.raises(UnauthenticatedError) as raised:
            pytest.fail(f"{name}: {world.tokens.authenticate(token)}")
        assert "BEGIN" not in raised.value.detail
    await asyncio.sleep(0)
    assert world.issuer.requests == before
    assert not world.tokens._valid


async def test_a_flood_of_key_ids_is_answered_without_faults(world: World) -> None:
    own = Signer("x")
    before = world.issuer.fetches
    tokens = [own.sign(world.issuer.claims(), kid=f"x{number}").encode() for number in range(300)]
    for end in (UnavailableError, UnauthenticatedError):  # while the keys are fetched, and then
        for token in tokens:
            with pytest.raises(end):
                world.tokens.authenticate(token)
        await world.fetched(before)
    assert world.issuer.fetches == before + 1


async def test_a_validated_token_costs_no_second_signature(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    token = world.signed()
    first = world.authenticate(token)
    monkeypatch.setattr("confplane.security.oidc.tokens.is_signed", None)
    assert world.authenticate(token) is first


async def test_a_token_ends_in_time(world: World) -> None:
    token = world.signed()
    world.authenticate(token)
    world.later = 329
    world.authenticate(token)
    world.later = 331
    with pytest.raises(UnauthenticatedError, match="expired"):
        world.tokens.authenticate(token)


async def test_a_key_that_left_ends_its_tokens(world: World) -> None:
    token, kept = world.signed(), world.issuer.signers[1].sign(world.issuer.claims()).encode()
    world.authenticate(token)
    world.authenticate(kept)
    del world.issuer.signers[0]
    await world.refreshed()
    with pytest.raises((UnauthenticatedError, UnavailableError)):
        world.tokens.authenticate(token)
    world.authenticate(kept)


async def test_an_issuer_away_for_an_hour_ends_no_token_and_for_a_day_all(world: World) -> None:
    world.issuer.documents["/jwks"] = (503, b"")
    world.later = 3600
    now = int(time.time())
    token = world.signed(iat=now + 3600, exp=now + 3600 + 86_000)
    world.authenticate(token)
    world.later = OLDEST_S + 60
    with pytest.raises(UnavailableError):
        world.tokens.authenticate(token)


async def test_the_memory_of_tokens_is_bounded(world: World) -> None:
    world.tokens = OidcTokens(world.providers, cache_size=3)
    tokens = [world.signed(sub=f"u{number}") for number in range(5)]
    for token in tokens:
        world.authenticate(token)
    assert len(world.tokens._valid) == 3
    for number in range(5):
        world.authenticate(world.signed(sub=f"u{number}", groups=["g"]))
    assert sum(bool(world.tokens.groups_of(f"User:test:u{number}")) for number in range(5)) == 3
    world.authenticate(tokens[0])
