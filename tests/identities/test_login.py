"""``confplane login`` at a real OpenID provider, for a whole service."""

from __future__ import annotations

import json
import re
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from typer.testing import CliRunner

from confplane.cli.commands import cli
from confplane.cli.remote import logins, profiles
from confplane.client import device
from tests.identities.provider import OpenIdProvider
from tests.support import tools
from tests.support.issuer import Signer
from tests.support.ports import reserved_port
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.service import Service

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenIdProvider]:
    modules = tools.obtain(tools.oidc_provider).read_text()
    with OpenIdProvider(tmp_path_factory.mktemp("issuer"), modules) as made:
        made.start(Signer("one"))
        yield made


@pytest.fixture(scope="module")
def service_options(provider: OpenIdProvider) -> dict[str, Any]:
    """Confplane that accepts the provider's tokens, and says so to clients."""
    port = reserved_port()
    issuer = {"issuer": provider.url, "insecure_http": True, "audiences": ["confplane"], "prefix": "people:"}
    settings = {"CONFPLANE_OIDC": json.dumps([issuer]), "CONFPLANE_HTTP__PUBLIC_URL": f"http://127.0.0.1:{port}"}
    return {"settings": settings, "port": port}


@pytest.fixture(autouse=True)
def _person(service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A person without a login, with a profile of the service."""
    for name in ("URL", "TOKEN_FILE", "PROFILE", "CLUSTER"):
        monkeypatch.delenv(f"CONFPLANE_{name}", raising=False)
    monkeypatch.setenv("CONFPLANE_PROFILES", str(tmp_path / "profiles.yaml"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(device, "_INTERVAL_S", 0.1)
    client = ["--client-id", "people", "--resource", "urn:confplane", "--scope", "openid offline_access api"]
    assert run("profiles", "set", "work", "--url", service.url, *client)[0] == 0


def run(*arguments: str) -> tuple[int, str]:
    """Run a command in this process; return its exit code and all of its output."""
    answer = CliRunner().invoke(cli, arguments, catch_exceptions=False)
    return answer.exit_code, answer.output


def log_in(provider: OpenIdProvider, capfd: pytest.CaptureFixture[str], **more: str) -> tuple[int, str]:
    """Log in, with a person who opens the page that is shown and answers there."""
    said = ""

    def shown() -> str | None:
        nonlocal said
        said += capfd.readouterr().err
        match = re.search(r"confirm the code ([A-Z-]+)", said)
        return None if match is None else match[1]

    def person() -> None:
        code = wait_for(shown)
        params = {"user_code": code, **more}
        httpx.get(f"{provider.url}/confirm", params=params, trust_env=False, timeout=60).raise_for_status()

    thread = threading.Thread(target=person)
    thread.start()
    with pytest.raises(SystemExit) as ended:
        cli(["login", "--json"], prog_name="confplane")
    thread.join()
    rest = capfd.readouterr()
    return int(str(ended.value.code or 0)), said + rest.err + rest.out


def principal() -> str | None:
    """Return the principal of the next command; None while the service fetches the issuer's keys."""
    code, said = run("whoami", "--json")
    return json.loads(said)["principal"] if code == 0 else None


def test_a_person_logs_in_works_on_and_logs_out(provider: OpenIdProvider, capfd: pytest.CaptureFixture[str]) -> None:
    assert "You are not logged in" in run("whoami")[1]
    code, said = log_in(provider, capfd)
    assert code == 0, said
    result = json.loads(said.splitlines()[-1])
    assert (result["issuer"], bool(result["url"]), bool(result["expiresAt"])) == (provider.url, True, True)
    assert wait_for(principal) == "User:people:olga"
    assert "the login of the client people" in run("whoami")[1]
    profile = profiles.choose_profile(None, None)
    first = logins.read(profile)
    assert first is not None
    assert first.refresh is not None
    for secret in (first.access, first.refresh):
        assert secret not in said
    logins.write(profile, replace(first, expires_at=time.time()))
    assert principal() == "User:people:olga"
    second = logins.read(profile)
    assert second is not None
    assert second.access != first.access
    assert run("logout")[0] == 0
    assert "You are not logged in" in run("whoami")[1]
    logins.write(profile, replace(second, expires_at=time.time()))
    code, said = run("whoami")
    assert code == 1, "the refresh token counts after the logout"
    assert "invalid_grant" in said


def test_a_person_refuses(provider: OpenIdProvider, capfd: pytest.CaptureFixture[str]) -> None:
    code, said = log_in(provider, capfd, refused="1")
    assert code == 1
    assert "refused on the issuer's page" in said
    assert logins.read(profiles.choose_profile(None, None)) is None


def test_a_login_needs_a_client_and_the_services_own_url(service: Service) -> None:
    other = service.url.replace("127.0.0.1", "localhost")
    assert run("profiles", "set", "other", "--url", other, "--client-id", "people")[0] == 0
    code, said = run("login", "--profile", "other")
    assert code == 1
    assert f"{other} describes itself as {service.url}" in said
    assert run("profiles", "set", "plain", "--url", service.url)[0] == 0
    code, said = run("login", "--profile", "plain")
    assert code == 2
    assert "--client-id" in said
    assert run("profiles", "set", "strange", "--url", service.url, "--client-id", "c", "--issuer", "https://i")[0] == 0
    assert "accepts no tokens of https://i" in run("login", "--profile", "strange")[1]
