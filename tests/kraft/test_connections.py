"""Connections to a real broker: logins, TLS, versions, limits."""

from __future__ import annotations

import asyncio
import ssl
import time
from typing import TYPE_CHECKING

import pytest

from confplane.kraft.wire import errors
from confplane.kraft.wire.connection import KraftConnection
from confplane.kraft.wire.messages import MetadataRequest, MetadataResponse
from confplane.kraft.wire.options import Address, Options
from confplane.kraft.wire.sasl import OAuthBearer, Plain, Scram
from tests.support.certificates import Authority
from tests.support.kraft import PASSWORDS, SESSION_MS, unsecured_token

if TYPE_CHECKING:
    from pathlib import Path

    from confplane.kraft.wire.sasl import SaslLogin
    from tests.support.kraft import KraftCluster

ASK = MetadataRequest(topics=(), allow_auto_topic_creation=False)
ALICE = PASSWORDS["alice"]


def soon() -> float:
    return time.monotonic() + 30


async def cluster_id(address: str, options: Options) -> str | None:
    connection = await KraftConnection.open(Address.parse(address), options, soon())
    try:
        return (await connection.call(ASK, MetadataResponse, soon())).cluster_id
    finally:
        await connection.close()


def logins(name: str, password: str) -> list[SaslLogin]:
    return [
        Plain(name, password),
        Scram(name, password, "SCRAM-SHA-256"),
        Scram(name, password, "SCRAM-SHA-512"),
        OAuthBearer(lambda: unsecured_token(name) if password == ALICE else unsecured_token(name, seconds=-60)),
    ]


@pytest.mark.parametrize("login", logins("alice", ALICE), ids=lambda login: login.mechanism)
async def test_each_login_is_let_in(kraft: KraftCluster, login: SaslLogin) -> None:
    (node,) = kraft.nodes
    assert await cluster_id(node.listener("SASL"), Options(login=lambda: login)) == kraft.cluster_id


@pytest.mark.parametrize("login", logins("alice", "a wrong secret"), ids=lambda login: login.mechanism)
async def test_each_wrong_login_is_refused_and_shown_nowhere(kraft: KraftCluster, login: SaslLogin) -> None:
    (node,) = kraft.nodes
    options = Options(login=lambda: login)
    with pytest.raises(errors.KraftLoginError) as refused:
        await cluster_id(node.listener("SASL"), options)
    assert "a wrong secret" not in f"{refused.value} {refused.value!r} {login!r} {options!r}"
    assert "token" not in repr(login)


async def test_a_mechanism_that_the_broker_lacks_is_named_with_those_that_are_there(kraft: KraftCluster) -> None:
    (node,) = kraft.nodes
    with pytest.raises(errors.KraftLoginError, match="has no login by SCRAM-SHA-1, but by OAUTHBEARER, PLAIN, SCRAM"):
        await cluster_id(node.listener("SASL"), Options(login=lambda: Scram("alice", ALICE, "SCRAM-SHA-1")))


async def test_a_login_where_none_is_wanted_says_so(kraft: KraftCluster) -> None:
    (node,) = kraft.nodes
    with pytest.raises(errors.KraftLoginError, match="expects no login"):
        await cluster_id(node.bootstrap, Options(login=lambda: Plain("alice", ALICE)))


async def test_no_login_where_one_is_wanted_says_so(kraft: KraftCluster) -> None:
    (node,) = kraft.nodes
    with pytest.raises(errors.UnreachableError, match="closed the connection"):
        await cluster_id(node.listener("SASL"), Options())


async def test_credentials_that_cannot_be_read_are_a_refused_login(kraft: KraftCluster, tmp_path: Path) -> None:
    (node,) = kraft.nodes
    missing = tmp_path / "password"
    with pytest.raises(errors.KraftLoginError, match="can't be read"):
        await cluster_id(node.listener("SASL"), Options(login=lambda: Plain("alice", missing.read_text())))


async def test_a_session_is_renewed_on_the_same_connection(kraft: KraftCluster) -> None:
    (node,) = kraft.nodes
    made = 0

    def login() -> SaslLogin:
        nonlocal made
        made += 1
        return Scram("alice", ALICE)

    connection = await KraftConnection.open(Address.parse(node.listener("SHORT")), Options(login=login), soon())
    try:
        end = time.monotonic() + 3 * SESSION_MS / 1000
        while time.monotonic() < end:  # four at a time, so that a renewal falls between requests
            found = await asyncio.gather(*(connection.call(ASK, MetadataResponse, soon()) for _ in range(4)))
            assert {each.cluster_id for each in found} == {kraft.cluster_id}
        assert made >= 3
        await asyncio.sleep(SESSION_MS / 1000 + 0.2)  # past its end, and never asked meanwhile
        assert (await connection.call(ASK, MetadataResponse, soon())).cluster_id == kraft.cluster_id
    finally:
        await connection.close()


async def test_a_question_for_versions_renews_the_session_too(kraft: KraftCluster) -> None:
    (node,) = kraft.nodes
    options = Options(login=lambda: Scram("alice", ALICE))
    connection = await KraftConnection.open(Address.parse(node.listener("SHORT")), options, soon())
    try:
        end = time.monotonic() + 2 * SESSION_MS / 1000
        while time.monotonic() < end:
            await asyncio.gather(*(connection.api_versions(soon()) for _ in range(4)))
        await asyncio.sleep(SESSION_MS / 1000 + 0.2)  # past its end, and never asked meanwhile
        await connection.api_versions(soon())
        assert connection.usable
    finally:
        await connection.close()


async def test_a_renewal_that_is_refused_ends_the_connection(kraft: KraftCluster) -> None:
    (node,) = kraft.nodes
    passwords = [ALICE, "replaced"]
    options = Options(login=lambda: Plain("alice", passwords.pop(0)))
    connection = await KraftConnection.open(Address.parse(node.listener("SHORT")), options, soon())
    try:
        await asyncio.sleep(SESSION_MS / 1000)
        with pytest.raises(errors.KraftLoginError):
            await connection.call(ASK, MetadataResponse, soon())
        assert not connection.usable
    finally:
        await connection.close()


async def test_tls_with_the_right_authority(kraft: KraftCluster) -> None:
    (node,) = kraft.nodes
    options = Options(tls=lambda: ssl.create_default_context(cafile=node.ca_file))
    assert await cluster_id(node.listener("SSL"), options) == kraft.cluster_id


async def test_tls_with_another_authority_is_not_trusted(kraft: KraftCluster, tmp_path: Path) -> None:
    (node,) = kraft.nodes
    other = Authority().write_own(tmp_path / "other.pem")
    with pytest.raises(errors.UntrustedError, match="not trusted"):
        await cluster_id(node.listener("SSL"), Options(tls=lambda: ssl.create_default_context(cafile=other)))


async def test_no_tls_where_tls_is_wanted_says_so(kraft: KraftCluster) -> None:
    (node,) = kraft.nodes
    with pytest.raises(errors.KraftError, match="TLS"):
        await cluster_id(node.listener("SSL"), Options())


async def test_tls_where_there_is_none_says_so(kraft: KraftCluster) -> None:
    (node,) = kraft.nodes
    deadline = time.monotonic() + 5
    with pytest.raises(errors.UnreachableError):
        await KraftConnection.open(Address.parse(node.bootstrap), Options(tls=ssl.create_default_context), deadline)


async def test_an_answer_beyond_the_limit_ends_the_connection(kraft: KraftCluster) -> None:
    (node,) = kraft.nodes
    connection = await KraftConnection.open(Address.parse(node.bootstrap), Options(most_bytes=40), soon())
    try:
        with pytest.raises(errors.ProtocolError, match="the maximum is 40"):
            await connection.call(ASK, MetadataResponse, soon())
        assert not connection.usable
    finally:
        await connection.close()


async def test_a_port_without_a_listener_is_unreachable(kraft: KraftCluster) -> None:
    del kraft
    with pytest.raises(errors.UnreachableError, match="There is no connection"):
        await KraftConnection.open(Address("127.0.0.1", 1), Options(), soon())
