"""An issuer of access tokens on loopback: its discovery document, its keys, and its simulated faults."""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Self

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from confplane.identity_settings import OidcSettings
from tests.support.waiting import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Mapping

AUDIENCE = "confplane"
DISCOVERY = "/.well-known/openid-configuration"
JWKS = "/jwks"


class Signer:
    """A key pair and its public form."""

    def __init__(self, kid: str, algorithm: str = "ES256", *, bits: int = 2048) -> None:
        self.kid = kid
        self.algorithm = algorithm
        self.private: Any
        if algorithm[:2] in {"RS", "PS"}:
            self.private = rsa.generate_private_key(public_exponent=65537, key_size=bits)
            public = RSAAlgorithm.to_jwk(self.private.public_key(), as_dict=True)
        elif algorithm == "EdDSA":
            self.private = ed25519.Ed25519PrivateKey.generate()
            public = OKPAlgorithm.to_jwk(self.private.public_key(), as_dict=True)
        else:
            curves = {"ES256": ec.SECP256R1(), "ES384": ec.SECP384R1(), "ES512": ec.SECP521R1()}
            self.private = ec.generate_private_key(curves[algorithm])
            public = ECAlgorithm.to_jwk(self.private.public_key(), as_dict=True)
        public.pop("key_ops", None)
        self.jwk: dict[str, Any] = {**public, "kid": kid, "use": "sig", "alg": algorithm}

    def sign(self, claims: Mapping[str, Any], **header: Any) -> str:
        return jwt.encode(dict(claims), self.private, self.algorithm, headers={"kid": self.kid, **header})


class Issuer:
    """A running issuer; tests change its attributes.

    Attributes:
        signers: The published keys; the first signs.
        documents: Answers by path that replace its own: a status and content.
        requests: The requested paths.
        gate: Answers are held back while it is not set.
        usual: Further claims of all its tokens.
    """

    def __init__(self) -> None:
        self.signers = [Signer("one")]
        self.documents: dict[str, tuple[int, bytes]] = {}
        self.requests: list[str] = []
        self.usual: dict[str, Any] = {}
        self.gate = threading.Event()
        self.gate.set()
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                issuer.requests.append(self.path)
                issuer.gate.wait(PATIENCE_S)
                status, content = issuer._answer(self.path)
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                if status // 100 == 3:
                    self.send_header("Location", content.decode())
                self.end_headers()
                self.wfile.write(content)

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                self.do_GET()

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
                """Log nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.gate.set()
        self._server.shutdown()
        self._server.server_close()

    @property
    def fetches(self) -> int:
        """Number of fetches of its keys."""
        return self.requests.count(JWKS)

    def settings(self, **more: Any) -> OidcSettings:
        """Return settings that trust it."""
        given = {"issuer": self.url, "audiences": [AUDIENCE], "insecure_http": True, "prefix": "test:", **more}
        return OidcSettings.model_validate(given)

    def claims(self, **more: Any) -> dict[str, Any]:
        """Return the claims of a good token; a claim of None is omitted."""
        now = int(time.time())
        given = {"iss": self.url, "aud": AUDIENCE, "sub": "olga", "iat": now, "exp": now + 300}
        given |= self.usual | more
        return {name: value for name, value in given.items() if value is not None}

    def token(self, **more: Any) -> bytes:
        """Return a good token, except for the given claims."""
        return self.signers[0].sign(self.claims(**more)).encode()

    def jwks(self) -> bytes:
        return json.dumps({"keys": [signer.jwk for signer in self.signers]}).encode()

    def _answer(self, path: str) -> tuple[int, bytes]:
        if path in self.documents:
            return self.documents[path]
        if path == DISCOVERY:
            return 200, json.dumps({"issuer": self.url, "jwks_uri": self.url + JWKS}).encode()
        return (200, self.jwks()) if path == JWKS else (404, b"")
