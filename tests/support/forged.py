"""Forged access tokens."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from typing import TYPE_CHECKING, Any

import jwt
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from tests.support.issuer import Signer

if TYPE_CHECKING:
    from tests.support.issuer import Issuer


def part(content: Any) -> bytes:
    """Return one part of a compact token."""
    raw = content if isinstance(content, bytes) else json.dumps(content).encode()
    return base64.urlsafe_b64encode(raw).rstrip(b"=")


def resigned(signer: Signer, header: Any, claims: Any) -> bytes:
    """Return a token with any header and body, and a good signature of both."""
    signing = part(header) + b"." + part(claims)
    signature = jwt.get_algorithm_by_name(signer.algorithm).sign(signing, signer.private)
    return signing + b"." + part(signature)


def forged(issuer: Issuer, other: Issuer) -> dict[str, bytes]:
    """Return hostile tokens by name.

    Args:
        issuer: The issuer that the tokens claim; it has an ES256 key and an RS256 key.
        other: Another issuer that the service trusts.
    """
    own = Signer("one")
    ec, rsa = issuer.signers
    claims = issuer.claims()
    body = part(claims)
    pem = rsa.private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    made = {}
    for algorithm in ("none", "None", "NONE", "nOnE"):
        for kid in (dict[str, str](), {"kid": "one"}):
            made[f"{algorithm} {kid}"] = part({"alg": algorithm, **kid}) + b"." + body + b"."
            made[f"{algorithm} {kid} signed"] = part({"alg": algorithm, **kid}) + b"." + body + b".AAAA"
    for name in ("rsa", "one"):
        for secret in (pem, pem.strip(), issuer.jwks(), b""):
            head = part({"alg": "HS256", "kid": name}) + b"." + body
            made[f"HS256 {name} {secret[:9]!r}"] = head + b"." + part(hmac.digest(secret, head, hashlib.sha256))
    evil = f"{issuer.url}/evil"
    for name, value in {"jku": evil, "x5u": evil, "jwk": own.jwk, "x5c": ["AAAA"], "x5t": "AAAA"}.items():
        made[name] = own.sign(claims, **{name: value}).encode()
    header = {"alg": "ES256", "kid": "one"}
    headers: dict[str, dict[str, Any]] = {
        "crit": {"crit": ["exp"], "exp": 1},
        "crit empty": {"crit": []},
        "crit b64": {"crit": ["b64"], "b64": False},
        "b64": {"b64": False},
        "b64 true": {"b64": True},
        "typ": {"typ": "logout+jwt"},
        "typ number": {"typ": 5},
        "kid number": {"kid": 5},
        "kid long": {"kid": "k" * 257},
        "kid path": {"kid": ["one"]},
        "alg number": {"alg": 5},
        "alg null": {"alg": None},
        "alg of another key": {"alg": "RS256"},
        "alg that is not allowed": {"alg": "ES384"},
    }
    for name, more in headers.items():
        made[name] = resigned(ec, {**header, **more}, claims)
    good = json.dumps(claims)
    for name, content in {
        "duplicate": good[:-1] + ', "sub": "admin"}',
        "not an object": "[]",
        "nan": good[:-1] + ', "x": NaN}',
        "deep": '{"a":' * 3000 + "1" + "}" * 3000,
        "digits": '{"exp": ' + "9" * 5000 + "}",
        "not JSON": "{",
    }.items():
        made[name] = resigned(ec, header, content.encode())
    made["duplicate in the header"] = resigned(ec, b'{"alg": "ES256", "alg": "none", "kid": "one"}', claims)
    made["no UTF-8"] = resigned(ec, header, b"\xff\xfe")
    made["huge"] = resigned(ec, header, {**claims, "x": "x" * 20_000})
    made["another's signature"] = own.sign(claims).encode()
    made["another issuer's key"] = other.signers[0].sign(claims).encode()
    token = issuer.token()
    head, _, signature = token.split(b".")
    made["another body"] = b".".join([head, part({**claims, "sub": "admin"}), signature])
    made["no signature"] = token.rpartition(b".")[0] + b"."
    made["cut"] = token[:-5]
    made["zero signature"] = token.rpartition(b".")[0] + b"." + part(b"\0" * 64)
    return made
