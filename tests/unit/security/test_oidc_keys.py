from __future__ import annotations

import json
from typing import Any

import pytest

from confplane.security.oidc.keys import MAX_KEYS, KeySet, is_signed
from tests.support.issuer import Signer

ALL = ("RS256", "PS256", "ES256", "ES384", "ES512", "EdDSA")
EC = Signer("ec")
RSA = Signer("rsa", "RS256")


def keys(*jwks: Any, algorithms: tuple[str, ...] = ALL) -> KeySet:
    return KeySet(json.dumps({"keys": jwks}).encode(), algorithms)


@pytest.mark.parametrize("algorithm", ALL)
def test_each_algorithm_verifies_with_its_key_alone(algorithm: str) -> None:
    signer = Signer("k", algorithm)
    token = signer.sign({"a": 1}).encode()
    found = keys(EC.jwk, RSA.jwk, signer.jwk).find("k", algorithm)
    assert found is not None
    assert is_signed(token, found, algorithm)
    assert not is_signed(token[:-4] + b"AAAA", found, algorithm)
    own = {"EC": EC, "RSA": RSA}.get(signer.jwk["kty"])
    if own is not None and own.algorithm == algorithm:
        other = keys(own.jwk).find(own.kid, algorithm)
        assert other is not None
        assert not is_signed(token, other, algorithm)


def test_a_key_without_an_algorithm_serves_all_of_its_type() -> None:
    jwk = {name: value for name, value in RSA.jwk.items() if name != "alg"}
    for algorithm in ("RS256", "PS256"):
        assert keys(jwk).find("rsa", algorithm) is not None
    assert keys(jwk).find("rsa", "ES256") is None
    assert keys(RSA.jwk).find("rsa", "PS256") is None
    assert keys(jwk, algorithms=("PS256",)).find("rsa", "RS256") is None


@pytest.mark.parametrize(
    "jwk",
    [
        {**EC.jwk, "use": "enc"},
        {**EC.jwk, "key_ops": ["sign"]},
        {**EC.jwk, "key_ops": "verify"},
        {**EC.jwk, "alg": "ES384"},
        {**EC.jwk, "alg": "HS256"},
        {**EC.jwk, "alg": 5},
        {**EC.jwk, "crv": "P-384"},
        {**EC.jwk, "crv": ["P-256"]},
        {**EC.jwk, "kty": "RSA"},
        {**EC.jwk, "kty": None},
        {**EC.jwk, "kid": 7},
        {**EC.jwk, "kid": "k" * 257},
        {**EC.jwk, "x": "AAAA"},
        {**EC.jwk, "x": 5},
        {**EC.jwk, "d": "AAAA"},
        {**RSA.jwk, "n": "AQAB"},
        {**RSA.jwk, "e": ""},
        {"kty": "oct", "kid": "one", "k": "c2VjcmV0", "alg": "HS256"},
        Signer("weak", "RS256", bits=1024).jwk,
        5,
    ],
)
def test_other_keys_are_left_out(jwk: Any) -> None:
    with pytest.raises(ValueError, match="has no public key"):
        keys(jwk)
    assert [key.kid for key in keys(jwk, EC.jwk)] == ["ec"]


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"{}", b'{"keys": {}}', b'{"keys": [], "keys": []}', b"\xff", b"[" * 100_000, b'{"keys": [NaN]}'],
)
def test_what_is_no_jwks_document_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        KeySet(content, ALL)


def test_there_are_not_too_many_keys() -> None:
    assert len(list(keys(*[EC.jwk] * MAX_KEYS))) == MAX_KEYS
    with pytest.raises(ValueError, match="more than"):
        keys(*[EC.jwk] * (MAX_KEYS + 1))


def test_a_token_without_an_id_has_a_key_where_only_one_fits() -> None:
    assert keys(EC.jwk, RSA.jwk).find(None, "ES256") is not None
    assert keys(EC.jwk, Signer("more").jwk).find(None, "ES256") is None
    assert keys(EC.jwk, EC.jwk).find("ec", "ES256") is None


def test_sets_with_the_same_keys_are_equal() -> None:
    assert keys(EC.jwk, RSA.jwk) == keys(RSA.jwk, EC.jwk)
    assert keys(EC.jwk) != keys(RSA.jwk)
    assert len({keys(EC.jwk), keys(EC.jwk)}) == 1
