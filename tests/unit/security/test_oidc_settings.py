from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from confplane.identity_settings import OidcSettings, check_sources
from confplane.settings import HttpSettings

PLAIN: dict[str, Any] = {"issuer": "https://id.example.com", "audiences": ["confplane"], "prefix": "acme:"}


def issuer(**more: Any) -> OidcSettings:
    return OidcSettings.model_validate({**PLAIN, **more})


@pytest.mark.parametrize("algorithm", ["none", "None", "HS256", "HS384", "HS512", "ES256K", "RS1", ""])
def test_only_algorithms_with_a_key_pair_can_be_allowed(algorithm: str) -> None:
    with pytest.raises(ValidationError, match="algorithms"):
        issuer(algorithms=[algorithm])


def test_there_is_an_algorithm_and_an_audience() -> None:
    for name in ("algorithms", "audiences"):
        with pytest.raises(ValidationError, match=name):
            issuer(**{name: []})


@pytest.mark.parametrize(
    "host",
    [
        "https://token.actions.githubusercontent.com",
        "https://token.actions.githubusercontent.com/acme",
        "https://GITLAB.com",
    ],
)
def test_a_shared_ci_issuer_needs_claims(host: str) -> None:
    with pytest.raises(ValidationError, match="required_claims is empty"):
        issuer(issuer=host)
    assert issuer(issuer=host, required_claims={"repository_owner": "acme"}).is_shared


def test_required_groups_have_a_claim() -> None:
    assert issuer(prefix="a:", groups_claim="groups", groups_required=True).groups_required
    with pytest.raises(ValidationError, match="groups_required is set without groups_claim"):
        issuer(prefix="a:", groups_required=True)


def test_an_issuer_that_is_said_to_be_shared_needs_claims() -> None:
    with pytest.raises(ValidationError, match="required_claims is empty"):
        issuer(shared=True)
    with pytest.raises(ValidationError, match="checks by itself"):
        issuer(shared=True, required_claims={"aud": "confplane"})
    with pytest.raises(ValidationError, match="without an allowed value"):
        issuer(shared=True, required_claims={"namespace": []})


def test_names_have_a_prefix_or_are_kafkas() -> None:
    with pytest.raises(ValidationError, match="prefix is not set"):
        issuer(prefix="")
    with pytest.raises(ValidationError, match="together with kafka_users"):
        issuer(kafka_users=True)
    assert issuer(prefix="", kafka_users=True).prefix == ""


@pytest.mark.parametrize("prefix", ["a b:", "ä:", "a\n", "*", "x" * 65])
def test_a_prefix_is_short_and_plain(prefix: str) -> None:
    with pytest.raises(ValidationError, match="prefix"):
        issuer(prefix=prefix)


@pytest.mark.parametrize(
    ("url", "fault"),
    [
        ("http://id.example.com", "not an https URL"),
        ("ftp://id.example.com", "not an https URL"),
        ("id.example.com", "not a URL"),
        ("https://", "not a URL"),
        ("https://id.example.com:port", "not a URL"),
        ("https://[::1", "not a URL"),
        ("https://user@id.example.com", "not a URL"),
        ("https://id.example.com/#a", "not a URL"),
        ("https://id.example.com/a b", "not a URL"),
    ],
)
def test_an_issuer_is_reached_by_https(url: str, fault: str) -> None:
    for name in ("issuer", "jwks_uri"):
        with pytest.raises(ValidationError, match=fault):
            issuer(**{name: url})


def test_plain_http_is_for_loopback_and_asked_for() -> None:
    for url in ("http://127.0.0.1:8080", "http://localhost", "http://[::1]:80/a"):
        assert issuer(issuer=url, insecure_http=True).issuer == url
        with pytest.raises(ValidationError, match="not an https URL"):
            issuer(issuer=url)
    with pytest.raises(ValidationError, match="not an https URL"):
        issuer(issuer="http://127.0.0.1.example.com", insecure_http=True)


OTHER = {"issuer": "https://other.example.com"}


@pytest.mark.parametrize(
    ("one", "other", "fault"),
    [
        ({}, {}, "listed twice"),
        ({}, OTHER, "overlap"),
        ({}, {**OTHER, "prefix": "acme:eu:"}, "overlap"),
        ({"prefix": "acme"}, {**OTHER, "prefix": "ac"}, "overlap"),
        ({"prefix": "", "kafka_users": True}, {**OTHER, "prefix": "", "kafka_users": True}, "both have kafka_users"),
    ],
)
def test_two_issuers_never_make_the_same_principal(one: dict[str, Any], other: dict[str, Any], fault: str) -> None:
    for pair in ((issuer(**one), issuer(**other)), (issuer(**other), issuer(**one))):
        with pytest.raises(ValueError, match=fault):
            check_sources(pair, certificates=False)


def test_issuers_with_prefixes_of_their_own_stand_alongside_kafkas() -> None:
    check_sources(
        [
            issuer(),
            issuer(issuer="https://b.c", prefix="acme/"),
            issuer(issuer="https://d.e", prefix="", kafka_users=True),
        ],
        certificates=False,
    )


def test_an_issuer_of_kafkas_users_and_certificates_could_make_the_same() -> None:
    check_sources([issuer()], certificates=True)
    with pytest.raises(ValueError, match="client certificates make Kafka's users too"):
        check_sources([issuer(prefix="", kafka_users=True)], certificates=True)


TLS: dict[str, Any] = {"certificate_file": "tls.crt", "key_file": "tls.key"}


@pytest.mark.parametrize(
    ("http", "accepts"),
    [
        ({}, False),
        ({"tls": TLS}, False),
        ({"tls": {**TLS, "client_certificates": "optional", "client_ca_file": "ca.crt"}}, True),
        ({"client_certificate_header": "X-Client-Cert", "certificate_proxies": ["127.0.0.1"]}, True),
    ],
)
def test_tls_alone_accepts_no_certificates(http: dict[str, Any], *, accepts: bool) -> None:
    assert HttpSettings.model_validate(http).accepts_certificates is accepts
