"""CORS: exact origins alone, headers by name, answers to preflights; and the settings that name origins."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from confplane.api.cors import ANSWER_HEADERS, REQUEST_HEADERS, Cors
from confplane.api.specification import HEADERS
from confplane.settings import HttpSettings

PORTAL = b"https://portal.example.com"
CORS = Cors([PORTAL.decode(), "http://localhost:3000"])
VARY = (b"vary", b"Origin")


def preflight(origin: bytes, method: str = "OPTIONS") -> tuple[int, dict[bytes, bytes]] | None:
    found = CORS.preflight(method, {b"origin": origin, b"access-control-request-method": b"PUT"})
    return None if found is None else (found[0], dict(found[1]))


def test_answers_to_pages_of_the_origin_name_it_and_all_answers_vary() -> None:
    assert CORS.headers(PORTAL) == [
        VARY,
        (b"access-control-allow-origin", PORTAL),
        (b"access-control-expose-headers", ", ".join(ANSWER_HEADERS).encode()),
    ]
    assert CORS.headers(None) == [VARY]


@pytest.mark.parametrize(
    "origin",
    [
        b"null",
        b"*",
        b"",
        b"http://portal.example.com",
        b"https://portal.example.com:443",
        b"https://portal.example.com:8443",
        b"https://portal.example.com/",
        b"https://PORTAL.example.com",
        b"https://portal.example.com.evil.com",
        b"https://evil.com/https://portal.example.com",
        b"https://portal.example.com, https://evil.com",
        b"https://\xff",
    ],
)
def test_no_other_origin_is_served(origin: bytes) -> None:
    assert CORS.headers(origin) == [VARY]
    assert preflight(origin) == (403, {})


def test_a_preflight_allows_methods_and_headers_by_name() -> None:
    found = preflight(PORTAL)
    assert found is not None
    status, headers = found
    assert status == 204
    assert headers[b"access-control-allow-methods"] == b"GET, POST, PUT, DELETE"
    allowed = headers[b"access-control-allow-headers"].decode().split(", ")
    assert {"Authorization", "If-Match", "If-None-Match", "Idempotency-Key", "Content-Type", "Last-Event-ID"} <= {
        *allowed
    }
    assert "*" not in allowed
    assert b"access-control-allow-credentials" not in headers


def test_requests_that_are_no_preflights_go_on() -> None:
    assert preflight(PORTAL, "GET") is None
    assert CORS.preflight("OPTIONS", {b"origin": PORTAL}) is None
    assert CORS.preflight("OPTIONS", {b"access-control-request-method": b"PUT"}) is None


def test_the_headers_of_the_specification_may_be_read() -> None:
    assert HEADERS.keys() <= {*ANSWER_HEADERS}
    assert len({*REQUEST_HEADERS}) == len(REQUEST_HEADERS)


@pytest.mark.parametrize(
    "origin", ["https://a.example", "http://localhost:3000", "http://127.0.0.1:8080", "https://[::1]:1"]
)
def test_origins_are_as_browsers_write_them(origin: str) -> None:
    assert HttpSettings(cors_origins=(origin,), public_url=origin).cors_origins == (origin,)


@pytest.mark.parametrize(
    "origin",
    [
        "*",
        "null",
        "",
        "a.example",
        "https://*.example",
        "https://A.example",
        "https://a.example/",
        "https://a.example:443",
        "http://a.example:80",
        "https://user@a.example",
        "ftp://a.example",
        "https://a.example\nx",
        "https://a.example,https://b.example",
    ],
)
def test_other_origins_stop_the_start(origin: str) -> None:
    with pytest.raises(ValidationError, match="is not an origin as browsers write it"):
        HttpSettings.model_validate({"cors_origins": [origin]})
    with pytest.raises(ValidationError, match="is not an origin as browsers write it"):
        HttpSettings.model_validate({"public_url": origin})
