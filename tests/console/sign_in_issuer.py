"""An issuer at which people sign in to the console, on a page of another origin."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import parse_qsl, urlencode, urlsplit

from tests.support.issuer import DISCOVERY, JWKS, Issuer

if TYPE_CHECKING:
    from pathlib import Path

from tests.console.visitor import console_key

CLIENT = "console"


class SignInIssuer(Issuer):
    """An issuer that signs everybody in as olga.

    Args:
        names_itself: Announce that its answers name it (RFC 9207).

    Attributes:
        page: The issuer of the other origin, to which it redirects.
    """

    def __init__(self, *, names_itself: bool = False) -> None:
        super().__init__()
        self.page = Issuer()
        self._names_itself = names_itself
        self._nonce = ""

    def __enter__(self) -> Self:
        self.page.__enter__()
        return super().__enter__()

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self.page.__exit__()

    def settings_of_console(self, directory: Path, port: int) -> dict[str, str]:
        """Return the variables of a service whose console has a client here."""
        issuer = self.settings(console_client_id=CLIENT).model_dump(mode="json", exclude_unset=True)
        return {
            **console_key(directory),
            "CONFPLANE_OIDC": json.dumps([issuer]),
            "CONFPLANE_HTTP__PUBLIC_URL": f"http://127.0.0.1:{port}",
        }

    def _answer(self, path: str) -> tuple[int, bytes]:
        parts = urlsplit(path)
        if parts.path == "/authorize":
            asked = dict(parse_qsl(parts.query))
            self._nonce = asked["nonce"]
            back = {"code": "a-code", "state": asked["state"], "iss": self.url}
            self.page.documents["/login"] = 303, f"{asked['redirect_uri']}?{urlencode(back)}".encode()
            return 303, f"{self.page.url}/login".encode()
        if parts.path == "/token":
            id_token = self.signers[0].sign(self.claims(aud=CLIENT, nonce=self._nonce))
            return 200, json.dumps({"access_token": self.token().decode(), "id_token": id_token}).encode()
        if parts.path == DISCOVERY:
            document: dict[str, Any] = {
                "issuer": self.url,
                "jwks_uri": self.url + JWKS,
                "authorization_endpoint": f"{self.url}/authorize",
                "token_endpoint": f"{self.url}/token",
                "authorization_response_iss_parameter_supported": self._names_itself,
            }
            return 200, json.dumps(document).encode()
        return super()._answer(path)
