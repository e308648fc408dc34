"""Sign-in at a real OpenID provider: the code flow, and what an attacker may try with it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from tests.console.visitor import SIGN_IN, Visitor, console_key, continued
from tests.identities.provider import OpenIdProvider
from tests.support import tools
from tests.support.issuer import Signer
from tests.support.ports import reserved_port
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.service import Service

pytestmark = pytest.mark.interop

AT_ISSUER = "/console/sign-in/issuer"
CALLBACK = "/console/sign-in/callback"


@pytest.fixture(scope="module")
def port() -> int:
    return reserved_port()


@pytest.fixture(scope="module")
def provider(port: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenIdProvider]:
    modules = tools.obtain(tools.oidc_provider).read_text()
    redirect_uri = f"http://127.0.0.1:{port}{CALLBACK}"
    with OpenIdProvider(tmp_path_factory.mktemp("issuer"), modules, redirect_uri) as made:
        made.start(Signer("one"))
        yield made


@pytest.fixture(scope="module")
def service_options(provider: OpenIdProvider, port: int, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Confplane whose console has a client at the provider."""
    issuer = {
        "issuer": provider.url,
        "insecure_http": True,
        "audiences": ["confplane"],
        "prefix": "people:",
        "console_client_id": "console",
        "console_scope": "openid api",
        "console_resource": "urn:confplane",
    }
    url = f"http://127.0.0.1:{port}"
    settings = {
        **console_key(tmp_path_factory.mktemp("console")),
        "CONFPLANE_OIDC": json.dumps([issuer]),
        "CONFPLANE_HTTP__PUBLIC_URL": url,
    }
    return {"settings": settings, "port": port}


@pytest.fixture
def person(service: Service) -> Iterator[Visitor]:
    """A browser at the sign-in, once the service has reached the issuer."""
    with Visitor(service) as opened:
        wait_for(lambda: "has not reached this issuer" not in opened.page(SIGN_IN), why=service.tail)
        yield opened


def begin(person: Visitor, provider: OpenIdProvider, **form: str) -> str:
    """Begin a sign-in; return the address of the issuer's page."""
    response = person.post(AT_ISSUER, {"issuer": provider.url, **form}, page=SIGN_IN)
    return continued(response)


def confirm(address: str) -> str:
    """Log in on the issuer's pages; return the address to which it sends the browser back."""
    with httpx.Client(trust_env=False, timeout=60) as browser:
        for _ in range(10):
            response = browser.get(address)
            assert response.status_code in {302, 303}, response.text
            address = str(httpx.URL(address).join(response.headers["location"]))
            if CALLBACK in address:
                return address
    raise AssertionError(address)


def test_a_person_signs_in_and_is_the_principal_of_the_access_token(
    person: Visitor, service: Service, provider: OpenIdProvider
) -> None:
    address = begin(person, provider, return_to="/console/design")
    asked = {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}
    assert asked["response_type"] == "code"
    assert asked["code_challenge_method"] == "S256"
    assert asked["redirect_uri"] == f"{service.url}{CALLBACK}"
    assert asked["state"] != asked["nonce"]
    done = person.get(confirm(address))
    assert done.status_code == 303, done.text
    assert done.headers["location"] == "/console/design"
    assert "User:people:olga" in person.page("/console/")


def test_the_host_of_a_request_decides_nothing(person: Visitor, provider: OpenIdProvider) -> None:
    form = {"issuer": provider.url}
    csrf = {"Host": "evil.example.com", "Origin": str(person.client.base_url).rstrip("/")}
    response = person.post(AT_ISSUER, form, page=SIGN_IN, headers=csrf)
    assert "evil" not in continued(response)


def test_an_answer_counts_once_and_in_its_own_browser(
    person: Visitor, service: Service, provider: OpenIdProvider
) -> None:
    back = confirm(begin(person, provider))
    with Visitor(service) as other:  # login CSRF: the attacker's answer in the victim's browser
        refused = other.get(back)
        assert refused.status_code == 400
        assert other.session is None
        begin(other, provider)
        assert other.get(back).status_code == 400
        assert other.session is None
    assert person.get(back).status_code == 303
    begun = person.session
    again = person.get(back)
    assert again.status_code == 400
    assert person.session == begun


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"state": "x"}, 400),
        ({"code": "x"}, 401),
        ({"code": ""}, 401),
        ({"error": "access_denied"}, 401),
        ({"iss": "https://evil.example.com"}, 401),
    ],
)
def test_another_answer_makes_no_session(
    person: Visitor, provider: OpenIdProvider, change: dict[str, str], status: int
) -> None:
    back = httpx.URL(confirm(begin(person, provider)))
    response = person.get(CALLBACK, params={**dict(back.params), **change})
    assert response.status_code == status
    assert person.session is None
    assert 'role="alert"' in response.text


def test_only_issuers_of_the_settings_are_asked(person: Visitor) -> None:
    response = person.post(AT_ISSUER, {"issuer": "https://evil.example.com"}, page=SIGN_IN)
    assert response.status_code == 503
    assert "location" not in response.headers
