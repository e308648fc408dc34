"""Pages of other origins, and clients without a token: a browser's own steps by hand, on a running service."""

from __future__ import annotations

import json
import socket
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from tests.support.service import Service, ServiceInThread
from tests.support.waiting import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support import servers

PORTAL = "https://portal.example.com"
PUBLIC = "https://confplane.example.com"
ALICE = "/v1/clusters/default/client-quotas/user=alice"
ISSUER = {
    "issuer": "http://127.0.0.1:9",
    "jwks_uri": "http://127.0.0.1:9/keys",
    "insecure_http": True,
    "audiences": ["confplane"],
    "prefix": "login:",
}
"""An issuer that does not answer: nothing here needs its keys."""
SETTINGS = {
    "CONFPLANE_HTTP__CORS_ORIGINS": json.dumps([PORTAL]),
    "CONFPLANE_HTTP__PUBLIC_URL": PUBLIC,
    "CONFPLANE_OIDC": json.dumps([ISSUER]),
}

BY_TOKEN = "Authorization, Confplane-On-Behalf-Of, Origin"


@pytest.fixture(scope="module")
def browsed(
    module_chroot: str, module_database: servers.Database, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Service]:
    """A service for the pages of one origin."""
    with ServiceInThread(
        tmp_path_factory.mktemp("browsed"),
        connect=module_chroot,
        dsn=module_database.service_dsn,
        settings=SETTINGS,
    ) as running:
        yield running


def ask(service: Service, method: str, path: str, origin: str | None = PORTAL, **options: Any) -> httpx.Response:
    headers = {} if origin is None else {"Origin": origin}
    headers |= options.pop("headers", {})
    return httpx.request(method, service.url + path, headers=headers, trust_env=False, timeout=60, **options)


@pytest.mark.parametrize(
    ("method", "path", "status", "vary"),
    [
        ("GET", ALICE, 401, BY_TOKEN),
        ("GET", "/nothing", 401, BY_TOKEN),
        ("GET", "/livez", 200, "Origin"),
        ("GET", "/readyz", 200, "Authorization, Origin"),
        ("GET", "/metrics", 200, "Origin"),
    ],
)
def test_every_answer_may_be_read_by_the_origin_and_varies(
    browsed: Service, method: str, path: str, status: int, vary: str
) -> None:
    answer = ask(browsed, method, path)
    assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (status, PORTAL)
    assert answer.headers["vary"] == vary
    for origin in (None, "https://evil.example"):
        other = ask(browsed, method, path, origin)
        assert (other.status_code, other.headers["vary"]) == (status, vary)
        assert "access-control-allow-origin" not in other.headers


def test_preflights_are_answered_without_a_token_and_the_same_for_every_path(browsed: Service) -> None:
    answers = []
    for path in (ALICE, "/nothing/here", "/v1/clusters/none/client-quotas/user=x", "/v1/clusters/default:freeze"):
        answer = ask(browsed, "OPTIONS", path, headers={"Access-Control-Request-Method": "PUT"})
        assert answer.status_code == 204
        assert answer.headers["vary"] == "Origin"
        assert "access-control-allow-credentials" not in answer.headers
        assert "content-length" not in answer.headers
        answers.append({name: value for name, value in answer.headers.items() if name not in {"x-request-id", "date"}})
    assert all(answer == answers[0] for answer in answers)
    assert ask(browsed, "OPTIONS", ALICE).status_code == 401, "no preflight"


def test_refusals_of_the_listener_may_be_read_too(browsed: Service) -> None:
    head = f"GET /livez HTTP/1.1\r\nHost: x\r\nOrigin: {PORTAL}\r\nAccept: */*\r\n".encode()
    for rest, status in ((b"X-Big: " + b"a" * 70_000 + b"\r\n\r\n", b"431"), (b"no header\r\n\r\n", b"400")):
        with socket.create_connection(("127.0.0.1", browsed.port), timeout=PATIENCE_S) as connection:
            connection.sendall(head + rest)
            answer = b""
            while piece := connection.recv(65_536):
                answer += piece
        assert answer.split()[1] == status
        assert f"access-control-allow-origin: {PORTAL}".encode() in answer
        assert b"vary: Origin" in answer
        assert b"x-content-type-options: nosniff" in answer


def test_a_client_without_a_token_learns_who_gives_one(browsed: Service) -> None:
    path = "/.well-known/oauth-protected-resource"
    refused = ask(browsed, "GET", ALICE)
    assert refused.headers["www-authenticate"] == f'Bearer realm="confplane", resource_metadata="{PUBLIC}{path}"'
    assert ask(browsed, "GET", path).json() == {
        "resource": PUBLIC,
        "authorization_servers": ["http://127.0.0.1:9"],
        "bearer_methods_supported": ["header"],
        "resource_name": "Confplane",
        "resource_documentation": f"{PUBLIC}/docs",
    }


def test_without_settings_no_page_is_served_and_nothing_is_described(service: Service) -> None:
    assert ask(service, "OPTIONS", ALICE, headers={"Access-Control-Request-Method": "PUT"}).status_code == 401
    answer = ask(service, "GET", ALICE)
    assert answer.headers["vary"] == BY_TOKEN.removesuffix(", Origin")
    assert "access-control-allow-origin" not in answer.headers
    assert answer.headers["www-authenticate"] == 'Bearer realm="confplane"'
    absent = ask(service, "GET", "/.well-known/oauth-protected-resource")
    assert (absent.status_code, "http.public_url" in absent.json()["detail"]) == (404, True)
