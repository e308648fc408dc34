from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from confplane.domain.access.identities import Authentication
from confplane.domain.errors import UnauthenticatedError
from confplane.security.authentication_setup import AuthenticationSetup
from confplane.security.authenticator import Credentials
from confplane.services.access import Access, AccessControl
from confplane.settings import Settings, UnusableSettingsError
from tests.support.grants import Grants

if TYPE_CHECKING:
    from pathlib import Path

    from confplane.domain.access.identities import Identity

TOKEN = "an admin token of good length"


class NoTokens(Grants):
    """A book without API tokens and grants."""

    def authenticate(self, given: bytes) -> Identity | None:
        del given
        return None

    def groups_of(self, principal: str) -> frozenset[str]:
        del principal
        return frozenset()


def authentication_setup(admin: Path | None, **http: Any) -> AuthenticationSetup[Access]:
    settings = Settings.model_validate(
        {
            "clusters": {"default": {"zookeeper": "localhost:2181"}},
            "postgres": {"dsn": "postgresql://a@b/c"},
            "admin_token_file": admin,
            "http": http,
        }
    )
    tokens = NoTokens()
    return AuthenticationSetup(settings, tokens, AccessControl(tokens))


def identity(made: AuthenticationSetup[Access], authorization: str | None, certificate: str | None = None) -> Identity:
    credentials = Credentials(None if authorization is None else authorization.encode(), certificate)
    return made.authenticator.authenticate(credentials, None, "127.0.0.1", "r").identity


def test_the_admin_token_can_be_switched_off(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text(TOKEN)
    assert identity(authentication_setup(path), f"Bearer {TOKEN}").kind is Authentication.ADMIN_TOKEN
    with pytest.raises(UnauthenticatedError):
        identity(authentication_setup(None), f"Bearer {TOKEN}")


def test_a_bearer_token_decides_alone(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text(TOKEN)
    made = authentication_setup(path, client_certificate_header="Client-Cert", certificate_proxies=["10.0.0.1"])
    assert identity(made, None, "CN=alice").principal == "User:CN=alice"
    assert identity(made, f"Bearer {TOKEN}", "CN=alice").principal == "User:admin"
    for authorization in ("Bearer wrong", "", "Basic YTpi"):
        with pytest.raises(UnauthenticatedError):
            identity(made, authorization, "CN=alice")


def test_a_certificate_is_nobody_where_none_are_taken(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text(TOKEN)
    with pytest.raises(UnauthenticatedError, match="No bearer token"):
        identity(authentication_setup(path), None, "CN=alice")


def test_rules_that_cannot_be_used_are_refused_at_the_start() -> None:
    with pytest.raises(UnusableSettingsError, match=r"http\.ssl_principal_mapping_rules: "):
        authentication_setup(
            None,
            client_certificate_header="Client-Cert",
            certificate_proxies=["10.0.0.1"],
            ssl_principal_mapping_rules="RULE:x",
        )
