from __future__ import annotations

import contextlib

import pytest
from cryptography.hazmat.primitives.serialization import Encoding
from hypothesis import given
from hypothesis import strategies as st

from confplane.crypto.certificates import subject_of
from confplane.domain.access.identities import Authentication
from confplane.domain.errors import UnauthenticatedError
from confplane.security.authenticator import Certificates
from confplane.security.mapping import PrincipalMapper, UnmappedError
from tests.support.certificates import CN, NO_RULES, RULES, SUBJECTS, Authority, name

AUTHORITY = Authority()


def der(subject: str) -> bytes:
    return AUTHORITY.issue(SUBJECTS[subject])[0].public_bytes(Encoding.DER)


ALICE = der("CN=alice,OU=Payments,O=Acme,C=DE")


@pytest.mark.parametrize("subject", SUBJECTS)
def test_a_subject_is_written_as_java_does(subject: str) -> None:
    assert subject_of(der(subject)) == subject


@given(st.binary(max_size=200))
def test_other_bytes_are_no_certificate(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        subject_of(content)


@pytest.mark.filterwarnings("ignore:Parsed a serial number:cryptography.utils.CryptographyDeprecationWarning")
@given(st.data())
def test_a_broken_certificate_is_read_or_refused(data: st.DataObject) -> None:
    content = bytearray(ALICE)
    content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(ValueError):
        assert isinstance(subject_of(bytes(content)), str)


@pytest.mark.parametrize(
    ("rules", "subject", "expected"),
    [
        ("DEFAULT", "CN=Duke,OU=x", "CN=Duke,OU=x"),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L", "CN=Duke,OU=ServiceUsers,O=Org", "duke"),
        ("RULE:^cn=(.*?),dc=(.*?)$/$1@$2/U", "cn=duke,dc=com", "DUKE@COM"),
        ("RULE:x/y/,RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U", "cN=duke,O=Sun", "DUKE"),
        ("RULE:^CN=((\\\\, *|\\w)+)(,.*|$)/$1/,DEFAULT", "CN=Tkac\\, Adam,OU=ITZ,DC=cz", "Tkac\\, Adam"),
        ("RULE:^CN=(.*)$/$2-$1/", "CN=a", "$2-a"),
        ("RULE:.*/x/", "CN=a", "xx"),
        ("RULE:a*|.*/<$0>/", "ba", "<>b<a><>"),
        ("RULE:^(.)(.)?$/$2|$1/", "a", "|a"),
    ],
)
def test_the_first_rule_that_matches_decides(rules: str, subject: str, expected: str) -> None:
    assert PrincipalMapper(rules).name(subject) == expected


@pytest.mark.parametrize(
    ("rules", "subject"),
    [
        ("", "CN=a"),
        ("RULE:^CN=b$/x/", "CN=a"),
        ("RULE:^CN=.*$/$1/", "CN=a"),
        ("RULE:^CN=(.*)$/$/", "CN=a"),
        ("RULE:^CN=(.*)$/$2$3-$1/", "CN=a"),
        ("DEFAULT", "CN=a\nb"),
    ],
)
def test_a_subject_without_a_rule_has_no_name(rules: str, subject: str) -> None:
    with pytest.raises(UnmappedError):
        PrincipalMapper(rules).name(subject)


@pytest.mark.parametrize(
    "rules",
    [
        *NO_RULES,
        "RULE:\\p{L}/x/",
        "RULE:[a-z&&[^b]]/x/",
        "RULE:[a[b]]/x/",
        "RULE:[]a]/x/",
        "RULE:(?<n>a)/x/",
        "RULE:(?P<n>a)/x/",
        "RULE:\\Qa\\E/x/",
        "RULE:a\\Z/x/",
        "RULE:(?x)a/x/",
        "RULE:\\N{DIGIT ONE}/x/",
        "RULE:a/b/,\nDEFAULT",
    ],
)
def test_rules_that_kafka_refuses_or_reads_otherwise_are_refused(rules: str) -> None:
    with pytest.raises(ValueError, match=r"rule|pattern"):
        PrincipalMapper(rules)


def test_all_rules_that_are_compared_with_kafka_are_read() -> None:
    for rules in RULES:
        PrincipalMapper(rules)


def test_a_certificate_makes_kafkas_user() -> None:
    found = Certificates(PrincipalMapper("RULE:^CN=(.*?),.*$/$1/,DEFAULT")).identify("CN=alice,O=Acme")
    assert (found.principal, found.kind, found.own_user) == ("User:alice", Authentication.CERTIFICATE, "alice")
    assert not found.is_admin


@pytest.mark.parametrize(
    "subject",
    ["", "CN=admin", "CN=*", "CN=ci:acme", "CN=", "CN=a\tb", "CN=" + "x" * 1024, "CN=" + "\u00e9" * 600, "O=other"],
)
def test_no_certificate_makes_a_reserved_name(subject: str) -> None:
    certificates = Certificates(PrincipalMapper("RULE:^CN=(.*)$/$1/"), ["ci:"])
    with pytest.raises(UnauthenticatedError):
        certificates.identify(subject)


def test_names_of_certificates_are_those_of_tests() -> None:
    assert name((CN, "alice")) == SUBJECTS["CN=alice"]
