"""The device flow against answers that are made up; tests/identities runs it with a real OpenID provider."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

import httpx
import pytest

from confplane.client.device import DeviceCode, DeviceLogin, Issuer, LoginError

if TYPE_CHECKING:
    from collections.abc import Mapping

SERVICE, ISSUER = "https://confplane.test", "https://issuer.test/realm"
DISCOVERED = {
    "issuer": ISSUER,
    "token_endpoint": f"{ISSUER}/token",
    "device_authorization_endpoint": f"{ISSUER}/device",
    "revocation_endpoint": f"{ISSUER}/revoke",
}
KNOWN = Issuer(ISSUER, f"{ISSUER}/token", f"{ISSUER}/device", f"{ISSUER}/revoke")
GIVEN = {"access_token": "geheim", "token_type": "Bearer", "expires_in": 300}


class Answers:
    """Answers by URL, one after another, and the forms that were sent."""

    def __init__(self, answers: Mapping[str, list[Any]]) -> None:
        self._answers = answers
        self.forms: list[dict[str, list[str]]] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.forms.append(parse_qs(request.content.decode()))
        answer = self._answers[str(request.url)].pop(0)
        if isinstance(answer, httpx.Response):
            return answer
        return httpx.Response(400 if "error" in answer else 200, json=answer)

    @property
    def login(self) -> DeviceLogin:
        return DeviceLogin(transport=httpx.MockTransport(self))


def described(**members: Any) -> DeviceLogin:
    """A service with this description."""
    return Answers({f"{SERVICE}/.well-known/oauth-protected-resource": [members]}).login


def discovered(**members: Any) -> DeviceLogin:
    """An issuer with these members besides the usual ones."""
    return Answers({f"{ISSUER}/.well-known/openid-configuration": [DISCOVERED | members]}).login


def test_the_service_names_its_issuers_and_the_issuer_its_endpoints() -> None:
    found = described(resource=SERVICE, authorization_servers=[ISSUER]).issuers_of(f"{SERVICE}/")
    assert found == (ISSUER,)
    assert discovered().issuer(ISSUER) == KNOWN


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ({"resource": "https://other.test", "authorization_servers": [ISSUER]}, "describes itself as https://other"),
        ({"resource": SERVICE}, "names no issuer"),
        ({"error": "not_found"}, "refused: not_found"),
    ],
)
def test_a_service_that_describes_another_is_not_believed(members: dict[str, Any], said: str) -> None:
    with pytest.raises(LoginError, match=said):
        described(**members).issuers_of(SERVICE)


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ({"issuer": "https://other.test"}, "describes itself as https://other.test"),
        ({"device_authorization_endpoint": None}, "no device flow"),
        ({"token_endpoint": "http://issuer.test/token"}, "token endpoint http://issuer.test/token is not https"),
        ({"device_authorization_endpoint": "http://127.0.0.1.evil.test/"}, "is not https"),
    ],
)
def test_an_issuer_that_is_another_or_not_safe_is_refused(members: dict[str, Any], said: str) -> None:
    with pytest.raises(LoginError, match=said):
        discovered(**members).issuer(ISSUER)


def test_an_issuer_without_tls_is_not_asked() -> None:
    with pytest.raises(LoginError, match="is not https"):
        DeviceLogin().issuer("http://issuer.test")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (httpx.Response(502, text="bad gateway"), "502 Bad Gateway"),
        (httpx.Response(200, text="<html>"), "no JSON"),
        (httpx.Response(200, headers={"Content-Encoding": "gzip"}, stream=httpx.ByteStream(b"{}")), "DecodingError"),
    ],
)
def test_an_answer_that_is_no_json_is_named(answer: httpx.Response, said: str) -> None:
    with pytest.raises(LoginError, match=said):
        Answers({f"{ISSUER}/.well-known/openid-configuration": [answer]}).login.issuer(ISSUER)


NOW = 1_800_000_000.0


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that are waited, none of them really."""
    found: list[float] = []
    monkeypatch.setattr(time, "sleep", found.append)
    monkeypatch.setattr(time, "time", lambda: NOW + sum(found))
    return found


def test_a_login_waits_as_the_issuer_says(pauses: list[float]) -> None:
    begun = {"device_code": "d", "user_code": "AB-CD", "verification_uri": "https://issuer.test/v", "expires_in": 60}
    waits = [{"error": "authorization_pending"}, {"error": "slow_down"}, {"error": "authorization_pending"}]
    answers = Answers({KNOWN.device_endpoint: [begun], KNOWN.token_endpoint: [*waits, GIVEN | {"refresh_token": "r"}]})
    speaker = answers.login
    code = speaker.begin(KNOWN, "people", scope="openid", resource="urn:x")
    tokens = speaker.wait(KNOWN, "people", code, resource="urn:x")
    assert (code.user_code, code.page, code.page_with_code) == ("AB-CD", "https://issuer.test/v", None)
    assert (tokens.access, tokens.refresh) == ("geheim", "r")
    assert pauses == [5, 5, 10, 10]
    assert tokens.expires_at == NOW + 30 + 300
    assert answers.forms[0] == {"client_id": ["people"], "scope": ["openid"], "resource": ["urn:x"]}
    assert answers.forms[-1] == {
        "grant_type": ["urn:ietf:params:oauth:grant-type:device_code"],
        "device_code": ["d"],
        "client_id": ["people"],
        "resource": ["urn:x"],
    }


@pytest.mark.parametrize("members", [{}, {"interval": "often"}, {"expires_in": None}])
def test_an_answer_without_a_whole_device_code_is_refused(members: dict[str, Any]) -> None:
    begun = {"user_code": "AB-CD", "verification_uri": "https://issuer.test/v"}
    code = {"device_code": "d"} if members else {}
    with pytest.raises(LoginError, match="without a device code"):
        Answers({KNOWN.device_endpoint: [begun | code | members]}).login.begin(KNOWN, "p", scope="s", resource=None)


@pytest.mark.parametrize(
    ("answer", "lifetime_s", "said"),
    [
        ({"error": "access_denied"}, 60, "refused on the issuer's page"),
        ({"error": "expired_token"}, 60, "code has expired"),
        ({"error": "invalid_client", "error_description": "no such client"}, 60, r"invalid_client \(no such client\)"),
        ({"access_token": "geheim", "token_type": "mac"}, 60, "without a bearer token"),
        (GIVEN | {"expires_in": "soon"}, 60, "expires_in that is not a number"),
        (GIVEN, -1, "code has expired"),
    ],
)
@pytest.mark.usefixtures("pauses")
def test_the_ends_of_a_login_without_a_token(answer: dict[str, Any], lifetime_s: float, said: str) -> None:
    code = DeviceCode("d", "u", "p", None, NOW + lifetime_s, 5)
    with pytest.raises(LoginError, match=said) as raised:
        Answers({KNOWN.token_endpoint: [answer]}).login.wait(KNOWN, "people", code, resource=None)
    assert "geheim" not in str(raised.value)


def test_a_refresh_token_stays_where_the_issuer_sends_no_other() -> None:
    answers = Answers({KNOWN.token_endpoint: [GIVEN, GIVEN | {"refresh_token": "second"}]})
    for kept in ("first", "second"):
        renewed = answers.login.refresh(KNOWN.token_endpoint, "people", "first", resource=None)
        assert (renewed.access, renewed.refresh) == ("geheim", kept)


def test_a_revocation_needs_no_content() -> None:
    answers = Answers({f"{ISSUER}/revoke": [httpx.Response(200)]})
    answers.login.revoke(f"{ISSUER}/revoke", "people", "geheim")
    assert answers.forms == [{"token": ["geheim"], "client_id": ["people"]}]
