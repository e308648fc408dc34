"""A real OpenID provider as a process: node-oidc-provider with keys of the test's own."""

from __future__ import annotations

import json
import os
import subprocess
from typing import TYPE_CHECKING, Any, Self

import httpx
from jwt.algorithms import ECAlgorithm

from tests.support.issuer import DISCOVERY
from tests.support.ports import reserved_port
from tests.support.tools import ISSUER_SOURCE
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.issuer import Signer


class OpenIdProvider:
    """A provider that is started with keys and can be started again with others.

    Args:
        directory: The folder of its keys and its log.
        modules: The folder of its modules.
        redirect_uri: The address to which the client ``console`` has people sent back; None for no such client.
    """

    def __init__(self, directory: Path, modules: str, redirect_uri: str | None = None) -> None:
        self._directory = directory
        self._environment = {**os.environ, **({} if redirect_uri is None else {"REDIRECT_URI": redirect_uri})}
        self._modules = modules
        self._port = reserved_port(self)
        self._process: subprocess.Popen[bytes] | None = None
        self.url = f"http://127.0.0.1:{self._port}"

    def start(self, *signers: Signer) -> None:
        """Start with private keys, the first of which signs."""
        keys = self._directory / "keys.json"
        keys.write_text(json.dumps({"keys": [_private(signer) for signer in signers]}))
        with (self._directory / "provider.log").open("ab") as log:
            self._process = subprocess.Popen(
                ["node", str(ISSUER_SOURCE / "provider.mjs"), str(self._port), str(keys), self._modules],
                stdout=log,
                stderr=log,
                env=self._environment,
            )
        wait_for(self._answers, why=(self._directory / "provider.log").read_text)

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(30)
            self._process = None

    def token(self, client: str, audience: str = "confplane") -> str:
        """Return a new access token of a client."""
        answer = httpx.post(
            f"{self.url}/token",
            auth=(client, f"{client}-secret"),
            data={"grant_type": "client_credentials", "resource": f"urn:{audience}", "scope": "api"},
            trust_env=False,
            timeout=60,
        )
        assert answer.status_code == 200, answer.text
        token: str = answer.json()["access_token"]
        return token

    def _answers(self) -> bool:
        try:
            return httpx.get(self.url + DISCOVERY, trust_env=False, timeout=5).status_code == 200
        except httpx.TransportError:
            return False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _private(signer: Signer) -> dict[str, Any]:
    jwk = ECAlgorithm.to_jwk(signer.private, as_dict=True)
    return {**jwk, "kid": signer.kid, "use": "sig", "alg": signer.algorithm}
